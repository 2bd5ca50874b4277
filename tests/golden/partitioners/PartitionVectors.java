import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;

/** Prints what the partitioners on the class path choose: class, kind of key, key, partitions, partition. */
public class PartitionVectors {
    static final int[] COUNTS = {1, 2, 3, 7, 10, 100};

    static Object make(String name, String properties) throws Exception {
        Class<?> type = Class.forName(name);
        Class<?> given = Class.forName(properties);
        for (Constructor<?> each : type.getConstructors()) {
            if (each.getParameterCount() == 0) return each.newInstance();
            return each.newInstance(given.getConstructor().newInstance());
        }
        throw new IllegalStateException(name);
    }

    static void show(Object partitioner, String label, String kind, Object key, String text) throws Exception {
        Method method = null;
        for (Method each : partitioner.getClass().getMethods())
            if (each.getName().equals("partition") && each.getParameterCount() == 2) method = each;
        for (int count : COUNTS)
            System.out.println(label + " " + kind + " " + text + " " + count + " " + method.invoke(partitioner, key, count));
    }

    public static void main(String[] words) throws Exception {
        Random random = new Random(8);
        String[] texts = new String[60];
        texts[0] = ""; texts[1] = "a"; texts[2] = "polygenelubricants"; texts[3] = "\u00e4\u00f6\u00fc"; texts[4] = "\ud83d\ude00 key";
        for (int n = 5; n < texts.length; n++) {
            StringBuilder text = new StringBuilder();
            for (int length = random.nextInt(24); length >= 0; length--) text.appendCodePoint(32 + random.nextInt(n % 2 == 0 ? 95 : 4000));
            texts[n] = text.toString();
        }
        byte[][] keys = new byte[60][];
        for (int n = 0; n < keys.length; n++) { keys[n] = new byte[n < 3 ? n : random.nextInt(40)]; random.nextBytes(keys[n]); }
        Base64.Encoder base64 = Base64.getEncoder();
        if (words[0].equals("murmur2")) {
            Method hash = Class.forName("org.apache.kafka.common.utils.Utils").getMethod("murmur2", byte[].class);
            for (byte[] key : keys)
                for (int count : COUNTS)
                    System.out.println("murmur2 bytes =" + base64.encodeToString(key) + " " + count + " " + ((int) hash.invoke(null, (Object) key) & 0x7fffffff) % count);
            return;
        }
        String properties = words[1];
        Object plain = make("kafka.producer.DefaultPartitioner", properties);
        for (String text : texts) show(plain, "DefaultPartitioner", "text", text, "=" + base64.encodeToString(text.getBytes(StandardCharsets.UTF_8)));
        for (int number : new int[] {0, 1, -1, 42, Integer.MAX_VALUE, Integer.MIN_VALUE, -7777}) show(plain, "DefaultPartitioner", "int", number, "" + number);
        for (long number : new long[] {3000000000L, -3000000000L, Long.MAX_VALUE, Long.MIN_VALUE, 2147483648L}) show(plain, "DefaultPartitioner", "int", number, "" + number);
        if (words.length < 3) return;
        Object bytes = make("kafka.producer.ByteArrayPartitioner", properties);
        for (byte[] key : keys) show(bytes, "ByteArrayPartitioner", "bytes", key, "=" + base64.encodeToString(key));
    }
}
