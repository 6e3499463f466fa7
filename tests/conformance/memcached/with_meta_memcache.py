"""meta-memcache, which speaks the meta commands only: with_meta_memcache.py PORT"""

import sys

import checks
from checks import equal, gone, raises
from meta_memcache import (CacheClient, Key, LeasePolicy, MemcacheError, RecachePolicy, ServerAddress, SetMode, StalePolicy,
                           connection_pool_factory_builder)

POOL = connection_pool_factory_builder(connection_timeout=60, recv_timeout=60)
CACHE = CacheClient.cache_client_from_servers([ServerAddress("127.0.0.1", int(sys.argv[1]))], POOL)
FOREVER = 0


def reads_tokens():
    """The client drops CAS values of more than 32 bits, as Oribi's are. Writes with its tokens are then unconditional."""
    CACHE.set("token", b"v", FOREVER)
    return CACHE.get_cas("token")[1] is not None


TOKENS = reads_tokens()


def store():
    equal((CACHE.set("k", b"v", FOREVER), CACHE.get("k")), (True, b"v"))
    modes = [("k", SetMode.ADD), ("fresh", SetMode.ADD), ("none", SetMode.REPLACE), ("k", SetMode.REPLACE), ("k", SetMode.APPEND),
             ("k", SetMode.PREPEND), ("none", SetMode.APPEND)]
    equal([CACHE.set(key, b"x", FOREVER, set_mode=mode) for key, mode in modes], [False, True, False, True, True, True, False])
    equal((CACHE.get("k"), CACHE.get("none")), (b"xxx", None))
    equal((CACHE.delete("k"), CACHE.delete("k"), CACHE.invalidate("k"), CACHE.get("k")), (True, False, True, None))
    CACHE.set("quiet", b"q", FOREVER, no_reply=True)
    CACHE.delete("fresh", no_reply=True)
    equal((CACHE.get("quiet"), CACHE.get("fresh")), (b"q", None))
    CACHE.set("object", {"n": [1, 2.5, None]}, FOREVER)
    equal(CACHE.get("object"), {"n": [1, 2.5, None]})


def multi_get():
    keys = {f"key-{number}": number for number in range(300)}
    for key, value in keys.items():
        CACHE.set(key, value, FOREVER, no_reply=True)
    found = CACHE.multi_get([*keys, "none"])
    equal({key.key: value for key, value in found.items()}, {**keys, "none": None})


def cas():
    CACHE.set("c", b"1", FOREVER)
    value, token = CACHE.get_cas("c")
    equal((value, token is not None), (b"1", TOKENS))
    if not TOKENS:
        return
    equal((CACHE.set("c", b"2", FOREVER, cas_token=token), CACHE.set("c", b"3", FOREVER, cas_token=token)), (True, False))
    next_token = CACHE.set_cas("c", b"4", FOREVER)
    equal(CACHE.get_cas("c"), (b"4", next_token))
    equal((CACHE.delete("c", cas_token=token), CACHE.delete("c", cas_token=next_token)), (False, True))


def counters():
    equal(CACHE.delta_initialize_and_get("n", delta=5, initial_value=10, initial_ttl=100), 10)
    equal([CACHE.delta_and_get("n", delta) for delta in (5, -6, -100)], [15, 9, 0])
    equal((CACHE.delta_and_get("none", 1), CACHE.delta("n", 1)), (None, True))
    # memcached pads a counter that got shorter.
    equal(int(CACHE.get("n")), 1)


def expiry():
    CACHE.set("soon", b"v", 1)
    # A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    CACHE.set("touched", b"v", 1000)
    CACHE.set("looked-at", b"v", 1000)
    equal((CACHE.touch("touched", 1), CACHE.touch("none", 1), CACHE.get("looked-at", touch_ttl=1)), (True, False, b"v"))
    gone(lambda: CACHE.get("soon"))
    gone(lambda: CACHE.get("touched"))
    gone(lambda: CACHE.get("looked-at"))


def leases():
    """One of several readers of a missing or stale document is told to make it."""
    lease = LeasePolicy(ttl=100, miss_retries=1, miss_retry_wait=0.01)
    value, token = CACHE.get_or_lease_cas("leased", lease)
    equal((value, token is not None), (None, TOKENS))
    # The winner writes, and another that has no lease any more does not.
    equal(CACHE.set("leased", b"made", FOREVER, cas_token=token), True)
    equal(CACHE.get_or_lease("leased", lease), b"made")
    stale = StalePolicy(mark_stale_on_deletion_ttl=100)
    equal(CACHE.delete("leased", stale_policy=stale), True)
    # The first reader wins and is told of a miss; the next one gets the stale value meanwhile.
    value, token = CACHE.get_cas("leased", recache_policy=RecachePolicy(ttl=30))
    equal((value, token is not None), (None, TOKENS))
    equal(CACHE.get("leased", recache_policy=RecachePolicy(ttl=30)), b"made")
    equal(CACHE.set("leased", b"again", FOREVER, cas_token=token), True)
    equal(CACHE.get("leased"), b"again")
    CACHE.set("aging", b"v", 20)
    equal([CACHE.get("aging", recache_policy=RecachePolicy(ttl=30)) for _ in range(2)], [None, b"v"])


def large():
    equal((CACHE.set("large", checks.LARGE, FOREVER), CACHE.get("large")), (True, checks.LARGE))


def binary():
    equal((CACHE.set("binary", checks.BINARY, FOREVER), CACHE.get("binary")), (True, checks.BINARY))
    equal((CACHE.set("empty", b"", FOREVER), CACHE.get("empty")), (True, b""))
    key = Key("key with spaces and \u00fc")
    equal((CACHE.set(key, b"v", FOREVER), CACHE.get(key), CACHE.delete(key)), (True, b"v", True))


def errors():
    CACHE.set("text", b"text", FOREVER)
    raises(MemcacheError, CACHE.delta_and_get, "text", 1)
    raises(MemcacheError, CACHE.set, "huge", checks.TOO_LARGE, FOREVER)
    equal((CACHE.set("k" * 250, b"longest", FOREVER), CACHE.get("k" * 250), CACHE.get("text")), (True, b"longest", b"text"))


checks.run({"store": store, "multi-get": multi_get, "cas": cas, "counters": counters, "expiry": expiry, "leases": leases, "large": large,
            "binary": binary, "errors": errors})
