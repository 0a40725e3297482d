import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** ShuffleBench: records go to the consumers whose rules they match: java Shuffle properties [name=value ...]. */
public class Shuffle {
    static final int OUTPUT_RATE = 10;
    static final int COUNT = 0, TOTAL = 1, FIRST = 2, LAST = 3;

    /** Gives a copy of a record for each consumer whose range it is in. */
    public static class Match extends RichFlatMapFunction<byte[], Tuple2<String, byte[]>> {
        private transient long[] begins;
        private transient String[][] consumers;

        @Override
        public void open(OpenContext context) throws Exception {
            List<String> names = new ArrayList<>();
            List<long[]> ranges = new ArrayList<>();
            TreeSet<Long> ends = new TreeSet<>(List.of(0L));
            for (String line : Files.readAllLines(Path.of(System.getProperty("side.input")))) {
                String[] parts = line.split("[, ]");
                names.add(parts[0]);
                ranges.add(new long[] {Long.parseLong(parts[1]), Long.parseLong(parts[2])});
                ends.add(ranges.get(ranges.size() - 1)[0]);
                ends.add(ranges.get(ranges.size() - 1)[1]);
            }
            begins = ends.stream().mapToLong(Long::longValue).toArray();
            consumers = new String[begins.length][];
            for (int i = 0; i < begins.length; i++) {
                List<String> inside = new ArrayList<>();
                for (int rule = 0; rule < names.size(); rule++) {
                    if (ranges.get(rule)[0] <= begins[i] && begins[i] < ranges.get(rule)[1]) inside.add(names.get(rule));
                }
                consumers[i] = inside.toArray(new String[0]);
            }
        }

        @Override
        public void flatMap(byte[] data, Collector<Tuple2<String, byte[]>> out) {
            int at = Arrays.binarySearch(begins, ByteBuffer.wrap(data).getLong() & Long.MAX_VALUE);
            for (String consumer : consumers[at >= 0 ? at : -at - 2]) out.collect(Tuple2.of(consumer, data));
        }
    }

    /** Counts and adds up, and sends an event for each so many records. */
    public static class Consume extends KeyedProcessFunction<String, Tuple2<String, byte[]>, Tuple2<String, long[]>> {
        private transient ValueState<long[]> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("state", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO));
        }

        @Override
        public void processElement(Tuple2<String, byte[]> record, Context context, Collector<Tuple2<String, long[]>> out)
                throws Exception {
            long[] now = state.value();
            if (now == null) now = new long[4];
            now[COUNT]++;
            now[TOTAL] += ByteBuffer.wrap(record.f1).getLong();
            if (now[COUNT] == 1) now[FIRST] = context.timestamp();
            now[LAST] = context.timestamp();
            boolean complete = now[COUNT] == OUTPUT_RATE;
            state.update(complete ? new long[4] : now);
            if (complete) out.collect(Tuple2.of(record.f0, now));
        }
    }

    /** The bytes as they are. */
    public static class Bytes extends AbstractDeserializationSchema<byte[]> {
        @Override
        public byte[] deserialize(byte[] data) {
            return data;
        }
    }

    /** The key of an event: the consumer. */
    public static class Name implements SerializationSchema<Tuple2<String, long[]>> {
        @Override
        public byte[] serialize(Tuple2<String, long[]> event) {
            return event.f0.getBytes(StandardCharsets.UTF_8);
        }
    }

    /** An event as JSON. */
    public static class Event implements SerializationSchema<Tuple2<String, long[]>> {
        @Override
        public byte[] serialize(Tuple2<String, long[]> event) {
            long[] of = event.f1;
            String value = "{\"consumer\":\"" + event.f0 + "\",\"count\":" + of[COUNT] + ",\"total\":" + of[TOTAL];
            return (value + ",\"first\":" + of[FIRST] + ",\"last\":" + of[LAST] + "}").getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] words) throws Exception {
        Properties given = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(words[0]))) {
            given.load(reader);
        }
        StreamExecutionEnvironment streams = SqlFile.environment(words);
        KafkaSource<byte[]> source =
                KafkaSource.<byte[]>builder()
                        .setBootstrapServers(given.getProperty("bootstrap"))
                        .setTopics(given.getProperty("source"))
                        .setGroupId(given.getProperty("job"))
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setProperty("isolation.level", "read_committed")
                        .setValueOnlyDeserializer(new Bytes())
                        .build();
        KafkaSink<Tuple2<String, long[]>> sink =
                KafkaSink.<Tuple2<String, long[]>>builder()
                        .setBootstrapServers(given.getProperty("bootstrap"))
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(given.getProperty("job"))
                        .setProperty("transaction.timeout.ms", "600000")
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<Tuple2<String, long[]>>builder()
                                        .setTopic(given.getProperty("target"))
                                        .setKeySerializationSchema(new Name())
                                        .setValueSerializationSchema(new Event())
                                        .build())
                        .build();
        streams.fromSource(source, WatermarkStrategy.noWatermarks(), "records")
                .flatMap(new Match())
                .returns(Types.TUPLE(Types.STRING, Types.PRIMITIVE_ARRAY(Types.BYTE)))
                .keyBy(record -> record.f0)
                .process(new Consume())
                .returns(Types.TUPLE(Types.STRING, Types.PRIMITIVE_ARRAY(Types.LONG)))
                .sinkTo(sink);
        streams.execute();
    }
}
