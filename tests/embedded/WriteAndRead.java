import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes numbers to partition 0 of a topic with an idempotent producer, and prints what is read there. */
public class WriteAndRead {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("compression.type", arguments[3]);
        settings.put("linger.ms", "20");
        settings.put("isolation.level", "read_committed");
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, "key", "message-" + number));
            }
        }
        StringDeserializer strings = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, strings, new StringDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.currentTimeMillis() + 30_000;
            while (count > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(each.value());
                    count--;
                }
            }
        }
    }
}
