"""Scans over keys: ranges, prefixes and samples, that wait for what was written before them."""

from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.mutation_state import MutationState
from couchbase.options import ScanOptions

from checks import check, equal

DOCUMENTS = 100


def scans(collection):
    keys = [f"scan-{number:03}" for number in range(DOCUMENTS)]
    results = [collection.upsert(key, {"key": key}) for key in keys]
    written = MutationState(*results)

    def found(scan, **options):
        return list(collection.scan(scan, ScanOptions(consistent_with=written, **options)))

    equal(sorted(each.id for each in found(PrefixScan("scan-"), ids_only=True)), keys)
    some = found(RangeScan(ScanTerm("scan-010"), ScanTerm("scan-020", exclusive=True)))
    equal(sorted((each.id, each.content_as[dict]["key"]) for each in some), [(key, key) for key in keys[10:20]])
    cas = {key: result.cas for key, result in zip(keys, results)}
    check(all(each.cas == cas[each.id] for each in some), "the CAS of each document")
    sample = found(SamplingScan(10, seed=1), ids_only=True)
    equal(len({each.id for each in sample}), 10)
    equal(found(PrefixScan("no-such-prefix")), [])
