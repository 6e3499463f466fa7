"""A bucket on Kudu beside Kudu alone: point reads with the working set in memory, sustained zipfian updates, and what
persisting a document costs on Oribi's side.

One cluster serves both. Kudu alone is read by this project's native client with 64 look-ups in flight, because the C++
client has no look-up, and written by `kudu perf loadgen`, which upserts in batches but cannot choose keys by a zipfian
distribution: its figure is what Kudu takes when every row is another one, which is kind to Kudu. The bucket is loaded by
`oribi perf kv` with the same number of documents of the same size. How many updates Kudu received is what the bucket has
committed; the rows of vbucket states, one for each vbucket and Write, come on top.
"""

import tempfile
import time
from pathlib import Path

from .kudu_client import CPP, drop, loadgen
from .kudu_lookups import lookups
from .kudu_server import KuduCluster
from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Server
from .wire import Connection

VALUE_BYTES = 512
IN_FLIGHT = 64
# What is written again within this time is written to Kudu once.
FLUSH_INTERVAL_MS = 1000
# Threads that persist: the flusher, which encodes rows, and those that write them to sockets.
PERSISTING = ("flusher", "kudu")
DRAIN_SECONDS_MAX = 600


def stats_of(server):
    connection = Connection(server.port).login()
    try:
        return connection.stats()
    finally:
        connection.close()


def drain(server):
    """Waits until nothing is queued; the number of documents committed so far."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while True:
        stats = stats_of(server)
        if int(stats["ep_diskqueue_items"]) == 0:
            return int(stats["ep_total_persisted"])
        if time.monotonic() > deadline:
            raise SystemExit("the queue does not get empty")
        time.sleep(0.05)


def persisting_cpu_s(server):
    """What persisting took so far."""
    return sum(seconds for name, seconds in server.cpu_s_by_thread().items() if name.startswith(PERSISTING))


def resident_mib(cluster):
    """Memory of all servers of Kudu."""
    total = 0
    for process in cluster.processes:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) / 1024
    return total


def kudu_alone(cluster, options, items, count, rounds):
    written = [loadgen(CPP, cluster, options.binary, {"num_threads": 2, "num_rows_per_thread": items // 2,
                                                      "string_len": VALUE_BYTES, "use_upsert": "true"})
               for _ in range(rounds)]
    looked_up = [lookups(cluster, written[0]["table"], items, count, IN_FLIGHT) for _ in range(rounds)]
    for one in written:
        drop(cluster, one["table"])
    return {"upserts": written, "lookups": looked_up}


def in_front(cluster, options, load, updates, rounds):
    """The figures of the bucket."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = ["--storage", f"kudu://{cluster.masters}/bench?replicas=1", "--memory-quota-mib", 4096,
                    "--flush-interval-ms", FLUSH_INTERVAL_MS]
        with Server(options.binary, Path(scratch) / "data", *settings) as server:
            cpu_s = persisting_cpu_s(server)
            populate(options.binary, server, load)
            persisted = drain(server)
            cpu_us = (persisting_cpu_s(server) - cpu_s) * 1e6 / max(persisted, 1)
            reads = [run_tool(options.binary, server, load.run_arguments(seed))["load"] for seed in range(rounds)]
            cycles = max(updates // (load.batch * load.threads), 1)
            zipf = Load(items=load.items, value_bytes=VALUE_BYTES, set_pct=100, threads=load.threads,
                        batch=load.batch, cycles=cycles)
            before = resident_mib(cluster)
            begin = time.monotonic()
            wrote = run_tool(options.binary, server, [*zipf.run_arguments(1), "--distribution", "zipf"])["load"]
            received = drain(server) - persisted
            seconds = time.monotonic() - begin
            after = resident_mib(cluster)
    return {"persist_cpu_us": cpu_us, "persisted": persisted, "reads": reads, "updates": wrote["operations"],
            "updates_seconds": seconds, "received": received, "kudu_mib": [before, after]}


def measure(options):
    items = 5_000 if options.quick else 1_000_000
    updates = options.updates or (20_000 if options.quick else 5_000_000)
    count = 500 if options.quick else 50_000
    rounds = options.rounds or (1 if options.quick else 3)
    load = Load(items=items, value_bytes=VALUE_BYTES, set_pct=0, duration_s=0.5 if options.quick else 5)
    with KuduCluster() as cluster:
        alone = kudu_alone(cluster, options, items, count, rounds)
        if not options.quick:
            cluster.wait_quiet()
        bucket = in_front(cluster, options, load, updates, rounds)
    reads = spread([run["operations_per_second"] for run in bucket["reads"]])
    found = spread([run["lookups"] / run["seconds"] for run in alone["lookups"]])
    upserts = spread([run["rows"] / run["seconds"] for run in alone["upserts"]])
    rate = bucket["updates"] / bucket["updates_seconds"]
    share = bucket["received"] / bucket["updates"]
    read_ratio = ratios(reads["samples"], found["samples"])
    before, after = bucket["kudu_mib"]
    cpu_us = bucket["persist_cpu_us"]
    rows = [
        Row(f"point reads per second of {items:,} documents of {VALUE_BYTES} B in memory, Oribi in front of Kudu over "
            f"Kudu alone ({IN_FLIGHT} look-ups in flight)",
            f"{text_of(reads, 0)} /s, {text_of(found, 0)} /s: {text_of(read_ratio)}", ">= 50",
            read_ratio["median"] >= 50),
        Row(f"{bucket['updates']:,} zipfian updates until all are persisted, beside batched upserts of distinct rows by "
            "the C++ tool", f"{rate:,.0f} /s, {text_of(upserts, 0)} /s", ">= 10 times"),
        Row("the same, updates that Kudu received", f"{bucket['received']:,}: {share:.3f} of them", "<= 0.1",
            share <= 0.1),
        Row("the same, memory of Kudu's servers before and after", f"{before:.0f} MiB, {after:.0f} MiB", "bounded"),
        Row(f"CPU of Oribi per persisted document of {VALUE_BYTES} B (flusher and Kudu's threads)", f"{cpu_us:.2f} µs",
            "<= 3 µs", cpu_us <= 3),
    ]
    return Outcome({"items": items, "alone": alone, "bucket": bucket}, rows)
