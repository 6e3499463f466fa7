"""Documents that do not fit into the server's memory, with the Couchbase Python SDK.

`eviction.py operate` stores far more than the quota, then uses the documents in every way that needs what was evicted;
`eviction.py verify` reads all of them again, after a restart. The last line of output is for the report.
"""

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import DocumentExistsException, DocumentNotFoundException
from couchbase.options import (ClusterOptions, DeltaValue, IncrementOptions, ReplaceOptions, SignedInt64,
                               UpsertOptions)
from couchbase.transcoder import RawBinaryTranscoder

DOCUMENTS = 12_000
VALUE_BYTES = 2_000
THREADS = 16
# Every hundredth document is used in one of these ways; all others stay as they were written.
USES = 100
BINARY = RawBinaryTranscoder()


def value_of(number):
    return random.Random(number).randbytes(VALUE_BYTES)


def key_of(number):
    return f"document-{number:06}"


def expected(number):
    """What a document is after `operate`; None when it was removed."""
    use, rest = number % USES, value_of(number)
    return {0: rest + b"end", 1: b"begin" + rest, 2: value_of(-number), 3: None}.get(use, rest)


def use(collection, number):
    """Does to a document what its number says, without having looked at it before."""
    key, kind = key_of(number), number % USES
    if kind == 0:
        collection.binary().append(key, b"end")
    elif kind == 1:
        collection.binary().prepend(key, b"begin")
    elif kind == 2:
        cas = collection.get(key).cas
        collection.replace(key, value_of(-number), ReplaceOptions(cas=cas, transcoder=BINARY))
    elif kind == 3:
        collection.remove(key)
    elif kind == 4:
        collection.touch(key, timedelta(days=20))
    elif kind == 5:
        got = collection.get_and_touch(key, timedelta(days=20), transcoder=BINARY)
        check(got.value == value_of(number), f"{key} as it is touched")
    elif kind == 6:
        try:
            collection.insert(key, b"new", transcoder=BINARY)
            check(False, f"{key} was inserted twice")
        except DocumentExistsException:
            pass
    elif kind == 7:
        check(collection.exists(key).exists, f"{key} exists")


def read(collection, number):
    key, value = key_of(number), expected(number)
    try:
        got = collection.get(key, transcoder=BINARY).value
    except DocumentNotFoundException:
        got = None
    check(got == value, f"{key} has {None if got is None else len(got)} bytes that are not the right ones")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def for_all(call, numbers):
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(call, numbers, chunksize=50):
            pass


def operate(collection):
    for_all(lambda number: collection.upsert(key_of(number), value_of(number), UpsertOptions(transcoder=BINARY)),
            range(DOCUMENTS))
    for number in range(100):
        options = IncrementOptions(delta=DeltaValue(1), initial=SignedInt64(number))
        collection.binary().increment(f"counter-{number}", options)
    shuffled = random.Random(0).sample(range(DOCUMENTS), DOCUMENTS)
    for_all(lambda number: use(collection, number), shuffled)
    for_all(lambda number: read(collection, number), shuffled)
    for number in range(100):
        counted = collection.binary().increment(f"counter-{number}", IncrementOptions(delta=DeltaValue(1)))
        check(counted.content == number + 1, f"counter-{number} is {counted.content}")


def verify(collection):
    for_all(lambda number: read(collection, number), range(DOCUMENTS))
    for number in range(100):
        counted = collection.binary().increment(f"counter-{number}", IncrementOptions(delta=DeltaValue(1)))
        check(counted.content == number + 2, f"counter-{number} is {counted.content}")


def main():
    authenticator = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
    cluster = Cluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(authenticator))
    cluster.wait_until_ready(timedelta(seconds=20))
    collection = cluster.bucket("default").default_collection()
    {"operate": operate, "verify": verify}[sys.argv[1]](collection)
    print(f"{DOCUMENTS} documents of {VALUE_BYTES} bytes")


if __name__ == "__main__":
    main()
