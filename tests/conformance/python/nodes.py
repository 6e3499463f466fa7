"""Nodes that come and go: what was acknowledged as persisted is read wherever its vbucket is now."""

import os
import urllib.request

from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import ScanOptions, UpsertOptions

from checks import equal, eventually

DOCUMENTS = 64
DURABLY = UpsertOptions(durability=ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY))
STEPS = ("join", "kill", "return", "leave")


class Nodes:
    """`transient` are the errors that a node's death may cause."""

    def __init__(self, transient):
        self.transient = transient
        self.written = {}

    def change(self, collection, step):
        """Writes, asks for the change, reads everything back and writes again."""
        self.write(collection, f"before-{step}")
        request = urllib.request.Request(f"{os.environ['ORIBI_CONTROL']}/{step}", method="POST")
        urllib.request.urlopen(request, timeout=110).read()
        for key, value in self.written.items():
            found = eventually(lambda key=key: collection.get(key), self.transient)
            equal(found.content_as[str], value)
        # A scan asks the node of each vbucket, as the map says.
        found = collection.scan(PrefixScan(""), ScanOptions(ids_only=True))
        equal(sorted(each.id for each in found), sorted(self.written))
        self.write(collection, f"after-{step}")

    def write(self, collection, value):
        """Half of the documents are new ones, half those of other steps."""
        for number in range(DOCUMENTS):
            key = f"{value}-{number}" if number % 2 else f"shared-{number}"
            eventually(lambda key=key: collection.upsert(key, value, DURABLY), self.transient)
            self.written[key] = value
