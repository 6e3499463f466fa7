"""pymemcache, which speaks the text protocol: with_pymemcache.py PORT"""

import sys

import checks
from checks import equal, gone, raises
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheError, MemcacheServerError

CACHE = Client(("127.0.0.1", int(sys.argv[1])), timeout=60, no_delay=True, default_noreply=False)


def store():
    equal(CACHE.set("k", b"v"), True)
    equal(CACHE.get("k"), b"v")
    equal((CACHE.add("k", b"w"), CACHE.add("fresh", b"f"), CACHE.replace("none", b"w")), (False, True, False))
    equal((CACHE.replace("k", b"b"), CACHE.append("k", b"c"), CACHE.prepend("k", b"a")), (True, True, True))
    equal((CACHE.get("k"), CACHE.get("none"), CACHE.append("none", b"x")), (b"abc", None, False))
    equal((CACHE.delete("k"), CACHE.delete("k"), CACHE.get("k")), (True, False, None))
    CACHE.set("quiet", b"q", noreply=True)
    CACHE.delete("fresh", noreply=True)
    equal((CACHE.get("quiet"), CACHE.get("fresh")), (b"q", None))


def multi_get():
    keys = {f"key-{number}": str(number).encode() for number in range(300)}
    equal(CACHE.set_many(keys), [])
    equal(CACHE.get_many([*keys, "none"]), keys)
    equal(len(CACHE.gets_many([*keys, "none"])), 300)
    equal(CACHE.delete_many(list(keys)), True)
    equal(CACHE.get_many(list(keys)), {})


def cas():
    CACHE.set("c", b"1")
    value, token = CACHE.gets("c")
    equal((value, CACHE.cas("c", b"2", token), CACHE.cas("c", b"3", token)), (b"1", True, False))
    equal((CACHE.get("c"), CACHE.cas("none", b"1", token)), (b"2", None))


def counters():
    CACHE.set("n", b"10")
    equal((CACHE.incr("n", 5), CACHE.decr("n", 6), CACHE.decr("n", 100), CACHE.incr("none", 1)), (15, 9, 0, None))
    CACHE.set("n", b"18446744073709551615")
    equal(CACHE.incr("n", 1), 0)


def expiry():
    CACHE.set("soon", b"v", expire=1)
    # A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    CACHE.set("touched", b"v", expire=1000)
    equal((CACHE.touch("touched", 1), CACHE.touch("none", 1)), (True, False))
    gone(lambda: CACHE.get("soon"))
    gone(lambda: CACHE.get("touched"))
    CACHE.set("past", b"v", expire=-1)
    equal(CACHE.get("past"), None)


def large():
    equal(CACHE.set("large", checks.LARGE), True)
    equal(CACHE.get("large"), checks.LARGE)


def binary():
    equal(CACHE.set("binary", checks.BINARY, flags=0xFFFFFFFF), True)
    equal(CACHE.get("binary"), checks.BINARY)
    equal((CACHE.set("empty", b""), CACHE.get("empty")), (True, b""))


def errors():
    CACHE.set("text", b"text")
    raises(MemcacheClientError, CACHE.incr, "text", 1)
    raises(MemcacheServerError, CACHE.set, "huge", checks.TOO_LARGE)
    raises(MemcacheError, CACHE.raw_command, "nonsense")
    equal(CACHE.raw_command("mn").strip(), b"MN")
    equal(CACHE.set("k" * 250, b"longest"), True)
    raises(MemcacheClientError, CACHE.get, "k" * 251)
    equal(CACHE.get("text"), b"text")


checks.run({"store": store, "multi-get": multi_get, "cas": cas, "counters": counters, "expiry": expiry, "large": large, "binary": binary,
            "errors": errors})
