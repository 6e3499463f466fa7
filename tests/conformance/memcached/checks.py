"""What the Python programs of memcached clients share: names of checks, and how their outcome is printed.

Every program of this folder takes a port and prints `PASS name` or `FAIL name why` for each check; exit code 0 means that all
passed. The checks have the same names in every language.
"""

import random
import sys
import time

BINARY = bytes(range(256)) * 8 + b"\r\nEND\r\nVALUE x 0 1\r\n"
# Below memcached's own limit of 1 MiB.
LARGE = random.Random(1).randbytes(900_000)
# More than either server stores, and nothing that a client could compress.
TOO_LARGE = random.Random(2).randbytes(21 << 20)
EXPIRY_SECONDS_MAX = 30


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{shown(found)} instead of {shown(expected)}")


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def raises(kind, call, *arguments):
    try:
        found = call(*arguments)
    except kind:
        return
    raise AssertionError(f"{shown(found)} instead of {kind.__name__}")


def gone(get):
    """Waits until an expiring document is missing."""
    deadline = time.monotonic() + EXPIRY_SECONDS_MAX
    while get() is not None:
        if time.monotonic() > deadline:
            raise AssertionError("the document does not expire")
        time.sleep(0.05)


def run(checks):
    failed = False
    for name, check in checks.items():
        try:
            check()
        except Exception as error:
            failed = True
            print("FAIL", name, type(error).__name__, error, flush=True)
        else:
            print("PASS", name, flush=True)
    sys.exit(1 if failed else 0)
