// A member of a group that brokers coordinate: Java's KafkaConsumer, of the version whose jars are on the class path.
//
// Arguments: PROPERTIES_FILE TOPICS MEMBER WORK_MS; topics between commas.
// Standard output: events as zkconsumer.testing.history has them, a line of JSON each, and notes of the program
// (`# time ready`, `# time left`). Leaves in order when its standard input ends.
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class KafkaMember {
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    static String member;
    static volatile boolean ends;
    static boolean isReady;

    static void say(String line) {
        byte[] bytes = (line + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    static void event(String kind, String topic, int partition, String more) {
        say("{\"time_ns\":" + System.nanoTime() + ",\"kind\":\"" + kind + "\",\"member\":\"" + member + "\",\"topic\":\""
            + topic + "\",\"partition\":" + partition + more + "}");
    }

    static class Listener implements ConsumerRebalanceListener {
        final Set<TopicPartition> held = new LinkedHashSet<>();

        void all(String kind, Collection<TopicPartition> partitions) {
            for (TopicPartition each : new ArrayList<>(partitions)) {
                if (kind.equals("assigned") ? held.add(each) : held.remove(each)) {
                    event(kind, each.topic(), each.partition(), "");
                }
            }
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            all("assigned", partitions);
            if (!isReady) {
                isReady = true;
                say("# " + System.nanoTime() + " ready ");
            }
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            all("revoked", partitions);
        }

        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            all("lost", partitions);
        }
    }

    // poll(long) is all that 0.9 to 1.1 have, and 4.0 has poll(Duration) alone.
    static Method poll() throws Exception {
        try {
            return KafkaConsumer.class.getMethod("poll", java.time.Duration.class);
        } catch (NoSuchMethodException before20) {
            return KafkaConsumer.class.getMethod("poll", long.class);
        }
    }

    static void consume(KafkaConsumer<byte[], byte[]> consumer, long workMs) throws Exception {
        Method poll = poll();
        Object wait = poll.getParameterTypes()[0] == long.class ? (Object) 200L : java.time.Duration.ofMillis(200);
        while (!ends) {
            @SuppressWarnings("unchecked")
            ConsumerRecords<byte[], byte[]> found = (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, wait);
            for (ConsumerRecord<byte[], byte[]> each : found) {
                String at = ",\"offset\":" + each.offset();
                event("deliver", each.topic(), each.partition(), at + ",\"id\":\"" + new String(each.value()) + "\"");
                if (workMs > 0) {
                    Thread.sleep(workMs);
                }
                event("done", each.topic(), each.partition(), at);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        member = arguments[2];
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // nothing is expected: the end of the input is the sign to stop
                }
            } catch (java.io.IOException gone) {
                // the same
            }
            ends = true;
        });
        ending.setDaemon(true);
        ending.start();
        Listener listener = new Listener();
        consumer.subscribe(Arrays.asList(arguments[1].split(",")), listener);
        consume(consumer, Long.parseLong(arguments[3]));
        listener.all("revoked", listener.held); // close() calls no listener before 2.4
        consumer.close();
        say("# " + System.nanoTime() + " left ");
        System.exit(0);
    }
}
