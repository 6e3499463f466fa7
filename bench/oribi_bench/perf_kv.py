"""`oribi perf kv`: CPU per operation of the client and of the server behind it, Oribi and memcached in turn.

Both servers run one worker thread and are filled once; then the same load is put on them in turn. Oribi
also writes every stored document to disk, by threads of its own; their time is part of the server's,
and the worker's is shown apart.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Memcached, Server

# The thread that serves clients, by server.
WORKERS = {"oribi": "oribi-worker", "memcached": "mc-worker"}


def measure_load(binary, server, load, seed):
    """One run on a populated server: what the tool found, and the server's time by kind of thread."""
    before = server.cpu_s_by_thread()
    summary = run_tool(binary, server, load.run_arguments(seed))
    after = server.cpu_s_by_thread()
    phase = summary["load"]
    operations = phase["operations"]
    by_thread = {name: (after[name] - before.get(name, 0)) * 1e9 / operations for name in after}
    return {
        "operations": operations,
        "operations_per_second": phase["operations_per_second"],
        "client_ns": phase["client_cpu_ns_per_operation"]["total"],
        "client_user_ns": phase["client_cpu_ns_per_operation"]["user"],
        # The kernel's exact account; the tool reports in steps of a tick.
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
