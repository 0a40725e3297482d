import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.Stores;

/** Queries of Nexmark that give the final results of windows, and that of the Yahoo streaming benchmark. */
class WindowedWork {
    private static final Duration SIZE = Duration.ofSeconds(10), EVERY = Duration.ofSeconds(2);
    /**
     * A task gets what tasks of four partitions have read in turn, a fetch each: 1 MB of bids is 2.4 s of event time, 4 MB (tuned) are
     * ten. Without a watermark, only a grace keeps the bids of the last one from being late.
     */
    private static final Duration GRACE = Duration.ofSeconds(30);
    /** The same of persons and auctions, whose event time goes ten times as fast: 1 MB of auctions is 12 s, 4 MB are 47 s. */
    private static final Duration GRACE_OF_PEOPLE = Duration.ofMinutes(2);

    /**
     * EmitStrategy.onWindowClose needs no such buffer. But before its first result it looks into the cache for each minute since 1970
     * (seen in 4.4: TimeOrderedCachingWindowStore), and without a cache each record goes into the changelog.
     */
    private static final Suppressed<Windowed<?>> WHEN_CLOSED =
        Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded());

    static void build(StreamsBuilder builder, String query, String target) {
        switch (query) {
            case "q5" -> hottest(builder, target);
            case "q7" -> highest(builder, target);
            case "q8" -> newSellers(builder, target);
            case "ysb" -> views(builder, target);
            default -> throw new IllegalArgumentException(query);
        }
    }

    record Offer(long auction, long at) implements Rows.Timed {}

    /**
     * q5: the auctions with most bids, in windows of 10 s every 2 s. All counts of a window are made by one task, from a topic of one
     * partition: a task that compares the counts of several others could not know when it has them all.
     */
    private static void hottest(StreamsBuilder builder, String target) {
        Rows.stream(builder, "BID", row -> new Offer(row.number(0), row.number(1)), "auction", "dateTime")
            .map((key, bid) -> KeyValue.pair(bid.auction, Rows.NOTHING))
            .repartition(
                Repartitioned.with(Serdes.Long(), Serdes.ByteArray()).withName("by-auction").withNumberOfPartitions(1))
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(EVERY))
            .count(Materialized.with(Serdes.Long(), Serdes.Long()))
            .suppress(WHEN_CLOSED)
            .toStream()
            .process(new Hottest.Supplier())
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    record Bid(long auction, long bidder, long price, long at, String extra) implements Rows.Timed {}

    private static final Serde<Bid> BID = Rows.bytes(
        (out, row) -> {
            out.writeLong(row.auction);
            out.writeLong(row.bidder);
            out.writeLong(row.price);
            out.writeLong(row.at);
            out.writeUTF(row.extra);
        },
        in -> new Bid(in.readLong(), in.readLong(), in.readLong(), in.readLong(), in.readUTF()));

    /** q7: the highest bids of each 10 s. There is one key, so there is one partition. */
    private static void highest(StreamsBuilder builder, String target) {
        Rows.stream(
                builder, "BID",
                row -> new Bid(row.number(0), row.number(1), row.number(2), row.number(3), row.text(4)),
                "auction", "bidder", "price", "dateTime", "extra")
            .selectKey((key, bid) -> 0L)
            .repartition(Repartitioned.with(Serdes.Long(), BID).withName("all").withNumberOfPartitions(1))
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
            .aggregate(List::of, (key, bid, best) -> best(best, bid), Materialized.with(Serdes.Long(), Rows.list(BID)))
            .suppress(WHEN_CLOSED)
            .toStream()
            .flatMap((key, best) -> {
                List<KeyValue<Long, JsonNode>> rows = new ArrayList<>();
                for (Bid bid : best) {
                    rows.add(KeyValue.pair(bid.auction, Work.JSON.createObjectNode()
                        .put("auction", bid.auction)
                        .put("bidder", bid.bidder)
                        .put("price", bid.price)
                        .put("dateTime", bid.at)
                        .put("extra", bid.extra)
                        .put("window_end", key.window().end())));
                }
                return rows;
            })
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    private static List<Bid> best(List<Bid> best, Bid bid) {
        if (best.isEmpty() || bid.price > best.get(0).price) return List.of(bid);
        if (bid.price < best.get(0).price) return best;
        List<Bid> equal = new ArrayList<>(best);
        equal.add(bid);
        return equal;
    }

    /** A person who came, or a seller, who has no name. */
    record Visit(long id, String name, long at) implements Rows.Timed {}

    /** Who came, and whether somebody of this id sold. */
    record Both(String name, boolean sold) {}

    private static final Serde<Visit> VISIT = Rows.bytes(
        (out, row) -> {
            out.writeLong(row.id);
            out.writeUTF(row.name);
            out.writeLong(row.at);
        },
        in -> new Visit(in.readLong(), in.readUTF(), in.readLong()));
    private static final Serde<Both> BOTH = Rows.bytes(
        (out, row) -> {
            out.writeUTF(row.name);
            out.writeBoolean(row.sold);
        },
        in -> new Both(in.readUTF(), in.readBoolean()));

    /**
     * q8: who has come and sells within the same 10 s. The two topics are merged before the shuffle, so a task reads a partition of
     * each in the order of event time.
     */
    private static void newSellers(StreamsBuilder builder, String target) {
        KStream<byte[], Visit> people = Rows.stream(
            builder, "PERSON", row -> new Visit(row.number(0), row.text(1), row.number(2)), "id", "name", "dateTime");
        KStream<byte[], Visit> sellers = Rows.stream(
            builder, "AUCTION", row -> new Visit(row.number(0), "", row.number(1)), "seller", "dateTime");
        people.merge(sellers)
            .groupBy((key, visit) -> visit.id, Grouped.with("by-id", Serdes.Long(), VISIT))
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE_OF_PEOPLE))
            .aggregate(
                () -> new Both("", false),
                (id, visit, both) ->
                    visit.name.isEmpty() ? new Both(both.name, true) : new Both(visit.name, both.sold),
                Materialized.with(Serdes.Long(), BOTH))
            .suppress(WHEN_CLOSED)
            .toStream()
            .filter((key, both) -> both.sold && !both.name.isEmpty())
            .map((key, both) -> KeyValue.pair(key.key(), (JsonNode) Work.JSON.createObjectNode()
                .put("id", key.key())
                .put("name", both.name)
                .put("starttime", key.window().start())))
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    record Seen(String ad, String event, long at) implements Rows.Timed {}

    /** ysb: views of each campaign in 10 s. The table of ads is in the memory of each program. */
    private static void views(StreamsBuilder builder, String target) {
        GlobalKTable<String, String> campaigns = builder.globalTable(
            Rows.topic("AD"),
            Consumed.with(Serdes.String(), Rows.json(row -> row.text(0), "campaign_id")),
            Materialized.as(Stores.inMemoryKeyValueStore("ads")));
        Rows.stream(
                builder, "ADEVENT",
                row -> new Seen(row.text(0), row.text(1), row.number(2)),
                "ad_id", "event_type", "event_time")
            .filter((key, seen) -> seen.event.equals("view"))
            .join(campaigns, (key, seen) -> seen.ad, (seen, campaign) -> campaign)
            .map((key, campaign) -> KeyValue.pair(campaign, Rows.NOTHING))
            .groupByKey(Grouped.with("by-campaign", Serdes.String(), Serdes.ByteArray()))
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
            .count(Materialized.with(Serdes.String(), Serdes.Long()))
            .suppress(WHEN_CLOSED)
            .toStream()
            .map((key, count) -> KeyValue.pair(key.key(), (JsonNode) Work.JSON.createObjectNode()
                .put("campaign_id", key.key())
                .put("views", count)
                .put("window_end", key.window().end())))
            .to(target, Produced.with(Serdes.String(), Work.json()));
    }
}
