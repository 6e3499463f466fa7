"""Scans of a collection with the Couchbase Python SDK: ranges, prefixes and samples, documents and ids.

The last line of output is for the report.
"""

import os
import sys
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import DocumentNotFoundException
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.mutation_state import MutationState
from couchbase.options import ClusterOptions, RemoveOptions, ScanOptions, UpsertOptions

from checks import check, equal, raises

DOCUMENTS = 2_000
PERSISTED = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)


def key_of(number):
    return f"{'even' if number % 2 == 0 else 'odd'}-{number:05}"


def document_of(number):
    return {"number": number, "text": "x" * (number % 500)}


def scan(collection, scan_type, **options):
    return list(collection.scan(scan_type, ScanOptions(**options)))


def ids(collection, scan_type, **options):
    return sorted(found.id for found in scan(collection, scan_type, ids_only=True, **options))


def fill(collection):
    """Writes the documents and returns what a scan has to be consistent with."""
    state = MutationState()
    for number in range(DOCUMENTS):
        state.add_mutation_token(collection.upsert(key_of(number), document_of(number)).mutation_token())
    return state


def run(collection):
    state = fill(collection)
    odd = [key_of(number) for number in range(1, DOCUMENTS, 2)]
    # Whole documents, however they are cut into pieces.
    for limits in ({}, {"batch_item_limit": 1}, {"batch_byte_limit": 100}, {"concurrency": 8}):
        found = scan(collection, PrefixScan("odd-"), consistent_with=state, **limits)
        equal({got.id: got.content_as[dict] for got in found},
              {key_of(number): document_of(number) for number in range(1, DOCUMENTS, 2)})
        equal(len(found), len(odd))
        check(all(got.cas for got in found), "every document with its CAS")
    equal(found[0].cas, collection.get(found[0].id).cas)

    first, last = key_of(101), key_of(301)
    equal(ids(collection, RangeScan(ScanTerm(first), ScanTerm(last))), [key_of(n) for n in range(101, 302, 2)])
    equal(ids(collection, RangeScan(ScanTerm(first, exclusive=True), ScanTerm(last, exclusive=True))),
          [key_of(n) for n in range(103, 301, 2)])
    equal(len(ids(collection, RangeScan())), DOCUMENTS)
    equal(ids(collection, PrefixScan("neither-")), [])

    sample = ids(collection, SamplingScan(50, seed=7))
    equal((len(sample), len(set(sample))), (50, 50))
    check(set(sample) <= {key_of(number) for number in range(DOCUMENTS)}, "only documents that there are")

    # What is written, and waited for, is seen; what is removed is not.
    collection.upsert("odd-later", {}, UpsertOptions(durability=PERSISTED))
    collection.remove(odd[0], RemoveOptions(durability=PERSISTED))
    equal(ids(collection, PrefixScan("odd-")), sorted([*odd[1:], "odd-later"]))
    raises(DocumentNotFoundException, lambda: collection.get(odd[0]))
    return f"{DOCUMENTS} documents scanned in every way"


def main():
    authenticator = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
    cluster = Cluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(authenticator))
    cluster.wait_until_ready(timedelta(seconds=20))
    print(run(cluster.bucket("default").default_collection()))
    cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
