"""Real input: the package index of the Debian machine this runs on.

`examples/debian_packages.py` makes JSON lines of it, `oribi doc import` loads
them into the collection debian.packages, and the Python SDK reads every
document back by key and compares it with its line: before and after a clean
restart of the server. `oribi doc export` gives the same documents back.
"""

import base64
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from . import layout
from .capture import captured

COLLECTION = "debian.packages"
RECORDS_MIN = 10_000
COMMAND_SECONDS_MAX = 240


class StepFailed(Exception):
    """One step did not do what it must; the text says what."""


def run(report, suite, binary, server, interpreter, environment):
    lines = layout.WORK / "packages.jsonl"
    compare = [interpreter, layout.SOURCES / "python" / "compare.py", lines, COLLECTION]
    steps = {
        "make-json-lines": lambda: make_lines(lines),
        "create-collection": lambda: create_collection(server, environment),
        "import": lambda: command(import_command(binary, server, environment, lines), environment, "debian-import"),
        "read-and-compare": lambda: command(compare, environment, "debian-compare"),
        "clean-restart": lambda: restart(server),
        "compare-again": lambda: command(compare, environment, "debian-compare-again"),
        "export": lambda: export(binary, server, environment, lines),
    }
    for name, step in steps.items():
        started = time.monotonic()
        try:
            detail = step() or ""
        except StepFailed as failure:
            # Every later step builds on this one.
            report.add(suite, name, False, time.monotonic() - started, str(failure))
            return
        report.add(suite, name, True, time.monotonic() - started, detail)


def make_lines(lines):
    command([sys.executable, layout.REPOSITORY / "examples" / "debian_packages.py", lines], {}, "debian-packages")
    with open(lines, "rb") as file:
        count = sum(1 for _ in file)
    if count < RECORDS_MIN:
        raise StepFailed(f"only {count} records; the package lists are missing, see apt-get update")
    return f"{count} records, {lines.stat().st_size / 1e6:.1f} MB"


def create_collection(server, environment):
    scopes = f"{server.admin_url}/pools/default/buckets/default/scopes"
    post(scopes, {"name": "debian"}, environment)
    post(f"{scopes}/debian/collections", {"name": "packages"}, environment)


def post(url, form, environment):
    login = f"{environment['ORIBI_USER']}:{environment['ORIBI_PASSWORD']}".encode()
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST")
    request.add_header("Authorization", "Basic " + base64.b64encode(login).decode())
    try:
        urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.URLError as error:
        raise StepFailed(f"POST {url}: {error}") from None


def import_command(binary, server, environment, lines):
    return [binary, "doc", "import", lines, "--collection", COLLECTION, "--port", server.port]


def export(binary, server, environment, lines):
    again = layout.WORK / "packages-again.jsonl"
    arguments = [binary, "doc", "export", again, "--collection", COLLECTION, "--port", server.port]
    said = command(arguments, environment, "debian-export")
    with open(lines, encoding="utf-8") as imported, open(again, encoding="utf-8") as exported:
        # The last line with a key wins.
        wanted = {document["_key"]: document for document in map(json.loads, imported)}
        found = [json.loads(line) for line in exported]
    if len(found) != len(wanted) or any(wanted.get(document["_key"]) != document for document in found):
        raise StepFailed(f"{len(found)} documents were exported, not the {len(wanted)} that were imported")
    return said


def restart(server):
    server.stop()
    server.start()


def command(arguments, environment, name):
    """Runs a command to its end; returns the last line it printed."""
    code, output = captured(arguments, environment, COMMAND_SECONDS_MAX, name)
    last = output.strip().splitlines()[-1] if output.strip() else ""
    if code != 0:
        raise StepFailed(f"exit code {code}: {last}")
    return last
