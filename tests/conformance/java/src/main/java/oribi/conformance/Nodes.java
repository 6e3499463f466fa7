package oribi.conformance;

import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;

import com.couchbase.client.core.error.DurabilityAmbiguousException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Collection;
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
    for (Map.Entry<String, String> each : written.entrySet()) {
      eventually(() -> equal(collection.get(each.getKey()).contentAs(String.class), each.getValue()), TRANSIENT);
    }
    write(collection, "after-" + step);
    return null;
  }

  /** Half of the documents are new ones, half those of other steps. */
  private void write(Collection collection, String value) throws InterruptedException {
    for (int number = 0; number < DOCUMENTS; number++) {
      String key = number % 2 == 1 ? value + "-" + number : "shared-" + number;
      eventually(
          () -> collection.upsert(key, value, upsertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY)),
          TRANSIENT);
      written.put(key, value);
    }
  }
}
