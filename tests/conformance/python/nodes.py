"""Nodes come and go, and what was acknowledged as persisted is read wherever its vbucket is now."""

import os
import urllib.request

from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import DurabilityImpossibleException
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import ScanOptions, UpsertOptions

from checks import check, equal, eventually
from replicas import REPLICAS

DOCUMENTS = 64
DURABLY = UpsertOptions(durability=ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY))
BEFORE_NEW_CLIENT, AFTER_NEW_CLIENT = ("join", "kill"), ("return", "kill-again", "return-again", "leave")


class Nodes:
    """`transient` are the errors that a node's death may cause."""

    def __init__(self, transient):
        self.transient = transient
        self.written = {}

    def change(self, collection, step):
        """Writes, asks for the change, reads everything back and writes again."""
        self.write(collection, f"before-{step}")
        request = urllib.request.Request(f"{os.environ['ORIBI_CONTROL']}/{step}", method="POST")
        urllib.request.urlopen(request, timeout=230).read()
        self.compare(collection)
        self.write(collection, f"after-{step}")

    def compare(self, collection):
        """Reads and scans everything that was written."""
        for key, value in self.written.items():
            found = eventually(lambda key=key: collection.get(key), self.transient)
            equal(found.content_as[str], value)
        # A scan asks the node of each vbucket, as the map says.
        scan = ScanOptions(ids_only=True)
        found = eventually(lambda: [each.id for each in collection.scan(PrefixScan("nodes-"), scan)], self.transient)
        equal(sorted(found), sorted(self.written))

    def write(self, collection, value):
        """Half of the documents are new ones, half those of other steps."""
        for number in range(DOCUMENTS):
            key = f"nodes-{value}-{number}" if number % 2 else f"nodes-shared-{number}"
            eventually(lambda key=key: write_once(collection, key, value), self.transient)
            self.written[key] = value


def write_once(collection, key, value):
    """Writes durably; plainly while fewer copies than a majority follow: one of two is away, or the node is slow, too."""
    try:
        collection.upsert(key, value, DURABLY)
    except DurabilityImpossibleException:
        check(REPLICAS > 0, "a bucket with replicas")
        collection.upsert(key, value)
