package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.AuthenticationFailureException;
import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.core.error.ScopeNotFoundException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.core.retry.FailFastRetryStrategy;
import com.couchbase.client.java.BinaryCollection;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.DecrementOptions;
import com.couchbase.client.java.kv.ExistsResult;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.IncrementOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.manager.collection.CollectionManager;
import com.couchbase.client.java.transactions.config.TransactionsConfig;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;

/** What each step does, except for those that run many operations at once. */
final class Steps {
  static final int VALUE_BYTES_MAX = 20 * 1024 * 1024;
  static final List<Class<? extends RuntimeException>> NOT_THERE_YET =
      List.of(
          TimeoutException.class,
          RequestCanceledException.class,
          CollectionNotFoundException.class,
          ScopeNotFoundException.class);
  private static final Duration TWO_SECONDS = Duration.ofSeconds(2);
  private static final Duration PATIENT = Duration.ofSeconds(30);

  private final String connectionString = System.getenv("ORIBI_CONNSTR");
  static final String BUCKET = System.getenv().getOrDefault("ORIBI_BUCKET", "default");
  private final String user = System.getenv("ORIBI_USER");
  private final String password = System.getenv("ORIBI_PASSWORD");
  private Cluster cluster;
  private Bucket bucket;
  Collection collection;

  void close() {
    if (cluster != null) {
      cluster.disconnect();
    }
  }

  /** With the authority that vouches for the server, where TLS is spoken. */
  private ClusterOptions options(String name, String secret, boolean compresses) {
    String authority = System.getenv("ORIBI_CA");
    return ClusterOptions.clusterOptions(name, secret)
        .environment(
            environment -> {
              environment.compressionConfig(compression -> compression.enable(compresses));
              if (authority != null) {
                environment.securityConfig(security -> security.trustCertificate(Path.of(authority)));
              }
            });
  }

  Cluster clusterWithoutCompression() {
    return ready(options(user, password, false));
  }

  Cluster clusterOfLimitedUser() {
    return clusterOf(System.getenv("ORIBI_LIMITED_USER"), password);
  }

  Cluster anotherCluster() {
    return clusterOf(user, password);
  }

  Cluster clusterOf(String name, String secret) {
    return ready(options(name, secret, true));
  }

  Cluster clusterOfTransactions(Consumer<TransactionsConfig.Builder> config) {
    return ready(
        ClusterOptions.clusterOptions(user, password)
            .environment(environment -> environment.transactionsConfig(config)));
  }

  /**
   * A connected cluster that has its configuration. Until then the SDK knows its first node by the default port of the
   * manager. A collection's id that it asks for meanwhile is never asked for again ("Node not found for request", by a
   * timer), and the operation that needs the id runs into its timeout.
   */
  private Cluster ready(ClusterOptions options) {
    Cluster connected = Cluster.connect(connectionString, options);
    connected.waitUntilReady(Duration.ofSeconds(20));
    return connected;
  }

  Cluster cluster() {
    return cluster;
  }

  Bucket bucket() {
    return bucket;
  }

  String connect() {
    cluster = clusterOf(user, password);
    bucket = cluster.bucket(BUCKET);
    // This one also asks the admin HTTP port whether every node of the bucket is healthy.
    bucket.waitUntilReady(Duration.ofSeconds(20));
    check(!bucket.ping().endpoints().isEmpty(), "the bucket answers a ping");
    collection = bucket.defaultCollection();
    return null;
  }

  String crud() {
    JsonObject ada = JsonObject.create().put("name", "Ada").put("born", 1815);
    MutationResult first = collection.insert("crud", ada);
    GetResult got = collection.get("crud");
    equal(got.contentAsObject(), ada);
    equal(got.cas(), first.cas());
    MutationResult second = collection.upsert("crud", JsonObject.create().put("name", "Grace"));
    check(second.cas() != first.cas(), "a new CAS");
    JsonArray list = JsonArray.from("a", 1, null, "é");
    MutationResult third = collection.replace("crud", list, replaceOptions().cas(second.cas()));
    got = collection.get("crud");
    equal(got.contentAsArray(), list);
    equal(got.cas(), third.cas());
    collection.remove("crud", removeOptions().cas(third.cas()));
    fails(() -> collection.get("crud"), DocumentNotFoundException.class);
    return null;
  }

  String notFound() {
    String key = "never-written";
    fails(() -> collection.get(key), DocumentNotFoundException.class);
    fails(() -> collection.remove(key), DocumentNotFoundException.class);
    fails(() -> collection.replace(key, 1), DocumentNotFoundException.class);
    fails(() -> collection.touch(key, TWO_SECONDS), DocumentNotFoundException.class);
    fails(() -> collection.getAndTouch(key, TWO_SECONDS), DocumentNotFoundException.class);
    fails(() -> collection.binary().increment(key), DocumentNotFoundException.class);
    return null;
  }

  String exists() {
    equal(collection.exists("exists").exists(), false);
    MutationResult stored = collection.insert("exists", 1);
    ExistsResult found = collection.exists("exists");
    equal(found.exists(), true);
    equal(found.cas(), stored.cas());
    fails(() -> collection.insert("exists", 2), DocumentExistsException.class);
    collection.remove("exists");
    equal(collection.exists("exists").exists(), false);
    return null;
  }

  String casMismatch() {
    long old = collection.upsert("cas", 1).cas();
    long current = collection.upsert("cas", 2).cas();
    fails(() -> collection.replace("cas", 3, replaceOptions().cas(old)), CasMismatchException.class);
    fails(() -> collection.remove("cas", removeOptions().cas(old)), CasMismatchException.class);
    equal(collection.get("cas").contentAs(Integer.class), 2);
    collection.replace("cas", 4, replaceOptions().cas(current));
    return null;
  }

  String counters() {
    equal(up(5), 10L);
    equal(up(5), 15L);
    equal(down(4), 11L);
    equal(down(100), 0L);
    equal(collection.get("counter").contentAs(Integer.class), 0);
    collection.upsert("not-a-counter", "text");
    // The SDK does not know the protocol's status for "not a number" (6) and raises the base class.
    Throwable refusal = fails(() -> collection.binary().increment("not-a-counter"), CouchbaseException.class);
    equal(refusal.getClass(), CouchbaseException.class);
    return null;
  }

  private long up(long delta) {
    IncrementOptions options = IncrementOptions.incrementOptions().delta(delta).initial(10);
    return collection.binary().increment("counter", options).content();
  }

  private long down(long delta) {
    DecrementOptions options = DecrementOptions.decrementOptions().delta(delta).initial(10);
    return collection.binary().decrement("counter", options).content();
  }

  String appendPrepend() {
    collection.upsert("concat", latin("middle"), upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    BinaryCollection binary = collection.binary();
    binary.append("concat", latin("-end\0"));
    binary.prepend("concat", latin("\u00ffbegin-"));
    GetResult got = collection.get("concat", getOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    equal(got.contentAs(byte[].class), latin("\u00ffbegin-middle-end\0"));
    return null;
  }

  private static byte[] latin(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }

  String expiry() throws InterruptedException {
    collection.insert("expiry", 1, insertOptions().expiry(TWO_SECONDS));
    collection.get("expiry");
    untilNotFound("expiry");
    collection.insert("expiry", 1);
    return null;
  }

  String touch() throws InterruptedException {
    collection.upsert("touch", 1);
    collection.touch("touch", TWO_SECONDS);
    collection.get("touch");
    untilNotFound("touch");
    return null;
  }

  String getAndTouch() throws InterruptedException {
    collection.upsert("gat", 7);
    equal(collection.getAndTouch("gat", TWO_SECONDS).contentAs(Integer.class), 7);
    untilNotFound("gat");
    return null;
  }

  private void untilNotFound(String key) throws InterruptedException {
    long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
    while (collection.exists(key).exists()) {
      check(System.nanoTime() < deadline, key + " expires");
      Thread.sleep(100);
    }
    fails(() -> collection.get(key), DocumentNotFoundException.class);
  }

  String durability() {
    for (DurabilityLevel level : DurabilityLevel.values()) {
      if (level == DurabilityLevel.NONE) {
        continue;
      }
      String key = "durable-" + level;
      collection.insert(key, 1, insertOptions().durability(level));
      collection.replace(key, 2, replaceOptions().durability(level));
      collection.mutateIn(
          key, List.of(MutateInSpec.upsert("user", key).xattr()), mutateInOptions().durability(level));
      SubDocumentCases.compare(collection.lookupIn(key, List.of(LookupInSpec.get("user").xattr())), 0, key);
      MutationResult stored = collection.upsert(key, 3, upsertOptions().durability(level));
      GetResult got = collection.get(key);
      equal(got.contentAs(Integer.class), 3);
      equal(got.cas(), stored.cas());
      collection.remove(key, removeOptions().durability(level));
      fails(() -> collection.get(key), DocumentNotFoundException.class);
    }
    return null;
  }

  String mutationTokens() {
    MutationToken first = collection.upsert("token", 1).mutationToken().orElseThrow();
    MutationToken second = collection.upsert("token", 2).mutationToken().orElseThrow();
    MutationToken removal = collection.remove("token").mutationToken().orElseThrow();
    equal(first.bucketName(), BUCKET);
    equal(first.partitionID(), second.partitionID());
    equal(first.partitionUUID(), second.partitionUUID());
    check(first.partitionUUID() != 0, "a vbucket uuid");
    check(second.sequenceNumber() > first.sequenceNumber(), "seqnos grow");
    check(removal.sequenceNumber() > second.sequenceNumber(), "a removal has a newer token");
    // What queries are told to wait for.
    JsonArray place = JsonArray.from(second.sequenceNumber(), Long.toUnsignedString(second.partitionUUID()));
    JsonObject places = JsonObject.create().put(Long.toString(second.partitionID()), place);
    equal(MutationState.from(first, second).export().toString(), JsonObject.create().put(BUCKET, places).toString());
    return null;
  }

  String collections() throws InterruptedException {
    CollectionManager manager = bucket.collections();
    manager.createScope("java");
    fails(() -> manager.createScope("java"), ScopeExistsException.class);
    manager.createCollection("java", "things");
    fails(() -> manager.createCollection("java", "things"), CollectionExistsException.class);
    fails(() -> manager.createCollection("nowhere", "things"), ScopeNotFoundException.class);
    check(listed().contains("java.things"), "the collection is listed");
    Collection things = bucket.scope("java").collection("things");
    eventually(() -> things.upsert("same-key", "in things"), NOT_THERE_YET);
    collection.upsert("same-key", "in default");
    equal(things.get("same-key").contentAs(String.class), "in things");
    equal(collection.get("same-key").contentAs(String.class), "in default");
    manager.dropCollection("java", "things");
    fails(() -> manager.dropCollection("java", "things"), CollectionNotFoundException.class);
    check(!listed().contains("java.things"), "the collection is gone");
    // A client cannot know that the collection will not come back, so it retries until its timeout.
    fails(
        () -> things.get("same-key", getOptions().timeout(TWO_SECONDS)),
        TimeoutException.class,
        CollectionNotFoundException.class);
    manager.dropScope("java");
    fails(() -> manager.dropScope("java"), ScopeNotFoundException.class);
    check(!listed().contains("java"), "the scope is gone");
    equal(collection.get("same-key").contentAs(String.class), "in default");
    return null;
  }

  /** Every scope as "scope" and every collection as "scope.collection". */
  private Set<String> listed() {
    Set<String> names = new TreeSet<>();
    bucket.collections().getAllScopes().forEach(scope -> {
      names.add(scope.name());
      scope.collections().forEach(each -> names.add(scope.name() + "." + each.name()));
    });
    return names;
  }

  String document20MiB() {
    byte[] value = new byte[VALUE_BYTES_MAX];
    for (int index = 0; index < value.length; index++) {
      value[index] = (byte) (index % 251);
    }
    collection.upsert(
        "large", value, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(PATIENT));
    GetResult got =
        collection.get("large", getOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(PATIENT));
    check(Arrays.equals(got.contentAs(byte[].class), value), "20 MiB come back unchanged");
    collection.remove("large");
    return null;
  }

  String tooLarge() {
    byte[] value = new byte[VALUE_BYTES_MAX + 1];
    fails(
        () -> collection.upsert(
            "too-large", value, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(PATIENT)),
        ValueTooLargeException.class);
    equal(collection.exists("too-large").exists(), false);
    return null;
  }

  /**
   * The SDK connects in the background and keeps trying, because a password may become right: by default an
   * operation ends in a timeout whose context names the reason. The fail-fast strategy is its documented way
   * to see the refusal itself.
   */
  String wrongPassword() {
    long started = System.nanoTime();
    refusesLogin(user, "not the password");
    check(System.nanoTime() - started < Duration.ofSeconds(20).toNanos(), "the refusal is prompt");
    return null;
  }

  void refusesLogin(String name, String secret) {
    Cluster wrong = Cluster.connect(connectionString, options(name, secret, true));
    try {
      Collection refused = wrong.bucket("default").defaultCollection();
      fails(
          () -> refused.get("crud", getOptions().retryStrategy(FailFastRetryStrategy.INSTANCE)),
          AuthenticationFailureException.class,
          RequestCanceledException.class);
    } finally {
      wrong.disconnect();
    }
  }
}
