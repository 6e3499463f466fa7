"""Replicas: what a copy on another node costs a write, how long a failover takes, and what a rebalance does to clients.

All nodes share this machine, so CPU of all of them counts, and not throughput. The peer is a bucket on one node.
"""

import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from .cluster import VBUCKETS, QUOTA_MIB, Cluster
from .hot_path.comparison import in_turn, progress
from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Server
from .wire import PASSWORD, SET, USER, Connection, frame

VALUE_BYTES = 512
SIDES = {"local": 0, "one replica": 1, "two replicas": 2}
SUSPICIONS_MS = (500, 2000)
# What a process may have beyond a tenth of its quotas.
BASE_MIB = 64
FAILOVER_SECONDS_MAX = 120


class Local:
    """A bucket on one node, with the methods of a cluster that a load needs."""

    def __init__(self, server):
        self.nodes = [server]

    def wait_persisted(self):
        self.nodes[0].wait_persisted(600)


def start(options, directory, replicas, stack):
    """All active copies are on the first node, and each other node has a replica of everything."""
    path = Path(directory) / f"{replicas}-replicas"
    if replicas == 0:
        return Local(stack.enter_context(Server(options.binary, path, "--workers", 1, "--vbuckets", VBUCKETS,
                                                "--memory-quota-mib", QUOTA_MIB)))
    path.mkdir()
    cluster = stack.enter_context(Cluster(options, path))
    cluster.add()
    cluster.create(replicas)
    cluster.wait_for_service()
    for _ in range(replicas):
        cluster.add()
    cluster.wait_for_copies()
    if set(cluster.active_nodes(cluster.nodes[0])) != {cluster.nodes[0].port}:
        raise SystemExit("the first node does not have every active copy")
    return cluster


def cpu_ns(options, cluster, load, seed):
    """CPU of one write in all nodes, and in the worker of the active one."""
    def worker_s():
        sums = cluster.nodes[0].cpu_s_by_thread()
        return sum(seconds for name, seconds in sums.items() if "worker" in name)

    cluster.wait_persisted()
    before, worker_before = sum(node.cpu_total_s() for node in cluster.nodes), worker_s()
    run = run_tool(options.binary, cluster.nodes[0], load.run_arguments(seed))["load"]
    cluster.wait_persisted()
    total_s = sum(node.cpu_total_s() for node in cluster.nodes) - before
    if run["stored"] != run["operations"]:
        raise SystemExit(f"of {run['operations']} writes {run['stored']} were stored")
    return total_s * 1e9 / run["stored"], (worker_s() - worker_before) * 1e9 / run["stored"]


def round_trip_us(options, cluster, seed, durability):
    load = Load(1000, VALUE_BYTES, batch=1, set_pct=100, duration_s=1 if options.quick else 5)
    run = run_tool(options.binary, cluster.nodes[0], [*load.run_arguments(seed), "--durability", durability])["load"]
    return run["set_latency_us"]["p50"]


def measure_writes(options, directory, rounds):
    # As many writes as documents: a queue that drops overwritten versions would favour the faster side.
    items = 20_000 if options.quick else 1_000_000
    load = Load(items, VALUE_BYTES, set_pct=100, connections=10, cycles=max(items // 1000, 1))
    total, worker = ({side: [] for side in SIDES} for _ in range(2))
    latency = {"none": [], "majority": []}
    with ExitStack() as stack:
        clusters = {side: start(options, directory, replicas, stack) for side, replicas in SIDES.items()}
        for cluster in clusters.values():
            populate(options.binary, cluster.nodes[0], load)
        for number in range(rounds):
            progress(f"replicas: round {number + 1} of {rounds}")
            for side in in_turn(list(SIDES), number):
                ns, worker_ns = cpu_ns(options, clusters[side], load, number)
                total[side].append(ns)
                worker[side].append(worker_ns)
            for level in in_turn(list(latency), number):
                latency[level].append(round_trip_us(options, clusters["one replica"], number, level))
    return {"total_ns": total, "active_worker_ns": worker, "round_trip_us": latency}


def failover_s(options, suspicion_ms, is_leader):
    """From the death of one of three nodes until the others serve writes to each of its vbuckets."""
    with tempfile.TemporaryDirectory() as directory, \
            Cluster(options, directory, "--cluster-failover-ms", suspicion_ms) as cluster:
        for _ in range(3):
            cluster.add()
        cluster.create(1)
        cluster.wait_for_copies()
        # The first node leads from its start.
        killed = cluster.nodes[0 if is_leader else 2]
        survivors = [node for node in cluster.nodes if node is not killed]
        lost = [vbid for vbid, port in enumerate(cluster.active_nodes(survivors[0])) if port == killed.port]
        if not lost:
            raise SystemExit("the node has no active copy")
        connections = [Connection(node.port).login() for node in survivors]
        killed.process.kill()
        begin = time.monotonic()
        while lost:
            write = [vbid for vbid in lost if all(is_refused(connection, vbid) for connection in connections)]
            lost = write
            if time.monotonic() - begin > FAILOVER_SECONDS_MAX:
                raise SystemExit(f"vbuckets {lost} are not served")
        return time.monotonic() - begin


def is_refused(connection, vbid):
    status, _ = connection.call(frame(SET, b"key-%d" % vbid, bytes(8), b"value", vbid))
    return status != 0


def measure_failovers(options):
    figures = {}
    for suspicion_ms in SUSPICIONS_MS:
        for is_leader in (False, True):
            progress(f"replicas: failovers after {suspicion_ms} ms, {'the leader' if is_leader else 'another node'}")
            times = [failover_s(options, suspicion_ms, is_leader) for _ in range(1 if options.quick else 3)]
            figures[f"{suspicion_ms} ms, {'leader' if is_leader else 'other'}"] = times
    return figures


def measure_rebalance(options, directory):
    """A third node gets its share of two nodes' documents, with clients at a fixed rate meanwhile."""
    documents = 20_000 if options.quick else 1_000_000
    load = Load(documents, VALUE_BYTES, batch=1, set_pct=20, duration_s=5, rate=2000)
    with Cluster(options, directory) as cluster:
        cluster.add()
        cluster.add()
        cluster.create(1)
        cluster.wait_for_copies()
        populate(options.binary, cluster.nodes[0], Load(documents, VALUE_BYTES))
        cluster.wait_persisted()
        cluster.add()

        def p99_us(seed):
            return run_tool(options.binary, cluster.nodes[0], load.run_arguments(seed))["load"]["latency_us"]["p99"]

        quiet = [p99_us(seed) for seed in range(3)]
        cpu_before, begin, failed = [node.cpu_total_s() for node in cluster.nodes], time.monotonic(), []
        took = []
        rebalance = threading.Thread(target=lambda: took.append(run_rebalance(options, cluster, failed, begin)))
        rebalance.start()
        moving = []
        while rebalance.is_alive():
            moving.append(p99_us(len(moving) + 10))
        rebalance.join()
        if failed:
            raise SystemExit(failed[0])
        cpu = [node.cpu_total_s() - before for node, before in zip(cluster.nodes, cpu_before, strict=True)]
        peaks = [node.peak_resident_mib() for node in cluster.nodes]
        shares = [cluster.active_nodes(cluster.nodes[0]).count(node.port) for node in cluster.nodes]
    if max(peaks) > QUOTA_MIB * 1.1 + BASE_MIB:
        raise SystemExit(f"the nodes had up to {max(peaks):.0f} MiB, more than their bound")
    return {"documents": documents, "seconds": took[0], "quiet_p99_us": quiet, "moving_p99_us": moving,
            "cpu_s": cpu, "peak_mib": peaks, "active": shares}


def run_rebalance(options, cluster, failed, begin):
    command = [str(options.binary), "cluster", "rebalance", "--json", "--host", f"127.0.0.1:{cluster.nodes[0].port}",
               "--user", USER]
    done = subprocess.run(command, env={**os.environ, "ORIBI_PASSWORD": PASSWORD}, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        failed.append(f"the rebalance failed: {done.stderr}")
    return time.monotonic() - begin


def measure(options):
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory() as directory:
        writes = measure_writes(options, directory, rounds)
    failovers = measure_failovers(options)
    with tempfile.TemporaryDirectory() as directory:
        rebalance = measure_rebalance(options, directory)
    return Outcome({**writes, "failover_s": failovers, "rebalance": rebalance}, rows(writes, failovers, rebalance))


def rows(writes, failovers, rebalance):
    total, worker, latency = writes["total_ns"], writes["active_worker_ns"], writes["round_trip_us"]
    more = spread([two - one for one, two in zip(total["one replica"], total["two replicas"], strict=True)])
    times = "; ".join(f"{name} {text_of(spread(samples), 1)} s" for name, samples in failovers.items())
    cpu = ", ".join(f"{seconds:.0f}" for seconds in rebalance["cpu_s"])
    slowest, quiet = max(rebalance["moving_p99_us"]), spread(rebalance["quiet_p99_us"])["median"]
    return [
        Row(f"SET of {VALUE_BYTES} B with one replica over local: CPU of all nodes",
            f"{text_of(ratios(total['one replica'], total['local']))}; {spread(total['one replica'])['median']:.0f} ns",
            f"one node, {spread(total['local'])['median']:.0f} ns"),
        Row("the same: CPU of the active node's worker",
            f"{text_of(ratios(worker['one replica'], worker['local']))}; "
            f"{spread(worker['one replica'])['median']:.0f} ns",
            f"one node, {spread(worker['local'])['median']:.0f} ns"),
        Row("a second replica: more CPU of all nodes", f"{text_of(more, 0)} ns"),
        Row("majority write over a plain one, one a round trip: median latency",
            f"{text_of(ratios(latency['majority'], latency['none']))}; {spread(latency['majority'])['median']:.0f} µs",
            f"plain, {spread(latency['none'])['median']:.0f} µs"),
        Row("failover after kill -9 of one of three nodes, until all writes are served", times),
        Row(f"rebalance of {rebalance['documents']:,} documents of {VALUE_BYTES} B onto a third node",
            f"{rebalance['seconds']:.0f} s; CPU of the nodes {cpu} s; at most {max(rebalance['peak_mib']):.0f} MiB; "
            f"slowest p99 of 5 s {slowest / quiet:.1f} times the quiet {quiet:.0f} µs"),
    ]
