package oribi.conformance.memcached;

import static oribi.conformance.memcached.MemcachedChecks.equal;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;

/** spymemcached with the text protocol: Spymemcached PORT */
public final class Spymemcached {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy").setLevel(Level.SEVERE);
        SerializingTranscoder transcoder = new SerializingTranscoder(64 << 20);
        transcoder.setCompressionThreshold(64 << 20);
        MemcachedClient cache = new MemcachedClient(
            new ConnectionFactoryBuilder().setProtocol(ConnectionFactoryBuilder.Protocol.TEXT).setOpTimeout(60_000)
                .setTranscoder(transcoder).build(),
            List.of(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]))));
        boolean passed = new MemcachedChecks()
            .add("store", () -> store(cache))
            .add("multi-get", () -> multiGet(cache))
            .add("cas", () -> {
                cache.set("c", 0, "1").get();
                CASValue<Object> found = cache.gets("c");
                equal(found.getValue(), "1");
                equal(cache.cas("c", found.getCas(), "2"), CASResponse.OK);
                equal(cache.cas("c", found.getCas(), "3"), CASResponse.EXISTS);
                equal(cache.cas("none", found.getCas(), "3"), CASResponse.NOT_FOUND);
                equal(cache.get("c"), "2");
            })
            .add("counters", () -> {
                cache.set("n", 0, "10").get();
                equal(List.of(cache.incr("n", 5), cache.decr("n", 6), cache.decr("n", 100), cache.incr("none", 1)),
                    List.of(15L, 9L, 0L, -1L));
            })
            .add("expiry", () -> {
                cache.set("soon", 1, "v").get();
                // A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
                cache.set("touched", 1000, "v").get();
                equal(List.of(cache.touch("touched", 1).get(), cache.touch("none", 1).get()), List.of(true, false));
                MemcachedChecks.gone(() -> cache.get("soon"));
                MemcachedChecks.gone(() -> cache.get("touched"));
            })
            .add("large", () -> {
                equal(cache.set("large", 0, MemcachedChecks.LARGE).get(), true);
                equal(cache.get("large"), MemcachedChecks.LARGE);
            })
            .add("binary", () -> {
                equal(cache.set("binary", 0, MemcachedChecks.BINARY).get(), true);
                equal(cache.get("binary"), MemcachedChecks.BINARY);
                equal(cache.set("empty", 0, "").get(), true);
                equal(cache.get("empty"), "");
            })
            .add("errors", () -> {
                String longest = "k".repeat(250);
                equal(cache.set(longest, 0, "longest").get(), true);
                equal(cache.get(longest), "longest");
                equal(cache.getVersions().size(), 1);
                equal(cache.getStats().values().iterator().next().containsKey("curr_items"), true);
                // The client closes the connection after an error, and opens it again.
                cache.set("text", 0, "text").get();
                cache.asyncIncr("text", 1).getStatus();
                equal(cache.get("text"), "text");
            })
            .run();
        cache.shutdown();
        System.exit(passed ? 0 : 1);
    }

    private static void store(MemcachedClient cache) throws Exception {
        equal(cache.set("k", 0, "v").get(), true);
        equal(cache.get("k"), "v");
        equal(List.of(cache.add("k", 0, "w").get(), cache.add("fresh", 0, "f").get(), cache.replace("none", 0, "w").get(),
            cache.replace("k", 0, "b").get()), List.of(false, true, false, true));
        equal(List.of(cache.append("k", "c").get(), cache.prepend("k", "a").get()), List.of(true, true));
        equal(cache.get("k"), "abc");
        equal(cache.get("none"), null);
        equal(List.of(cache.delete("k").get(), cache.delete("k").get()), List.of(true, false));
    }

    private static void multiGet(MemcachedClient cache) throws Exception {
        List<String> keys = new ArrayList<>(List.of("none"));
        for (int number = 0; number < 300; number++) {
            keys.add("key-" + number);
            equal(cache.set("key-" + number, 0, "key-" + number).get(), true);
        }
        Map<String, Object> found = cache.getBulk(keys);
        equal(found.size(), 300);
        found.forEach(MemcachedChecks::equal);
    }
}
