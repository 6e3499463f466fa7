package oribi.conformance.memcached;

import static oribi.conformance.memcached.MemcachedChecks.equal;

import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.CASResponse;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

/** spymemcached with the binary protocol and a login, which cannot select a bucket: SpymemcachedSasl PORT */
public final class SpymemcachedSasl {
    private static final String PASSWORD = System.getenv("ORIBI_PASSWORD");

    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy").setLevel(Level.OFF);
        int port = Integer.parseInt(arguments[0]);
        MemcachedClient cache = client(port, "cache", PASSWORD);
        // The user's bucket is `sessions`; the other one uses `default`.
        MemcachedClient named = client(port, "named", PASSWORD);
        boolean passed = new MemcachedChecks()
            .add("spymemcached-operations", () -> {
                equal(cache.set("k", 0, "v").get(), true);
                equal(cache.get("k"), "v");
                equal(List.of(cache.add("k", 0, "w").get(), cache.replace("k", 0, "b").get()), List.of(false, true));
                long cas = cache.gets("k").getCas();
                equal(List.of(cache.cas("k", cas, "c"), cache.cas("k", cas, "d")), List.of(CASResponse.OK, CASResponse.EXISTS));
                equal(List.of(cache.incr("spy", 5, 10), cache.incr("spy", 5), cache.decr("spy", 100)), List.of(10L, 15L, 0L));
                cache.set("l", 0, "w").get();
                equal(cache.getBulk("k", "l", "none"), Map.of("k", "c", "l", "w"));
                equal(cache.getAndTouch("l", 1000).getValue(), "w");
                equal(List.of(cache.delete("k").get(), cache.touch("none", 1).get()), List.of(true, false));
                equal(cache.get("k"), null);
            })
            .add("spymemcached-bucket-of-the-user", () -> {
                equal(named.set("mine", 0, "1").get(), true);
                equal(cache.get("mine"), null);
                equal(named.get("mine"), "1");
            })
            .add("spymemcached-mechanisms", () -> {
                Set<String> mechanisms = cache.listSaslMechanisms();
                equal(mechanisms.containsAll(Set.of("PLAIN", "SCRAM-SHA256")), true);
            })
            .add("spymemcached-wrong-password", () -> {
                MemcachedClient wrong = client(port, "cache", "wrong password");
                try {
                    // Sent on a connection that could not log in; the client takes the refusal for a miss.
                    equal(wrong.asyncGet("l").get(5, TimeUnit.SECONDS), null);
                } catch (CancellationException | ExecutionException | TimeoutException failed) {
                    // The login's end came first.
                }
                equal(cache.get("l"), "w");
                wrong.shutdown();
            })
            .run();
        cache.shutdown();
        named.shutdown();
        System.exit(passed ? 0 : 1);
    }

    private static MemcachedClient client(int port, String user, String password) throws Exception {
        AuthDescriptor login = new AuthDescriptor(new String[] {"PLAIN"}, new PlainCallbackHandler(user, password));
        return new MemcachedClient(
            new ConnectionFactoryBuilder().setProtocol(ConnectionFactoryBuilder.Protocol.BINARY).setOpTimeout(60_000)
                .setFailureMode(FailureMode.Cancel).setAuthDescriptor(login).build(),
            List.of(new InetSocketAddress("127.0.0.1", port)));
    }
}
