import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** ShuffleBench: records go to the consumers whose rules they match. BENCH_RULES names the file of the rules. */
class ShuffleWork {
    private static final int OUTPUT_RATE = 10;

    static void build(StreamsBuilder builder, String source, String target) throws IOException {
        Rules rules = new Rules(Files.readAllLines(Path.of(System.getenv("BENCH_RULES"))));
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("consumers"), Serdes.String(), Serdes.ByteArray())
                .withCachingEnabled());
        builder.stream(source, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .flatMap((key, data) -> {
                List<KeyValue<String, byte[]>> copies = new ArrayList<>();
                for (String consumer : rules.matching(data)) copies.add(KeyValue.pair(consumer, data));
                return copies;
            })
            .repartition(Repartitioned.with(Serdes.String(), Serdes.ByteArray()).withName("by-consumer"))
            .process(Consume::new, "consumers")
            .to(target, Produced.with(Serdes.String(), Work.json()));
    }

    /** All numbers at which a range begins or ends, and the consumers of those from there on. */
    private static class Rules {
        private final long[] begins;
        private final String[][] consumers;

        Rules(List<String> lines) {
            List<String[]> rules = new ArrayList<>();
            TreeSet<Long> ends = new TreeSet<>(List.of(0L));
            for (String line : lines) {
                String[] rule = line.split("[, ]");
                rules.add(rule);
                ends.add(Long.parseLong(rule[1]));
                ends.add(Long.parseLong(rule[2]));
            }
            begins = ends.stream().mapToLong(Long::longValue).toArray();
            consumers = new String[begins.length][];
            for (int i = 0; i < begins.length; i++) {
                long begin = begins[i];
                consumers[i] =
                    rules.stream()
                        .filter(rule -> Long.parseLong(rule[1]) <= begin && begin < Long.parseLong(rule[2]))
                        .map(rule -> rule[0])
                        .toArray(String[]::new);
            }
        }

        String[] matching(byte[] data) {
            int at = Arrays.binarySearch(begins, ByteBuffer.wrap(data).getLong() & Long.MAX_VALUE);
            return consumers[at >= 0 ? at : -at - 2];
        }
    }

    /** Counts and adds up, and sends an event for each so many records. */
    private static class Consume implements Processor<String, byte[], String, JsonNode> {
        private ProcessorContext<String, JsonNode> context;
        private KeyValueStore<String, byte[]> states;

        @Override
        public void init(ProcessorContext<String, JsonNode> context) {
            this.context = context;
            states = context.getStateStore("consumers");
        }

        @Override
        public void process(Record<String, byte[]> record) {
            byte[] former = states.get(record.key());
            ByteBuffer state = ByteBuffer.wrap(former == null ? new byte[32] : former);
            long count = state.getLong(0) + 1;
            long total = state.getLong(8) + ByteBuffer.wrap(record.value()).getLong();
            long first = count == 1 ? record.timestamp() : state.getLong(16);
            if (count < OUTPUT_RATE) {
                ByteBuffer next = ByteBuffer.allocate(32).putLong(count).putLong(total).putLong(first).putLong(record.timestamp());
                states.put(record.key(), next.array());
                return;
            }
            states.put(record.key(), new byte[32]);
            JsonNode event =
                Work.JSON.createObjectNode()
                    .put("consumer", record.key())
                    .put("count", count)
                    .put("total", total)
                    .put("first", first)
                    .put("last", record.timestamp());
            context.forward(record.withValue(event));
        }
    }
}
