import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** Queries of Nexmark that look at one bid at a time. */
class NexmarkWork {
    private static final String[] ROW = {"auction", "bidder", "price", "dateTime", "extra"};

    static void build(StreamsBuilder builder, String query, String source, String target) {
        KStream<byte[], JsonNode> bids = builder.stream(source, Consumed.with(Serdes.ByteArray(), Work.json()));
        KStream<byte[], JsonNode> results;
        switch (query) {
            case "q0":
                results = bids.mapValues(bid -> (JsonNode) of(bid, ROW));
                break;
            case "q1":
                results = bids.mapValues(bid -> (JsonNode) of(bid, ROW).put("price", bid.get("price").asLong() * 0.908));
                break;
            case "q2":
                results =
                    bids.filter((key, bid) -> bid.get("auction").asLong() % 123 == 0)
                        .mapValues(bid -> (JsonNode) of(bid, "auction", "price"));
                break;
            default:
                throw new IllegalArgumentException(query);
        }
        results.to(target, Produced.with(Serdes.ByteArray(), Work.json()));
    }

    /** Some fields of a bid. */
    private static ObjectNode of(JsonNode bid, String... names) {
        ObjectNode row = Work.JSON.createObjectNode();
        for (String name : names) row.set(name, bid.get(name));
        return row;
    }
}
