package oribi.conformance;

import static com.couchbase.client.java.manager.query.CreatePrimaryQueryIndexOptions.createPrimaryQueryIndexOptions;
import static com.couchbase.client.java.manager.query.CreateQueryIndexOptions.createQueryIndexOptions;
import static com.couchbase.client.java.manager.query.DropQueryIndexOptions.dropQueryIndexOptions;
import static com.couchbase.client.java.manager.query.WatchQueryIndexesOptions.watchQueryIndexesOptions;
import static com.couchbase.client.java.query.QueryOptions.queryOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.eventually;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.IndexExistsException;
import com.couchbase.client.core.error.IndexNotFoundException;
import com.couchbase.client.core.error.ParsingFailureException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.Scope;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.manager.query.CollectionQueryIndexManager;
import com.couchbase.client.java.manager.query.QueryIndex;
import com.couchbase.client.java.manager.query.QueryIndexManager;
import com.couchbase.client.java.query.QueryOptions;
import com.couchbase.client.java.query.QueryResult;
import com.couchbase.client.java.query.QueryScanConsistency;
import com.couchbase.client.java.query.QueryStatus;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.Disposable;

/** Queries: rows, parameters, prepared statements, consistency, errors, index managers, long answers. */
final class Queries {
  private static final String ENDLESS =
      "SELECT COUNT(*) FROM ARRAY_RANGE(0, 100000) a UNNEST ARRAY_RANGE(0, 100000) b WHERE a = -1 - b";
  private static final String ABANDONED =
      "SELECT RAW abandoned FROM ARRAY_RANGE(0, 100000) abandoned UNNEST ARRAY_RANGE(0, 100000) b";
  private static final int ROWS = 100_000;

  private final Steps steps;

  Queries(Steps steps) {
    this.steps = steps;
  }

  private <T> List<T> rows(Class<T> type, String statement, QueryOptions options) {
    return steps.cluster().query(statement, options).rowsAs(type);
  }

  String rows() throws InterruptedException {
    for (int number = 0; number < 20; number++) {
      steps.collection.upsert(
          String.format("row-%02d", number), JsonObject.create().put("type", "row").put("n", number));
    }
    QueryResult result =
        steps.cluster().query("SELECT n FROM `default` WHERE type = 'row' AND n >= 17 ORDER BY n DESC",
            queryOptions().metrics(true).clientContextId("mine"));
    List<Object> found = new ArrayList<>();
    result.rowsAsObject().forEach(row -> found.add(row.get("n")));
    equal(found, List.of(19, 18, 17));
    equal(result.metaData().status(), QueryStatus.SUCCESS);
    equal(result.metaData().clientContextId(), "mine");
    equal(result.metaData().metrics().orElseThrow().resultCount(), 3L);
    equal(rows(Integer.class, "SELECT RAW COUNT(*) FROM `default` WHERE type = 'row'", queryOptions()), List.of(20));
    List<JsonObject> ids =
        rows(JsonObject.class, "SELECT META(d).id, META(d).cas FROM `default` d USE KEYS 'row-15'", queryOptions());
    equal(ids.get(0).getLong("cas"), steps.collection.get("row-15").cas());
    steps.bucket().collections().createScope("queries");
    steps.bucket().collections().createCollection("queries", "lines");
    Scope scope = steps.bucket().scope("queries");
    eventually(() -> scope.collection("lines").upsert("a", JsonObject.create().put("n", 1)), Steps.NOT_THERE_YET);
    equal(scope.query("SELECT RAW n FROM lines").rowsAs(Integer.class), List.of(1));
    return null;
  }

  String parameters() {
    equal(rows(String.class, "SELECT RAW $1 || $2", queryOptions().parameters(JsonArray.from("a", "b"))), List.of("ab"));
    equal(rows(Integer.class, "SELECT RAW ? + ?", queryOptions().parameters(JsonArray.from(1, 2))), List.of(3));
    JsonObject named = JsonObject.create().put("one", 1).put("two", 2);
    equal(rows(Integer.class, "SELECT RAW $one + $two", queryOptions().parameters(named)), List.of(3));
    JsonArray injected = JsonArray.from("x' OR 1 = 1 --");
    equal(rows(Boolean.class, "SELECT RAW $1 = 'x'", queryOptions().parameters(injected)), List.of(false));
    return null;
  }

  String prepared() {
    for (int number = 0; number < 10; number++) {
      QueryOptions options = queryOptions().adhoc(false).parameters(JsonArray.from(number));
      equal(rows(Integer.class, "SELECT RAW $1 * 3", options), List.of(number * 3));
    }
    List<String> names = rows(String.class, "SELECT RAW statement FROM system:prepareds", queryOptions());
    check(names.stream().anyMatch(name -> name.contains("$1 * 3")), "a prepared statement, got " + names);
    return null;
  }

  String consistency() {
    String statement = "SELECT RAW n FROM `default` WHERE type = 'fresh' ORDER BY n";
    List<Integer> expected = new ArrayList<>();
    for (int number = 0; number < 20; number++) {
      JsonObject document = JsonObject.create().put("type", "fresh").put("n", number);
      MutationState written = MutationState.from(
          steps.collection.upsert("fresh-" + number, document).mutationToken().orElseThrow());
      expected.add(number);
      equal(rows(Integer.class, statement, queryOptions().consistentWith(written)), expected);
    }
    steps.collection.remove("fresh-0");
    expected.remove(0);
    QueryOptions fresh = queryOptions().scanConsistency(QueryScanConsistency.REQUEST_PLUS);
    equal(rows(Integer.class, statement, fresh), expected);
    return null;
  }

  String errors() {
    fails(() -> steps.cluster().query("SELEC 1"), ParsingFailureException.class);
    fails(() -> steps.cluster().query("SELECT * FROM `nowhere`"), CouchbaseException.class);
    fails(() -> steps.cluster().query("DELETE FROM `default` WHERE false", queryOptions().readonly(true)),
        CouchbaseException.class);
    steps.collection.upsert("there", JsonObject.create());
    fails(() -> steps.cluster().query("INSERT INTO `default` VALUES ('there', 1)"), DocumentExistsException.class);
    fails(() -> steps.cluster().query(ENDLESS, queryOptions().readonly(true).timeout(Duration.ofSeconds(1))),
        UnambiguousTimeoutException.class);
    equal(rows(Integer.class, "SELECT RAW 1", queryOptions()), List.of(1));
    return null;
  }

  String indexes() {
    QueryIndexManager manager = steps.cluster().queryIndexes();
    manager.createPrimaryIndex("default");
    fails(() -> manager.createPrimaryIndex("default"), IndexExistsException.class);
    manager.createPrimaryIndex("default", createPrimaryQueryIndexOptions().ignoreIfExists(true));
    // This SDK leaves names of fields as they are.
    manager.createIndex("default", "by_n", List.of("n", "`type`"));
    fails(() -> manager.createIndex("default", "by_n", List.of("n")), IndexExistsException.class);
    manager.createIndex("default", "later", List.of("half"), createQueryIndexOptions().deferred(true));
    Map<String, QueryIndex> found = new TreeMap<>();
    manager.getAllIndexes("default").forEach(index -> found.put(index.name(), index));
    equal(new ArrayList<>(found.keySet()), List.of("#primary", "by_n", "later"));
    check(found.get("#primary").primary() && !found.get("by_n").primary(), "one primary index");
    equal(found.get("by_n").indexKey(), JsonArray.from("`n`", "`type`"));
    equal(found.get("later").state(), "deferred");
    manager.buildDeferredIndexes("default");
    manager.watchIndexes("default", List.of("by_n", "later"), Duration.ofSeconds(10),
        watchQueryIndexesOptions().watchPrimary(true));
    for (String name : List.of("by_n", "later")) {
      manager.dropIndex("default", name);
    }
    fails(() -> manager.dropIndex("default", "by_n"), IndexNotFoundException.class);
    manager.dropIndex("default", "by_n", dropQueryIndexOptions().ignoreIfNotExists(true));
    manager.dropPrimaryIndex("default");
    equal(manager.getAllIndexes("default"), List.of());
    Collection lines = steps.bucket().scope("queries").collection("lines");
    CollectionQueryIndexManager own = lines.queryIndexes();
    own.createPrimaryIndex();
    own.createIndex("of_rows", Arrays.asList("n"));
    equal(own.getAllIndexes().stream().map(QueryIndex::name).sorted().toList(), List.of("#primary", "of_rows"));
    own.dropIndex("of_rows");
    own.dropPrimaryIndex();
    return null;
  }

  /** All rows of a long answer, then a reader that leaves in the middle of one. */
  String streaming() throws InterruptedException {
    String statement = "SELECT RAW n FROM ARRAY_RANGE(0, " + ROWS + ") AS n";
    AtomicInteger next = new AtomicInteger();
    steps.cluster().reactive().query(statement).flatMapMany(result -> result.rowsAs(Integer.class))
        .doOnNext(row -> equal(row, next.getAndIncrement())).blockLast(Duration.ofSeconds(60));
    equal(next.get(), ROWS);
    CountDownLatch first = new CountDownLatch(1);
    Disposable reader = steps.cluster().reactive().query(ABANDONED)
        .flatMapMany(result -> result.rowsAs(Integer.class)).subscribe(row -> first.countDown(), failure -> {});
    check(first.await(30, TimeUnit.SECONDS), "a first row");
    reader.dispose();
    String running = "SELECT RAW COUNT(*) FROM system:active_requests WHERE statement LIKE '%abandoned%' "
        + "AND statement NOT LIKE '%active_requests%'";
    for (int attempt = 0; !rows(Integer.class, running, queryOptions()).equals(List.of(0)); attempt++) {
      check(attempt < 100, "the statement is cancelled within ten seconds");
      Thread.sleep(100);
    }
    return ROWS + " rows";
  }
}
