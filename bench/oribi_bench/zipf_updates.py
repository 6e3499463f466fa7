"""The same zipfian updates over and over: of Kudu alone, and of a bucket in front of Kudu.

Kudu alone is written by this project's native client (`oribi perf loadgen --zipf-keys`): batched upserts of keys that
are chosen as `oribi perf kv --distribution zipf` chooses documents, with rows of the same size. Its texts compress well
in Kudu's log, the bucket's random bodies do not, which is kind to Kudu. Each run has a cluster of its own, because the
memory of one run would still be there in the next. Rates are those of the client over time; the bucket's is what it took
until the last update was persisted, and what its client saw. Memory is looked at once a second.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

from .kudu_client import ORIBI, loadgen, run_measured
from .kudu_server import KuduCluster
from .kv_load import Load, populate, run_tool
from .report import Row
from .server import Server
from .wire import Connection

SAMPLE_EVERY_S = 1
# Besides the interval after which the queue is written.
PERSIST_SECONDS_MAX = 600
# Parts of a run whose rates are compared, to see whether it slows down.
PARTS = 10


class MemoryOverTime:
    """Looks at the memory of processes while a block runs; `samples` are (seconds since the start, MiB by name)."""

    def __init__(self, **processes):
        self.processes = processes
        self.samples = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.look_again_and_again, daemon=True)

    def __enter__(self):
        self.begin = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.look()

    def look_again_and_again(self):
        self.look()
        while not self.is_over.wait(SAMPLE_EVERY_S):
            self.look()

    def look(self):
        mib = {name: process.resident_mib() for name, process in self.processes.items()}
        self.samples.append((round(time.monotonic() - self.begin, 1), mib))

    def text(self, name):
        """First, most and last."""
        mib = [sample[name] for _, sample in self.samples]
        return f"{mib[0]:.0f} MiB before, {max(mib):.0f} at most, {mib[-1]:.0f} at the end"


def drain(server, further_s=0):
    """Waits until everything is persisted; the number of documents committed so far."""
    server.wait_persisted(PERSIST_SECONDS_MAX + further_s)
    connection = Connection(server.port).login()
    try:
        return int(connection.stats()["ep_total_persisted"])
    finally:
        connection.close()


def bucket(options, directory, cluster, flush_interval_s):
    """A server whose bucket is on the cluster."""
    return Server(options.binary, Path(directory) / "data", "--storage", f"kudu://{cluster.masters}/bench?replicas=1",
                  "--memory-quota-mib", 4096, "--flush-interval-ms", round(flush_interval_s * 1000))


def acknowledged(timeline):
    """Operations that were acknowledged by the end of each sample."""
    done, before, at = [], 0, 0
    for sample in timeline:
        at += sample["operations_per_second"] * (sample["seconds"] - before)
        before = sample["seconds"]
        done.append((before, at))
    return done


def first_and_last(timeline):
    """Operations per second in the first and in the last part of a run."""
    end = timeline[-1]["seconds"]
    done = acknowledged(timeline)

    def done_until(seconds):
        earlier = (0, 0)
        for later in done:
            if later[0] >= seconds:
                share = (seconds - earlier[0]) / (later[0] - earlier[0])
                return earlier[1] + share * (later[1] - earlier[1])
            earlier = later
        return done[-1][1]

    part = end / PARTS
    return done_until(part) / part, (done[-1][1] - done_until(end - part)) / part


def of_kudu_alone(options, items, value_bytes, updates):
    """Fills a table with all keys and updates them, for no longer than `--alone-seconds`; what the client reports, and
    memory."""
    with KuduCluster() as cluster:
        filled = loadgen(ORIBI, cluster, options.binary, {"num_threads": 1, "num_rows_per_thread": items,
                                                          "string_len": value_bytes, "use_upsert": "true"})
        if not options.quick:
            cluster.wait_quiet()
        threads = 2
        with MemoryOverTime(kudu=cluster) as memory:
            output, usage = run_measured([
                options.binary, "perf", "loadgen", cluster.masters, "--json", "--use-upsert",
                f"--table-name={filled['table']}", f"--zipf-keys={items}", f"--string-len={value_bytes}",
                f"--num-threads={threads}", f"--num-rows-per-thread={updates // threads}"],
                interrupt_after_s=options.alone_seconds)
    written = json.loads(output)["write"]
    # Updates in flight at the interruption do not count.
    done = round(min(acknowledged(written["timeline"])[-1][1], written["rows"]))
    return {"asked": updates, "updates": done, "seconds": written["seconds"], "timeline": written["timeline"],
            "write_latency_ms": written["write_latency_ms"], "memory": memory.samples,
            "memory_text": memory.text("kudu"), **usage}


def of_bucket(options, items, value_bytes, updates, flush_interval_s):
    """Fills a bucket with all documents and updates them until all is persisted."""
    batch, connections = 100, 4
    load = Load(items=items, value_bytes=value_bytes, set_pct=100, batch=batch, connections=connections,
                cycles=max(updates // (batch * connections), 1))
    with tempfile.TemporaryDirectory() as directory, KuduCluster() as cluster, \
            bucket(options, directory, cluster, flush_interval_s) as server:
        populate(options.binary, server, load)
        before = drain(server, flush_interval_s)
        if not options.quick:
            cluster.wait_quiet()
        with MemoryOverTime(kudu=cluster, oribi=server) as memory:
            begin = time.monotonic()
            wrote = run_tool(options.binary, server, [*load.run_arguments(1), "--distribution", "zipf"])["load"]
            received = drain(server, flush_interval_s) - before
            seconds = time.monotonic() - begin
    return {"flush_interval_s": flush_interval_s, "updates": wrote["operations"], "received": received,
            "seconds": seconds, "client_rate": wrote["operations_per_second"], "timeline": wrote["timeline"],
            "memory": memory.samples, "memory_text": memory.text("kudu"), "own_memory_text": memory.text("oribi")}


def rows_of(alone, bucket_runs):
    def text(rate):
        return f"{rate:,.0f} /s"

    rate_alone = alone["updates"] / alone["seconds"]
    first, last = first_and_last(alone["timeline"])
    rows = [
        Row(f"{alone['asked']:,} zipfian updates of Kudu alone, batched upserts by the native client",
            f"{text(rate_alone)} ({alone['updates']:,} in {alone['seconds']:.0f} s); in the first tenth {text(first)}, in the last {text(last)}"),
        Row("the same, memory of Kudu's servers", alone["memory_text"]),
    ]
    for run in bucket_runs:
        rate, share = run["updates"] / run["seconds"], run["received"] / run["updates"]
        first, last = first_and_last(run["timeline"])
        what = f"flushed every {run['flush_interval_s']:g} s"
        rows += [
            Row(f"the same {run['updates']:,} updates of a bucket, {what}, until all are persisted",
                f"{text(rate)}: {rate / rate_alone:.2f} times Kudu alone", ">= 10 times", rate >= 10 * rate_alone),
            Row(f"{what}: what the client saw",
                f"{text(run['client_rate'])}; in the first tenth {text(first)}, in the last {text(last)}"),
            Row(f"{what}: updates that Kudu received", f"{run['received']:,}: {share:.3f} of them", "<= 0.1",
                share <= 0.1),
            Row(f"{what}: memory of Kudu's servers", run["memory_text"], "bounded"),
            Row(f"{what}: memory of Oribi", run["own_memory_text"]),
        ]
    return rows
