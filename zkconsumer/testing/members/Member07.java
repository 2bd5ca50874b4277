// A member of a consumer group: Java's high-level consumer of Kafka 0.7, whose jar is on the class path.
//
// Arguments, input and output are those of Member.java. Kafka 0.7 gives its application a topic and a message, and no
// more, so partition and offset are read from private fields of its iterator: `partition` is `broker-partition`, and
// `offset` the position that Java would commit now. There are no keys. One more column of a message is its offset in a
// history: the position at which its entry starts plus its number in the entry.
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
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
import kafka.consumer.PartitionTopicInfo;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.Message;
import kafka.message.MessageAndMetadata;

public class Member07 {
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    static void say(String line) {
        byte[] bytes = (line + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    static String payload(Message message) {
        ByteBuffer data = message.payload();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    static Object field(Object of, String name) throws Exception {
        for (Field each : ConsumerIterator.class.getDeclaredFields()) {
            if (each.getName().equals(name) || each.getName().endsWith("$$" + name)) {
                each.setAccessible(true);
                return each.get(of);
            }
        }
        throw new IllegalStateException("the iterator of this Kafka has no field " + name);
    }

    static void read(KafkaStream<Message> stream, int number, long pauseMs) {
        try {
            ConsumerIterator<Message> messages = stream.iterator();
            PartitionTopicInfo last = null;
            long entry = -1;
            long reported = -1;
            int inEntry = 0;
            while (messages.hasNext()) {
                PartitionTopicInfo info = (PartitionTopicInfo) field(messages, "currentTopicInfo");
                long start = info.getConsumeOffset();
                MessageAndMetadata<Message> m = messages.next();
                long now = System.nanoTime();
                // All messages of an entry but the last one report its start. A rebalance makes a new object.
                inEntry = info == last && start == entry && reported == entry ? inEntry + 1 : 0;
                last = info;
                entry = start;
                reported = info.getConsumeOffset();
                String place = m.topic() + "\t" + info.partition().name() + "\t" + reported;
                say("D\t" + now + "\t" + place + "\t" + number + "\t" + payload(m.message()) + "\t-\t" + (start + inEntry));
                if (pauseMs > 0) {
                    Thread.sleep(pauseMs);
                }
            }
        } catch (Throwable problem) {
            say("E\t" + System.nanoTime() + "\t" + String.valueOf(problem).replaceAll("[\\t\\r\\n]", " "));
        }
    }

    static List<KafkaStream<Message>> open(ConsumerConnector connector, String kind, String spec, int streams) {
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
        List<KafkaStream<Message>> all = new ArrayList<>();
        for (List<KafkaStream<Message>> some : connector.createMessageStreams(counts).values()) {
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
        for (KafkaStream<Message> stream : open(connector, arguments[1], arguments[2], Integer.parseInt(arguments[3]))) {
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
