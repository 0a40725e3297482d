import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The greatest of the final counts of each window, and whose they are. The counts of all windows that have closed come while one record
 * is processed, so between two records the store has seen all counts of each window that it holds.
 */
class Hottest implements Processor<Windowed<Long>, Long, Long, JsonNode> {
    private static final String STORE = "hottest";
    private static final Duration OFTEN = Duration.ofMillis(100);
    private ProcessorContext<Long, JsonNode> context;
    private KeyValueStore<Long, Most> windows;

    record Most(long count, List<Long> auctions) {
        static final Serde<Most> SERDE = Rows.bytes(
            (out, most) -> {
                out.writeLong(most.count);
                out.writeInt(most.auctions.size());
                for (long auction : most.auctions) out.writeLong(auction);
            },
            in -> {
                Most most = new Most(in.readLong(), new ArrayList<>());
                for (int left = in.readInt(); left > 0; left--) most.auctions.add(in.readLong());
                return most;
            });
    }

    static class Supplier implements ProcessorSupplier<Windowed<Long>, Long, Long, JsonNode> {
        @Override
        public Processor<Windowed<Long>, Long, Long, JsonNode> get() {
            return new Hottest();
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.Long(), Most.SERDE)
                .withCachingEnabled());
        }
    }

    @Override
    public void init(ProcessorContext<Long, JsonNode> context) {
        this.context = context;
        windows = context.getStateStore(STORE);
        context.schedule(OFTEN, PunctuationType.WALL_CLOCK_TIME, this::give);
    }

    @Override
    public void process(Record<Windowed<Long>, Long> record) {
        long end = record.key().window().end();
        Most most = windows.get(end);
        if (most == null || record.value() > most.count) most = new Most(record.value(), new ArrayList<>());
        else if (record.value() < most.count) return;
        most.auctions.add(record.key().key());
        windows.put(end, most);
    }

    private void give(long now) {
        List<Long> ends = new ArrayList<>();
        try (KeyValueIterator<Long, Most> all = windows.all()) {
            while (all.hasNext()) {
                KeyValue<Long, Most> window = all.next();
                ends.add(window.key);
                for (long auction : window.value.auctions) {
                    JsonNode row = Work.JSON.createObjectNode()
                        .put("auction", auction)
                        .put("num", window.value.count)
                        .put("window_end", window.key);
                    context.forward(new Record<>(auction, row, window.key));
                }
            }
        }
        ends.forEach(windows::delete);
    }
}
