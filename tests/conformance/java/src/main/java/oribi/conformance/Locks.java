package oribi.conformance;

import static com.couchbase.client.java.kv.GetAndLockOptions.getAndLockOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentLockedException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentNotLockedException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.MutationResult;
import java.time.Duration;

/** Locks on documents: who has the lock's CAS may write, everybody may read. */
final class Locks {
  private static final Duration LOCK = Duration.ofSeconds(30);

  /** The SDK waits for a lock to go, until its timeout. */
  private static final Duration SOON = Duration.ofMillis(300);

  private static final String KEY = "locked";

  private final Steps steps;

  Locks(Steps steps) {
    this.steps = steps;
  }

  String locks() {
    Collection collection = steps.collection;
    MutationResult stored = collection.upsert(KEY, 1);
    GetResult locked = collection.getAndLock(KEY, LOCK);
    equal(locked.contentAs(Integer.class), 1);
    check(locked.cas() != stored.cas(), "a CAS of the lock");
    GetResult seen = collection.get(KEY);
    equal(seen.contentAs(Integer.class), 1);
    check(seen.cas() != locked.cas(), "a CAS that readers cannot use");
    isLocked(() -> collection.upsert(KEY, 2, upsertOptions().timeout(SOON)));
    isLocked(() -> collection.remove(KEY, removeOptions().timeout(SOON)));
    isLocked(() -> collection.getAndLock(KEY, LOCK, getAndLockOptions().timeout(SOON)));
    fails(() -> collection.unlock(KEY, stored.cas()), CasMismatchException.class);
    // The holder's write takes the lock away.
    MutationResult written = collection.replace(KEY, 3, replaceOptions().cas(locked.cas()));
    equal(collection.get(KEY).cas(), written.cas());
    fails(() -> collection.unlock(KEY, written.cas()), DocumentNotLockedException.class);
    collection.unlock(KEY, collection.getAndLock(KEY, LOCK).cas());
    collection.upsert(KEY, 4);
    // A lock that ends by itself is waited for by the SDK.
    collection.getAndLock(KEY, Duration.ofSeconds(1));
    collection.upsert(KEY, 5, upsertOptions().timeout(Duration.ofSeconds(20)));
    equal(collection.get(KEY).contentAs(Integer.class), 5);
    fails(() -> collection.getAndLock("never-written", LOCK), DocumentNotFoundException.class);
    fails(() -> collection.unlock("never-written", written.cas()), DocumentNotFoundException.class);
    return null;
  }

  private static void isLocked(Runnable call) {
    fails(call, DocumentLockedException.class, TimeoutException.class);
  }
}
