import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The works on Kafka Streams, one thread: java Work WORK bootstrap input output application-id state-dir [name=value ...].
 * WORK is A, B, C, J, K, M, W, a query of Nexmark (q0 to q8), ysb or shuffle. Queries that need more than one topic, or event time,
 * find their topics in BENCH_TOPIC_kind.
 */
public class Work {
    static final ObjectMapper JSON = new ObjectMapper();
    static final boolean NESTED = "nested".equals(System.getenv("BENCH_SHAPE"));
    static final boolean AVRO = "avro".equals(System.getenv("BENCH_SHAPE"));
    static final boolean LEAVES = "1".equals(System.getenv("BENCH_LEAVES")); // the group, when it is told to end
    static final String WORKER = System.getenv("BENCH_WORKER");
    static final String[] USED = {"user", "amount", "p", "i"};
    static long records = 0;
    static long total = 0;

    static Serde<JsonNode> json() {
        Serializer<JsonNode> out = (topic, value) -> {
            try {
                return value == null ? null : JSON.writeValueAsBytes(value);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        Deserializer<JsonNode> in = (topic, data) -> {
            try {
                return data == null ? null : JSON.readTree(data);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        return Serdes.serdeFrom(out, in);
    }

    static Serde<long[]> pair() {
        Serializer<long[]> out = (topic, v) -> v == null ? null : ByteBuffer.allocate(16).putLong(v[0]).putLong(v[1]).array();
        Deserializer<long[]> in = (topic, data) -> {
            if (data == null) return null;
            ByteBuffer buffer = ByteBuffer.wrap(data);
            return new long[] {buffer.getLong(), buffer.getLong()};
        };
        return Serdes.serdeFrom(out, in);
    }

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("application.id", words[4]);
        settings.put("state.dir", words[5]);
        settings.put("num.stream.threads", "1");
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 6; i < words.length; i++) {
            int at = words[i].indexOf('=');
            settings.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<byte[], JsonNode> consumed = Consumed.with(Serdes.ByteArray(), json());
        if (words[0].equals("W")) {
            consumed = consumed.withTimestampExtractor((record, time) -> ((JsonNode) record.value()).get("ts").asLong());
        }
        boolean query = words[0].length() > 1;
        if (AVRO) AvroWork.build(builder, words[0], words[2], words[3]);
        switch (words[0]) {
            case "shuffle" -> ShuffleWork.build(builder, words[2], words[3]);
            case "q0", "q1", "q2" -> NexmarkWork.build(builder, words[0], words[2], words[3]);
            case "q3", "q4", "q6" -> JoinedWork.build(builder, words[0], words[3]);
            case "q5", "q7", "q8", "ysb" -> WindowedWork.build(builder, words[0], words[3]);
            default -> {}
        }
        KStream<byte[], JsonNode> input =
            AVRO || query || "JKM".contains(words[0]) ? null : builder.stream(words[2], consumed);
        switch (AVRO || query ? "" : words[0]) {
            case "":
                break;
            case "J":
                Consumed<String, JsonNode> timed = Consumed.with(Serdes.String(), json())
                    .withTimestampExtractor((record, time) -> ((JsonNode) record.value()).get("ts").asLong());
                KStream<String, JsonNode> orders = builder.stream(words[2], timed);
                KStream<String, JsonNode> payments = builder.stream(words[2] + "-payments", timed);
                Duration wait = Duration.ofMillis(Long.parseLong(System.getenv("BENCH_GRACE_MS")));
                orders.join(
                        payments,
                        (order, payment) -> (JsonNode) JSON.createObjectNode()
                            .put("id", order.get("id").asText())
                            .put("amount", order.get("amount").asLong())
                            .put("paid", payment.get("paid").asLong()),
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), wait),
                        StreamJoined.with(Serdes.String(), json(), json()))
                    .to(words[3], Produced.with(Serdes.String(), json()));
                break;
            case "A":
                input.filter((key, value) -> value.get("amount").asInt() >= 10)
                    .mapValues(value -> (JsonNode) result(value).put("total", value.get("amount").asInt() * 2))
                    .to(words[3], Produced.with(Serdes.ByteArray(), json()));
                break;
            case "B":
                input.groupBy((key, value) -> value.get("user").asText(), Grouped.with("by-user", Serdes.String(), json()))
                    .aggregate(
                        () -> new long[2],
                        (key, value, sum) -> new long[] {sum[0] + 1, sum[1] + value.get("amount").asLong()},
                        Materialized.<String, long[], KeyValueStore<Bytes, byte[]>>as("counts")
                            .withKeySerde(Serdes.String())
                            .withValueSerde(pair()))
                    .toStream()
                    .mapValues(sum -> (JsonNode) JSON.createObjectNode().put("n", sum[0]).put("total", sum[1]))
                    .to(words[3], Produced.with(Serdes.String(), json()));
                break;
            case "M":
                builder.stream(words[2], Consumed.with(Serdes.ByteArray(), json()))
                    .mapValues(value -> signed(value.get("p").asInt(), value.get("i").asLong()))
                    .to(words[3], Produced.with(Serdes.ByteArray(), json()));
                break;
            case "K":
                builder.stream(words[2], Consumed.with(Serdes.String(), json()))
                    .groupByKey(Grouped.with(Serdes.String(), json()))
                    .aggregate(
                        () -> new long[2],
                        (key, value, sum) -> new long[] {sum[0] + 1, value.get("p").asLong()},
                        Materialized.<String, long[], KeyValueStore<Bytes, byte[]>>as("counts")
                            .withKeySerde(Serdes.String())
                            .withValueSerde(pair()))
                    .toStream()
                    .mapValues(sum -> signed(sum[1], sum[0]))
                    .to(words[3], Produced.with(Serdes.String(), json()));
                break;
            case "W":
                Duration grace = Duration.ofMillis(Long.parseLong(System.getenv("BENCH_GRACE_MS")));
                input.groupBy((key, value) -> value.get("user").asText(), Grouped.with("by-user", Serdes.String(), json()))
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), grace))
                    .aggregate(
                        () -> new long[2],
                        (key, value, sum) -> new long[] {sum[0] + 1, sum[1] + value.get("amount").asLong()},
                        Materialized.<String, long[], WindowStore<Bytes, byte[]>>as("windows")
                            .withKeySerde(Serdes.String())
                            .withValueSerde(pair()))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                    .toStream()
                    .map((key, sum) -> KeyValue.pair(key.key(), (JsonNode) JSON.createObjectNode()
                        .put("n", sum[0]).put("total", sum[1])
                        .put("window_start", key.window().start()).put("window_end", key.window().end())))
                    .to(words[3], Produced.with(Serdes.String(), json()));
                break;
            default:
                input.foreach((key, value) -> {
                    total += value.get("amount").asLong();
                    if (++records % 10000 == 0) mark();
                });
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            CloseOptions how = CloseOptions.timeout(Duration.ofSeconds(10));
            if (LEAVES) how = how.withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
            streams.close(how);
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }

    /** What A writes: the record or, of a nested one, the fields that are used. */
    static ObjectNode result(JsonNode value) {
        if (!NESTED) return (ObjectNode) value;
        ObjectNode made = JSON.createObjectNode();
        for (String name : USED) made.set(name, value.get(name));
        return made;
    }

    /** What M and K write: who has written it, of which partition. */
    static JsonNode signed(long partition, long number) {
        return JSON.createObjectNode().put("p", partition).put("n", number).put("w", WORKER);
    }

    static void mark() {
        System.out.println("MARK " + System.currentTimeMillis() / 1000.0 + " " + records + " " + total);
        System.out.flush();
    }
}
