"""Expectations of the Python programs, and waiting with a deadline."""

import time


def check(condition, what):
    if not condition:
        raise AssertionError(f"expected: {what}")


def equal(actual, expected):
    check(actual == expected, f"{str(expected)[:200]}, got {str(actual)[:200]}")


def differ(actual, other):
    check(actual != other, f"something else than {other}")


def raises(classes, call):
    try:
        call()
    except classes as error:
        return error
    except Exception as error:
        raise AssertionError(f"expected {classes}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"expected {classes}, got a result")


def eventually(call, transient):
    """Repeats a call until it succeeds, for half a minute, past errors that time heals."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return call()
        except transient:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
