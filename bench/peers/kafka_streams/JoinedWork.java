import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/** Queries of Nexmark that join. The distances are those of headgate's: no pair of these data is further apart. */
class JoinedWork {
    /**
     * A pair is given at once, so the grace is only for how long both sides are kept. The topic that has fewer records is read
     * ahead of the other one, at most to its end, which is ten minutes of event time away in the longest phase.
     */
    private static final Duration GRACE = Duration.ofMinutes(15);
    private static final Duration NEAR = Duration.ofSeconds(10), FAR = Duration.ofMinutes(1);
    private static final Set<String> STATES = Set.of("OR", "ID", "CA");
    private static final int LAST = 11;

    static void build(StreamsBuilder builder, String query, String target) {
        switch (query) {
            case "q3" -> sellers(builder, target);
            case "q4" -> means(won(builder, "category"), target);
            case "q6" -> lastMeans(won(builder, "seller"), target);
            default -> throw new IllegalArgumentException(query);
        }
    }

    record Person(long id, String name, String city, String state, long at) implements Rows.Timed {
        static final Serde<Person> SERDE = Rows.bytes(
            (out, row) -> {
                out.writeLong(row.id);
                out.writeUTF(row.name);
                out.writeUTF(row.city);
                out.writeUTF(row.state);
                out.writeLong(row.at);
            },
            in -> new Person(in.readLong(), in.readUTF(), in.readUTF(), in.readUTF(), in.readLong()));
    }

    record Offered(long id, long seller, long category, long at) implements Rows.Timed {
        static final Serde<Offered> SERDE = Rows.bytes(
            (out, row) -> {
                out.writeLong(row.id);
                out.writeLong(row.seller);
                out.writeLong(row.category);
                out.writeLong(row.at);
            },
            in -> new Offered(in.readLong(), in.readLong(), in.readLong(), in.readLong()));
    }

    /** q3: who sells in some states, of one category. */
    private static void sellers(StreamsBuilder builder, String target) {
        KStream<Long, Person> people = Rows.stream(
                builder, "PERSON",
                row -> new Person(row.number(0), row.text(1), row.text(2), row.text(3), row.number(4)),
                "id", "name", "city", "state", "dateTime")
            .filter((key, person) -> STATES.contains(person.state))
            .selectKey((key, person) -> person.id);
        KStream<Long, Offered> auctions = Rows.stream(
                builder, "AUCTION",
                row -> new Offered(row.number(0), row.number(1), row.number(2), row.number(3)),
                "id", "seller", "category", "dateTime")
            .filter((key, auction) -> auction.category == 10)
            .selectKey((key, auction) -> auction.seller);
        auctions.join(
                people,
                (auction, person) -> (JsonNode) Work.JSON.createObjectNode()
                    .put("name", person.name)
                    .put("city", person.city)
                    .put("state", person.state)
                    .put("id", auction.id),
                JoinWindows.ofTimeDifferenceAndGrace(FAR, GRACE),
                StreamJoined.with(Serdes.Long(), Offered.SERDE, Person.SERDE).withName("sales"))
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    /** An auction, and its category or seller. */
    record Auction(long id, long of, long expires, long at) implements Rows.Timed {
        static final Serde<Auction> SERDE = Rows.bytes(
            (out, row) -> {
                out.writeLong(row.id);
                out.writeLong(row.of);
                out.writeLong(row.expires);
                out.writeLong(row.at);
            },
            in -> new Auction(in.readLong(), in.readLong(), in.readLong(), in.readLong()));
    }

    record Bid(long auction, long price, long at) implements Rows.Timed {
        static final Serde<Bid> SERDE = Rows.bytes(
            (out, row) -> {
                out.writeLong(row.auction);
                out.writeLong(row.price);
                out.writeLong(row.at);
            },
            in -> new Bid(in.readLong(), in.readLong(), in.readLong()));
    }

    /** A valid bid, and the category or seller of its auction. */
    record Won(long of, long price, long at) {
        static final Serde<Won> SERDE = Rows.bytes(
            (out, row) -> {
                out.writeLong(row.of);
                out.writeLong(row.price);
                out.writeLong(row.at);
            },
            in -> new Won(in.readLong(), in.readLong(), in.readLong()));

        /** The higher one; of equal ones the first. */
        static Won better(Won one, Won other) {
            return other.price > one.price || other.price == one.price && other.at < one.at ? other : one;
        }
    }

    /** The best bid so far of each auction, of those that came before it expired. */
    private static KTable<Long, Won> won(StreamsBuilder builder, String of) {
        KStream<Long, Auction> auctions = Rows.stream(
                builder, "AUCTION",
                row -> new Auction(row.number(0), row.number(1), row.number(2), row.number(3)),
                "id", of, "expires", "dateTime")
            .selectKey((key, auction) -> auction.id);
        KStream<Long, Bid> bids = Rows.stream(
                builder, "BID",
                row -> new Bid(row.number(0), row.number(1), row.number(2)),
                "auction", "price", "dateTime")
            .selectKey((key, bid) -> bid.auction);
        return auctions.join(
                bids,
                (auction, bid) -> bid.at <= auction.expires ? new Won(auction.of, bid.price, bid.at) : null,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, GRACE).after(NEAR),
                StreamJoined.with(Serdes.Long(), Auction.SERDE, Bid.SERDE).withName("offers"))
            .filter((auction, bid) -> bid != null)
            .groupByKey(Grouped.with(Serdes.Long(), Won.SERDE))
            .reduce(Won::better, Rows.store("won", Won.SERDE));
    }

    /** q4: the average closing price of each category. A better bid of an auction takes the former one back. */
    private static void means(KTable<Long, Won> won, String target) {
        won.groupBy((auction, bid) -> KeyValue.pair(bid.of, bid), Grouped.with("by-category", Serdes.Long(), Won.SERDE))
            .aggregate(
                () -> new long[2],
                (category, bid, sum) -> new long[] {sum[0] + 1, sum[1] + bid.price},
                (category, bid, sum) -> new long[] {sum[0] - 1, sum[1] - bid.price},
                Rows.store("means", Work.pair()))
            .toStream()
            .mapValues((category, sum) ->
                (JsonNode) Work.JSON.createObjectNode().put("category", category).put("final", sum[1] / sum[0]))
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    /** q6: the average of the last eleven closing prices of each seller. All are kept, because a better bid takes one back. */
    private static void lastMeans(KTable<Long, Won> won, String target) {
        won.groupBy((auction, bid) -> KeyValue.pair(bid.of, bid), Grouped.with("by-seller", Serdes.Long(), Won.SERDE))
            .aggregate(
                ArrayList::new,
                (seller, bid, all) -> {
                    all.add(bid);
                    return all;
                },
                (seller, bid, all) -> {
                    all.remove(bid);
                    return all;
                },
                Rows.store("last", Rows.list(Won.SERDE)))
            .toStream()
            .mapValues((seller, all) ->
                (JsonNode) Work.JSON.createObjectNode().put("seller", seller).put("avg_price", meanOfLast(all)))
            .to(target, Produced.with(Serdes.Long(), Work.json()));
    }

    private static double meanOfLast(List<Won> all) {
        return all.stream()
            .sorted(Comparator.comparingLong(Won::at).reversed().thenComparingLong(Won::price))
            .limit(LAST)
            .mapToLong(Won::price)
            .average()
            .orElseThrow();
    }
}
