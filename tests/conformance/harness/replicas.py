"""Three nodes with copies of each other's buckets, and programs that go on while nodes are killed.

Each suite has an etcd and three nodes of its own, and buckets with one replica and with two. Programs know all nodes.
They ask by `POST /STEP` for what happens: kill and kill-again end a node by SIGKILL and are answered at once, so that
the program meets the failover; return and return-again start that node and are answered once every vbucket has all of
its copies; kill-restart ends a third node and starts it again while it still counts as alive. Programs of one suite
share the nodes, so each change waits until all of them have asked for it.
"""

import contextlib
import json
import os
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, NamedTuple

from oribi_bench.etcd import Etcd

from . import layout, toolchains
from .cluster import PASSWORD, USER
from .control import Control
from .program import run_program
from .server import Server, ServerError

# Name of each bucket, and its replicas.
BUCKETS = {"one-replica": 1, "two-replicas": 2}
NAMES = ("first", "second", "third")
class Times(NamedTuple):
    """When nodes count as gone."""

    lease_s: int
    failover_ms: int


# Little, and enough for a machine that is busy. Nodes that nothing kills have time.
KILLED, QUIET = Times(4, 500), Times(30, 10_000)
BUCKET_MIB = 128
# Few, because a node that comes back gets its copies a few at a time.
VBUCKETS = 16
# A node that was away twice waits for its copies up to sixteen leases.
SETTLE_SECONDS_MAX = 150
MEET_SECONDS_MAX = 200
# What nodes may log at level WARN while another one is away.
EXPECTED_WARNINGS = ("DEVELOPMENT MODE", "the lease is over", "replicas cannot follow a node",
                     "a node with active copies is gone; other copies are promoted",
                     "nodes are not heard: copies here replace their active ones",
                     "nodes grant nothing: their copies are left out")


class Nodes:
    """Three nodes, which form a cluster once they run."""

    def __init__(self, report, suite, binary, etcd, times=KILLED):
        self.report, self.suite = report, suite
        self.secret = layout.DATA / f"{suite}.secret"
        layout.DATA.mkdir(parents=True, exist_ok=True)
        self.secret.unlink(missing_ok=True)
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))

        def node(name):
            # Every bucket is one that the nodes share.
            settings = ["--buckets", "", "--cluster-etcd", etcd.url, "--cluster-name", suite,
                        "--cluster-secret-file", str(self.secret), "--cluster-lease-s", str(times.lease_s),
                        "--cluster-failover-ms", str(times.failover_ms), "--node-name", name]
            return Server(binary, layout.DATA / f"{suite}-{name}", layout.LOGS / f"{suite}-{name}.log", settings,
                          expected_warnings=EXPECTED_WARNINGS)

        self.nodes = {name: node(name) for name in NAMES}

    @contextlib.contextmanager
    def running(self, buckets, vbuckets=VBUCKETS):
        """The nodes with these buckets for the body; their clean stop and their logs are steps of the suite."""
        try:
            for node in self.nodes.values():
                node.start()
            self.wait(self.not_formed)
            for name, replicas in buckets.items():
                self.create(name, replicas, vbuckets)
            self.buckets = buckets
            started = time.monotonic()
            self.wait(self.not_settled)
            self.report.add(self.suite, "copies", True, time.monotonic() - started)
            yield self
            started = time.monotonic()
            for node in self.nodes.values():
                node.stop()
            self.report.add(self.suite, "clean-stop", True, time.monotonic() - started)
        finally:
            for name, node in self.nodes.items():
                node.kill()
                complaints = node.log_complaints()
                self.report.add(self.suite, f"log-of-{name}", not complaints, 0.0, complaints[0] if complaints else "")

    @property
    def connection_string(self):
        return "couchbase://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def admin_url(self):
        return self.nodes["first"].admin_url

    def environment(self, bucket):
        return {"ORIBI_CONNSTR": self.connection_string, "ORIBI_USER": USER, "ORIBI_PASSWORD": PASSWORD,
                "ORIBI_BUCKET": bucket, "ORIBI_REPLICAS": str(self.buckets[bucket]), "ORIBI_VBUCKETS": str(VBUCKETS),
                "ORIBI_SUB_DOCUMENTS": str(layout.SUB_DOCUMENTS), **toolchains.node_environment()}

    def create(self, name, replicas, vbuckets):
        form = {"name": name, "ramQuotaMB": BUCKET_MIB, "numVBuckets": vbuckets, "replicaNumber": replicas}
        admin(self.nodes["first"], "/pools/default/buckets", form)

    def changes(self):
        """What a program can ask for."""
        return {"kill": lambda: self.nodes["first"].kill(), "return": lambda: self.return_("first"),
                "kill-again": lambda: self.nodes["second"].kill(), "return-again": lambda: self.return_("second"),
                "kill-restart": lambda: self.kill_and_return("third")}

    def return_(self, name):
        self.nodes[name].start()
        self.wait(self.not_settled)

    def kill_and_return(self, name):
        self.nodes[name].kill()
        self.return_(name)

    def fail_over(self, name):
        """Kills a node and returns when the others serve everything."""
        self.nodes[name].kill()
        self.wait(lambda: self.not_served([node for other, node in self.nodes.items() if other != name]))

    def wait(self, missing):
        """Until nothing is missing."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while what := missing():
            if time.monotonic() > deadline:
                raise ServerError(f"after {SETTLE_SECONDS_MAX} s: {what}")
            time.sleep(0.02)

    def not_formed(self):
        """A node that does not show three."""
        counts = {name: len(shown(node, "/pools/default/nodeServices").get("nodesExt", ()))
                  for name, node in self.nodes.items()}
        return "" if set(counts.values()) == {len(NAMES)} else f"nodes show {counts} nodes"

    def not_settled(self):
        """Copies that are not there or not up to date, for the cluster or in the map of a node."""
        status = shown(self.nodes["first"], "/node/cluster")
        counts = {each["name"]: (each["vbuckets"] - each["served"], each["missing"], each["behind"])
                  for each in status.get("buckets", ())}
        if counts != {name: (0, 0, 0) for name in self.buckets}:
            return f"(not served, missing, behind) {counts}"
        return self.not_served(self.nodes.values(), -1)

    def not_served(self, nodes, absent=None):
        """A bucket that some of these nodes show with vbuckets that no node serves, or with an `absent` copy."""
        for bucket in self.buckets:
            for node in nodes:
                rows = shown(node, f"/pools/default/b/{bucket}").get("vBucketServerMap", {}).get("vBucketMap")
                if not rows or any(row[0] < 0 or absent in row for row in rows):
                    return f"{bucket} has rows {sorted({tuple(row) for row in rows or ()})[:3]} at {node.port}"
                serving = shown(node, f"/pools/default/b/{bucket}")["nodesExt"]
                if len(serving) != len(nodes):
                    return f"{node.port} shows {len(serving)} nodes"
        return ""


class Meeting:
    """An action that is done once, when all parties have asked for it."""

    def __init__(self, parties, action):
        self.failure = None
        self.barrier = threading.Barrier(parties, lambda: self.act(action))

    def act(self, action):
        try:
            action()
        except Exception as error:
            self.failure = error

    def __call__(self):
        self.barrier.wait(MEET_SECONDS_MAX)
        if self.failure:
            raise self.failure


class Program(NamedTuple):
    """A program on a bucket of the nodes; `more` is what else its environment has."""

    name: str
    bucket: str
    command: list
    steps: list
    more: Callable = lambda nodes, bucket: {}


def run_programs(report, suite, binary, programs, buckets=None):
    """Programs on the same nodes at the same time; what happens to nodes happens to all of them."""
    buckets = buckets or BUCKETS
    toolchains.require(etcd="etcd-server")
    with Etcd() as etcd:
        nodes = Nodes(report, suite, binary, etcd)
        with nodes.running(buckets):
            changes = {name: Meeting(len(programs), action) for name, action in nodes.changes().items()}
            with Control(changes) as control, ThreadPoolExecutor(len(programs)) as pool:
                running = [pool.submit(run_one, report, nodes, program, control.url) for program in programs]
                for program in running:
                    program.result()


def run_one(report, nodes, program, control_url):
    environment = {**nodes.environment(program.bucket), **program.more(nodes, program.bucket),
                   "ORIBI_CONTROL": control_url, "ORIBI_STEPS": ",".join(program.steps)}
    log = layout.LOGS / f"{program.name}.log"
    run_program(report, program.name, program.command, environment, log, program.steps)


def shown(node, path):
    """What a node answers; nothing while it has no answer."""
    try:
        return json.loads(admin(node, path))
    except (urllib.error.URLError, ConnectionError):
        return {}


def admin(node, path, form=None):
    data = urllib.parse.urlencode(form).encode() if form else None
    request = urllib.request.Request(node.admin_url + path, data=data)
    request.add_header("Authorization", f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()
