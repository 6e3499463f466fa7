"""Compares every document of a collection with the JSON lines it came from.

    compare.py LINES SCOPE.COLLECTION [KEY_FIELD]

The connection comes from ORIBI_CONNSTR, ORIBI_USER and ORIBI_PASSWORD. Every
line must come back as an equal document; the exit code is 1 when one does not.
"""

import asyncio
import json
import os
import sys

from acouchbase.cluster import AsyncCluster
from couchbase.auth import PasswordAuthenticator
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions

IN_FLIGHT_MAX = 500


async def main(path, collection_name, key_field):
    login = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
    cluster = await AsyncCluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(login))
    bucket = cluster.bucket("default")
    await bucket.on_connect()
    scope_name, _, name = collection_name.partition(".")
    collection = bucket.scope(scope_name).collection(name)
    expected = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            # A key that occurs twice keeps what was written last.
            expected[document[key_field]] = document
    keys, wrong = iter(expected), []

    async def read():
        for key in keys:
            try:
                found = (await collection.get(key)).content_as[dict]
            except CouchbaseException as error:
                found = error
            if found != expected[key]:
                wrong.append(key)
                print(f"{key}: expected {expected[key]}, got {found}")

    await asyncio.gather(*(read() for _ in range(IN_FLIGHT_MAX)))
    await cluster.close()
    print(f"{len(expected) - len(wrong)} of {len(expected)} documents are equal")
    return 1 if wrong or not expected else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else "key")))
