"""Transactions: several documents change together or not at all.

`lambda`s and nested functions that take an `attempt` run inside a transaction, possibly more than once.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import couchbase.subdocument as SD
from couchbase.exceptions import (CollectionAlreadyExistsException, DocumentExistsException, DocumentNotFoundException,
                                  ScopeAlreadyExistsException, TransactionFailed, TransactionOperationFailed)
from couchbase.options import GetOptions, LookupInOptions, UpsertOptions
from couchbase.transactions import TransactionGetMultiSpec
from couchbase.transcoder import RawBinaryTranscoder

from checks import check, equal, eventually, raises

BINARY = RawBinaryTranscoder()
WAIT_SECONDS_MAX = 20
RUN_SECONDS_MAX = 60


class ApplicationError(Exception):
    """What the program itself raises inside a transaction."""


def run(cluster, body, options=None):
    """Runs a transaction until it succeeds or fails for good.

    This SDK ends a transaction in which another one is in the way, or which read what has changed since, where others
    begin it anew by themselves.
    """
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while True:
        try:
            return cluster.transactions.run(body, options)
        except TransactionFailed as error:
            if not isinstance(error.inner_cause, TransactionOperationFailed) or time.monotonic() > deadline:
                raise


def made(bucket, name, transient):
    """A collection of the scope `transactions`, which exists afterwards."""
    manager = bucket.collections()
    for create, arguments in ((manager.create_scope, ["transactions"]), (manager.create_collection, ["transactions", name])):
        try:
            create(*arguments)
        except (ScopeAlreadyExistsException, CollectionAlreadyExistsException):
            pass
    collection = bucket.scope("transactions").collection(name)
    eventually(lambda: collection.upsert("first", 1), transient)
    return collection


def value(got):
    return got.content_as[dict]


def plain(collection, key):
    """What a client without a transaction reads; None when there is no document."""
    try:
        return value(collection.get(key))
    except DocumentNotFoundException:
        return None


def read(attempt, collection, key):
    """The same inside a transaction."""
    try:
        return value(attempt.get(collection, key))
    except DocumentNotFoundException:
        return None


def nothing_staged(*places):
    """No transaction has left anything, be the document alive or deleted."""
    for collection, key in places:
        try:
            found = collection.lookup_in(key, [SD.exists("txn", xattr=True)], LookupInOptions(access_deleted=True))
            check(not found.exists(0), f"nothing is staged in {key}")
        except DocumentNotFoundException:
            pass


def commit(cluster, default, left, right):
    """An insert, a replacement, a removal and reads, in three collections."""
    left.upsert("replaced", {"n": 1})
    default.upsert("removed", {"n": 1})
    right.upsert("read", {"n": 7})

    def change(attempt):
        equal(read(attempt, right, "read"), {"n": 7})
        inserted = attempt.insert(right, "inserted", {"n": 2})
        replaced = attempt.replace(attempt.get(left, "replaced"), {"n": 3})
        attempt.remove(attempt.get(default, "removed"))
        # It sees its own writes, and no other client does.
        states = [read(attempt, right, "inserted"), read(attempt, left, "replaced"), read(attempt, default, "removed")]
        equal(states, [{"n": 2}, {"n": 3}, None])
        states = [plain(right, "inserted"), plain(left, "replaced"), plain(default, "removed")]
        equal(states, [None, {"n": 1}, {"n": 1}])
        attempt.replace(inserted, {"n": 4})
        attempt.replace(replaced, {"n": 5})
        attempt.remove(attempt.insert(left, "fleeting", {}))

    result = run(cluster, change)
    check(result.unstaging_complete, "everything is in its place")
    states = [plain(right, "inserted"), plain(left, "replaced"), plain(default, "removed"), plain(left, "fleeting")]
    equal(states, [{"n": 4}, {"n": 5}, None, None])
    # Where a document was deleted, one can be inserted again.
    run(cluster, lambda attempt: attempt.insert(default, "removed", {"n": 6}))
    equal(plain(default, "removed"), {"n": 6})
    nothing_staged((right, "inserted"), (left, "replaced"), (default, "removed"), (left, "fleeting"), (right, "read"))


def roll_back(cluster, default, left, right):
    """An error of the application undoes everything."""
    left.upsert("kept", {"n": 1})
    default.upsert("not-removed", {"n": 1})

    def change(attempt):
        attempt.insert(right, "not-inserted", {"n": 2})
        attempt.replace(attempt.get(left, "kept"), {"n": 3})
        attempt.remove(attempt.get(default, "not-removed"))
        raise ApplicationError("no")

    error = raises(TransactionFailed, lambda: run(cluster, change))
    check(isinstance(error.inner_cause, ApplicationError), f"the program's own error, got {error}")
    equal([plain(right, "not-inserted"), plain(left, "kept"), plain(default, "not-removed")], [None, {"n": 1}, {"n": 1}])
    nothing_staged((right, "not-inserted"), (left, "kept"), (default, "not-removed"))
    run(cluster, lambda attempt: attempt.insert(right, "not-inserted", {"n": 4}))
    equal(plain(right, "not-inserted"), {"n": 4})

    def lose(attempt):
        attempt.replace(attempt.get(left, "kept"), {"n": 5})
        left.upsert("kept", {"n": 6})
        raise ApplicationError("no")

    # A write without a transaction, which came in between, stays; this SDK raises what undoing ended with.
    raises(TransactionOperationFailed, lambda: run(cluster, lose))
    equal(plain(left, "kept"), {"n": 6})


class Meeting:
    """Two transactions at once: the first one holds what it has staged until the second one has collided with it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.staged, self.collided = threading.Event(), threading.Event()
        self.attempts = 0

    def run(self, first, second):
        def leading(attempt):
            first(attempt)
            self.staged.set()
            check(self.collided.wait(WAIT_SECONDS_MAX), "the other transaction begins anew")

        def following(attempt):
            self.attempts += 1
            if self.attempts == 2:
                self.collided.set()
            second(attempt)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(run, self.cluster, leading)
            check(self.staged.wait(WAIT_SECONDS_MAX), "the first transaction stages its change")
            try:
                run(self.cluster, following)
            finally:
                self.collided.set()
                done.result()
        check(self.attempts >= 2, "a second attempt")


def conflicts(cluster, collection):
    def add(key, number):
        def change(attempt):
            got = attempt.get(collection, key)
            attempt.replace(got, {"n": value(got)["n"] + number})
        return change

    # Two that change the same document: both do.
    collection.upsert("contended", {"n": 0})
    Meeting(cluster).run(add("contended", 1), add("contended", 10))
    equal(plain(collection, "contended"), {"n": 11})

    # Two that insert the same document: one does, and what else the other one did is undone.
    def insert_twice(attempt):
        attempt.insert(collection, "beside", {})
        attempt.insert(collection, "inserted-twice", {"by": "the second"})

    meeting = Meeting(cluster)
    error = raises(TransactionFailed, lambda: meeting.run(
        lambda attempt: attempt.insert(collection, "inserted-twice", {"by": "the first"}), insert_twice))
    check(isinstance(error.inner_cause, DocumentExistsException), f"it exists, got {error.inner_cause}")
    equal((plain(collection, "inserted-twice"), plain(collection, "beside")), ({"by": "the first"}, None))

    # A document that is there cannot be inserted.
    error = raises(TransactionFailed, lambda: run(cluster, lambda attempt: attempt.insert(collection, "contended", {})))
    check(isinstance(error.inner_cause, DocumentExistsException), f"it exists, got {error.inner_cause}")

    # One that has gone since it was read cannot be replaced.
    collection.upsert("gone", {"n": 1})

    def replace_what_goes(attempt):
        got = attempt.get(collection, "gone")
        collection.remove("gone")
        attempt.replace(got, {"n": 2})

    error = raises(TransactionFailed, lambda: run(cluster, replace_what_goes))
    check(isinstance(error.inner_cause, DocumentNotFoundException), f"it is gone, got {error.inner_cause}")
    equal(plain(collection, "gone"), None)

    # A change without a transaction, after the read: the transaction sees it in its next attempt.
    collection.upsert("changed", {"n": 0})
    attempts = []

    def change_what_changes(attempt):
        attempts.append(attempt)
        got = attempt.get(collection, "changed")
        if len(attempts) == 1:
            collection.upsert("changed", {"n": 100})
        attempt.replace(got, {"n": value(got)["n"] + 1})

    run(cluster, change_what_changes)
    equal((plain(collection, "changed"), len(attempts)), ({"n": 101}, 2))
    nothing_staged(*((collection, key) for key in ("contended", "beside", "inserted-twice", "gone", "changed")))


def staged_reads(cluster, collection):
    """What one transaction has staged, others do not see before it is committed."""
    keys = ["staged-replace", "staged-remove", "staged-insert"]
    for key in keys[:2]:
        collection.upsert(key, {"n": 1})
    collection.upsert("beside-staged", {"n": 5})
    seen = []

    def look(attempt):
        many = attempt.get_multi([TransactionGetMultiSpec(collection, key) for key in (keys[0], "beside-staged")])
        seen[:] = [read(attempt, collection, key) for key in keys], [many.content_as[dict](number) for number in range(2)]

    def change(attempt):
        attempt.replace(attempt.get(collection, keys[0]), {"n": 2})
        attempt.remove(attempt.get(collection, keys[1]))
        attempt.insert(collection, keys[2], {"n": 3})
        equal([plain(collection, key) for key in keys], before)
        run(cluster, look)
        equal(seen, [before, [before[0], {"n": 5}]])

    before, after = [{"n": 1}, {"n": 1}, None], [{"n": 2}, None, {"n": 3}]
    run(cluster, change)
    equal([plain(collection, key) for key in keys], after)
    run(cluster, look)
    equal(seen, [after, [after[0], {"n": 5}]])


def binary(cluster, collection):
    """Documents that are no JSON become others, and become JSON and back."""
    first, second = b"\x00\xff\xfe first", b"\x80second\x00"
    raw = {"transcoder": BINARY}
    collection.upsert("binary-replaced", first, UpsertOptions(**raw))
    collection.upsert("binary-from-json", {"n": 1})
    collection.upsert("binary-to-json", first, UpsertOptions(**raw))

    def change(attempt):
        attempt.insert(collection, "binary-inserted", first, **raw)
        attempt.replace(attempt.get(collection, "binary-replaced", **raw), second, **raw)
        attempt.replace(attempt.get(collection, "binary-from-json"), second, **raw)
        attempt.replace(attempt.get(collection, "binary-to-json", **raw), {"n": 2})
        equal(attempt.get(collection, "binary-inserted", **raw).content_as[bytes], first)

    def give_up(attempt):
        change(attempt)
        raise ApplicationError("no")

    def stored(key):
        return collection.get(key, GetOptions(**raw)).value

    raises(TransactionFailed, lambda: run(cluster, give_up))
    equal(collection.exists("binary-inserted").exists, False)
    equal((stored("binary-replaced"), plain(collection, "binary-from-json"), stored("binary-to-json")), (first, {"n": 1}, first))
    run(cluster, change)
    equal([stored(f"binary-{key}") for key in ("inserted", "replaced", "from-json")], [first, second, second])
    equal(plain(collection, "binary-to-json"), {"n": 2})
    nothing_staged(*((collection, f"binary-{key}") for key in ("inserted", "replaced", "from-json", "to-json")))
