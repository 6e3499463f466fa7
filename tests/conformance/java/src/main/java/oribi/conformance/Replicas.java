package oribi.conformance;

import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentUnretrievableException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.kv.GetReplicaResult;
import com.couchbase.client.java.kv.LookupInReplicaResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.PersistTo;
import com.couchbase.client.java.kv.ReplicateTo;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Copies of a document: reads that any copy answers, and writes that wait for copies as the SDK observes them.
 *
 * <p>ORIBI_REPLICAS is how many replicas the bucket has; without replicas the only copy answers for all.
 */
final class Replicas {
  static final int REPLICAS = Integer.parseInt(System.getenv().getOrDefault("ORIBI_REPLICAS", "0"));
  private static final List<ReplicateTo> REPLICATE_TO = List.of(ReplicateTo.NONE, ReplicateTo.ONE, ReplicateTo.TWO);
  private static final List<PersistTo> PERSIST_TO =
      List.of(PersistTo.NONE, PersistTo.ONE, PersistTo.TWO, PersistTo.THREE);

  private final Steps steps;

  Replicas(Steps steps) {
    this.steps = steps;
  }

  /** Some copy has not followed yet. */
  private static final class CopiesDifferException extends RuntimeException {
    CopiesDifferException(String text) {
      super(text);
    }
  }

  /** What was written is read from every copy, once all have it, and from any. */
  String replicas() throws InterruptedException {
    Collection collection = steps.collection;
    MutationResult stored = collection.upsert("replicas", JsonArray.from(1));
    eventually(() -> sameEverywhere("replicas", 1, stored.cas()), List.of(CopiesDifferException.class));
    GetReplicaResult any = collection.getAnyReplica("replicas");
    equal(any.contentAsArray(), JsonArray.from(1));
    equal(any.cas(), stored.cas());
    List<LookupInSpec> specs = List.of(LookupInSpec.get("[0]"), LookupInSpec.exists("[1]"));
    List<LookupInReplicaResult> looks = collection.lookupInAllReplicas("replicas", specs).toList();
    equal(looks.size(), REPLICAS + 1);
    equal(looks.stream().filter(LookupInReplicaResult::isReplica).count(), (long) REPLICAS);
    Stream.concat(Stream.of(collection.lookupInAnyReplica("replicas", specs)), looks.stream())
        .forEach(
            found -> {
              equal(found.contentAs(0, Integer.class), 1);
              equal(found.exists(1), false);
            });
    fails(() -> collection.lookupInAnyReplica("never-written", specs), DocumentUnretrievableException.class);
    fails(() -> collection.getAnyReplica("never-written"), DocumentUnretrievableException.class);
    return null;
  }

  /** Throws unless each copy, of which one is no replica, has this version of a document. */
  private void sameEverywhere(String key, int value, long cas) {
    List<GetReplicaResult> found = steps.collection.getAllReplicas(key).collect(Collectors.toList());
    long replicas = found.stream().filter(GetReplicaResult::isReplica).count();
    boolean isWhole = found.size() == REPLICAS + 1 && replicas == REPLICAS;
    if (!isWhole || found.stream().anyMatch(each -> each.cas() != cas)) {
      throw new CopiesDifferException(found + " instead of CAS " + cas);
    }
    found.forEach(each -> equal(each.contentAsArray(), JsonArray.from(value)));
  }

  /** Writes that wait until the SDK has observed them in the memory, and then on the disk, of all copies. */
  String observedDurability() {
    Collection collection = steps.collection;
    ReplicateTo replicateTo = REPLICATE_TO.get(REPLICAS);
    for (PersistTo persistTo : List.of(PersistTo.NONE, PERSIST_TO.get(REPLICAS + 1))) {
      String key = "observed-" + persistTo;
      // Each of them is in all copies when it is acknowledged.
      long cas = collection.insert(key, JsonArray.from(0), insertOptions().durability(persistTo, replicateTo)).cas();
      sameEverywhere(key, 0, cas);
      cas = collection.replace(key, JsonArray.from(1), replaceOptions().durability(persistTo, replicateTo)).cas();
      sameEverywhere(key, 1, cas);
      cas = collection.upsert(key, JsonArray.from(2), upsertOptions().durability(persistTo, replicateTo)).cas();
      sameEverywhere(key, 2, cas);
      collection.remove(key, removeOptions().durability(persistTo, replicateTo));
      fails(() -> collection.get(key), DocumentNotFoundException.class);
      fails(() -> collection.getAnyReplica(key), DocumentUnretrievableException.class);
    }
    return null;
  }
}
