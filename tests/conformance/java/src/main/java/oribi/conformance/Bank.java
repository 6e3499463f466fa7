package oribi.conformance;

import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;

import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.transactions.TransactionAttemptContext;
import com.couchbase.client.java.transactions.TransactionGetResult;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import com.couchbase.client.java.transactions.error.TransactionCommitAmbiguousException;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/**
 * Money that many threads move between accounts, each time in a transaction with a receipt.
 *
 * <p>Accounts are in groups, and nothing leaves its group. A transaction that reads a group and writes its balances
 * back cannot commit unless it saw the group at one moment, so it has to see the group's sum.
 *
 * <p>No account is written twice alike: this SDK takes a document with an equal checksum for an unchanged one, although
 * it may have changed and changed back.
 */
final class Bank {
  static final int GROUPS = 6;
  private static final int ACCOUNTS_OF_GROUP = 3;
  private static final int OPENING_BALANCE = 100;

  final Collection collection;
  final String name;

  /** The keys of receipts. */
  final Set<String> committed = ConcurrentHashMap.newKeySet();

  final Set<String> undone = ConcurrentHashMap.newKeySet();
  final Set<String> unknown = ConcurrentHashMap.newKeySet();
  final AtomicInteger audits = new AtomicInteger();
  private final Cluster cluster;
  private final TransactionOptions options;

  Bank(Cluster cluster, String name, TransactionOptions options) {
    this.cluster = cluster;
    this.collection = cluster.bucket(Steps.BUCKET).defaultCollection();
    this.name = name;
    this.options = options;
  }

  private String account(int group, int number) {
    return name + "-account-" + group + "-" + number;
  }

  private Map<String, Integer> accounts() {
    Map<String, Integer> balances = new TreeMap<>();
    for (int group = 0; group < GROUPS; group++) {
      for (int number = 0; number < ACCOUNTS_OF_GROUP; number++) {
        balances.put(account(group, number), OPENING_BALANCE);
      }
    }
    return balances;
  }

  void open() {
    accounts().forEach((key, balance) ->
        collection.upsert(
            key,
            JsonObject.create().put("balance", balance),
            upsertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY)));
  }

  /** Changes a balance and returns what it was. */
  private int add(TransactionAttemptContext attempt, String key, int amount, String by) {
    TransactionGetResult got = attempt.get(collection, key);
    int balance = got.contentAsObject().getInt("balance");
    attempt.replace(got, JsonObject.create().put("balance", balance + amount).put("by", by));
    return balance;
  }

  void transfer(String receipt) {
    transfer(receipt, () -> {});
  }

  /** Runs `staged` before the commit. */
  void transfer(String receipt, Runnable staged) {
    ThreadLocalRandom random = ThreadLocalRandom.current();
    int group = random.nextInt(GROUPS);
    int amount = random.nextInt(-5, 6);
    int left = random.nextInt(ACCOUNTS_OF_GROUP);
    // Always in the order of accounts: two transactions that wait for each other would cost a second.
    int[] numbers = IntStream.range(0, ACCOUNTS_OF_GROUP).filter(number -> number != left).toArray();
    String source = account(group, numbers[0]);
    String target = account(group, numbers[1]);
    Set<String> outcome = undone;
    try {
      cluster.transactions().run(attempt -> {
        add(attempt, source, -amount, receipt);
        add(attempt, target, amount, receipt);
        attempt.insert(
            collection, receipt, JsonObject.create().put("source", source).put("target", target).put("amount", amount));
        staged.run();
      }, options);
      outcome = committed;
    } catch (TransactionCommitAmbiguousException ambiguous) {
      outcome = unknown;
    } catch (TransactionFailedException failed) {
      // It is undone.
    }
    outcome.add(receipt);
  }

  /** The two programs tell each other by documents when it is time to hold a transfer, and that it is held. */
  void tell(String what) {
    collection.upsert(name + "-" + what, JsonObject.create());
  }

  void hear(String what, Duration most) throws InterruptedException {
    long deadline = System.nanoTime() + most.toNanos();
    while (!collection.exists(name + "-" + what).exists()) {
      check(System.nanoTime() < deadline, "the other program says " + what);
      Thread.sleep(10);
    }
  }

  void audit(int group) {
    AtomicInteger sum = new AtomicInteger();
    cluster.transactions().run(attempt -> {
      sum.set(0);
      for (int number = 0; number < ACCOUNTS_OF_GROUP; number++) {
        sum.addAndGet(add(attempt, account(group, number), 0, UUID.randomUUID().toString()));
      }
    }, options);
    equal(sum.get(), ACCOUNTS_OF_GROUP * OPENING_BALANCE);
    audits.incrementAndGet();
  }

  /** Every balance is what the receipts say. */
  void compare(Iterable<JsonObject> receipts) {
    Map<String, Integer> expected = accounts();
    for (JsonObject receipt : receipts) {
      expected.merge(receipt.getString("source"), -receipt.getInt("amount"), Integer::sum);
      expected.merge(receipt.getString("target"), receipt.getInt("amount"), Integer::sum);
    }
    Map<String, Integer> found = new TreeMap<>();
    for (String key : expected.keySet()) {
      found.put(key, collection.get(key).contentAsObject().getInt("balance"));
    }
    equal(found, expected);
  }
}
