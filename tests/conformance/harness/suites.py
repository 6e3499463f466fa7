"""What `run` can be asked for: one function per suite.

Every suite starts a fresh server on an empty data directory, so the order and
the choice of suites never matters, and several may run at a time.
"""

import base64
import contextlib
import json
import re
import shutil
import time
import urllib.request

from oribi_bench.etcd import Etcd

from . import (cluster, debian, documents, go_suites, layout, mapped_ports, memcached, memcached_clients, prometheus,
               replicas, testcontainers, toolchains)
from .builds import Builds
from .certificates import Certificates
from .capture import captured
from .control import Control
from .program import run_program
from .second_program import SecondProgram
from .server import Server, ServerError
from .steps import (CHANGE_STREAM_STEPS, FAILOVER_STEPS, FAILOVER_TRANSACTION_STEPS, LOST_TRANSFERS, OTTOMAN_STEPS,
                    QUERY_STEPS, REPLICA_QUERY_STEPS, REPLICA_STEPS, REPLICA_TRANSACTION_STEPS, SPRING_DATA_STEPS,
                    STEPS, STREAM_CHANGES, STREAM_FAILOVER_CHANGES, STREAM_FAILOVER_STEPS, TRANSACTION_STEPS)

LANGUAGES = ("python", "node", "java", "go", "rust")
USER, PASSWORD = "Administrator", "password"
# What these may do in the collections of the step `rights`.
LIMITED_USER = "limited"
LIMITED_ROLES = ("read-write:default/rights/open", "read-only:default/rights/shown")
TLS_SUFFIX = "-tls"
# The SDK for Rust has no transactions.
TRANSACTION_LANGUAGES = ("python", "node", "java", "go")
TRANSACTIONS_SUFFIX = "-transactions"
QUERY_LANGUAGES = ("python", "node", "java")
QUERIES_SUFFIX = "-queries"
REPLICAS_SUFFIX = "-replicas"
# Clients of change streams, and what each can tell apart.
CONSUMERS = {"go-streams": (toolchains.go_consumer, "expirations,filter-empty"), "java-streams": (toolchains.java_consumer, "")}
QUICKSTART_SECONDS_MAX = 60
MEMCAPABLE_SECONDS_MAX = 120
EVICTION_SECONDS_MAX = 180
RANGE_SCAN_SECONDS_MAX = 120
# The documents are about three times as large.
EVICTION_QUOTA_MIB = 8
EVICTION_FETCHES_MIN = 2_000


class Run:
    """What the suites of one run share."""

    def __init__(self, report, steps=None, storage=None):
        self.report = report
        # The names of the steps that were asked for; all when none were.
        self.steps = steps
        # Where servers keep documents when a suite does not say so; `{suite}` in it stands for the suite's name.
        self.storage = storage
        self.builds = Builds()

    def chosen(self, steps):
        """Those of these steps that were asked for."""
        return [step for step in steps if self.steps is None or step in self.steps]

    def begin_builds(self, suites):
        """Begins to install and build what suites need, in their order."""
        for suite in suites:
            for what, make in needs(suite):
                self.builds.begin(what, make)


def needs(suite):
    """What has to be installed or built for a suite: names, and the functions that do it."""
    language = suite.removesuffix(TLS_SUFFIX).removesuffix(TRANSACTIONS_SUFFIX).removesuffix(QUERIES_SUFFIX)
    language = language.removesuffix(REPLICAS_SUFFIX)
    if language in LANGUAGES:
        return [(language, getattr(toolchains, language))]
    if suite in ("cluster", "mapped-ports", "failover"):
        streams = [(name, make) for name, (make, _) in CONSUMERS.items()] if suite == "failover" else []
        return [*((language, getattr(toolchains, language)) for language in LANGUAGES), *streams]
    if suite == "quickstart":
        return [(f"{suite} {language}", make) for language, make in QUICKSTARTS.items()]
    if language in GO_SUITES:
        return [(suite, GO_SUITES[language])]
    if suite in OBJECT_MAPPERS:
        return [(suite, OBJECT_MAPPERS[suite])]
    if language in CONSUMERS:
        return [("python", toolchains.python), (suite, CONSUMERS[language][0])]
    if suite == "documents":
        return []
    if suite == "prometheus":
        return [(suite, prometheus.promtool)]
    if suite == "testcontainers":
        return [(f"{suite} {name}", make) for name, make in testcontainers.PROGRAMS.items()]
    if suite in memcached_clients.SUITES:
        return memcached_clients.needs(suite)
    if suite == "memcached-sasl":
        return [("python", toolchains.python), ("java", toolchains.java), (suite, toolchains.memcached)]
    return [(suite, toolchains.memcapable)] if suite == "memcapable" else [("python", toolchains.python)]


def run_suite(run, suite, binary):
    """Runs one suite by name; whatever keeps it from running is a failure of it."""
    report = run.report
    try:
        if suite.removesuffix(TLS_SUFFIX) in LANGUAGES:
            sdk(run, suite, binary)
        elif suite.endswith(TRANSACTIONS_SUFFIX):
            transactions(run, suite, binary)
        elif suite.endswith(QUERIES_SUFFIX):
            queries(run, suite, binary)
        elif suite.removesuffix(REPLICAS_SUFFIX) in LANGUAGES:
            with_replicas(run, suite, binary)
        else:
            OTHERS[suite](run, suite, binary)
    except toolchains.ToolchainError as error:
        report.add(suite, "build", False, 0.0, str(error))
    except ServerError as error:
        report.add(suite, "server", False, 0.0, str(error))


def sdk(run, suite, binary):
    """All steps of one SDK program; the suites with `-tls` speak TLS, and verify the server."""
    report, steps = run.report, run.chosen(STEPS)
    language = suite.removesuffix(TLS_SUFFIX)
    certificates = Certificates(layout.DATA / f"{suite}-certificates") if suite != language else None
    command = run.builds.get(language, getattr(toolchains, language))
    users = [(USER, ["admin"], None), (LIMITED_USER, LIMITED_ROLES, None)]
    with (served(run, suite, binary, certificates=certificates, users=users) as server,
          Control({"kill-restart": server.kill_and_restart}) as control):
        environment = {**credentials(server), **toolchains.node_environment(), "ORIBI_CONTROL": control.url, "ORIBI_LIMITED_USER": LIMITED_USER,
                       "ORIBI_STEPS": ",".join(steps), "ORIBI_SUB_DOCUMENTS": str(layout.SUB_DOCUMENTS)}
        if certificates is not None:
            environment.update(certificates.environment())
        run_program(report, suite, command, environment, layout.LOGS / f"{suite}.log", steps)
        if len(control.done) != steps.count("kill-restart"):
            report.add(suite, "restarts", False, 0.0, f"{len(control.done)} instead of one")


def queries(run, suite, binary):
    """Queries and index managers of one SDK."""
    language = suite.removesuffix(QUERIES_SUFFIX)
    steps = run.chosen(QUERY_STEPS)
    command = run.builds.get(language, getattr(toolchains, language))
    with served(run, suite, binary, users=[(USER, ["admin"], None)]) as server:
        environment = {**credentials(server), **toolchains.node_environment(), "ORIBI_STEPS": ",".join(steps)}
        run_program(run.report, suite, command, environment, layout.LOGS / f"{suite}.log", steps)


def with_replicas(run, suite, binary):
    """The program of one SDK on three nodes with copies of its bucket, which are killed."""
    language = suite.removesuffix(REPLICAS_SUFFIX)
    steps = run.chosen([*REPLICA_STEPS, *(REPLICA_TRANSACTION_STEPS if language in TRANSACTION_LANGUAGES else ()),
                        *(REPLICA_QUERY_STEPS if language == "python" else ())])
    command = run.builds.get(language, getattr(toolchains, language))
    replicas.run_programs(run.report, suite, binary, on_each_bucket(suite, command, steps))


def streams_with_replicas(run, suite, binary):
    """A client of change streams hears what is there after nodes with copies of its bucket were killed."""
    more = consumer_environment(run, suite, suite.removesuffix(REPLICAS_SUFFIX), STREAM_CHANGES)
    programs = on_each_bucket(suite, stream_command(run), run.chosen(STREAM_FAILOVER_STEPS), more)
    replicas.run_programs(run.report, suite, binary, programs)


def on_each_bucket(suite, command, steps, *more):
    """The same program on the bucket with one replica and on that with two."""
    return [replicas.Program(f"{suite}-{count}", bucket, command, steps, *more)
            for bucket, count in replicas.BUCKETS.items()]


def failover(run, suite, binary):
    """All SDKs and clients of change streams on the same three nodes, of which one is killed and returns.

    Each has a bucket of its own, every second one with two replicas.
    """
    programs = []
    for language in LANGUAGES:
        steps = [*FAILOVER_STEPS, *(FAILOVER_TRANSACTION_STEPS if language in TRANSACTION_LANGUAGES else ())]
        command = run.builds.get(language, getattr(toolchains, language))
        programs.append(replicas.Program(f"{suite}-{language}", language, command, run.chosen(steps)))
    for client in CONSUMERS:
        more = consumer_environment(run, suite, client, STREAM_FAILOVER_CHANGES)
        programs.append(replicas.Program(f"{suite}-{client}", client, stream_command(run), ["connect", "failovers"], more))
    buckets = {program.bucket: 1 + index % 2 for index, program in enumerate(programs)}
    replicas.run_programs(run.report, suite, binary, programs, buckets)


def stream_command(run):
    return [run.builds.get("python", toolchains.python)[0], layout.SOURCES / "python" / "change_streams.py"]


def consumer_environment(run, suite, client, changes):
    """The environment in which python/change_streams.py runs a client beside it on three nodes."""
    make, hears = CONSUMERS[client]
    consumer = json.dumps([str(part) for part in run.builds.get(client, make)])
    directory = layout.DATA / f"{suite}-{client}-journals"
    shutil.rmtree(directory, ignore_errors=True)

    def more(nodes, bucket):
        (directory / bucket).mkdir(parents=True)
        return {"ORIBI_ADMIN": nodes.nodes["third"].admin_url, "ORIBI_HEARS": hears, "ORIBI_CONSUMER": consumer,
                "ORIBI_CHANGES": ",".join(changes), "ORIBI_DIRECTORY": str(directory / bucket),
                "ORIBI_LOG": str(layout.LOGS / f"{suite}-{bucket}")}

    return more


def transactions(run, suite, binary):
    """Transactions of one SDK, and what a killed server and a killed client leave of them."""
    report, steps = run.report, run.chosen(TRANSACTION_STEPS)
    language = suite.removesuffix(TRANSACTIONS_SUFFIX)
    command = run.builds.get(language, getattr(toolchains, language))
    with served(run, suite, binary) as server:
        environment = {**credentials(server), **toolchains.node_environment()}
        second = SecondProgram(command, {**environment, "ORIBI_STEPS": f"connect,{LOST_TRANSFERS}"},
                               layout.LOGS / f"{suite}-second.log")

        def kill_both():
            second.kill()
            server.kill_and_restart()

        with Control({"start-second": second.start, "kill-restart": kill_both}) as control:
            try:
                run_program(report, suite, command,
                            {**environment, "ORIBI_CONTROL": control.url, "ORIBI_STEPS": ",".join(steps)},
                            layout.LOGS / f"{suite}.log", steps)
            finally:
                second.kill()
        if control.done != ["start-second", "kill-restart"] * steps.count("transfers-killed"):
            report.add(suite, "restarts", False, 0.0, f"{control.done} was asked for")


def object_mapper(run, suite, binary):
    """A library that maps objects to documents and makes its statements and indexes by itself."""
    command = run.builds.get(suite, OBJECT_MAPPERS[suite])
    steps = {"spring-data": SPRING_DATA_STEPS, "ottoman": OTTOMAN_STEPS}[suite]
    with served(run, suite, binary, users=[(USER, ["admin"], None)]) as server:
        environment = {**credentials(server), "NODE_PATH": str(layout.OTTOMAN / "node_modules")}
        run_program(run.report, suite, command, environment, layout.LOGS / f"{suite}.log", steps)


def change_streams(run, suite, binary):
    """A client of change streams hears everything that the Python SDK writes, and nothing else."""
    steps = run.chosen(CHANGE_STREAM_STEPS)
    make, hears = CONSUMERS[suite]
    interpreter, consumer = run.builds.get("python", toolchains.python)[0], run.builds.get(suite, make)
    directory = layout.DATA / f"{suite}-journals"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with served(run, suite, binary) as server, Control({"kill-restart": server.kill_and_restart}) as control:
        environment = {**credentials(server), "ORIBI_ADMIN": server.admin_url, "ORIBI_CONTROL": control.url,
                       "ORIBI_STEPS": ",".join(steps), "ORIBI_CONSUMER": json.dumps([str(part) for part in consumer]),
                       "ORIBI_HEARS": hears, "ORIBI_DIRECTORY": str(directory), "ORIBI_LOG": str(layout.LOGS / suite)}
        run_program(run.report, suite, [interpreter, layout.SOURCES / "python" / "change_streams.py"], environment,
                    layout.LOGS / f"{suite}.log", steps)


def nodes(run, suite, binary):
    """The SDK programs on a cluster of two nodes, one after the other."""
    commands = {}
    for language in LANGUAGES:
        try:
            commands[language] = run.builds.get(language, getattr(toolchains, language))
        except toolchains.ToolchainError as error:
            run.report.add(suite, language, False, 0.0, str(error))
    cluster.run_programs(run.report, binary, commands)


def behind_mapped_ports(run, suite, binary):
    """The SDK programs where forwarded ports are all that they reach."""
    commands = {}
    for language in LANGUAGES:
        try:
            commands[language] = run.builds.get(language, getattr(toolchains, language))
        except toolchains.ToolchainError as error:
            run.report.add(suite, language, False, 0.0, str(error))
    mapped_ports.run(run.report, suite, binary, commands, toolchains.node_environment())


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


def memcached_sasl(run, suite, binary):
    """Memcached clients that log in, and the texts of errors beside memcached's own."""
    run.builds.get(suite, toolchains.memcached)
    interpreter = run.builds.get("python", toolchains.python)[0]
    run.builds.get("java", toolchains.java)
    with served(run, suite, binary, "--buckets", memcached.BUCKETS, users=memcached.USERS) as server:
        java = memcached_clients.java_program("SpymemcachedSasl")
        memcached.run(run.report, suite, server, interpreter, java, PASSWORD)


def memcached_client(run, suite, binary):
    """One memcached client, with the same checks on memcached itself."""
    command = memcached_clients.SUITES[suite].command(run.builds)
    with served(run, suite, binary, *memcached_clients.SERVER_ARGUMENTS) as server:
        memcached_clients.run(run.report, suite, server, command)


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


def go_suite(run, suite, binary):
    """The integration tests that a Go module brings along."""
    program = run.builds.get(suite, GO_SUITES[suite])
    with served(run, suite, binary, *go_suites.SERVER_ARGUMENTS, users=[(USER, ["admin"], None)]) as server:
        go_suites.run(run.report, suite, program, server, USER, PASSWORD)


def go_suite_with_replicas(run, suite, binary):
    """The same on three nodes, with a bucket that has one replica, and then with one that has two."""
    program = run.builds.get(suite, GO_SUITES[suite.removesuffix(REPLICAS_SUFFIX)])
    for count in sorted(replicas.BUCKETS.values()):
        name = f"{suite}-{count}"
        with Etcd() as etcd:
            nodes = replicas.Nodes(run.report, name, binary, etcd, replicas.QUIET)
            with nodes.running({"default": count}, go_suites.VBUCKETS):
                go_suites.run(run.report, suite, program, nodes, USER, PASSWORD, name)


def real_input(run, suite, binary):
    """A package index is imported, read back, and read again after a restart."""
    interpreter = run.builds.get("python", toolchains.python)[0]
    with served(run, suite, binary) as server:
        debian.run(run.report, suite, binary, server, interpreter, credentials(server))


def document_commands(run, suite, binary):
    """What the README and docs/ tell people to type."""
    documents.run(run.report, suite, binary, lambda: served(run, suite, binary, users=[(USER, ["admin"], None)]))


def prometheus_files(run, suite, _binary):
    """What docs/operations.md gives to Prometheus and Grafana."""
    prometheus.run(run.report, suite, run.builds)


def container_recipes(run, suite, binary):
    """The recipes of docs/ci-kit.md with the real Testcontainers libraries."""
    testcontainers.run(run.report, suite, binary, run.builds)


def eviction(run, suite, binary):
    """Far more documents than memory, through the Python SDK, with each kind of eviction, before and after a restart."""
    report = run.report
    program = [run.builds.get("python", toolchains.python)[0], layout.SOURCES / "python" / "eviction.py"]
    for policy in ("value", "full"):
        name = f"{suite}-{policy}"
        arguments = ["--eviction", policy, "--memory-quota-mib", str(EVICTION_QUOTA_MIB)]
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
    """Ranges, prefixes and samples of a collection, through the Python SDK."""
    report = run.report
    program = [run.builds.get("python", toolchains.python)[0], layout.SOURCES / "python" / "range_scans.py"]
    with served(run, suite, binary) as server:
        started = time.monotonic()
        code, output = captured(program, credentials(server), RANGE_SCAN_SECONDS_MAX, suite)
        last = output.strip().splitlines()[-1] if output.strip() else ""
        report.add(suite, "scan", code == 0, time.monotonic() - started, f"{last}; exit code {code}")


def disk_fetches(server):
    """Documents that the server has read from disk because a request needed them."""
    request = urllib.request.Request(f"{server.admin_url}/node/figures")
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["buckets"][0]["fetches"]


QUICKSTARTS = {
    "python": quickstart_python,
    "node": quickstart_node,
    "java": quickstart_java,
    "go": quickstart_go,
    "rust": quickstart_rust,
}
GO_SUITES = {"gocb": go_suites.gocb, "gocbcore": go_suites.gocbcore, "gocbcore-dcp": go_suites.gocbcore}
OBJECT_MAPPERS = {"spring-data": toolchains.spring_data, "ottoman": toolchains.ottoman}
OTHERS = {**dict.fromkeys(GO_SUITES, go_suite), **dict.fromkeys(CONSUMERS, change_streams),
          **dict.fromkeys((name + REPLICAS_SUFFIX for name in GO_SUITES), go_suite_with_replicas),
          **dict.fromkeys((name + REPLICAS_SUFFIX for name in CONSUMERS), streams_with_replicas), **dict.fromkeys(OBJECT_MAPPERS, object_mapper),
          **dict.fromkeys(memcached_clients.SUITES, memcached_client), "memcapable": memcapable, "memcached-sasl": memcached_sasl, "quickstart": quickstart,
          "debian": real_input, "eviction": eviction,
          "range-scans": range_scans, "cluster": nodes, "failover": failover, "mapped-ports": behind_mapped_ports, "documents": document_commands,
          "testcontainers": container_recipes, "prometheus": prometheus_files}
# Names that stand for several suites. A node that comes back waits up to some tens of seconds for its copies, so these
# suites take minutes and are not in `all`.
GROUPS = {"replicas": [name + REPLICAS_SUFFIX for name in (*LANGUAGES, *CONSUMERS)],
          "go-suites-replicas": [name + REPLICAS_SUFFIX for name in GO_SUITES]}
# Those that take long and need only Python come first, because the other languages are built meanwhile.
ALL = ["eviction", "debian", "range-scans", "documents", *LANGUAGES, *GO_SUITES,
       *(language + TRANSACTIONS_SUFFIX for language in TRANSACTION_LANGUAGES),
       *(language + QUERIES_SUFFIX for language in QUERY_LANGUAGES), *OBJECT_MAPPERS, *CONSUMERS, "failover", "cluster", "mapped-ports", "testcontainers", "prometheus",
       *(language + TLS_SUFFIX for language in LANGUAGES), "memcapable", "memcached-sasl", *memcached_clients.SUITES, "quickstart"]


def chosen(names):
    """The suites that names of suites and of groups stand for; all when there are none."""
    if not names or "all" in names:
        return ALL
    return list(dict.fromkeys(suite for name in names for suite in GROUPS.get(name, [name])))


def credentials(server):
    return {"ORIBI_CONNSTR": server.connection_string, "ORIBI_USER": USER, "ORIBI_PASSWORD": PASSWORD, "ORIBI_BUCKET": "default"}


@contextlib.contextmanager
def served(run, suite, binary, *arguments, certificates=None, users=()):
    """A server for the body; its clean stop and its log are steps of the suite."""
    report = run.report
    if run.storage and "--storage" not in arguments:
        arguments = [*arguments, "--storage", run.storage.replace("{suite}", suite.replace("-", "_"))]
    server = Server(binary, layout.DATA / suite, layout.LOGS / f"{suite}-server.log", arguments, certificates)
    try:
        for name, roles, bucket in users:
            server.add_user(name, PASSWORD, *roles, bucket=bucket)
        server.start()
        yield server
        started = time.monotonic()
        server.stop()
        report.add(suite, "clean-stop", True, time.monotonic() - started)
    finally:
        server.kill()
        complaints = server.log_complaints()
        report.add(suite, "server-log", not complaints, 0.0, complaints[0] if complaints else "")
