import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** How rows come in as JSON, of which only the fields are read that a query uses, and go through shuffles and stores as bytes. */
class Rows {
    static final byte[] NOTHING = {};
    private static final JsonFactory JSON = new JsonFactory();

    /** A row that has an event time. */
    interface Timed {
        long at();
    }

    /** Some fields of a JSON object that has them all. Its other fields are skipped, and what follows the last one is not looked at. */
    static class Fields {
        private final List<String> names;
        private final long[] numbers;
        private final String[] texts;

        Fields(String... names) {
            this.names = List.of(names);
            numbers = new long[names.length];
            texts = new String[names.length];
        }

        long number(int place) {
            return numbers[place];
        }

        String text(int place) {
            return texts[place];
        }

        private Fields of(byte[] data) throws IOException {
            int left = names.size();
            try (JsonParser parser = JSON.createParser(data)) {
                parser.nextToken();
                for (String name = parser.nextFieldName(); name != null && left > 0; name = parser.nextFieldName()) {
                    boolean text = parser.nextToken() == JsonToken.VALUE_STRING;
                    int place = names.indexOf(name);
                    if (place < 0) continue;
                    if (text) texts[place] = parser.getText();
                    else numbers[place] = parser.getLongValue();
                    left--;
                }
            }
            return this;
        }
    }

    /** How rows are made of the fields of flat JSON objects. */
    static <T> Serde<T> json(Function<Fields, T> make, String... names) {
        Fields fields = new Fields(names);
        Deserializer<T> in = (topic, data) -> {
            try {
                return data == null ? null : make.apply(fields.of(data));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        return Serdes.serdeFrom((topic, row) -> null, in);
    }

    /** The rows of a topic, at their event times. BENCH_TOPIC_kind names the topic. */
    static <T extends Timed> KStream<byte[], T> stream(
        StreamsBuilder builder, String kind, Function<Fields, T> make, String... names) {
        return builder.stream(
            topic(kind),
            Consumed.with(Serdes.ByteArray(), json(make, names))
                .withTimestampExtractor((record, time) -> ((Timed) record.value()).at()));
    }

    static String topic(String kind) {
        return System.getenv("BENCH_TOPIC_" + kind);
    }

    interface Write<T> {
        void of(DataOutputStream out, T row) throws IOException;
    }

    interface Read<T> {
        T of(DataInputStream in) throws IOException;
    }

    /** How rows go through shuffles and stores. */
    static <T> Serde<T> bytes(Write<T> write, Read<T> read) {
        return Serdes.serdeFrom(
            (topic, row) -> {
                if (row == null) return null;
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                try {
                    write.of(new DataOutputStream(bytes), row);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
                return bytes.toByteArray();
            },
            (topic, data) -> {
                try {
                    return data == null ? null : read.of(new DataInputStream(new ByteArrayInputStream(data)));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static <T> Serde<List<T>> list(Serde<T> one) {
        return Serdes.ListSerde(ArrayList.class, one);
    }

    /** A store of a table whose keys are numbers. */
    static <V> Materialized<Long, V, KeyValueStore<Bytes, byte[]>> store(String name, Serde<V> values) {
        return Materialized.<Long, V, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(Serdes.Long())
            .withValueSerde(values);
    }
}
