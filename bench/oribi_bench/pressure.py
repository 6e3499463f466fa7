"""Three times more data than memory: zipfian reads and 20 % writes that the store has to be asked for.

Value and full eviction, and values of changing size, so that freed blocks have to serve others. How many
reads were served from memory is compared with an ideal: a cache of as many documents as the server
held, that knows how often each document was used so far and always keeps the most used (LFU with perfect frequencies, in a hash
map). It sees the same sequence of operations, which `oribi perf kv --choices` tells.
"""

import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .kv_load import run_tool
from .report import Outcome, Row
from .server import Server
from .wire import Connection

MIB = 1 << 20
BASE_MIB = 64
ZIPF_EXPONENT = 0.99
SEED_OF_WARM_UP, SEED_OF_RUN = 1, 2


@dataclass(frozen=True)
class Case:
    storage: str
    eviction: str
    quota_mib: int
    min_bytes: int = 1024
    max_bytes: int = 1024
    connections: int = 16
    batch: int = 4
    cycles: int = 4000

    @property
    def items(self):
        """Three times the quota, by the documents' own bytes."""
        return 3 * self.quota_mib * MIB // ((self.min_bytes + self.max_bytes) // 2)

    def arguments(self, seed, cycles=None):
        return [*self.documents(), "--no-population", "--set-pct", 20, "--distribution", "zipf", "--zipf-exponent",
                ZIPF_EXPONENT, "--batch-size", self.batch, "--connections-per-thread", self.connections,
                "--num-cycles", cycles or self.cycles, "--random-seed", seed]

    def documents(self):
        return ["--items", self.items, "--min-size", self.min_bytes, "--max-size", self.max_bytes, "--random-body",
                "--retries", 10_000]

    def __str__(self):
        size = f"{self.min_bytes} B" if self.min_bytes == self.max_bytes else f"{self.min_bytes} to {self.max_bytes} B"
        return f"{self.storage}, {self.eviction} eviction, {size}"


def stats_of(server):
    connection = Connection(server.port).login()
    figures = connection.stats()
    connection.close()
    return figures


class IdealLfu:
    """A cache of `capacity` documents that keeps the most used ones. A document comes in when it is used more often than the
    least used one in it; which one that is, is found by count: counts only grow, and by one."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.uses = {}
        # Documents in the cache by their number of uses.
        self.by_uses = {}
        self.lowest = 1
        self.inside = set()

    def use(self, document):
        """Counts a use; whether the document was there."""
        uses = self.uses.get(document, 0) + 1
        self.uses[document] = uses
        was_inside = document in self.inside
        if was_inside:
            self.by_uses[uses - 1].discard(document)
        elif len(self.inside) < self.capacity:
            self.inside.add(document)
            self.lowest = min(self.lowest, uses)
        else:
            while not self.by_uses.get(self.lowest):
                self.lowest += 1
            if uses <= self.lowest:
                return False
            self.inside.discard(self.by_uses[self.lowest].pop())
            self.inside.add(document)
        self.by_uses.setdefault(uses, set()).add(document)
        return was_inside


def choices(binary, case, seed, directory):
    """Documents and whether they are written, in the order of the run."""
    path = Path(directory) / "choices"
    command = [str(binary), "perf", "kv", "--choices", str(path), *map(str, case.arguments(seed))]
    subprocess.run(command, check=True)
    for (number,) in struct.iter_unpack("<Q", path.read_bytes()):
        yield number >> 1, number & 1 == 1


def ideal_hit_ratio(binary, case, capacity, directory):
    """Of the reads of the measured run, after the population and the warm-up."""
    cache = IdealLfu(capacity)
    for document in range(case.items):
        cache.use(document)
    for document, _ in choices(binary, case, SEED_OF_WARM_UP, directory):
        cache.use(document)
    reads = hits = 0
    for document, is_write in choices(binary, case, SEED_OF_RUN, directory):
        was_inside = cache.use(document)
        if not is_write:
            reads += 1
            hits += was_inside
    return hits / reads


def measure_case(binary, case):
    with tempfile.TemporaryDirectory() as directory:
        settings = ["--workers", 1, "--memory-quota-mib", case.quota_mib, "--storage", case.storage, "--eviction",
                    case.eviction]
        with Server(binary, Path(directory) / "data", *settings) as server:
            run_tool(binary, server, [*case.documents(), "--populate-only", "--batch-size", 100])
            run_tool(binary, server, case.arguments(SEED_OF_WARM_UP))
            before, cpu_before = stats_of(server), server.cpu_s_by_thread()
            load = run_tool(binary, server, case.arguments(SEED_OF_RUN))["load"]
            after, cpu_after = stats_of(server), server.cpu_s_by_thread()
            peak_mib = server.peak_resident_mib()
        grown = {name: int(after[name]) - int(before[name])
                 for name in ("ep_bg_fetched", "ep_num_value_ejects", "get_hits", "get_misses", "cmd_get")}
        documents = int(after["curr_items"])
        resident = documents - int(after["ep_num_non_resident"])
        ideal = ideal_hit_ratio(binary, case, resident, directory)
    operations = load["operations"]
    threads = {name: (cpu_after[name] - cpu_before.get(name, 0)) * 1e9 / operations for name in cpu_after}
    latency = load["latency_us"]
    return {
        "case": vars(case) | {"items": case.items}, "operations": operations, "documents": documents,
        "documents_resident": resident, "misses": grown["get_misses"],
        # Writes fetch nothing under value eviction, and hardly anything under full eviction.
        "hit_ratio": 1 - grown["ep_bg_fetched"] / grown["cmd_get"], "ideal_hit_ratio": ideal,
        "evictions": grown["ep_num_value_ejects"],
        "latency_us": {name: latency[name] for name in ("p50", "p99", "p99_9")},
        "operations_per_second": load["operations_per_second"],
        "server_ns_per_operation": sum(threads.values()),
        "server_ns_by_thread": {name: ns for name, ns in sorted(threads.items()) if ns >= 1},
        "peak_resident_mib": peak_mib, "resident_bound_mib": case.quota_mib * 1.1 + BASE_MIB,
    }


def rows_of(case, run):
    latency = run["latency_us"]
    name = f"3 x quota of {case.quota_mib} MiB, {case}"
    kinds = ", ".join(f"{thread} {ns:.0f}" for thread, ns in run["server_ns_by_thread"].items() if ns >= 100)
    return [
        Row(f"{name}: failed reads", f"{run['misses']} of {run['operations']} operations", "0", run["misses"] == 0),
        Row("the same, reads served from memory",
            f"{run['hit_ratio']:.3f}, ideal LFU of as many documents ({run['documents_resident']}) "
            f"{run['ideal_hit_ratio']:.3f}"),
        Row("the same, latency", f"p50 {latency['p50']:.0f} us, p99 {latency['p99']:.0f} us, p99.9 "
                                 f"{latency['p99_9']:.0f} us"),
        Row("the same, throughput", f"{run['operations_per_second'] / 1000:.1f} k op/s, server CPU "
                                    f"{run['server_ns_per_operation'] / 1000:.2f} us per operation ({kinds} ns)"),
        Row("the same, most memory resident", f"{run['peak_resident_mib']:.0f} MiB",
            f"<= {run['resident_bound_mib']:.0f} MiB", run["peak_resident_mib"] <= run["resident_bound_mib"]),
    ]


def measure(options):
    quota_mib, cycles = (8, 300) if options.quick else (64, 4000)
    cases = [Case("log", eviction, quota_mib, cycles=cycles) for eviction in ("value", "full")]
    cases.append(Case("log", "value", quota_mib, min_bytes=100, max_bytes=4000, cycles=cycles))
    runs = [measure_case(options.binary, case) for case in cases]
    rows = [row for case, run in zip(cases, runs) for row in rows_of(case, run)]
    return Outcome({"runs": runs}, rows)
