import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** The works with values in Avro, in Confluent's frame. Confluent's own serde is not in Maven's public repository; this one does the same:
 * generic records, a schema read and registered once, readers, decoder and encoder kept. */
class AvroWork {
    static final String REGISTRY = System.getenv("BENCH_REGISTRY");
    static final Schema TOTAL = record("Total", "user:string amount:int p:int i:long city:string pad:string total:long");
    static final Schema COUNTS = record("Counts", "n:long total:long");

    static Schema record(String name, String fields) {
        StringBuilder made = new StringBuilder();
        for (String one : fields.split(" ")) {
            String[] pair = one.split(":");
            made.append(made.length() > 0 ? "," : "").append("{\"name\":\"" + pair[0] + "\",\"type\":\"" + pair[1] + "\"}");
        }
        return new Schema.Parser().parse(
            "{\"type\":\"record\",\"name\":\"" + name + "\",\"namespace\":\"bench\",\"fields\":[" + made + "]}");
    }

    static Map<?, ?> asked(String path, Object body) throws Exception {
        ObjectMapper json = new ObjectMapper();
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(REGISTRY + path)).header("Content-Type", "application/json");
        if (body != null) request.POST(HttpRequest.BodyPublishers.ofString(json.writeValueAsString(body)));
        String answer = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString()).body();
        return json.readValue(answer, Map.class);
    }

    static class Writes implements Serializer<GenericRecord> {
        final Map<String, Integer> ids = new HashMap<>(); // by topic: its subject has the schema
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        GenericDatumWriter<GenericRecord> writer;
        BinaryEncoder encoder;

        public byte[] serialize(String topic, GenericRecord value) {
            if (value == null) return null;
            try {
                Integer id = ids.get(topic);
                if (id == null) {
                    Map<String, String> body = Map.of("schema", value.getSchema().toString());
                    ids.put(topic, id = (Integer) asked("/subjects/" + topic + "-value/versions", body).get("id"));
                    writer = new GenericDatumWriter<>(value.getSchema());
                }
                out.reset();
                out.write(ByteBuffer.allocate(5).put((byte) 0).putInt(id).array());
                encoder = EncoderFactory.get().binaryEncoder(out, encoder);
                writer.write(value, encoder);
                encoder.flush();
                return out.toByteArray();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }
    }

    static class Reads implements Deserializer<GenericRecord> {
        final Map<Integer, GenericDatumReader<GenericRecord>> readers = new HashMap<>();
        BinaryDecoder decoder;

        public GenericRecord deserialize(String topic, byte[] data) {
            if (data == null) return null;
            try {
                if (data[0] != 0) throw new IllegalArgumentException("no id in front of the value");
                int id = ByteBuffer.wrap(data).getInt(1);
                GenericDatumReader<GenericRecord> reader = readers.get(id);
                if (reader == null) {
                    Schema schema = new Schema.Parser().parse((String) asked("/schemas/ids/" + id, null).get("schema"));
                    readers.put(id, reader = new GenericDatumReader<>(schema));
                }
                decoder = DecoderFactory.get().binaryDecoder(data, 5, data.length - 5, decoder);
                return reader.read(null, decoder);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }
    }

    static Serde<GenericRecord> avro() {
        return Serdes.serdeFrom(new Writes(), new Reads());
    }

    static int amount(GenericRecord value) {
        return (Integer) value.get("amount");
    }

    static GenericRecord doubled(GenericRecord value) {
        GenericRecord made = new GenericData.Record(TOTAL);
        for (Schema.Field field : value.getSchema().getFields()) made.put(field.pos(), value.get(field.pos()));
        made.put("total", amount(value) * 2L);
        return made;
    }

    static GenericRecord counts(long[] sum) {
        GenericRecord made = new GenericData.Record(COUNTS);
        made.put(0, sum[0]);
        made.put(1, sum[1]);
        return made;
    }

    static void build(StreamsBuilder builder, String work, String source, String target) {
        KStream<byte[], GenericRecord> input = builder.stream(source, Consumed.with(Serdes.ByteArray(), avro()));
        switch (work) {
            case "A":
                input.filter((key, value) -> amount(value) >= 10)
                    .mapValues(AvroWork::doubled)
                    .to(target, Produced.with(Serdes.ByteArray(), avro()));
                break;
            case "B":
                input.groupBy((key, value) -> value.get("user").toString(), Grouped.with("by-user", Serdes.String(), avro()))
                    .aggregate(
                        () -> new long[2],
                        (key, value, sum) -> new long[] {sum[0] + 1, sum[1] + amount(value)},
                        Materialized.<String, long[], KeyValueStore<Bytes, byte[]>>as("counts")
                            .withKeySerde(Serdes.String())
                            .withValueSerde(Work.pair()))
                    .toStream()
                    .mapValues(AvroWork::counts)
                    .to(target, Produced.with(Serdes.String(), avro()));
                break;
            default:
                input.foreach((key, value) -> {
                    Work.total += amount(value);
                    if (++Work.records % 10000 == 0) Work.mark();
                });
        }
    }
}
