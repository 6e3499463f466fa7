"""Copies of a document: reads that any copy answers, and writes that wait for copies as the SDK observes them.

ORIBI_REPLICAS is how many replicas the bucket has; without replicas the only copy answers for all.
"""

import os

import couchbase.subdocument as SD
from couchbase.durability import ClientDurability, PersistTo, ReplicateTo
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException, DocumentUnretrievableException
from couchbase.n1ql import QueryScanConsistency
from couchbase.options import InsertOptions, QueryOptions, RemoveOptions, ReplaceOptions, UpsertOptions

from checks import check, equal, eventually, raises

REPLICAS = int(os.environ.get("ORIBI_REPLICAS", "0"))
# What this SDK accepts with so many replicas: it counts ONE as two copies.
PERSIST_TO = (PersistTo.NONE, PersistTo.ONE, PersistTo.TWO)
REPLICATE_TO = (ReplicateTo.NONE, ReplicateTo.ONE, ReplicateTo.TWO)
ALL_COPIES = sorted([False, *[True] * REPLICAS])
# Statements that the nodes get in turn.
STATEMENTS, DOCUMENTS = 6, 64
# The error of a node that does not have all vbuckets of a statement.
LACKS_VBUCKETS = "12008"


class CopiesDiffer(Exception):
    """Some copy has not followed yet."""


def replicas(collection):
    """What was written is read from every copy, once all have it, and from any."""
    stored = collection.upsert("replicas", {"n": 1})
    eventually(lambda: same_everywhere(collection, "replicas", {"n": 1}, stored.cas), CopiesDiffer)
    got = collection.get_any_replica("replicas")
    equal((got.content_as[dict], got.cas), ({"n": 1}, stored.cas))
    specs = [SD.get("n"), SD.exists("z")]
    found = collection.lookup_in_any_replica("replicas", specs)
    equal((found.content_as[int](0), found.exists(1), found.cas), (1, False, stored.cas))
    everywhere = list(collection.lookup_in_all_replicas("replicas", specs))
    equal([(each.content_as[int](0), each.exists(1)) for each in everywhere], [(1, False)] * len(ALL_COPIES))
    equal(sorted(each.is_replica for each in everywhere), ALL_COPIES)
    raises(DocumentUnretrievableException, lambda: collection.get_any_replica("never-written"))
    raises(DocumentUnretrievableException, lambda: collection.lookup_in_any_replica("never-written", specs))


def same_everywhere(collection, key, value, cas):
    """Raises unless each copy, of which one is no replica, has this version of a document."""
    found = list(collection.get_all_replicas(key))
    if sorted(each.is_replica for each in found) != ALL_COPIES or {each.cas for each in found} != {cas}:
        raise CopiesDiffer(f"{[(each.is_replica, each.cas) for each in found]} instead of CAS {cas}")
    equal([each.content_as[type(value)] for each in found], [value] * len(ALL_COPIES))


def observed_durability(collection):
    """Writes that wait until the SDK has observed them in the memory of all copies, and then on disks, too."""
    if REPLICAS == 0:
        return "this SDK waits for replicas only"
    for persists in (False, True):
        waits = {"durability": ClientDurability(replicate_to=REPLICATE_TO[REPLICAS],
                                                persist_to=PERSIST_TO[REPLICAS if persists else 0])}
        key = f"observed-{persists}"
        # Each of them is in all copies when it is acknowledged.
        for number, write in enumerate((
                lambda: collection.insert(key, 0, InsertOptions(**waits)),
                lambda: collection.replace(key, 1, ReplaceOptions(**waits)),
                lambda: collection.upsert(key, 2, UpsertOptions(**waits)))):
            same_everywhere(collection, key, number, write().cas)
        collection.remove(key, RemoveOptions(**waits))
        raises(DocumentNotFoundException, lambda: collection.get(key))
        raises(DocumentUnretrievableException, lambda: collection.get_any_replica(key))


def whole_answers(cluster, bucket):
    """A statement sees every document or is refused: a node has its own vbuckets only."""
    for number in range(DOCUMENTS):
        bucket.default_collection().upsert(f"whole-{number}", {"type": "whole"})
    statement = f"SELECT RAW COUNT(*) FROM `{bucket.name}` WHERE type = 'whole'"
    refused = 0
    for _ in range(STATEMENTS):
        try:
            counted = list(cluster.query(statement, QueryOptions(scan_consistency=QueryScanConsistency.REQUEST_PLUS)))
            equal(counted, [DOCUMENTS])
        except CouchbaseException as error:
            check(LACKS_VBUCKETS in str(error), f"error {LACKS_VBUCKETS}, got {error}")
            refused += 1
    return f"{refused} of {STATEMENTS} refused"
