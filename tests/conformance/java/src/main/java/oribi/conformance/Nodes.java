package oribi.conformance;

import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;

import com.couchbase.client.core.error.DurabilityAmbiguousException;
import com.couchbase.client.core.error.DurabilityImpossibleException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Nodes that come and go: what was acknowledged as persisted is read wherever its vbucket is now. */
final class Nodes {
  private static final int DOCUMENTS = 64;
  private static final List<Class<? extends RuntimeException>> TRANSIENT =
      List.of(TimeoutException.class, RequestCanceledException.class, DurabilityAmbiguousException.class);

  private final Steps steps;
  private final Map<String, String> written = new HashMap<>();

  Nodes(Steps steps) {
    this.steps = steps;
  }

  /** Writes, asks for the change, reads everything back and writes again. */
  String change(String step) throws Exception {
    Collection collection = steps.collection;
    write(collection, "before-" + step);
    ManySteps.control(step);
    compare(collection);
    write(collection, "after-" + step);
    return null;
  }

  /** A client that begins while a node is away finds the others, and every document. */
  String newClient() throws InterruptedException {
    Cluster cluster = steps.anotherCluster();
    try {
      Bucket bucket = cluster.bucket(Steps.BUCKET);
      bucket.waitUntilReady(Duration.ofSeconds(20));
      compare(bucket.defaultCollection());
    } finally {
      cluster.disconnect();
    }
    return null;
  }

  /** Reads everything that was written. */
  private void compare(Collection collection) throws InterruptedException {
    for (Map.Entry<String, String> each : written.entrySet()) {
      eventually(() -> equal(collection.get(each.getKey()).contentAs(String.class), each.getValue()), TRANSIENT);
    }
  }

  /** Half of the documents are new ones, half those of other steps. */
  private void write(Collection collection, String value) throws InterruptedException {
    for (int number = 0; number < DOCUMENTS; number++) {
      String key = number % 2 == 1 ? value + "-" + number : "shared-" + number;
      eventually(() -> writeOnce(collection, key, value), TRANSIENT);
      written.put(key, value);
    }
  }

  /** Writes durably; plainly while fewer copies than a majority follow: one of two is away, or slow. */
  private static void writeOnce(Collection collection, String key, String value) {
    try {
      collection.upsert(key, value, upsertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY));
    } catch (DurabilityImpossibleException impossible) {
      check(Replicas.REPLICAS > 0, "a bucket with replicas");
      collection.upsert(key, value);
    }
  }
}
