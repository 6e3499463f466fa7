"""`oribi perf kv`: CPU per operation of the client and of the server behind it, Oribi and memcached in turn.

Both servers run one worker thread and are filled once; then the same load is put on them in turn. Oribi
also writes every stored document to disk, by threads of its own; their time is part of the server's,
and the worker's is shown apart.
"""

import json
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Memcached, Server

# The thread that serves clients, by server.
WORKERS = {"oribi": "oribi-worker", "memcached": "mc-worker"}


@dataclass
class Load:
    """What is put on a server."""

    items: int = 1_000_000
    value_bytes: int = 512
    batch: int = 100
    set_pct: int = 20
    threads: int = 1
    duration_s: float = 5

    def arguments(self):
        """As the tool has them; bodies are random, so that no store can compress them."""
        return ["--items", self.items, "--min-size", self.value_bytes, "--max-size", self.value_bytes,
                "--batch-size", self.batch, "--set-pct", self.set_pct, "--num-threads", self.threads,
                "--random-body"]

    def __str__(self):
        return f"{self.value_bytes} B, batch {self.batch}, {self.set_pct} % sets"


def run_tool(binary, server, arguments):
    """Runs `oribi perf kv` against a server; its JSON."""
    command = [str(binary), "perf", "kv", "--port", str(server.port), "--server-pid", str(server.pid), "--json",
               *map(str, arguments)]
    if isinstance(server, Memcached):
        command.append("--memcached")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr[-2000:]}{done.stdout[:2000]}")
    return json.loads(done.stdout)


def populate(binary, server, load):
    run_tool(binary, server, [*load.arguments(), "--populate-only"])


def measure_load(binary, server, load, seed):
    """One run on a populated server: what the tool found, and the server's time by kind of thread."""
    before = server.cpu_s_by_thread()
    summary = run_tool(binary, server, [*load.arguments(), "--no-population", "--duration", load.duration_s,
                                        "--random-seed", seed])
    after = server.cpu_s_by_thread()
    phase = summary["load"]
    operations = phase["operations"]
    by_thread = {name: (after[name] - before.get(name, 0)) * 1e9 / operations for name in after}
    return {
        "operations": operations,
        "operations_per_second": phase["operations_per_second"],
        "client_ns": phase["client_cpu_ns_per_operation"]["total"],
        "client_user_ns": phase["client_cpu_ns_per_operation"]["user"],
        # The kernel's exact account; what the tool reports is in steps of a tick.
        "server_ns": sum(by_thread.values()),
        "server_ns_by_thread": {name: ns for name, ns in sorted(by_thread.items()) if ns >= 1},
        "p50_us": phase["latency_us"]["p50"],
        "p99_us": phase["latency_us"]["p99"],
    }


def compare(options, load, rounds):
    """Rounds of all servers in turn; runs by server name."""
    binary = options.binary
    runs = {}
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
        servers = [stack.enter_context(Server(binary, data_dir, "--workers", 1, "--memory-quota-mib", 4096))]
        if Memcached.is_installed():
            servers.append(stack.enter_context(Memcached(threads=1)))
        for server in servers:
            populate(binary, server, load)
        for seed in range(rounds):
            for server in servers:
                runs.setdefault(server.name, []).append(measure_load(binary, server, load, seed))
    return runs


def rows_of(load, runs):
    def figure(server, name):
        return spread([run[name] for run in runs[server]])

    rows = [Row(f"`oribi perf kv`, {load}: client CPU per operation",
                f"{text_of(figure('oribi', 'client_ns'), 0)} ns", "<= 500 ns")]
    for server in runs:
        threads = spread_by_thread(runs[server])
        kinds = ", ".join(f"{name} {ns:.0f}" for name, ns in threads.items())
        rows.append(Row(f"the same, CPU of {server} per operation",
                        f"{text_of(figure(server, 'server_ns'), 0)} ns, by thread: {kinds}; "
                        f"{figure(server, 'operations_per_second')['median'] / 1e6:.2f} M op/s; client "
                        f"{figure(server, 'client_ns')['median']:.0f} ns"))
    if "memcached" in runs:
        ratio = ratios(*(figure(server, "server_ns")["samples"] for server in ("oribi", "memcached")))
        rows.append(Row("the same, server CPU of oribi over memcached", text_of(ratio)))
        ratio = ratios(*([run["server_ns_by_thread"][name] for run in runs[server]]
                         for server, name in WORKERS.items()))
        rows.append(Row("the same, worker threads alone", text_of(ratio)))
    else:
        rows.append(Row("the same, CPU of memcached", "not run: it is not installed"))
    return rows


def spread_by_thread(runs):
    """Median time per operation of each kind of thread that took at least a nanosecond."""
    names = sorted({name for run in runs for name in run["server_ns_by_thread"]})
    return {name: spread([run["server_ns_by_thread"].get(name, 0) for run in runs])["median"] for name in names}


def measure(options):
    load = Load(items=10_000, duration_s=0.5) if options.quick else Load()
    rounds = options.rounds or (2 if options.quick else 5)
    runs = compare(options, load, rounds)
    version = Memcached.version() if Memcached.is_installed() else None
    return Outcome({"load": vars(load), "memcached": version, "runs": runs}, rows_of(load, runs))
