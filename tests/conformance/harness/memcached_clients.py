"""Memcached clients that no one here wrote, each with the same checks on Oribi and on memcached.

A client's program takes a port and prints `PASS name` or `FAIL name why` for each check. What it says of memcached is one more
step: a check that memcached does not pass says nothing of Oribi.
"""

import re
import time
from dataclasses import dataclass
from typing import Callable

from . import layout, toolchains
from .capture import captured
from .memcached import memcached

SECONDS_MAX = 180
SERVER_ARGUMENTS = ("--flush-enabled", "true")
# Ours, and those of memcapable, whose names have spaces.
OUTCOMES = re.compile(r"^(?:(PASS|FAIL) (\S+) ?(.*)|(ascii [\w ]+?)\s+\[(\w+)\])$", re.MULTILINE)
PROGRAMS = layout.SOURCES / "memcached"


@dataclass(frozen=True)
class Client:
    """How to install a client, and the program that it is."""

    name: str
    make: Callable
    program: Callable

    def command(self, builds):
        builds.get("memcached", toolchains.memcached)
        return self.program(builds.get(self.name, self.make))


def with_python(file):
    return Client("python", toolchains.python, lambda python: [python[0], PROGRAMS / file])


def java_program(name):
    return ["java", "-Xmx1g", "-cp", toolchains.java_class_path(), f"oribi.conformance.memcached.{name}"]


def with_java(name):
    return Client("java", toolchains.java, lambda _: java_program(name))


SUITES = {
    "pymemcache": with_python("with_pymemcache.py"),
    "pylibmc": with_python("with_pylibmc.py"),
    "meta-memcache": with_python("with_meta_memcache.py"),
    "node-memcached": Client("node", toolchains.node, lambda _: ["node", layout.SOURCES / "node" / "memcached.js"]),
    "gomemcache": Client("gomemcache", lambda: toolchains.go_build("gomemcache", "./gomemcache"), lambda binary: [binary]),
    "xmemcached": with_java("Xmemcached"),
    "spymemcached": with_java("Spymemcached"),
    "perl-memcached": Client("perl", toolchains.perl_client, lambda _: ["perl", PROGRAMS / "with_perl.pl"]),
    "php-memcached": Client("php", toolchains.php_client, lambda _: ["php", PROGRAMS / "with_php.php"]),
    "dalli": Client("ruby", toolchains.ruby_client, lambda _: ["ruby", PROGRAMS / "with_dalli.rb"]),
    "memcapable-text": Client("memcapable", toolchains.memcapable, lambda command: [*command, "-h", "127.0.0.1", "-t", "30", "-a", "-p"]),
}


def needs(suite):
    """As `suites.needs`."""
    client = SUITES[suite]
    return [("memcached", toolchains.memcached), (client.name, client.make)]


def run(report, suite, server, command):
    """One step for each check, and one for memcached."""
    with memcached() as port:
        started = time.monotonic()
        failed, count, code = outcomes(command, port, f"{suite}-memcached")
        passed = code == 0 and count > 0 and not failed
        report.add(suite, "memcached", passed, time.monotonic() - started, f"{count} checks, exit code {code} {' '.join(failed)}")
    started = time.monotonic()
    _, count, code = outcomes(command, server.port, suite, report)
    report.add(suite, "all", code == 0 and count > 0, time.monotonic() - started, f"{count} checks, exit code {code}")


def outcomes(command, port, name, report=None):
    """Runs the program; the names of failed checks, the number of all, and the exit code."""
    code, output = captured([*command, port], toolchains.node_environment(), SECONDS_MAX, name)
    failed, count = [], 0
    for result, check, why, ascii_check, ascii_result in OUTCOMES.findall(output):
        passed = result == "PASS" or ascii_result == "pass"
        check = check or ascii_check.replace(" ", "-")
        count += 1
        if not passed:
            failed.append(check)
        if report is not None:
            report.add(name, check, passed, 0.0, why or ("" if passed else ascii_result))
    return failed, count, code
