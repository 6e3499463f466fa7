package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.Scope;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.manager.collection.CollectionManager;
import java.time.Duration;
import java.util.List;

/** What a user with rights in some collections may do: write to open, read shown, and know nothing of hidden. */
final class Rights {
  private static final String SCOPE = "rights";

  private final Steps steps;

  Rights(Steps steps) {
    this.steps = steps;
  }

  String rights() throws InterruptedException {
    Bucket bucket = steps.bucket();
    CollectionManager manager = bucket.collections();
    manager.createScope(SCOPE);
    for (String name : List.of("open", "shown", "hidden")) {
      manager.createCollection(SCOPE, name);
      eventually(() -> bucket.scope(SCOPE).collection(name).upsert("d", name), Steps.NOT_THERE_YET);
    }
    Cluster cluster = steps.clusterOfLimitedUser();
    try {
      limited(bucket, cluster.bucket("default").scope(SCOPE));
    } finally {
      cluster.disconnect();
    }
    manager.dropScope(SCOPE);
    return null;
  }

  private static void limited(Bucket bucket, Scope scope) {
    Collection open = scope.collection("open");
    equal(open.get("d").contentAs(String.class), "open");
    open.upsert("d", JsonObject.create().put("n", 1));
    open.mutateIn("d", List.of(MutateInSpec.increment("n", 1)));
    equal(open.lookupIn("d", List.of(LookupInSpec.get("n"))).contentAs(0, Integer.class), 2);
    open.remove("d");
    Collection shown = scope.collection("shown");
    equal(shown.get("d").contentAs(String.class), "shown");
    refused(() -> shown.upsert("d", 1));
    refused(() -> shown.insert("new", 1));
    refused(() -> shown.remove("d"));
    refused(() -> shown.touch("d", Duration.ofDays(1)));
    refused(() -> shown.mutateIn("d", List.of(MutateInSpec.upsert("n", 1))));
    refused(() -> shown.binary().append("d", new byte[] {1}));
    equal(bucket.scope(SCOPE).collection("shown").get("d").contentAs(String.class), "shown");
    // A client cannot know that the collection will not come, so it retries until its timeout.
    fails(
        () -> scope.collection("hidden").get("d", getOptions().timeout(Duration.ofSeconds(1))),
        TimeoutException.class,
        CollectionNotFoundException.class);
  }

  private static void refused(Runnable call) {
    Throwable refusal = fails(call, CouchbaseException.class);
    Checks.check(refusal.getMessage().contains("NO_ACCESS"), "no access, got " + refusal);
  }
}
