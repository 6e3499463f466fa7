"""Queries: rows, parameters, prepared statements, consistency, errors, index managers, long answers."""

from datetime import timedelta

from couchbase.exceptions import (CasMismatchException, CouchbaseException, DocumentExistsException,
                                  ParsingFailedException, QueryIndexAlreadyExistsException,
                                  QueryIndexNotFoundException, UnAmbiguousTimeoutException)
from couchbase.management.collections import CollectionSpec
from couchbase.management.options import (CreatePrimaryQueryIndexOptions, CreateQueryIndexOptions,
                                          DropPrimaryQueryIndexOptions, DropQueryIndexOptions,
                                          GetAllQueryIndexOptions, WatchQueryIndexOptions)
from couchbase.mutation_state import MutationState
from couchbase.n1ql import QueryScanConsistency, QueryStatus
from couchbase.options import QueryOptions

from checks import check, equal, eventually, raises

ENDLESS = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 100000) a UNNEST ARRAY_RANGE(0, 100000) b WHERE a = -1 - b"
ROWS = 100_000


def rows(cluster, statement, **options):
    return list(cluster.query(statement, QueryOptions(**options)))


def query_rows(cluster, bucket):
    collection = bucket.default_collection()
    for number in range(20):
        collection.upsert(f"row-{number:02}", {"type": "row", "n": number, "half": number / 2})
    result = cluster.query("SELECT n, half FROM `default` WHERE type = 'row' AND n >= 15 ORDER BY n DESC",
                           QueryOptions(metrics=True, client_context_id="mine"))
    equal(list(result), [{"n": number, "half": number / 2} for number in range(19, 14, -1)])
    metadata = result.metadata()
    equal(metadata.status(), QueryStatus.SUCCESS)
    equal(metadata.client_context_id(), "mine")
    counts = (metadata.metrics().result_count(), metadata.metrics().error_count())
    equal([count.value for count in counts], [5, 0])
    check(metadata.metrics().elapsed_time() > timedelta(0), "an elapsed time")
    equal(rows(cluster, "SELECT RAW COUNT(*) FROM `default` WHERE type = 'row'"), [20])
    equal(rows(cluster, "DELETE FROM `default` WHERE type = 'row' AND n < 10 RETURNING RAW n < 10"), [True] * 10)
    equal(rows(cluster, "SELECT META(d).id, META(d).cas FROM `default` d USE KEYS 'row-15'"),
          [{"id": "row-15", "cas": collection.get("row-15").cas}])
    manager = bucket.collections()
    manager.create_scope("queries")
    manager.create_collection(CollectionSpec("lines", "queries"))
    scope = bucket.scope("queries")
    eventually(lambda: scope.collection("lines").upsert("a", {"n": 1}), CouchbaseException)
    equal(list(scope.query("SELECT RAW n FROM lines")), [1])
    return metadata.metrics().execution_time()


def query_parameters(cluster, _bucket):
    equal(rows(cluster, "SELECT RAW $1 || $2", positional_parameters=["a", "b"]), ["ab"])
    equal(rows(cluster, "SELECT RAW ? + ?", positional_parameters=[1, 2]), [3])
    equal(rows(cluster, "SELECT RAW $one + $two", named_parameters={"one": 1, "two": 2}), [3])
    document = {"deep": [1, {"x": None}], "text": "ü\"'`"}
    equal(rows(cluster, "SELECT RAW $1", positional_parameters=[document]), [document])
    injected = "x' OR 1 = 1 --"
    equal(rows(cluster, "SELECT RAW $1 = 'x'", positional_parameters=[injected]), [False])


def query_prepared(cluster, _bucket):
    statement = "SELECT RAW $1 * 2"
    for number in range(10):
        equal(rows(cluster, statement, adhoc=False, positional_parameters=[number]), [number * 2])
    names = rows(cluster, "SELECT RAW statement FROM system:prepareds")
    check(any(statement in name for name in names), f"a prepared statement, got {names}")


def query_consistency(cluster, bucket):
    collection = bucket.default_collection()
    statement = "SELECT RAW n FROM `default` WHERE type = 'fresh' ORDER BY n"
    for number in range(20):
        written = collection.upsert(f"fresh-{number}", {"type": "fresh", "n": number})
        seen = rows(cluster, statement, consistent_with=MutationState(written))
        equal(seen, list(range(number + 1)))
    collection.upsert("fresh-20", {"type": "fresh", "n": 20})
    seen = rows(cluster, statement, scan_consistency=QueryScanConsistency.REQUEST_PLUS)
    equal(seen, list(range(21)))


def query_errors(cluster, bucket):
    raises(ParsingFailedException, lambda: rows(cluster, "SELEC 1"))
    raises(CouchbaseException, lambda: rows(cluster, "SELECT * FROM `nowhere`"))
    raises(CouchbaseException, lambda: rows(cluster, "DELETE FROM `default` WHERE false", read_only=True))
    bucket.default_collection().upsert("there", {})
    raises(DocumentExistsException, lambda: rows(cluster, "INSERT INTO `default` VALUES ('there', 1)"))
    check(issubclass(CasMismatchException, CouchbaseException), "the SDK's classes")
    raises(UnAmbiguousTimeoutException,
           lambda: rows(cluster, ENDLESS, timeout=timedelta(seconds=1), read_only=True))
    equal(rows(cluster, "SELECT RAW 1"), [1])


def query_indexes(cluster, bucket):
    manager = cluster.query_indexes()
    manager.create_primary_index("default")
    raises(QueryIndexAlreadyExistsException, lambda: manager.create_primary_index("default"))
    manager.create_primary_index("default", CreatePrimaryQueryIndexOptions(ignore_if_exists=True))
    manager.create_index("default", "by_n", ["n", "`type`"])
    raises(QueryIndexAlreadyExistsException, lambda: manager.create_index("default", "by_n", ["n"]))
    manager.create_index("default", "later", ["half"], CreateQueryIndexOptions(deferred=True))
    found = {index.name: index for index in manager.get_all_indexes("default")}
    equal(sorted(found), ["#primary", "by_n", "later"])
    check(found["#primary"].is_primary and not found["by_n"].is_primary, "one primary index")
    equal((found["by_n"].index_key, found["later"].state), (["`n`", "`type`"], "deferred"))
    manager.build_deferred_indexes("default")
    manager.watch_indexes("default", ["by_n", "later"],
                          WatchQueryIndexOptions(timeout=timedelta(seconds=10), watch_primary=True))
    raises(QueryIndexNotFoundException, lambda: manager.watch_indexes(
        "default", ["missing"], WatchQueryIndexOptions(timeout=timedelta(seconds=2))))
    for name in ("by_n", "later"):
        manager.drop_index("default", name)
    raises(QueryIndexNotFoundException, lambda: manager.drop_index("default", "by_n"))
    manager.drop_index("default", "by_n", DropQueryIndexOptions(ignore_if_not_exists=True))
    manager.drop_primary_index("default")
    raises(QueryIndexNotFoundException, lambda: manager.drop_primary_index("default"))
    manager.drop_primary_index("default", DropPrimaryQueryIndexOptions(ignore_if_not_exists=True))
    equal(list(manager.get_all_indexes("default", GetAllQueryIndexOptions())), [])

    own = bucket.scope("queries").collection("lines").query_indexes()
    own.create_primary_index()
    own.create_index("of_rows", ["n"])
    equal(sorted(index.name for index in own.get_all_indexes()), ["#primary", "of_rows"])
    own.drop_index("of_rows")
    own.drop_primary_index()


def query_streaming(cluster, _bucket):
    statement = f"SELECT n, REPEAT('x', 100) AS filler FROM ARRAY_RANGE(0, {ROWS}) AS n"
    count = 0
    for row in cluster.query(statement, QueryOptions(timeout=timedelta(seconds=60))):
        equal(row["n"], count)
        count += 1
    equal(count, ROWS)
    return f"{count} rows"


STEPS = {
    "query-rows": query_rows,
    "query-parameters": query_parameters,
    "query-prepared": query_prepared,
    "query-consistency": query_consistency,
    "query-errors": query_errors,
    "query-indexes": query_indexes,
    "query-streaming": query_streaming,
}
