package oribi.conformance;

import static com.couchbase.client.java.kv.ScanOptions.scanOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;

import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.transactions.TransactionKeyspace;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.function.IntConsumer;

/** What many threads do with a {@link Bank} at once, and with one that is killed. */
final class Transfers {
  private static final int WORKERS = 4;
  private static final int ROUNDS = 2;
  private static final int TRANSFERS_MIN = 10;

  /** What a killed client leaves can be told from what this one has in progress by the time that it asked for. */
  private static final Duration TIMEOUT = Duration.ofSeconds(4);

  private static final Duration TIMEOUT_OF_LOST = Duration.ofSeconds(10);
  private static final Duration CLEANUP_WINDOW = Duration.ofSeconds(1);
  private static final Duration ENOUGH_MAX = Duration.ofSeconds(60);
  private static final Duration SECOND_MAX = Duration.ofSeconds(120);
  private static final Duration CLEANED_UP_MAX = Duration.ofSeconds(60);
  private static final TransactionKeyspace RECORDS = TransactionKeyspace.create("default", "transactions", "records");

  private final Steps steps;

  Transfers(Steps steps) {
    this.steps = steps;
  }

  /** Transfers and audits by many threads; all commit in the end. */
  String transfers(DurabilityLevel level) {
    TransactionOptions options =
        TransactionOptions.transactionOptions().durabilityLevel(level).timeout(Duration.ofSeconds(60));
    Bank bank = new Bank(steps.cluster(), "bank-" + level, options);
    bank.open();
    long started = System.nanoTime();
    inParallel(worker -> {
      for (int round = 0; round < ROUNDS; round++) {
        for (int each = 0; each < 3; each++) {
          bank.transfer(bank.name + "-receipt-" + worker + "-" + (3 * round + each));
        }
        bank.audit(ThreadLocalRandom.current().nextInt(Bank.GROUPS));
      }
    }).join();
    double seconds = (System.nanoTime() - started) / 1e9;
    equal(
        List.of(bank.committed.size(), bank.undone.size(), bank.unknown.size(), bank.audits.get()),
        List.of(3 * WORKERS * ROUNDS, 0, 0, WORKERS * ROUNDS));
    bank.compare(bank.committed.stream().map(key -> bank.collection.get(key).contentAsObject()).toList());
    return String.format("%.0f transactions/s", (bank.committed.size() + bank.audits.get()) / seconds);
  }

  private static CompletableFuture<Void> inParallel(IntConsumer work) {
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (int worker = 0; worker < WORKERS; worker++) {
      int number = worker;
      all.add(CompletableFuture.runAsync(() -> work.accept(number), task -> new Thread(task).start()));
    }
    return CompletableFuture.allOf(all.toArray(CompletableFuture[]::new));
  }

  /** Makes transfers, which may fail, until it is told to stop. */
  private static CompletableFuture<Void> workUntil(BooleanSupplier stopping, Bank bank, String who) {
    return inParallel(worker -> {
      for (int number = 0; !stopping.getAsBoolean(); number++) {
        bank.transfer(bank.name + "-receipt-" + who + "-" + worker + "-" + number);
      }
    });
  }

  /** Waits for the first transfers. */
  private static void waitForEnough(Bank bank) throws InterruptedException {
    long deadline = System.nanoTime() + ENOUGH_MAX.toNanos();
    while (bank.committed.size() < TRANSFERS_MIN) {
      check(System.nanoTime() < deadline, TRANSFERS_MIN + " transfers");
      Thread.sleep(10);
    }
  }

  /** A cluster whose transactions are persisted, and whose records have a collection of their own. */
  private Cluster open(Duration timeout, boolean cleansUp) {
    return steps.clusterOfTransactions(
        config ->
            config
                .durabilityLevel(DurabilityLevel.PERSIST_TO_MAJORITY)
                .timeout(timeout)
                .metadataCollection(RECORDS)
                .cleanupConfig(
                    cleanup ->
                        cleanup
                            .cleanupWindow(CLEANUP_WINDOW)
                            .cleanupLostAttempts(cleansUp)
                            .cleanupClientAttempts(cleansUp)));
  }

  /**
   * Transfers until this process is killed, at the latest when it has staged one that it never commits; nothing cleans
   * up after them but the other program's SDK.
   */
  String lost() throws InterruptedException {
    Bank bank = new Bank(open(TIMEOUT_OF_LOST, false), "bank-killed", null);
    long deadline = System.nanoTime() + SECOND_MAX.toNanos();
    CompletableFuture<Void> working = workUntil(() -> System.nanoTime() > deadline, bank, "second");
    waitForEnough(bank);
    System.out.println("READY");
    bank.hear("hold", ENOUGH_MAX);
    bank.transfer(bank.name + "-receipt-held", () -> {
      bank.tell("held");
      working.join();
    });
    return null;
  }

  /** Another client and the server are killed in the middle of transfers, and only the server is started again. */
  String killed() throws Exception {
    Collection records = TransactionSteps.made(steps, "records");
    Cluster cluster = open(TIMEOUT, true);
    Bank bank = new Bank(cluster, "bank-killed", null);
    bank.open();
    ManySteps.control("start-second");
    AtomicBoolean stopping = new AtomicBoolean();
    CompletableFuture<Void> working = workUntil(stopping::get, bank, "first");
    List<JsonObject> left;
    try {
      waitForEnough(bank);
      bank.tell("hold");
      bank.hear("held", ENOUGH_MAX);
      ManySteps.control("kill-restart");
      left = entries(records);
    } finally {
      stopping.set(true);
      working.join();
    }
    check(
        left.stream().allMatch(entry -> "pm".equals(entry.getString("d"))), "transactions that persist to the majority");
    long lost = left.stream().filter(entry -> entry.getLong("exp") > TIMEOUT.toMillis()).count();
    check(lost > 0, "attempts that their client cannot end");

    long started = System.nanoTime();
    for (left = entries(records); !left.isEmpty(); left = entries(records)) {
      check(System.nanoTime() - started < CLEANED_UP_MAX.toNanos(), "no entry remains, got " + left);
      Thread.sleep(100);
    }
    double cleanedUp = (System.nanoTime() - started) / 1e9;
    Map<String, JsonObject> receipts = new HashMap<>();
    bank.collection
        .scan(ScanType.prefixScan("bank-killed-receipt-"))
        .forEach(found -> receipts.put(found.id(), found.contentAsObject()));
    check(receipts.keySet().containsAll(bank.committed), "whatever was committed is there");
    check(Collections.disjoint(receipts.keySet(), bank.undone), "whatever was undone is not there");
    long ofSecond = receipts.keySet().stream().filter(key -> key.contains("-second-")).count();
    check(ofSecond >= TRANSFERS_MIN, "transfers of the other client");
    bank.compare(receipts.values());
    // What is still staged somewhere blocks no transaction.
    for (int group = 0; group < Bank.GROUPS; group++) {
      bank.audit(group);
    }
    cluster.disconnect();
    return String.format(
        "%d transfers, %d attempts lost, cleaned up after %.1f s", receipts.size(), lost, cleanedUp);
  }

  /** The entries of all active transaction records. */
  private static List<JsonObject> entries(Collection records) throws InterruptedException {
    List<JsonObject> found = new ArrayList<>();
    eventually(() -> {
      found.clear();
      records
          .scan(ScanType.prefixScan("_txn:atr-"), scanOptions().idsOnly(true))
          .forEach(record -> found.addAll(entriesOf(records, record.id())));
    }, List.of(TimeoutException.class, RequestCanceledException.class));
    return found;
  }

  private static List<JsonObject> entriesOf(Collection records, String id) {
    try {
      JsonObject attempts =
          records.lookupIn(id, List.of(LookupInSpec.get("attempts").xattr())).contentAsObject(0);
      return attempts.getNames().stream().map(attempts::getObject).toList();
    } catch (DocumentNotFoundException | PathNotFoundException absent) {
      return List.of();
    }
  }
}
