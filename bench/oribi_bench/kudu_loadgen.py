"""Writing into Kudu: `oribi perf loadgen` and `kudu perf loadgen` against the same cluster, in turn.

Both write the same rows. After each run the C++ tool counts them and sums up the checksums of the tablets, which
have to be the same for both clients. Then the table is dropped, and the next run waits until the servers are quiet.
"""

from dataclasses import dataclass

from .kudu_client import CLIENTS, CPP, ORIBI, drop, loadgen, verify
from .kudu_server import KuduCluster
from .report import Outcome, Row
from .samples import ratios, spread, text_of


@dataclass(frozen=True)
class Load:
    """What one run writes."""

    threads: int
    rows_per_thread: int

    def arguments(self):
        return {"num_threads": self.threads, "num_rows_per_thread": self.rows_per_thread}

    def __str__(self):
        return f"{self.threads} thread{'s' * (self.threads > 1)} of {self.rows_per_thread:,} rows"


def run_once(client, cluster, binary, load, is_quick):
    if not is_quick:
        cluster.wait_quiet()
    before = cluster.cpu_s()
    run = loadgen(client, cluster, binary, load.arguments())
    run["server_cpu_s"] = cluster.cpu_s() - before
    run["checksum"] = verify(cluster, run["table"], load.threads * load.rows_per_thread)
    drop(cluster, run["table"])
    return run


def compare(cluster, options, load, rounds):
    """Rounds of both clients; who goes first changes with each round. Runs by client."""
    runs = {client: [] for client in CLIENTS}
    for number in range(rounds):
        for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
            runs[client].append(run_once(client, cluster, options.binary, load, options.quick))
        checksums = {runs[client][-1]["checksum"] for client in CLIENTS}
        if len(checksums) > 1:
            raise SystemExit(f"{load}: the two clients did not write the same rows: {checksums}")
    return runs


def rows_of(load, runs):
    def samples(client, figure):
        return [figure(run) for run in runs[client]]

    def cpu_us(run):
        return run["cpu_s"] * 1e6 / run["rows"]

    def rate(run):
        return run["rows"] / run["seconds"] / 1000

    cpp_us, cpp_rate = (spread(samples(CPP, figure))["median"] for figure in (cpu_us, rate))
    return [
        Row(f"Kudu, loadgen, {load}: client CPU per row",
            f"{text_of(ratios(samples(ORIBI, cpu_us), samples(CPP, cpu_us)))}; {spread(samples(ORIBI, cpu_us))['median']:.3f} µs",
            f"C++ client, {cpp_us:.3f} µs"),
        Row("the same, rows per second",
            f"{text_of(ratios(samples(ORIBI, rate), samples(CPP, rate)))}; {spread(samples(ORIBI, rate))['median']:.0f} k/s",
            f"C++ client, {cpp_rate:.0f} k/s"),
    ]


def measure(options):
    count = 20_000 if options.quick else 2_000_000
    rounds = options.rounds or (2 if options.quick else 7)
    load = Load(2, count // 2)
    with KuduCluster() as cluster:
        # The first load of a fresh cluster pays one-time costs.
        run_once(ORIBI, cluster, options.binary, Load(2, 1000), options.quick)
        runs = compare(cluster, options, load, rounds)
    return Outcome({"runs": runs}, rows_of(load, runs))
