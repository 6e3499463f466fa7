package oribi.conformance.memcached;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** The named checks of a program, which takes a port and prints the outcome of each. */
final class MemcachedChecks {
    static final byte[] LARGE = new byte[900_000];
    static final byte[] BINARY = new byte[2048 + 12];
    private static final long EXPIRY_MILLISECONDS_MAX = 30_000;

    private final Map<String, Check> checks = new LinkedHashMap<>();

    interface Check {
        void run() throws Exception;
    }

    interface Get {
        Object get() throws Exception;
    }

    static {
        for (int at = 0; at < LARGE.length; at++) {
            LARGE[at] = (byte) (at % 251);
        }
        for (int at = 0; at < BINARY.length; at++) {
            BINARY[at] = (byte) at;
        }
        System.arraycopy("\r\nEND\r\n".getBytes(), 0, BINARY, 100, 7);
    }

    MemcachedChecks add(String name, Check check) {
        checks.put(name, check);
        return this;
    }

    /** True when all passed. */
    boolean run() {
        boolean passed = true;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            try {
                check.getValue().run();
                System.out.println("PASS " + check.getKey());
            } catch (Throwable error) {
                passed = false;
                System.out.println("FAIL " + check.getKey() + " " + String.valueOf(error).lines().findFirst().orElse(""));
            }
        }
        return passed;
    }

    static void equal(Object found, Object expected) {
        boolean same = found instanceof byte[] && expected instanceof byte[]
            ? Arrays.equals((byte[]) found, (byte[]) expected) : Objects.equals(found, expected);
        if (!same) {
            throw new AssertionError(shown(found) + " instead of " + shown(expected));
        }
    }

    static void fails(Check check) throws Exception {
        try {
            check.run();
        } catch (Exception error) {
            return;
        }
        throw new AssertionError("no error");
    }

    static void gone(Get get) throws Exception {
        long end = System.currentTimeMillis() + EXPIRY_MILLISECONDS_MAX;
        while (get.get() != null) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("the document does not expire");
            }
            Thread.sleep(50);
        }
    }

    private static String shown(Object value) {
        String text = value instanceof byte[] bytes ? bytes.length + " bytes" : String.valueOf(value);
        return text.substring(0, Math.min(text.length(), 200));
    }
}
