"""Parts of documents, and attributes beside them, with the Couchbase Python SDK.

Each function below is one check; the last line of output says how many there were, for the report.
"""

import os
from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import (DocumentExistsException, DocumentNotFoundException, PathExistsException,
                                  PathMismatchException, PathNotFoundException)
from couchbase.options import ClusterOptions, GetOptions, LookupInOptions, MutateInOptions, RemoveOptions, UpsertOptions
from couchbase.subdocument import MutationMacro, StoreSemantics

DOCUMENT = {"a": {"b": [1, 2]}, "n": 41, "s": "x", "a key.with`marks": True}


def look_up(collection):
    found = collection.lookup_in("d", [SD.get("a.b[1]"), SD.get("a.b[-1]"), SD.exists("zz"), SD.exists("a"), SD.count("a.b"),
                                       SD.get("`a key.with``marks`")])
    equal([found.content_as[int](0), found.content_as[int](1)], [2, 2])
    equal([found.exists(2), found.exists(3)], [False, True])
    equal([found.content_as[int](4), found.content_as[bool](5)], [2, True])
    equal(collection.lookup_in("d", [SD.get_full()]).content_as[dict](0), DOCUMENT)


def virtual_attributes(collection):
    found = collection.lookup_in("d", [SD.get("$document", xattr=True), SD.get("s")])
    about = found.content_as[dict](0)
    equal(int(about["CAS"], 16), found.cas)
    equal(about["deleted"], False)
    equal(found.content_as[str](1), "x")


def projection_and_expiry(collection):
    equal(collection.get("d", GetOptions(project=["n", "a.b"])).content_as[dict], {"n": 41, "a": {"b": [1, 2]}})
    collection.upsert("expiring", {}, UpsertOptions(expiry=timedelta(days=1)))
    expiry = collection.get("expiring", GetOptions(with_expiry=True)).expiryTime
    equal(expiry is not None, True)
    collection.mutate_in("expiring", [SD.upsert("a", 1)], MutateInOptions(preserve_expiry=True))
    equal(collection.get("expiring", GetOptions(with_expiry=True)).expiryTime, expiry)


def every_change(collection):
    done = collection.mutate_in("d", [
        SD.upsert("s", "y"), SD.insert("p.q", 1, create_parents=True), SD.replace("p.q", 2),
        SD.array_append("a.b", 3, 4), SD.array_prepend("a.b", 0), SD.array_insert("a.b[1]", 9),
        SD.array_addunique("a.b", 77), SD.increment("n", 1), SD.decrement("n", 11), SD.remove("p"),
        SD.remove("`a key.with``marks`")])
    equal([done.content_as[int](7), done.content_as[int](8)], [42, 31])
    found = collection.get("d")
    equal(found.cas, done.cas)
    equal(found.content_as[dict], {"a": {"b": [0, 9, 1, 2, 3, 4, 77]}, "n": 31, "s": "y"})


def attributes_and_macros(collection):
    done = collection.mutate_in("d", [
        SD.upsert("x.my", {"v": 1}, xattr=True, create_parents=True), SD.upsert("x.cas", MutationMacro.cas(), xattr=True),
        SD.upsert("x.seq", MutationMacro.seq_no(), xattr=True), SD.upsert("x.crc", MutationMacro.value_crc32c(), xattr=True)])
    attribute = collection.lookup_in("d", [SD.get("x", xattr=True)]).content_as[dict](0)
    equal(attribute["my"], {"v": 1})
    equal(int.from_bytes(bytes.fromhex(attribute["cas"][2:]), "little"), done.cas)
    equal(int(attribute["seq"], 16), done.mutation_token().sequence_number)
    equal(len(attribute["crc"]), 10)
    collection.replace("d", {"new": "body"})
    equal(collection.get("d").content_as[dict], {"new": "body"})
    equal(collection.lookup_in("d", [SD.get("x.my.v", xattr=True)]).content_as[int](0), 1)


def store_semantics(collection):
    expect(DocumentNotFoundException, lambda: collection.mutate_in("none", [SD.upsert("n", 1)]))
    upsert = MutateInOptions(store_semantics=StoreSemantics.UPSERT)
    collection.mutate_in("made", [SD.upsert("a.b", 1, create_parents=True)], upsert)
    equal(collection.get("made").content_as[dict], {"a": {"b": 1}})
    insert = MutateInOptions(store_semantics=StoreSemantics.INSERT)
    expect(DocumentExistsException, lambda: collection.mutate_in("made", [SD.upsert("a", 1)], insert))


def failures(collection):
    collection.upsert("f", {"a": 1})
    cas = collection.get("f").cas
    expect(PathExistsException, lambda: collection.mutate_in("f", [SD.upsert("b", 2), SD.insert("a", 1)]))
    expect(PathNotFoundException, lambda: collection.mutate_in("f", [SD.replace("nope", 1)]))
    expect(PathMismatchException, lambda: collection.mutate_in("f", [SD.upsert("a.b", 1)]))
    equal(collection.get("f").cas, cas)
    found = collection.lookup_in("f", [SD.get("nope"), SD.get("a")])
    expect(PathNotFoundException, lambda: found.content_as[int](0))
    equal(found.content_as[int](1), 1)


def deleted_documents(collection):
    deleted = MutateInOptions(store_semantics=StoreSemantics.INSERT, access_deleted=True, create_as_deleted=True)
    collection.mutate_in("ghost", [SD.upsert("_sync", {"r": 1}, xattr=True)], deleted)
    expect(DocumentNotFoundException, lambda: collection.get("ghost"))
    found = collection.lookup_in("ghost", [SD.get("_sync.r", xattr=True)], LookupInOptions(access_deleted=True))
    equal(found.content_as[int](0), 1)


def durable(collection):
    to_disk = ServerDurability(Durability.PERSIST_TO_MAJORITY)
    collection.upsert("durable", {"n": 0})
    collection.mutate_in("durable", [SD.increment("n", 5)], MutateInOptions(durability=to_disk))
    equal(collection.lookup_in("durable", [SD.get("n")]).content_as[int](0), 5)
    collection.remove("durable", RemoveOptions(durability=to_disk))


CHECKS = [look_up, virtual_attributes, projection_and_expiry, every_change, attributes_and_macros, store_semantics, failures,
          deleted_documents, durable]


def equal(left, right):
    if left != right:
        raise AssertionError(f"{left!r} is not {right!r}")


def expect(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def main():
    authenticator = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
    cluster = Cluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(authenticator))
    cluster.wait_until_ready(timedelta(seconds=20))
    collection = cluster.bucket("default").default_collection()
    collection.upsert("d", DOCUMENT)
    for check in CHECKS:
        print(f"check {check.__name__}", flush=True)
        check(collection)
    print(f"{len(CHECKS)} checks")


if __name__ == "__main__":
    main()
