"""What a user with rights in some collections may do: write to `open`, read `shown`, and know nothing of `hidden`."""

from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.exceptions import (AmbiguousTimeoutException, AuthenticationException, CollectionNotFoundException,
                                  UnAmbiguousTimeoutException)
from couchbase.options import GetOptions

from checks import equal, eventually, raises

SCOPE = "rights"
# A client cannot know that the collection will not come, so it retries until its timeout.
UNKNOWN = (AmbiguousTimeoutException, UnAmbiguousTimeoutException, CollectionNotFoundException)


def rights(bucket, limited):
    manager = bucket.collections()
    manager.create_scope(SCOPE)
    for name in ("open", "shown", "hidden"):
        manager.create_collection(SCOPE, name)
        collection = bucket.scope(SCOPE).collection(name)
        eventually(lambda collection=collection, name=name: collection.upsert("d", {"in": name}), UNKNOWN)
    opened, shown, hidden = (limited.scope(SCOPE).collection(name) for name in ("open", "shown", "hidden"))
    equal(opened.get("d").content_as[dict], {"in": "open"})
    opened.upsert("d", {"in": "open", "n": 1})
    opened.mutate_in("d", [SD.increment("n", 1)])
    equal(opened.lookup_in("d", [SD.get("n")]).content_as[int](0), 2)
    opened.remove("d")
    equal(shown.get("d").content_as[dict], {"in": "shown"})
    equal(shown.lookup_in("d", [SD.get("in")]).content_as[str](0), "shown")
    for call in (lambda: shown.upsert("d", {}), lambda: shown.insert("new", {}), lambda: shown.remove("d"),
                 lambda: shown.touch("d", timedelta(days=1)), lambda: shown.mutate_in("d", [SD.upsert("n", 1)]),
                 lambda: shown.binary().append("d", b"x"), lambda: shown.binary().increment("new")):
        raises(AuthenticationException, call)
    equal(bucket.scope(SCOPE).collection("shown").get("d").content_as[dict], {"in": "shown"})
    raises(UNKNOWN, lambda: hidden.get("d", GetOptions(timeout=timedelta(seconds=1))))
    manager.drop_scope(SCOPE)
