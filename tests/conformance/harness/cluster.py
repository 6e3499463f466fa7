"""Two nodes that share a bucket on Kudu, and SDK programs that follow the cluster map between them.

Each program has nodes, a database and a cluster name of its own; Kudu and etcd are shared. A program knows the first
node only. In each step it writes documents durably, asks by `POST /STEP` for what happens to the nodes, and then reads
every document of every step so far and writes some more: join (a second node), kill (of the first one, by SIGKILL),
return (of that one), leave (of the second one, in order). What is asked for is answered once the map is settled.
"""

import base64
import contextlib
import json
import time
import urllib.error
import urllib.request

from oribi_bench.etcd import Etcd
from oribi_bench.kudu_server import KuduCluster

from . import layout, toolchains
from .control import Control
from .program import run_program
from .server import Server, ServerError
from .steps import CLUSTER_STEPS

USER, PASSWORD = "Administrator", "password"
LEASE_S = 4
SETTLE_SECONDS_MAX = 60
# What nodes may log at level WARN while the other one comes and goes.
EXPECTED_WARNINGS = ("DEVELOPMENT MODE", "waiting for Kudu", "Kudu answers again", "the lease is over",
                     "another node owns vbuckets", "vbuckets could not be taken over yet",
                     "what another node owns was not written")


def run_programs(report, binary, commands):
    """`commands` has for each language what starts its program."""
    toolchains.require(etcd="etcd-server")
    try:
        with KuduCluster() as kudu, Etcd() as etcd:
            for language, command in commands.items():
                nodes = Nodes(report, f"cluster-{language}", binary, kudu, etcd)
                with nodes.running(), Control(nodes.changes()) as control:
                    environment = {"ORIBI_CONNSTR": nodes.first.connection_string, "ORIBI_USER": USER,
                                   "ORIBI_PASSWORD": PASSWORD, "ORIBI_CONTROL": control.url,
                                   "ORIBI_STEPS": ",".join(CLUSTER_STEPS), **toolchains.node_environment()}
                    run_program(report, nodes.suite, command, environment, layout.LOGS / f"{nodes.suite}.log",
                                CLUSTER_STEPS)
    except SystemExit as unavailable:
        raise toolchains.ToolchainError(str(unavailable)) from None


class Nodes:
    """Two nodes, of which the second one is not started yet."""

    def __init__(self, report, suite, binary, kudu, etcd):
        self.report, self.suite = report, suite
        storage = f"kudu://{kudu.masters}/{suite.replace('-', '_')}?tablets=2&replicas=1"

        def node(name):
            arguments = ["--storage", storage, "--cluster-etcd", etcd.url, "--cluster-name", suite,
                         "--cluster-lease-s", str(LEASE_S), "--node-name", name, "--memory-quota-mib", "256"]
            return Server(binary, layout.DATA / f"{suite}-{name}", layout.LOGS / f"{suite}-{name}.log", arguments,
                          expected_warnings=EXPECTED_WARNINGS)

        self.first, self.second = node("first"), node("second")

    @contextlib.contextmanager
    def running(self):
        """The first node for the body; both logs are steps of the suite."""
        try:
            self.first.start()
            wait_for_shares([self.first], 1)
            yield
            self.first.stop()
        finally:
            for name, node in (("first", self.first), ("second", self.second)):
                node.kill()
                complaints = node.log_complaints()
                self.report.add(self.suite, f"log-of-{name}", not complaints, 0.0, complaints[0] if complaints else "")

    def changes(self):
        """What a program can ask for."""
        return {"join": self.join, "kill": self.kill, "return": self.return_, "leave": self.leave}

    def join(self):
        self.second.start()
        wait_for_shares([self.first, self.second], 2)
        # The program waits for this answer and does nothing: what it knows of the new node it was told.
        started = time.monotonic()
        while connections(self.second) == 0:
            if time.monotonic() - started > SETTLE_SECONDS_MAX:
                raise ServerError("an idle client does not follow the map")
            time.sleep(0.01)
        self.report.add(self.suite, "follows-idly", True, time.monotonic() - started)

    def kill(self):
        self.first.kill()
        wait_for_shares([self.second], 1)

    def return_(self):
        self.first.start()
        wait_for_shares([self.first, self.second], 2)

    def leave(self):
        self.second.stop()
        wait_for_shares([self.first], 1)


def wait_for_shares(nodes, count):
    """Until these nodes show the same map, in which every one of `count` nodes has an equal number of vbuckets."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while True:
        shown = [shares(node) for node in nodes]
        if all(each is not None and len(each) == count and len(set(each)) == 1 for each in shown):
            return
        if time.monotonic() > deadline:
            raise ServerError(f"the nodes show {shown} instead of equal shares of {count}")
        time.sleep(0.02)


def shares(node):
    """How many vbuckets each node has in the map that this one shows; None while it has none to show."""
    try:
        text = admin(node, "/pools/default/b/default")
    except (urllib.error.URLError, ConnectionError):
        return None
    config = json.loads(text)
    # A node that knows no cluster yet names no host.
    if "hostname" not in config["nodesExt"][0]:
        return None
    owners = [chain[0] for chain in config["vBucketServerMap"]["vBucketMap"]]
    return [owners.count(index) for index in range(len(config["nodesExt"]))]


def connections(node):
    """Open connections of clients."""
    lines = admin(node, "/metrics").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("oribi_connections "))


def admin(node, path):
    request = urllib.request.Request(node.admin_url + path)
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()
