package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static com.couchbase.client.java.transactions.config.TransactionGetOptions.transactionGetOptions;
import static com.couchbase.client.java.transactions.config.TransactionInsertOptions.transactionInsertOptions;
import static com.couchbase.client.java.transactions.config.TransactionReplaceOptions.transactionReplaceOptions;
import static java.util.Arrays.asList;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;
import static oribi.conformance.Place.nothingStaged;
import static oribi.conformance.Place.plains;
import static oribi.conformance.Place.reads;

import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.manager.collection.CollectionManager;
import com.couchbase.client.java.transactions.TransactionAttemptContext;
import com.couchbase.client.java.transactions.TransactionGetResult;
import com.couchbase.client.java.transactions.TransactionResult;
import com.couchbase.client.java.transactions.config.TransactionGetOptions;
import com.couchbase.client.java.transactions.config.TransactionReplaceOptions;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import com.couchbase.client.java.transactions.getmulti.TransactionGetMultiResult;
import com.couchbase.client.java.transactions.getmulti.TransactionGetMultiSpec;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * Transactions: several documents change together or not at all.
 *
 * <p>What takes an attempt runs inside a transaction, possibly more than once.
 */
final class TransactionSteps {
  private static final int WAIT_SECONDS_MAX = 20;

  /** What the program itself throws inside a transaction. */
  private static final class ApplicationException extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  private final Steps steps;

  TransactionSteps(Steps steps) {
    this.steps = steps;
  }

  /** A collection of the scope `transactions`, which exists afterwards. */
  static Collection made(Steps steps, String name) throws InterruptedException {
    CollectionManager manager = steps.bucket().collections();
    try {
      manager.createScope("transactions");
    } catch (ScopeExistsException exists) {
      // An earlier step has made it.
    }
    try {
      manager.createCollection("transactions", name);
    } catch (CollectionExistsException exists) {
      // An earlier step has made it.
    }
    Collection collection = steps.bucket().scope("transactions").collection(name);
    eventually(() -> collection.upsert("first", 1), Steps.NOT_THERE_YET);
    return collection;
  }

  private TransactionResult run(Consumer<TransactionAttemptContext> body) {
    return steps.cluster().transactions().run(body);
  }

  /** Runs a transaction that has to fail for this reason. */
  private void failed(Class<? extends Throwable> reason, Consumer<TransactionAttemptContext> body) {
    hasFailed(reason, () -> run(body));
  }

  private static void hasFailed(Class<? extends Throwable> reason, Runnable running) {
    Throwable failure = fails(running, TransactionFailedException.class);
    check(reason.isInstance(failure.getCause()), reason + ", got " + failure.getCause());
  }

  private Place at(String key) {
    return new Place(steps.collection, key);
  }

  /** An insert, a replacement, a removal and reads, in three collections. */
  String commit() throws InterruptedException {
    Collection left = made(steps, "left");
    Collection right = made(steps, "right");
    Place inserted = new Place(right, "inserted");
    Place replaced = new Place(left, "replaced");
    Place removed = at("removed");
    Place seen = new Place(right, "read");
    Place fleeting = new Place(left, "fleeting");
    replaced.upsert(1);
    removed.upsert(1);
    seen.upsert(7);
    TransactionResult result = run(attempt -> {
      equal(seen.read(attempt), 7);
      TransactionGetResult first = inserted.insert(attempt, 2);
      TransactionGetResult second = replaced.replace(attempt, 3);
      removed.remove(attempt);
      // It sees its own writes, and no other client does.
      equal(reads(attempt, inserted, replaced, removed), asList(2, 3, null));
      equal(plains(inserted, replaced, removed), asList(null, 1, 1));
      attempt.replace(first, Place.value(4));
      attempt.replace(second, Place.value(5));
      attempt.remove(fleeting.insert(attempt, 1));
    });
    check(result.unstagingComplete(), "everything is in its place");
    equal(plains(inserted, replaced, removed, fleeting), asList(4, 5, null, null));
    // Where a document was deleted, one can be inserted again.
    run(attempt -> removed.insert(attempt, 6));
    equal(removed.plain(), 6);
    nothingStaged(inserted, replaced, removed, fleeting, seen);
    return null;
  }

  /** An error of the application undoes everything. */
  String rollBack() throws InterruptedException {
    Place inserted = new Place(made(steps, "right"), "not-inserted");
    Place replaced = new Place(made(steps, "left"), "kept");
    Place removed = at("not-removed");
    replaced.upsert(1);
    removed.upsert(1);
    failed(ApplicationException.class, attempt -> {
      inserted.insert(attempt, 2);
      replaced.replace(attempt, 3);
      removed.remove(attempt);
      throw new ApplicationException();
    });
    equal(plains(inserted, replaced, removed), asList(null, 1, 1));
    nothingStaged(inserted, replaced, removed);
    run(attempt -> inserted.insert(attempt, 4));
    equal(inserted.plain(), 4);
    return null;
  }

  /** Two transactions at once: the first one holds what it has staged until the second one has collided with it. */
  private void meet(Consumer<TransactionAttemptContext> first, Consumer<TransactionAttemptContext> second) {
    CountDownLatch staged = new CountDownLatch(1);
    CountDownLatch collided = new CountDownLatch(1);
    CompletableFuture<Void> leading = CompletableFuture.runAsync(() -> run(attempt -> {
      first.accept(attempt);
      staged.countDown();
      await(collided, "the other transaction begins anew");
    }));
    AtomicInteger attempts = new AtomicInteger();
    try {
      await(staged, "the first transaction stages its change");
      run(attempt -> {
        if (attempts.incrementAndGet() == 2) {
          collided.countDown();
        }
        second.accept(attempt);
      });
    } finally {
      collided.countDown();
      leading.join();
    }
    check(attempts.get() >= 2, "a second attempt");
  }

  private static void await(CountDownLatch latch, String what) {
    try {
      check(latch.await(WAIT_SECONDS_MAX, TimeUnit.SECONDS), what);
    } catch (InterruptedException interrupted) {
      throw new AssertionError(interrupted);
    }
  }

  String conflicts() {
    // Two that change the same document: both do.
    Place contended = at("contended");
    contended.upsert(0);
    meet(attempt -> contended.add(attempt, 1), attempt -> contended.add(attempt, 10));
    equal(contended.plain(), 11);

    // Two that insert the same document: one does, and what else the other one did is undone.
    Place twice = at("inserted-twice");
    Place beside = at("beside");
    hasFailed(
        DocumentExistsException.class,
        () -> meet(attempt -> twice.insert(attempt, 1), attempt -> {
          beside.insert(attempt, 2);
          twice.insert(attempt, 2);
        }));
    equal(plains(twice, beside), asList(1, null));

    // A document that is there cannot be inserted.
    failed(DocumentExistsException.class, attempt -> contended.insert(attempt, 1));

    // One that has gone since it was read cannot be replaced.
    Place gone = at("gone");
    gone.upsert(1);
    failed(DocumentNotFoundException.class, attempt -> {
      TransactionGetResult got = attempt.get(gone.collection(), gone.key());
      gone.collection().remove(gone.key());
      attempt.replace(got, Place.value(2));
    });
    equal(gone.plain(), null);

    // A change without a transaction, after the read: the transaction sees it in its next attempt.
    Place changed = at("changed");
    AtomicInteger attempts = new AtomicInteger();
    changed.upsert(0);
    run(attempt -> {
      TransactionGetResult got = attempt.get(changed.collection(), changed.key());
      if (attempts.incrementAndGet() == 1) {
        changed.upsert(100);
      }
      attempt.replace(got, Place.value(got.contentAsObject().getInt("n") + 1));
    });
    equal(asList(changed.plain(), attempts.get()), asList(101, 2));
    nothingStaged(contended, twice, beside, gone, changed);
    return null;
  }

  /** What one transaction has staged, others do not see before it is committed. */
  String stagedReads() {
    Place replaced = at("staged-replace");
    Place removed = at("staged-remove");
    Place inserted = at("staged-insert");
    Place beside = at("beside-staged");
    Place[] places = {replaced, removed, inserted};
    List<Integer> before = asList(1, 1, null);
    List<Integer> after = asList(2, null, 3);
    replaced.upsert(1);
    removed.upsert(1);
    beside.upsert(5);
    Consumer<List<Integer>> see = expected -> run(attempt -> {
      equal(reads(attempt, places), expected);
      TransactionGetMultiResult many =
          attempt.getMulti(
              List.of(
                  TransactionGetMultiSpec.create(steps.collection, replaced.key()),
                  TransactionGetMultiSpec.create(steps.collection, beside.key())));
      equal(many.contentAsObject(0), Place.value(expected.get(0)));
      equal(many.contentAsObject(1), Place.value(5));
    });
    run(attempt -> {
      replaced.replace(attempt, 2);
      removed.remove(attempt);
      inserted.insert(attempt, 3);
      equal(plains(places), before);
      // On another thread, because this SDK runs one transaction at a time on each.
      CompletableFuture.runAsync(() -> see.accept(before)).join();
    });
    equal(plains(places), after);
    see.accept(after);
    return null;
  }

  /** Documents that are no JSON become others, and become JSON and back. */
  String binary() {
    byte[] first = {0, -1, -2, 1};
    byte[] second = {-128, 2, 0};
    Place inserted = at("binary-inserted");
    Place replaced = at("binary-replaced");
    Place fromJson = at("binary-from-json");
    Place toJson = at("binary-to-json");
    for (Place each : List.of(replaced, toJson)) {
      steps.collection.upsert(each.key(), first, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    }
    fromJson.upsert(1);
    TransactionGetOptions get = transactionGetOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    TransactionReplaceOptions replace = transactionReplaceOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    Consumer<TransactionAttemptContext> change = attempt -> {
      Collection collection = steps.collection;
      attempt.insert(
          collection, inserted.key(), first, transactionInsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
      attempt.replace(attempt.get(collection, replaced.key(), get), second, replace);
      attempt.replace(attempt.get(collection, fromJson.key()), second, replace);
      attempt.replace(attempt.get(collection, toJson.key(), get), Place.value(2));
      equal(attempt.get(collection, inserted.key(), get).contentAs(byte[].class), first);
    };
    failed(ApplicationException.class, attempt -> {
      change.accept(attempt);
      throw new ApplicationException();
    });
    equal(steps.collection.exists(inserted.key()).exists(), false);
    equal(stored(replaced), first);
    equal(stored(toJson), first);
    equal(fromJson.plain(), 1);
    run(change);
    equal(stored(inserted), first);
    equal(stored(replaced), second);
    equal(stored(fromJson), second);
    equal(toJson.plain(), 2);
    nothingStaged(inserted, replaced, fromJson, toJson);
    return null;
  }

  private byte[] stored(Place place) {
    return steps.collection.get(place.key(), getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAs(byte[].class);
  }
}
