import java.io.StringReader;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group in a process of its own, as group_peer.py: `GroupPeer properties topic`, with the same lines. */
public class GroupPeer {
    private static final TreeSet<Integer> held = new TreeSet<>();
    private static volatile boolean over = false;

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Versions before 2.0 know no Duration, those from 4.0 on no number. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Object found;
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            Method poll = KafkaConsumer.class.getMethod("poll", duration);
            found = poll.invoke(consumer, java.time.Duration.ofMillis(100));
        } catch (NoSuchMethodException old) {
            found = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        }
        return (ConsumerRecords<String, String>) found;
    }

    /** The list of topics is a List in 0.9, and a Collection later. */
    private static void subscribe(KafkaConsumer<String, String> consumer, String topic) throws Exception {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(each -> held.remove(each.partition()));
                say("{\"assigned\": " + held + "}");
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(each -> held.add(each.partition()));
                say("{\"assigned\": " + held + "}");
            }
        };
        for (Method each : KafkaConsumer.class.getMethods()) {
            Class<?>[] kinds = each.getParameterTypes();
            if (each.getName().equals("subscribe") && kinds.length == 2 && Collection.class.isAssignableFrom(kinds[0])) {
                each.invoke(consumer, Collections.singletonList(topic), listener);
                return;
            }
        }
        throw new IllegalStateException("no way to subscribe");
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(new StringReader(arguments[0]));
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) { }
            over = true;
        });
        ending.setDaemon(true);
        ending.start();
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        subscribe(consumer, arguments[1]);
        while (!over) {
            for (ConsumerRecord<String, String> each : poll(consumer)) {
                say("{\"got\": [" + each.partition() + ", " + each.offset() + ", \"" + each.value() + "\"]}");
                TopicPartition where = new TopicPartition(each.topic(), each.partition());
                try {
                    consumer.commitSync(Collections.singletonMap(where, new OffsetAndMetadata(each.offset() + 1)));
                    say("{\"committed\": [" + each.partition() + ", " + (each.offset() + 1) + "]}");
                } catch (KafkaException error) {
                    say("{\"error\": \"" + error.getClass().getSimpleName() + "\"}");
                }
            }
        }
        consumer.close();
    }
}
