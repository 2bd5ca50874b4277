// A member of a consumer group: Kafka's own Java high-level consumer, of the version whose jars are on the class path.
//
// Arguments: PROPERTIES_FILE  topics|whitelist|blacklist  SPEC  STREAMS  PAUSE_MS
//   topics: SPEC is "name=streams,name=streams"; whitelist, blacklist: SPEC is the filter, STREAMS their number.
//   PAUSE_MS: how long each message is "worked on" before the next one is asked for.
// Standard output, one line each, fields separated by tabs, times in nanoseconds of System.nanoTime():
//   R time                                          streams were created
//   D time topic partition offset stream value key  a message was delivered; both in Base64, "-" for none
//   E time text                                     a stream ended by an exception
//   S time                                          shutdown() returned
// Shuts down in order when its standard input ends.
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

public class Member {
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    static void say(String line) {
        byte[] bytes = (line + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    static String text(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }

    static void read(KafkaStream<byte[], byte[]> stream, int number, long pauseMs) {
        try {
            ConsumerIterator<byte[], byte[]> messages = stream.iterator();
            while (messages.hasNext()) {
                MessageAndMetadata<byte[], byte[]> m = messages.next();
                long now = System.nanoTime();
                String data = text(m.message()) + "\t" + text(m.key());
                say("D\t" + now + "\t" + m.topic() + "\t" + m.partition() + "\t" + m.offset() + "\t" + number + "\t" + data);
                if (pauseMs > 0) {
                    Thread.sleep(pauseMs);
                }
            }
        } catch (Throwable problem) {
            say("E\t" + System.nanoTime() + "\t" + String.valueOf(problem).replaceAll("[\\t\\r\\n]", " "));
        }
    }

    static List<KafkaStream<byte[], byte[]>> open(ConsumerConnector connector, String kind, String spec, int streams) {
        if (kind.equals("whitelist")) {
            return connector.createMessageStreamsByFilter(new Whitelist(spec), streams);
        }
        if (kind.equals("blacklist")) {
            return connector.createMessageStreamsByFilter(new Blacklist(spec), streams);
        }
        Map<String, Integer> counts = new LinkedHashMap<>();
        for (String entry : spec.split(",")) {
            String[] parts = entry.split("=");
            counts.put(parts[0], Integer.valueOf(parts[1]));
        }
        List<KafkaStream<byte[], byte[]>> all = new ArrayList<>();
        for (List<KafkaStream<byte[], byte[]>> some : connector.createMessageStreams(counts).values()) {
            all.addAll(some);
        }
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        long pauseMs = Long.parseLong(arguments[4]);
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        int number = 0;
        for (KafkaStream<byte[], byte[]> stream : open(connector, arguments[1], arguments[2], Integer.parseInt(arguments[3]))) {
            int mine = number++;
            Thread thread = new Thread(() -> read(stream, mine, pauseMs), "stream-" + mine);
            thread.setDaemon(true);
            thread.start();
        }
        say("R\t" + System.nanoTime());
        while (System.in.read() >= 0) {
            // nothing is expected: the end of the input is the sign to stop
        }
        connector.shutdown();
        say("S\t" + System.nanoTime());
        System.exit(0);
    }
}
