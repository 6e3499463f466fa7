"""What `run` can be asked for: one function per suite.

Every suite starts a fresh server on an empty data directory, so the order and
the choice of suites never matters, and several may run at a time.
"""

import base64
import contextlib
import json
import re
import time
import urllib.request

from . import cluster, debian, layout, readme, toolchains
from .builds import Builds
from .certificates import Certificates
from .capture import captured
from .control import Control
from .program import run_program
from .server import Server, ServerError

LANGUAGES = ("python", "node", "java", "go", "rust")
USER, PASSWORD = "Administrator", "password"
# What these may do in the collections of the step `rights`.
LIMITED_USER = "limited"
LIMITED_ROLES = ("read-write:default/rights/open", "read-only:default/rights/shown")
TLS_SUFFIX = "-tls"
QUICKSTART_SECONDS_MAX = 60
MEMCAPABLE_SECONDS_MAX = 120
EVICTION_SECONDS_MAX = 180
RANGE_SCAN_SECONDS_MAX = 120
# The documents are about three times as large.
EVICTION_QUOTA_MIB = 8
EVICTION_FETCHES_MIN = 2_000


class Run:
    """What the suites of one run share."""

    def __init__(self, report, steps, storage=None):
        self.report = report
        self.steps = steps
        # Where servers keep documents when a suite does not say so; `{suite}` in it stands for the suite's name.
        self.storage = storage
        self.builds = Builds()

    def begin_builds(self, suites):
        """Begins to install and build what suites need, in their order."""
        for suite in suites:
            for what, make in needs(suite):
                self.builds.begin(what, make)


def needs(suite):
    """What has to be installed or built for a suite: names, and the functions that do it."""
    language = suite.removesuffix(TLS_SUFFIX)
    if language in LANGUAGES:
        return [(language, getattr(toolchains, language))]
    if suite == "cluster":
        return [(language, getattr(toolchains, language)) for language in LANGUAGES]
    if suite == "quickstart":
        return [(f"{suite} {language}", make) for language, make in QUICKSTARTS.items()]
    if suite == "readme":
        return []
    return [(suite, toolchains.memcapable)] if suite == "memcapable" else [("python", toolchains.python)]


def run_suite(run, suite, binary):
    """Runs one suite by name; whatever keeps it from running is a failure of it."""
    report = run.report
    try:
        if suite.removesuffix(TLS_SUFFIX) in LANGUAGES:
            sdk(run, suite, binary)
        else:
            OTHERS[suite](run, suite, binary)
    except toolchains.ToolchainError as error:
        report.add(suite, "build", False, 0.0, str(error))
    except ServerError as error:
        report.add(suite, "server", False, 0.0, str(error))


def sdk(run, suite, binary):
    """All steps of one SDK program; the suites with `-tls` speak TLS, and verify the server."""
    report, steps = run.report, run.steps
    language = suite.removesuffix(TLS_SUFFIX)
    certificates = Certificates(layout.DATA / f"{suite}-certificates") if suite != language else None
    command = run.builds.get(language, getattr(toolchains, language))
    users = [(USER, ["admin"]), (LIMITED_USER, LIMITED_ROLES)]
    with (served(run, suite, binary, certificates=certificates, users=users) as server,
          Control({"kill-restart": server.kill_and_restart}) as control):
        environment = {**credentials(server), **toolchains.node_environment(), "ORIBI_CONTROL": control.url, "ORIBI_LIMITED_USER": LIMITED_USER,
                       "ORIBI_STEPS": ",".join(steps), "ORIBI_SUB_DOCUMENTS": str(layout.SUB_DOCUMENTS)}
        if certificates is not None:
            environment.update(certificates.environment())
        run_program(report, suite, command, environment, layout.LOGS / f"{suite}.log", steps)
        if len(control.done) != steps.count("kill-restart"):
            report.add(suite, "restarts", False, 0.0, f"{len(control.done)} instead of one")


def nodes(run, suite, binary):
    """The SDK programs on a cluster of two nodes, one after the other."""
    commands = {}
    for language in LANGUAGES:
        try:
            commands[language] = run.builds.get(language, getattr(toolchains, language))
        except toolchains.ToolchainError as error:
            run.report.add(suite, language, False, 0.0, str(error))
    cluster.run_programs(run.report, binary, commands)


def memcapable(run, suite, binary):
    """Each of memcapable's own tests of the binary protocol is one step.

    It sends flush, which the server only accepts where it is switched on.
    """
    report, command = run.report, run.builds.get(suite, toolchains.memcapable)
    with served(run, suite, binary, "--flush-enabled", "true") as server:
        started = time.monotonic()
        arguments = ["-h", "127.0.0.1", "-p", str(server.port), "-t", "10", "-b"]
        code, output = captured([*command, *arguments], {}, MEMCAPABLE_SECONDS_MAX, suite)
        results = re.findall(r"^(binary \w+)\s+\[(\w+)\]", output, re.MULTILINE)
        for name, result in results:
            passed = result == "pass"
            report.add(suite, name.replace(" ", "-"), passed, 0.0, "" if passed else result)
        passed = code == 0 and len(results) > 0
        report.add(suite, "all", passed, time.monotonic() - started, f"{len(results)} tests, exit code {code}")


def quickstart(run, suite, binary):
    """The snippets that the README shows, run as they are."""
    report, commands = run.report, {}
    for language, make in QUICKSTARTS.items():
        try:
            commands[language] = run.builds.get(f"{suite} {language}", make)
        except toolchains.ToolchainError as error:
            report.add(suite, language, False, 0.0, str(error))
    with served(run, suite, binary) as server:
        for language, command in commands.items():
            environment = {**credentials(server), **toolchains.node_environment()}
            started = time.monotonic()
            code, output = captured(command, environment, QUICKSTART_SECONDS_MAX, f"{suite}-{language}")
            last = output.strip().splitlines()[-1] if output.strip() else ""
            passed = code == 0 and last.startswith("Hello from ")
            detail = last if passed else f"exit code {code}: {last}"
            report.add(suite, language, passed, time.monotonic() - started, detail)


def quickstart_python():
    return [toolchains.python()[0], layout.QUICKSTARTS / "python" / "quickstart.py"]


def quickstart_node():
    return [toolchains.node()[0], layout.QUICKSTARTS / "node" / "quickstart.js"]


def quickstart_java():
    toolchains.java()
    return ["java", "-cp", toolchains.java_class_path(), layout.QUICKSTARTS / "java" / "Quickstart.java"]


def quickstart_go():
    return [toolchains.go_build("quickstart", layout.QUICKSTARTS / "go" / "quickstart.go")]


def quickstart_rust():
    return [toolchains.rust_build("quickstart")]


def real_input(run, suite, binary):
    """A package index is imported, read back, and read again after a restart."""
    interpreter = run.builds.get("python", toolchains.python)[0]
    with served(run, suite, binary) as server:
        debian.run(run.report, suite, binary, server, interpreter, credentials(server))


def readme_commands(run, suite, binary):
    """What the README tells people to type."""
    with served(run, suite, binary) as server:
        readme.run(run.report, suite, binary, server)


def eviction(run, suite, binary):
    """Far more documents than memory, through the Python SDK: on each store that keeps documents on disk, with each kind of
    eviction, before and after a restart."""
    report = run.report
    program = [run.builds.get("python", toolchains.python)[0], layout.SOURCES / "python" / "eviction.py"]
    for storage in ("embedded", "log"):
        for policy in ("value", "full"):
            name = f"{suite}-{storage}-{policy}"
            arguments = ["--storage", storage, "--eviction", policy, "--memory-quota-mib", str(EVICTION_QUOTA_MIB)]
            with served(run, name, binary, *arguments) as server:
                for phase in ("operate", "verify"):
                    if phase == "verify":
                        server.stop()
                        server.start()
                    started = time.monotonic()
                    code, output = captured([*program, phase], credentials(server), EVICTION_SECONDS_MAX, f"{name}-{phase}")
                    fetches = disk_fetches(server)
                    last = output.strip().splitlines()[-1] if output.strip() else ""
                    passed = code == 0 and fetches >= EVICTION_FETCHES_MIN
                    detail = f"{last}; exit code {code}, {fetches} fetches"
                    report.add(name, phase, passed, time.monotonic() - started, detail)


def range_scans(run, suite, binary):
    """Ranges, prefixes and samples of a collection, through the Python SDK, on each store that keeps documents on disk."""
    report = run.report
    program = [run.builds.get("python", toolchains.python)[0], layout.SOURCES / "python" / "range_scans.py"]
    for storage in ("embedded", "log"):
        name = f"{suite}-{storage}"
        with served(run, name, binary, "--storage", storage) as server:
            started = time.monotonic()
            code, output = captured(program, credentials(server), RANGE_SCAN_SECONDS_MAX, name)
            last = output.strip().splitlines()[-1] if output.strip() else ""
            report.add(name, "scan", code == 0, time.monotonic() - started, f"{last}; exit code {code}")


def disk_fetches(server):
    """Documents that the server has read from disk because a request needed them."""
    request = urllib.request.Request(f"{server.admin_url}/pools/default/buckets/default")
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["basicStats"]["diskFetches"]


QUICKSTARTS = {
    "python": quickstart_python,
    "node": quickstart_node,
    "java": quickstart_java,
    "go": quickstart_go,
    "rust": quickstart_rust,
}
OTHERS = {"memcapable": memcapable, "quickstart": quickstart, "debian": real_input, "eviction": eviction,
          "range-scans": range_scans, "cluster": nodes, "readme": readme_commands}
# Those that take long and need only Python come first, because the other languages are built meanwhile.
ALL = ["eviction", "debian", "range-scans", "readme", *LANGUAGES, "cluster",
       *(language + TLS_SUFFIX for language in LANGUAGES), "memcapable", "quickstart"]


def credentials(server):
    return {"ORIBI_CONNSTR": server.connection_string, "ORIBI_USER": USER, "ORIBI_PASSWORD": PASSWORD}


@contextlib.contextmanager
def served(run, suite, binary, *arguments, certificates=None, users=()):
    """A server for the body; its clean stop and its log are steps of the suite."""
    report = run.report
    if run.storage and "--storage" not in arguments:
        arguments = [*arguments, "--storage", run.storage.replace("{suite}", suite.replace("-", "_"))]
    server = Server(binary, layout.DATA / suite, layout.LOGS / f"{suite}-server.log", arguments, certificates)
    try:
        for name, roles in users:
            server.add_user(name, PASSWORD, *roles)
        server.start()
        yield server
        started = time.monotonic()
        server.stop()
        report.add(suite, "clean-stop", True, time.monotonic() - started)
    finally:
        server.kill()
        complaints = server.log_complaints()
        report.add(suite, "server-log", not complaints, 0.0, complaints[0] if complaints else "")
