import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** Runs the statements of a file on a cluster in this JVM, until the last INSERT ends: java SqlFile file [name=value ...]. */
public class SqlFile {
    /** How often a letter is in a text. */
    public static class CountChar extends ScalarFunction {
        public long eval(String text, String letter) {
            long found = 0;
            char wanted = letter.charAt(0);
            for (int i = 0; i < text.length(); i++) {
                if (text.charAt(i) == wanted) found++;
            }
            return found;
        }
    }

    /** The value of a number or of a text in the side input, or null: no source of Flink 2 looks rows of a file up. */
    public static class SideInput extends ScalarFunction {
        private transient Map<Object, String> rows;

        @Override
        public void open(FunctionContext context) throws Exception {
            rows = new HashMap<>();
            for (String line : Files.readAllLines(Path.of(System.getProperty("side.input")))) {
                int at = line.indexOf(',');
                String key = line.substring(0, at);
                boolean number = key.chars().allMatch(Character::isDigit);
                rows.put(number ? (Object) Long.parseLong(key) : key, line.substring(at + 1));
            }
        }

        public String eval(Long key) {
            return key == null ? null : rows.get(key);
        }

        public String eval(String key) {
            return key == null ? null : rows.get(key);
        }
    }

    /** A cluster in this JVM with the settings behind the first word. */
    static StreamExecutionEnvironment environment(String[] words) {
        Configuration settings = new Configuration();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            settings.setString(words[i].substring(0, at), words[i].substring(at + 1));
        }
        int parallelism = Integer.parseInt(settings.toMap().getOrDefault("parallelism.default", "1"));
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    }

    public static void main(String[] words) throws Exception {
        StreamExecutionEnvironment streams = environment(words);
        StreamTableEnvironment tables = StreamTableEnvironment.create(streams);
        tables.createTemporarySystemFunction("count_char", CountChar.class);
        tables.createTemporarySystemFunction("side_input", SideInput.class);
        List<TableResult> inserts = new ArrayList<>();
        for (String statement : Files.readString(Path.of(words[0])).replaceAll("(?m)^\\s*--.*$", "").split(";")) {
            if (statement.isBlank()) continue;
            TableResult result = tables.executeSql(statement);
            if (result.getJobClient().isPresent()) inserts.add(result);
        }
        for (TableResult insert : inserts) insert.await();
    }
}
