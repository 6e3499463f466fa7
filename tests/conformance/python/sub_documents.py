"""Parts of documents, and attributes beside them: the cases of sub_documents.json, and what a table cannot say."""

import json
import os
from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.exceptions import (CasMismatchException, CouchbaseException, DocumentExistsException,
                                  DocumentNotFoundException, DocumentNotJsonException,
                                  InvalidArgumentException, InvalidValueException, NumberTooBigException, PathExistsException,
                                  PathInvalidException, PathMismatchException, PathNotFoundException, PathTooBigException)
from couchbase.options import GetOptions, LookupInOptions, MutateInOptions, ReplaceOptions, UpsertOptions
from couchbase.subdocument import LookupInMacro, MutationMacro, StoreSemantics
from couchbase.transcoder import RawBinaryTranscoder

from checks import check, differ, equal, raises

ERRORS = {
    "document-exists": DocumentExistsException,
    "document-not-found": DocumentNotFoundException,
    "document-not-json": DocumentNotJsonException,
    "invalid-argument": InvalidArgumentException,
    "number-too-big": NumberTooBigException,
    "path-exists": PathExistsException,
    "path-invalid": PathInvalidException,
    "path-mismatch": PathMismatchException,
    "path-not-found": PathNotFoundException,
    "path-too-big": PathTooBigException,
    "value-invalid": InvalidValueException,
    # The SDK has no classes of its own for these.
    "xattr-cannot-modify-virtual-attribute": CouchbaseException,
    "xattr-unknown-virtual-attribute": CouchbaseException,
}
SEMANTICS = {"insert": StoreSemantics.INSERT, "upsert": StoreSemantics.UPSERT, "replace": StoreSemantics.REPLACE}
SPECS_MAX = 16
BINARY = RawBinaryTranscoder()
DAY = timedelta(days=1)
# Of the document [7], as the server writes it.
CRC_32C_OF_SEVEN = "0xd1f2ed59"


def as_it_is(value):
    """For `content_as`, which converts: a value of whatever type the server answered."""
    return value


def run_cases(collection, are_changes):
    """Runs the cases that change documents, or those that do not; returns how many there were."""
    with open(os.environ["ORIBI_SUB_DOCUMENTS"], encoding="utf-8") as file:
        cases = [case for case in json.load(file)["cases"] if ("change" in case) == are_changes]
    for case in cases:
        try:
            run_case(collection, case)
        except Exception as error:
            raise AssertionError(f"{case['name']}: {type(error).__name__}: {error}") from error
    return f"{len(cases)} cases"


def run_case(collection, case):
    key = f"case: {case['name']}"
    before = prepare(collection, key, case)
    if "change" in case:
        change(collection, key, case, before)
    elif "refused" in case:
        raises(ERRORS[case["refused"]], lambda: collection.lookup_in(key, look_up_specs(case)))
        return
    if "look" in case:
        found = collection.lookup_in(key, look_up_specs(case))
        for index, (spec, expected) in enumerate(zip(case["look"], case["finds"], strict=True)):
            compare(found, index, spec, expected)


def prepare(collection, key, case):
    """Stores what the case begins with; returns its CAS, or None where there is nothing."""
    if "raw" in case:
        collection.upsert(key, case["raw"].encode("latin-1"), UpsertOptions(transcoder=BINARY))
    elif "document" in case:
        collection.upsert(key, case["document"])
    else:
        return None
    for name, value in case.get("attributes", {}).items():
        collection.mutate_in(key, [SD.upsert(name, value, xattr=True)])
    return collection.get(key, GetOptions(transcoder=BINARY) if "raw" in case else GetOptions()).cas


def change(collection, key, case, before):
    options = MutateInOptions(store_semantics=SEMANTICS[case.get("semantics", "replace")])
    specs = [change_spec(**spec) for spec in case["change"]]
    if "refused" in case:
        raises(ERRORS[case["refused"]], lambda: collection.mutate_in(key, specs, options))
        if before is not None and "raw" not in case:
            got = collection.get(key)
            equal((got.content_as[as_it_is], got.cas), (case["document"], before))
        return
    done = collection.mutate_in(key, specs, options)
    for index, expected in case.get("returns", {}).items():
        equal(done.content_as[int](int(index)), expected)
    check(done.mutation_token() is not None, "a mutation token")
    if case["becomes"] is None:
        raises(DocumentNotFoundException, lambda: collection.get(key))
        return
    got = collection.get(key)
    equal((got.content_as[as_it_is], got.cas), (case["becomes"], done.cas))


def look_up_specs(case):
    return [look_up_spec(**spec) for spec in case["look"]]


def look_up_spec(op, path, xattr=False):
    if (op, path) == ("get", ""):
        return SD.get_full()
    return {"get": SD.get, "exists": SD.exists, "count": SD.count}[op](path, xattr=xattr)


def compare(found, index, spec, expected):
    if isinstance(expected, str) and expected.startswith("!"):
        raises(ERRORS[expected[1:]], lambda: found.content_as[as_it_is](index))
        if expected == "!path-not-found":
            equal(found.exists(index), False)
    elif spec["op"] == "exists":
        equal(found.exists(index), expected)
    else:
        equal(found.content_as[as_it_is](index), expected)
        equal(found.exists(index), True)


def change_spec(op, path, value=None, values=(), delta=None, create=False, xattr=False):
    with_parents = {"create_parents": create, "xattr": xattr}
    return {
        "upsert": lambda: SD.upsert(path, value, **with_parents),
        "insert": lambda: SD.insert(path, value, **with_parents),
        "replace": lambda: SD.replace(path, value, xattr=xattr),
        "remove": lambda: SD.remove(path, xattr=xattr),
        "array-append": lambda: SD.array_append(path, *values, **with_parents),
        "array-prepend": lambda: SD.array_prepend(path, *values, **with_parents),
        "array-insert": lambda: SD.array_insert(path, *values, xattr=xattr),
        "array-add-unique": lambda: SD.array_addunique(path, value, **with_parents),
        "increment": lambda: SD.increment(path, delta, **with_parents),
        "decrement": lambda: SD.decrement(path, delta, **with_parents),
    }[op]()


def look_up_in(collection):
    """The cases, and the limit of paths in a request."""
    collection.upsert("limit", {"a": 1})
    found = collection.lookup_in("limit", [SD.get("a")] * SPECS_MAX)
    equal([found.content_as[int](index) for index in range(SPECS_MAX)], [1] * SPECS_MAX)
    raises(InvalidArgumentException, lambda: collection.lookup_in("limit", [SD.get("a")] * (SPECS_MAX + 1)))
    return run_cases(collection, are_changes=False)


def mutate_in(collection):
    """The cases, the limit of paths in a request, and CAS."""
    old = collection.upsert("limit", {"n": 0}).cas
    specs = [SD.increment("n", 1)] * (SPECS_MAX + 1)
    raises(InvalidArgumentException, lambda: collection.mutate_in("limit", specs))
    done = collection.mutate_in("limit", specs[:SPECS_MAX], MutateInOptions(cas=old))
    differ(done.cas, old)
    equal(collection.get("limit").content_as[dict], {"n": SPECS_MAX})
    raises(CasMismatchException, lambda: collection.mutate_in("limit", specs[:1], MutateInOptions(cas=old)))
    equal(collection.get("limit").cas, done.cas)
    return run_cases(collection, are_changes=True)


def macros(collection):
    """What the server fills in: written as an attribute, and read as a virtual one."""
    collection.upsert("macros", [7], UpsertOptions(expiry=DAY))
    done = collection.mutate_in("macros", [
        SD.upsert("x.cas", MutationMacro.cas(), xattr=True, create_parents=True),
        SD.upsert("x.seqno", MutationMacro.seq_no(), xattr=True), SD.upsert("x.crc", MutationMacro.value_crc32c(), xattr=True)],
        MutateInOptions(preserve_expiry=True))
    paths = ["x", LookupInMacro.document(), LookupInMacro.cas(), LookupInMacro.seq_no(), LookupInMacro.expiry_time(),
             LookupInMacro.is_deleted(), LookupInMacro.value_size_bytes(), LookupInMacro.last_modified(), LookupInMacro.rev_id()]
    found = collection.lookup_in("macros", [SD.get(path, xattr=True) for path in paths])
    written, about, cas, seqno, expiry, deleted, size, modified, revision = [
        found.content_as[as_it_is](index) for index in range(len(paths))]
    seqno_made = done.mutation_token().sequence_number
    equal(int.from_bytes(bytes.fromhex(written["cas"][2:]), "little"), done.cas)
    equal((int(written["seqno"], 16), written["crc"]), (seqno_made, CRC_32C_OF_SEVEN))
    equal((int(cas, 16), int(seqno, 16), deleted), (done.cas, seqno_made, False))
    equal((about["CAS"], about["seqno"], about["exptime"], about["value_bytes"]), (cas, seqno, expiry, size))
    equal((about["value_crc32c"], about["revid"], size), (CRC_32C_OF_SEVEN, revision, len("[7]")))
    check(expiry > 0 and int(modified) > 0 and int(revision) > 1, f"an expiry, a time and a second revision, got {about}")


def deleted_documents(collection):
    """Attributes that outlive their document, and a document that never lived."""
    made = MutateInOptions(store_semantics=StoreSemantics.INSERT, access_deleted=True, create_as_deleted=True)
    collection.mutate_in("ghost", [SD.upsert("_sync", {"r": 1}, xattr=True)], made)
    raises(DocumentNotFoundException, lambda: collection.get("ghost"))
    raises(DocumentNotFoundException, lambda: collection.lookup_in("ghost", [SD.get("_sync", xattr=True)]))
    equal(collection.exists("ghost").exists, False)
    deleted = LookupInOptions(access_deleted=True)
    equal(collection.lookup_in("ghost", [SD.get("_sync.r", xattr=True)], deleted).content_as[int](0), 1)
    # This SDK does not read the results of a change of a deleted document.
    collection.mutate_in("ghost", [SD.increment("_sync.r", 1, xattr=True)], MutateInOptions(access_deleted=True))
    equal(collection.lookup_in("ghost", [SD.get("_sync", xattr=True)], deleted).content_as[dict](0), {"r": 2})
    collection.upsert("removed", {"a": 1})
    for name in ("_system", "user"):
        collection.mutate_in("removed", [SD.upsert(name, 1, xattr=True)])
    collection.remove("removed")
    found = collection.lookup_in("removed", [SD.get("_system", xattr=True)], deleted)
    equal(found.content_as[int](0), 1)
    found = collection.lookup_in("removed", [SD.get("user", xattr=True)], deleted)
    raises(PathNotFoundException, lambda: found.content_as[int](0))


def projections(collection):
    document = {"n": 41, "a": {"b": [1, 2], "c": 3}, **{f"f{number}": number for number in range(SPECS_MAX)}}
    stored = collection.upsert("projections", document, UpsertOptions(expiry=DAY))
    got = collection.get("projections", GetOptions(project=["n", "a.b", "nothing"]))
    equal((got.content_as[dict], got.cas), ({"n": 41, "a": {"b": [1, 2]}}, stored.cas))
    # More fields than a request has paths: the SDK reads the whole document.
    fields = [f"f{number}" for number in range(SPECS_MAX)] + ["n"]
    got = collection.get("projections", GetOptions(project=fields))
    equal(got.content_as[dict], {field: document[field] for field in fields})
    got = collection.get("projections", GetOptions(project=["n"], with_expiry=True))
    equal(got.content_as[dict], {"n": 41})
    check(got.expiryTime is not None, "an expiry beside a projection")
    raises(DocumentNotFoundException, lambda: collection.get("never-written", GetOptions(project=["n"])))


def preserve_expiry(collection):
    collection.upsert("preserved", {"n": 1}, UpsertOptions(expiry=DAY))

    def expiry():
        return collection.get("preserved", GetOptions(with_expiry=True)).expiryTime

    first = expiry()
    check(first is not None, "an expiry")
    collection.upsert("preserved", {"n": 2}, UpsertOptions(preserve_expiry=True))
    equal(expiry(), first)
    collection.replace("preserved", {"n": 3}, ReplaceOptions(preserve_expiry=True))
    equal(expiry(), first)
    collection.mutate_in("preserved", [SD.upsert("n", 4)], MutateInOptions(preserve_expiry=True))
    equal(expiry(), first)
    collection.mutate_in("preserved", [SD.upsert("n", 5)], MutateInOptions(expiry=2 * DAY))
    check(expiry() > first, "a later expiry")
    collection.upsert("preserved", {"n": 6})
    equal(expiry(), None)


STEPS = {
    "look-up-in": look_up_in,
    "mutate-in": mutate_in,
    "macros": macros,
    "deleted-documents": deleted_documents,
    "projections": projections,
    "preserve-expiry": preserve_expiry,
}
