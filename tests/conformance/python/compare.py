"""Compares every document of a collection with the JSON lines it came from.

    compare.py LINES SCOPE.COLLECTION

The field `_key` of a line is its key, and no part of the document. The connection comes from ORIBI_CONNSTR,
ORIBI_USER and ORIBI_PASSWORD. Every line must come back as an equal document;
the exit code is 1 when one does not.
"""

import json
import os
import sys

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions

IN_FLIGHT_MAX = 1_000


def main(path, collection_name):
    login = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
    cluster = Cluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(login))
    scope_name, _, name = collection_name.partition(".")
    collection = cluster.bucket("default").scope(scope_name).collection(name)
    expected = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            # A key that occurs twice keeps what was written last.
            expected[document.pop("_key")] = document
    keys, wrong = list(expected), 0
    for start in range(0, len(keys), IN_FLIGHT_MAX):
        batch = keys[start:start + IN_FLIGHT_MAX]
        found = collection.get_multi(batch)
        for key in batch:
            result = found.results.get(key)
            if result is None or result.content_as[dict] != expected[key]:
                wrong += 1
                print(f"{key}: expected {expected[key]}, got {result or found.exceptions.get(key)}")
    cluster.close()
    print(f"{len(expected) - wrong} of {len(expected)} documents are equal")
    return 1 if wrong or not expected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
