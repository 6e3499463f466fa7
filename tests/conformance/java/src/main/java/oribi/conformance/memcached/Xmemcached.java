package oribi.conformance.memcached;

import static oribi.conformance.memcached.MemcachedChecks.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.utils.AddrUtil;

/** xmemcached, which speaks the text protocol: Xmemcached PORT */
public final class Xmemcached {
    public static void main(String[] arguments) throws Exception {
        XMemcachedClientBuilder builder = new XMemcachedClientBuilder(AddrUtil.getAddresses("127.0.0.1:" + arguments[0]));
        MemcachedClient cache = builder.build();
        cache.setOpTimeout(60_000);
        // Nothing is compressed, and a large value stays one.
        cache.getTranscoder().setCompressionThreshold(64 << 20);
        boolean passed = new MemcachedChecks()
            .add("store", () -> store(cache))
            .add("multi-get", () -> multiGet(cache))
            .add("cas", () -> {
                cache.set("c", 0, "1");
                GetsResponse<String> found = cache.gets("c");
                equal(found.getValue(), "1");
                equal(cache.cas("c", 0, "2", found.getCas()), true);
                equal(cache.cas("c", 0, "3", found.getCas()), false);
                equal(cache.get("c"), "2");
            })
            .add("counters", () -> {
                equal(cache.incr("n", 5, 10), 10L);
                equal(List.of(cache.incr("n", 5), cache.decr("n", 6), cache.decr("n", 100)), List.of(15L, 9L, 0L));
            })
            .add("expiry", () -> {
                cache.set("soon", 1, "v");
                // A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
                cache.set("touched", 1000, "v");
                equal(List.of(cache.touch("touched", 1), cache.touch("none", 1)), List.of(true, false));
                MemcachedChecks.gone(() -> cache.get("soon"));
                MemcachedChecks.gone(() -> cache.get("touched"));
            })
            .add("large", () -> {
                equal(cache.set("large", 0, MemcachedChecks.LARGE), true);
                equal(cache.<byte[]>get("large"), MemcachedChecks.LARGE);
            })
            .add("binary", () -> {
                equal(cache.set("binary", 0, MemcachedChecks.BINARY), true);
                equal(cache.<byte[]>get("binary"), MemcachedChecks.BINARY);
                equal(cache.set("empty", 0, ""), true);
                equal(cache.get("empty"), "");
            })
            .add("errors", () -> {
                cache.set("text", 0, "text");
                MemcachedChecks.fails(() -> cache.incr("text", 1));
                String longest = "k".repeat(250);
                equal(cache.set(longest, 0, "longest"), true);
                equal(cache.get(longest), "longest");
                equal(cache.get("text"), "text");
                equal(cache.getStats().values().iterator().next().containsKey("curr_items"), true);
                equal(cache.getVersions().size(), 1);
            })
            .run();
        cache.shutdown();
        System.exit(passed ? 0 : 1);
    }

    private static void store(MemcachedClient cache) throws Exception {
        equal(cache.set("k", 0, "v"), true);
        equal(cache.get("k"), "v");
        equal(List.of(cache.add("k", 0, "w"), cache.add("fresh", 0, "f"), cache.replace("none", 0, "w"), cache.replace("k", 0, "b")),
            List.of(false, true, false, true));
        equal(List.of(cache.append("k", "c"), cache.prepend("k", "a"), cache.append("none", "x")), List.of(true, true, false));
        equal(cache.get("k"), "abc");
        equal(cache.get("none"), null);
        equal(List.of(cache.delete("k"), cache.delete("k")), List.of(true, false));
        cache.setWithNoReply("quiet", 0, "q");
        equal(cache.get("quiet"), "q");
    }

    private static void multiGet(MemcachedClient cache) throws Exception {
        List<String> keys = new ArrayList<>(List.of("none"));
        for (int number = 0; number < 300; number++) {
            keys.add("key-" + number);
            equal(cache.set("key-" + number, 0, "key-" + number), true);
        }
        Map<String, String> found = cache.get(keys);
        equal(found.size(), 300);
        found.forEach(MemcachedChecks::equal);
    }
}
