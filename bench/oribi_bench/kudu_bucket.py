"""The same zipfian updates over and over: of Kudu alone, and of a bucket in front of Kudu.

Kudu alone is written by this project's native client (`oribi perf loadgen --zipf-keys`): batched upserts of keys that
are chosen as `oribi perf kv --distribution zipf` chooses documents, with rows of the same size. Its texts compress well
in Kudu's log, the bucket's random bodies do not, which is kind to Kudu. Each run has a cluster of its own, because the
memory of one run would still be there in the next. The rate of the bucket counts until the last update is persisted.
"""

import json
import tempfile
import time
from pathlib import Path

from .kudu_client import ORIBI, loadgen, run_measured
from .kudu_server import KuduCluster
from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .server import Server
from .wire import Connection

VALUE_BYTES, DOCUMENTS = 512, 1_000_000
# Besides the interval after which the queue is written.
PERSIST_SECONDS_MAX = 600


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
    """Operations that were acknowledged by the end of the last sample."""
    done, before = 0, 0
    for sample in timeline:
        done += sample["operations_per_second"] * (sample["seconds"] - before)
        before = sample["seconds"]
    return done


def of_kudu_alone(options, items, updates):
    """Fills a table with all keys and updates them, for no longer than `--alone-seconds`; what the client reports."""
    with KuduCluster() as cluster:
        filled = loadgen(ORIBI, cluster, options.binary, {"num_threads": 1, "num_rows_per_thread": items,
                                                          "string_len": VALUE_BYTES, "use_upsert": "true"})
        if not options.quick:
            cluster.wait_quiet()
        threads = 2
        output, _ = run_measured([
            options.binary, "perf", "loadgen", cluster.masters, "--json", "--use-upsert",
            f"--table-name={filled['table']}", f"--zipf-keys={items}", f"--string-len={VALUE_BYTES}",
            f"--num-threads={threads}", f"--num-rows-per-thread={updates // threads}"],
            interrupt_after_s=options.alone_seconds)
    written = json.loads(output)["write"]
    # Updates in flight at the interruption do not count.
    done = round(min(acknowledged(written["timeline"]), written["rows"]))
    return {"asked": updates, "updates": done, "seconds": written["seconds"], "timeline": written["timeline"]}


def of_bucket(options, items, updates, flush_interval_s):
    """Fills a bucket with all documents and updates them until all is persisted."""
    batch, connections = 100, 4
    load = Load(items=items, value_bytes=VALUE_BYTES, set_pct=100, batch=batch, connections=connections,
                cycles=max(updates // (batch * connections), 1))
    with tempfile.TemporaryDirectory() as directory, KuduCluster() as cluster, \
            bucket(options, directory, cluster, flush_interval_s) as server:
        populate(options.binary, server, load)
        before = drain(server, flush_interval_s)
        if not options.quick:
            cluster.wait_quiet()
        begin = time.monotonic()
        wrote = run_tool(options.binary, server, [*load.run_arguments(1), "--distribution", "zipf"])["load"]
        received = drain(server, flush_interval_s) - before
        seconds = time.monotonic() - begin
    return {"flush_interval_s": flush_interval_s, "updates": wrote["operations"], "received": received,
            "seconds": seconds}


def measure(options):
    """One million documents, updated so often that Kudu alone slows down by its compactions."""
    items = 20_000 if options.quick else DOCUMENTS
    updates = options.updates or (50_000 if options.quick else 5_000_000)
    alone = of_kudu_alone(options, items, updates)
    bucket_run = of_bucket(options, items, updates, options.flush_interval_s)
    rate_alone, rate = (run["updates"] / run["seconds"] for run in (alone, bucket_run))
    return Outcome({"alone": alone, "bucket": bucket_run}, [
        Row(f"{updates:,} zipfian updates of {items:,} documents on Kudu until all are persisted, flushed every "
            f"{options.flush_interval_s:g} s",
            f"{rate / rate_alone:.1f}; {rate / 1000:.0f} k/s; Kudu received {bucket_run['received'] / updates:.3f} of them",
            f"Kudu alone, {rate_alone / 1000:.0f} k/s"),
    ])
