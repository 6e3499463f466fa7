"""Locks on documents: who has the lock's CAS may write, everybody may read."""

from datetime import timedelta

from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (AmbiguousTimeoutException, CasMismatchException, DocumentLockedException,
                                  DocumentNotFoundException, DocumentNotLockedException, UnAmbiguousTimeoutException)
from couchbase.options import GetAndLockOptions, RemoveOptions, ReplaceOptions, UpsertOptions

from checks import check, differ, equal, raises

LOCK = timedelta(seconds=30)
SOON = timedelta(milliseconds=300)
# The SDK waits for a lock to go, until its timeout.
LOCKED = (DocumentLockedException, AmbiguousTimeoutException, UnAmbiguousTimeoutException)


def locks(collection):
    stored = collection.upsert("locked", {"n": 1})
    locked = collection.get_and_lock("locked", LOCK)
    equal(locked.content_as[dict], {"n": 1})
    differ(locked.cas, stored.cas)
    seen = collection.get("locked")
    equal(seen.content_as[dict], {"n": 1})
    differ(seen.cas, locked.cas)
    for call in (lambda: collection.upsert("locked", {"n": 2}, UpsertOptions(timeout=SOON)),
                 lambda: collection.remove("locked", RemoveOptions(timeout=SOON)),
                 lambda: collection.get_and_lock("locked", LOCK, GetAndLockOptions(timeout=SOON))):
        raises(LOCKED, call)
    raises(CasMismatchException, lambda: collection.unlock("locked", stored.cas))
    # The holder's write takes the lock away.
    written = collection.replace("locked", {"n": 3}, ReplaceOptions(cas=locked.cas))
    equal(collection.get("locked").cas, written.cas)
    raises(DocumentNotLockedException, lambda: collection.unlock("locked", written.cas))
    locked = collection.get_and_lock("locked", LOCK)
    collection.unlock("locked", locked.cas)
    collection.upsert("locked", {"n": 4})
    # A lock that ends by itself is waited for by the SDK.
    collection.get_and_lock("locked", timedelta(seconds=1))
    collection.upsert("locked", {"n": 5}, UpsertOptions(timeout=timedelta(seconds=20)))
    equal(collection.get("locked").content_as[dict], {"n": 5})
    # A durable write carries one durability frame more at each retry.
    collection.get_and_lock("locked", timedelta(seconds=1))
    durability = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)
    collection.upsert("locked", {"n": 6}, UpsertOptions(timeout=timedelta(seconds=20), durability=durability))
    equal(collection.get("locked").content_as[dict], {"n": 6})
    raises(DocumentNotFoundException, lambda: collection.get_and_lock("never-written", LOCK))
    raises(DocumentNotFoundException, lambda: collection.unlock("never-written", 1))
    check(not collection.exists("never-written").exists, "nothing is made by a lock")
