"""A memcached client that logs in, and the answers to failing requests beside those of memcached itself.

    memcached_sasl.py ORIBI_PORT MEMCACHED_PORT MEMCACHED_SASL_PORT

Prints `PASS name` or `FAIL name why` for each check; exit code 0 means that all passed. The users and their buckets are those of
`harness/memcached.py`.
"""

import os
import socket
import struct
import sys

import bmemcached
from bmemcached.exceptions import MemcachedException

PASSWORD = os.environ["ORIBI_PASSWORD"]
HEADER = struct.Struct(">BBHBBHIIQ")
GET, SET, ADD, REPLACE, DELETE, INCREMENT, APPEND, TOUCH, GAT = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0E, 0x1C, 0x1D
SASL_AUTH = 0x21
STORE = struct.pack(">II", 0, 0)
COUNT, COUNT_ONLY = struct.pack(">QQI", 1, 0, 0), struct.pack(">QQI", 1, 0, 0xFFFFFFFF)
NO_BUCKET, AUTH_ERROR = 0x08, 0x20
# More than either server stores.
HUGE = bytes(21 << 20)

FAILING = {
    "get-missing": (GET, b"none"),
    "delete-missing": (DELETE, b"none"),
    "touch-missing": (TOUCH, b"none", bytes(4)),
    "get-and-touch-missing": (GAT, b"none", bytes(4)),
    "replace-missing": (REPLACE, b"none", STORE, b"v"),
    "set-missing-with-cas": (SET, b"none", STORE, b"v", 7),
    "increment-missing": (INCREMENT, b"none", COUNT_ONLY),
    "append-missing": (APPEND, b"none", b"", b"v"),
    "add-existing": (ADD, b"text", STORE, b"v"),
    "set-other-cas": (SET, b"text", STORE, b"v", 7),
    "delete-other-cas": (DELETE, b"text", b"", b"", 7),
    "increment-text": (INCREMENT, b"text", COUNT),
    "increment-too-long": (INCREMENT, b"digits", COUNT),
    "set-huge": (SET, b"huge", STORE, HUGE),
    "key-too-long": (GET, b"k" * 251),
    "extras-missing": (TOUCH, b"text"),
    "unknown-opcode": (0x7F, b""),
}


class Raw:
    """One connection, driven by bytes."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def ask(self, opcode, key=b"", extras=b"", value=b"", cas=0):
        body = len(extras) + len(key) + len(value)
        header = HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, body, 1, cas)
        self.socket.sendall(header + extras + key + value)
        _, _, key_bytes, extras_bytes, _, status, body, _, _ = HEADER.unpack(self.receive(HEADER.size))
        return status, self.receive(body)[extras_bytes + key_bytes:]

    def receive(self, count):
        received = b""
        while len(received) < count:
            piece = self.socket.recv(count - len(received))
            if not piece:
                raise ConnectionError("the server closed the connection")
            received += piece
        return received

    def log_in(self, user):
        return self.ask(SASL_AUTH, b"PLAIN", value=f"\0{user}\0{PASSWORD}".encode())


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def client(port, user, password=PASSWORD):
    return bmemcached.Client((f"127.0.0.1:{port}",), user, password)


def operations(port):
    cache = client(port, "cache")
    equal(cache.set("k", "v"), True)
    equal(cache.get("k"), "v")
    equal(cache.add("k", "w"), False)
    equal(cache.replace("k", {"n": 1}), True)
    equal(cache.get("k"), {"n": 1})
    value, cas = cache.gets("k")
    equal((value, cache.cas("k", "x", cas), cache.cas("k", "y", cas)), ({"n": 1}, True, False))
    cache.set("n", "5")
    equal((cache.incr("n", 3), cache.decr("n", 1)), (8, 7))
    equal(sorted(cache.get_multi(["k", "n", "none"])), ["k", "n"])
    equal((cache.delete("k"), cache.get("k")), (True, None))
    keys = {f"key-{number}": str(number) for number in range(200)}
    cache.set_multi(keys)
    equal(cache.get_multi(list(keys)), keys)


def wrong_password(port):
    try:
        client(port, "cache", "wrong password").get("k")
    except MemcachedException as error:
        equal(error.code, AUTH_ERROR)
        return
    raise AssertionError("a wrong password was taken")


def buckets(port):
    """The bucket that is named for a user comes before `default`."""
    named, cache = client(port, "named"), client(port, "cache")
    equal((named.set("mine", "1"), cache.get("mine")), (True, None))
    equal((cache.set("theirs", "2"), named.get("theirs")), (True, None))
    raw = Raw(port)
    equal(raw.log_in("several"), (0, b""))
    status, text = raw.ask(GET, b"k")
    equal((status, b"oribi user create --bucket" in text), (NO_BUCKET, True))


def rights(port):
    raw = Raw(port)
    equal(raw.log_in("reader"), (0, b""))
    equal(raw.ask(GET, b"never"), (1, b"Not found"))
    equal(raw.ask(SET, b"never", STORE, b"v"), (AUTH_ERROR, b"needs the privilege Upsert"))


def answers(port, user, request):
    """What comes of one request on a connection of its own, which it may end."""
    raw = Raw(port)
    if user:
        equal(raw.log_in(user)[0], 0)
    equal(raw.ask(SET, b"text", STORE, b"text")[0], 0)
    equal(raw.ask(SET, b"digits", STORE, b"9" * 21)[0], 0)
    raw.ask(DELETE, b"none")
    return raw.ask(*request)


def before_login(oribi, memcached):
    for request in [(GET, b"k"), (SET, b"k", STORE, b"v"), (SASL_AUTH, b"PLAIN", b"", b"\0cache\0wrong password")]:
        equal(Raw(oribi).ask(*request), Raw(memcached).ask(*request))
        equal(Raw(oribi).ask(*request), (AUTH_ERROR, b"Auth failure."))


def main():
    oribi, memcached, memcached_sasl = (int(argument) for argument in sys.argv[1:])
    checks = {
        "operations": lambda: operations(oribi),
        "wrong-password": lambda: wrong_password(oribi),
        "buckets": lambda: buckets(oribi),
        "rights": lambda: rights(oribi),
        "before-login": lambda: before_login(oribi, memcached_sasl),
    }
    for name, request in FAILING.items():
        checks[name] = lambda request=request: equal(answers(oribi, "cache", request), answers(memcached, None, request))
    failed = False
    for name, check in checks.items():
        try:
            check()
        except Exception as error:
            failed = True
            print("FAIL", name, type(error).__name__, error, flush=True)
        else:
            print("PASS", name, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
