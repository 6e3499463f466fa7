"""Memcached clients that log in: python-binary-memcached and spymemcached, and failing requests sent to memcached as well.

Debian's memcached runs beside the server, once as it is and once with SASL, where nobody can log in.
"""

import contextlib
import os
import re
import socket
import subprocess
import time

from . import layout
from .capture import captured
from .server import free_ports
from .toolchains import ToolchainError

SECONDS_MAX = 180
START_SECONDS_MAX = 30
BUCKETS = "default,sessions,orders"
# Names, roles, and the bucket that is named for the user.
USERS = (
    ("root", ["admin"], None),
    ("cache", ["read-write:default"], None),
    ("reader", ["read-only:default"], None),
    ("named", ["read-write:*"], "sessions"),
    ("several", ["read-write:sessions", "read-write:orders"], None),
)


@contextlib.contextmanager
def memcached(*arguments):
    """A memcached for the body; its port."""
    [port] = free_ports(1)
    # It wants to be told a user when root starts it, and reads the settings of SASL as that user.
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = ["memcached", *user, "-l", "127.0.0.1", "-p", str(port), "-U", "0", *arguments]
    settings = layout.DATA / "memcached-settings"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "memcached.conf").write_text("mech_list: plain\n")
    environment = {**os.environ, "SASL_CONF_PATH": str(settings)}
    with open(layout.LOGS / "memcached.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_for(port, process):
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolchainError(f"memcached does not listen on port {port}: {error}") from error
            time.sleep(0.01)


def run(report, suite, server, interpreter, java, password):
    """One step for each line that the programs print."""
    program = layout.SOURCES / "python" / "memcached_sasl.py"
    with memcached() as plain, memcached("-S") as with_sasl:
        one_program(report, suite, "bmemcached", [interpreter, program, server.port, plain, with_sasl], password)
    one_program(report, suite, "spymemcached", [*java, server.port], password)


def one_program(report, suite, name, command, password):
    started = time.monotonic()
    code, output = captured(command, {"ORIBI_PASSWORD": password}, SECONDS_MAX, f"{suite}-{name}")
    results = re.findall(r"^(PASS|FAIL) (\S+) ?(.*)$", output, re.MULTILINE)
    for result, check, why in results:
        report.add(suite, check, result == "PASS", 0.0, why)
    passed = code == 0 and len(results) > 0
    report.add(suite, f"all-{name}", passed, time.monotonic() - started, f"{len(results)} checks, exit code {code}")
