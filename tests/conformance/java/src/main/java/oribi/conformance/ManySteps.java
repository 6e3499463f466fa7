package oribi.conformance;

import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.ReactiveCollection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.MutationResult;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import reactor.core.publisher.Flux;

/** The steps with many operations in flight. */
final class ManySteps {
  private static final int DOCUMENTS = 50_000;
  private static final int IN_FLIGHT_MAX = 1_000;
  private static final int WRITERS = 64;

  private final Steps steps;

  ManySteps(Steps steps) {
    this.steps = steps;
  }

  String parallel50000() {
    ReactiveCollection reactive = steps.collection.reactive();
    long started = System.nanoTime();
    Flux.range(0, DOCUMENTS)
        .flatMap(number -> reactive.upsert("parallel-" + number, document(number)), IN_FLIGHT_MAX)
        .doOnNext(result -> check(result.mutationToken().isPresent(), "a token"))
        .blockLast();
    long written = System.nanoTime();
    Flux.range(0, DOCUMENTS)
        .flatMap(
            number -> reactive.get("parallel-" + number)
                .doOnNext(got -> equal(got.contentAsObject(), document(number))),
            IN_FLIGHT_MAX)
        .blockLast();
    long ended = System.nanoTime();
    return String.format("%.0f writes/s, %.0f reads/s", rate(written - started), rate(ended - written));
  }

  private static JsonObject document(int number) {
    return JsonObject.create().put("number", number).put("text", "x".repeat(100));
  }

  private static double rate(long nanoseconds) {
    return DOCUMENTS * 1e9 / nanoseconds;
  }

  /** Whatever was acknowledged as persisted must survive, also what was acknowledged last. */
  String killRestart() throws Exception {
    Map<String, Long> acknowledged = new ConcurrentHashMap<>();
    AtomicBoolean stopping = new AtomicBoolean();
    ExecutorService writers = Executors.newFixedThreadPool(WRITERS);
    for (int writer = 0; writer < WRITERS; writer++) {
      int number = writer;
      writers.submit(() -> write(number, acknowledged, stopping));
    }
    boolean enough;
    try {
      long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
      while (acknowledged.size() < 1_000 && System.nanoTime() < deadline) {
        Thread.sleep(10);
      }
      enough = acknowledged.size() >= 1_000;
      control("kill-restart");
    } finally {
      stopping.set(true);
      writers.shutdown();
      check(writers.awaitTermination(60, TimeUnit.SECONDS), "the writers end");
    }
    check(enough, "1,000 durable writes");
    return compare(acknowledged);
  }

  private void write(int writer, Map<String, Long> acknowledged, AtomicBoolean stopping) {
    for (int number = 0; !stopping.get(); number++) {
      String key = "crash-" + writer + "-" + number;
      try {
        MutationResult stored =
            steps.collection.insert(key, key, insertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY));
        acknowledged.put(key, stored.cas());
      } catch (CouchbaseException notAcknowledged) {
        // Nothing is promised about this one.
      }
    }
  }

  private String compare(Map<String, Long> acknowledged) throws InterruptedException {
    Collection collection = steps.collection;
    String someKey = acknowledged.keySet().iterator().next();
    long restarted = System.nanoTime();
    eventually(() -> collection.get(someKey), List.of(TimeoutException.class, RequestCanceledException.class));
    double reconnected = (System.nanoTime() - restarted) / 1e9;
    acknowledged.forEach((key, cas) -> {
      GetResult got = collection.get(key);
      equal(got.contentAs(String.class), key);
      equal(got.cas(), cas);
    });
    check(collection.upsert(someKey, "newer").cas() > acknowledged.get(someKey), "CAS values grow across a crash");
    return String.format("%d survived, reconnected after %.2f s", acknowledged.size(), reconnected);
  }

  /** Asks for a crash, or another change of the servers, and waits until it is done. */
  static void control(String action) throws Exception {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(System.getenv("ORIBI_CONTROL") + "/" + action))
            .POST(HttpRequest.BodyPublishers.noBody())
            .build();
    int status = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
    equal(status, 200);
  }
}
