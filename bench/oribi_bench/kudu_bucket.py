"""A bucket on Kudu beside Kudu alone: point reads with the working set in memory, sustained zipfian updates, and what
persisting a document costs on Oribi's side.

One cluster serves both for reading. Kudu alone is read by this project's native client with 64 look-ups in flight,
because the C++ client has no look-up, after `kudu perf loadgen` has written a table of as many rows of that size; how
fast that was is what Kudu takes when every row is another one. The bucket is loaded by `oribi perf kv`. Updates are
zipf_updates.py: the same ones of Kudu alone and of a bucket, by flush interval. How many of them Kudu received is what
the bucket has committed; the rows of vbucket states, one for each vbucket and Write, come on top.
"""

import tempfile

from .kudu_client import CPP, drop, loadgen
from .kudu_lookups import lookups
from .kudu_server import KuduCluster
from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .zipf_updates import bucket, drain, of_bucket, of_kudu_alone, rows_of

VALUE_BYTES = 512
IN_FLIGHT = 64
# Of the bucket that serves the reads.
FLUSH_INTERVAL_S = 1
# Threads that persist: the flusher, which encodes rows, and those that write them to sockets.
PERSISTING = ("flusher", "kudu")

def persisting_cpu_s(server):
    """What persisting took so far."""
    return sum(seconds for name, seconds in server.cpu_s_by_thread().items() if name.startswith(PERSISTING))


def kudu_alone(cluster, options, items, count, rounds):
    written = [loadgen(CPP, cluster, options.binary, {"num_threads": 2, "num_rows_per_thread": items // 2,
                                                      "string_len": VALUE_BYTES, "use_upsert": "true"})
               for _ in range(rounds)]
    looked_up = [lookups(cluster, written[0]["table"], items, count, IN_FLIGHT) for _ in range(rounds)]
    for one in written:
        drop(cluster, one["table"])
    return {"upserts": written, "lookups": looked_up}


def in_front(cluster, options, load, rounds):
    """Reading and filling the bucket."""
    with tempfile.TemporaryDirectory() as directory, bucket(options, directory, cluster, FLUSH_INTERVAL_S) as server:
        cpu_s = persisting_cpu_s(server)
        populate(options.binary, server, load)
        persisted = drain(server)
        cpu_us = (persisting_cpu_s(server) - cpu_s) * 1e6 / max(persisted, 1)
        reads = [run_tool(options.binary, server, load.run_arguments(seed))["load"] for seed in range(rounds)]
    return {"persist_cpu_us": cpu_us, "persisted": persisted, "reads": reads}


def measure_reads(options, items):
    """Figures and rows of everything but the updates."""
    count = 500 if options.quick else 50_000
    rounds = options.rounds or (1 if options.quick else 3)
    load = Load(items=items, value_bytes=VALUE_BYTES, set_pct=0, duration_s=0.5 if options.quick else 5)
    with KuduCluster() as cluster:
        alone = kudu_alone(cluster, options, items, count, rounds)
        if not options.quick:
            cluster.wait_quiet()
        front = in_front(cluster, options, load, rounds)
    reads = spread([run["operations_per_second"] for run in front["reads"]])
    found = spread([run["lookups"] / run["seconds"] for run in alone["lookups"]])
    upserts = spread([run["rows"] / run["seconds"] for run in alone["upserts"]])
    read_ratio = ratios(reads["samples"], found["samples"])
    cpu_us = front["persist_cpu_us"]
    rows = [
        Row(f"point reads per second of {items:,} documents of {VALUE_BYTES} B in memory, Oribi in front of Kudu over "
            f"Kudu alone ({IN_FLIGHT} look-ups in flight)",
            f"{text_of(reads, 0)} /s, {text_of(found, 0)} /s: {text_of(read_ratio)}", ">= 50",
            read_ratio["median"] >= 50),
        Row(f"CPU of Oribi per persisted document of {VALUE_BYTES} B (flusher and Kudu's threads)", f"{cpu_us:.2f} µs",
            "<= 3 µs", cpu_us <= 3),
        Row(f"batched upserts of {items:,} distinct rows by the C++ tool", f"{text_of(upserts, 0)} /s"),
    ]
    return {"alone": alone, "bucket": front}, rows


def measure(options):
    items = 5_000 if options.quick else 1_000_000
    updates = options.updates or (20_000 if options.quick else 5_000_000)
    figures, rows = {"items": items}, []
    if not options.updates_only:
        reads, rows = measure_reads(options, items)
        figures["reads"] = reads
    alone = of_kudu_alone(options, items, VALUE_BYTES, updates)
    runs = [of_bucket(options, items, VALUE_BYTES, updates, seconds) for seconds in options.flush_interval_s]
    figures["updates"] = {"alone": alone, "bucket": runs}
    said = [f"--updates {options.updates}"] * bool(options.updates)
    said += [f"--alone-seconds {options.alone_seconds:g}"]
    said += ["--updates-only"] * options.updates_only
    said += ["--flush-interval-s " + " ".join(f"{one:g}" for one in options.flush_interval_s)]
    return Outcome(figures, rows + rows_of(alone, runs), options=" ".join(said))
