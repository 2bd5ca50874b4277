import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints partition, key and value of the first messages of a topic, as Java's newer consumer reads them. */
public class ReadAll {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        int left = Integer.parseInt(arguments[2]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo each : consumer.partitionsFor(arguments[1])) {
                partitions.add(new TopicPartition(each.topic(), each.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.currentTimeMillis() + 60_000;
            while (left > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(each.partition() + "\t" + text(each.key()) + "\t" + text(each.value()));
                    left--;
                }
            }
        }
    }

    private static String text(byte[] data) {
        return data == null ? "null" : "x" + HexFormat.of().formatHex(data);
    }
}
