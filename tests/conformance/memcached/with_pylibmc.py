"""pylibmc, on libmemcached, with the text protocol: with_pylibmc.py PORT"""

import sys

import checks
import pylibmc
from checks import equal, gone, raises

CACHE = pylibmc.Client([f"127.0.0.1:{sys.argv[1]}"], binary=False,
                       behaviors={"tcp_nodelay": True, "cas": True, "verify_keys": True, "receive_timeout": 60_000_000})


def store():
    equal((CACHE.set("k", b"v"), CACHE.get("k")), (True, b"v"))
    equal((CACHE.add("k", b"w"), CACHE.add("fresh", "text"), CACHE.replace("none", b"w")), (False, True, False))
    equal((CACHE.replace("k", b"b"), CACHE.append("k", b"c"), CACHE.prepend("k", b"a")), (True, True, True))
    equal((CACHE.get("k"), CACHE.get("fresh"), CACHE.get("none")), (b"abc", "text", None))
    equal((CACHE.delete("k"), CACHE.delete("k"), CACHE.get("k")), (True, False, None))
    CACHE.set("object", {"n": [1, 2.5, None]})
    equal(CACHE.get("object"), {"n": [1, 2.5, None]})


def multi_get():
    keys = {f"key-{number}": number for number in range(300)}
    equal(CACHE.set_multi(keys), [])
    equal(CACHE.get_multi([*keys, "none"]), keys)
    equal(CACHE.delete_multi(list(keys)), True)
    equal(CACHE.get_multi(list(keys)), {})


def cas():
    CACHE.set("c", b"1")
    value, token = CACHE.gets("c")
    equal((value, CACHE.cas("c", b"2", token), CACHE.cas("c", b"3", token), CACHE.get("c")), (b"1", True, False, b"2"))


def counters():
    CACHE.set("n", 10)
    equal((CACHE.incr("n", 5), CACHE.decr("n", 6), CACHE.decr("n", 100)), (15, 9, 0))
    raises(pylibmc.NotFound, CACHE.incr, "none", 1)


def expiry():
    CACHE.set("soon", b"v", time=1)
    # A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    CACHE.set("touched", b"v", time=1000)
    equal((CACHE.touch("touched", 1), CACHE.touch("none", 1)), (True, False))
    gone(lambda: CACHE.get("soon"))
    gone(lambda: CACHE.get("touched"))


def large():
    equal((CACHE.set("large", checks.LARGE), CACHE.get("large")), (True, checks.LARGE))
    CACHE.set("packed", b"x" * 3_000_000, min_compress_len=100)
    equal(CACHE.get("packed"), b"x" * 3_000_000)


def binary():
    equal((CACHE.set("binary", checks.BINARY), CACHE.get("binary")), (True, checks.BINARY))
    equal((CACHE.set("empty", b""), CACHE.get("empty")), (True, b""))


def errors():
    CACHE.set("text", b"text")
    raises(pylibmc.Error, CACHE.incr, "text", 1)
    raises(pylibmc.TooBig, CACHE.set, "huge", checks.TOO_LARGE)
    equal(CACHE.set("k" * 250, b"longest"), True)
    equal(CACHE.get("text"), b"text")
    [(_, figures)] = CACHE.get_stats()
    equal({"version", "curr_items", "get_hits"} <= set(figures), True)


checks.run({"store": store, "multi-get": multi_get, "cas": cas, "counters": counters, "expiry": expiry, "large": large, "binary": binary,
            "errors": errors})
