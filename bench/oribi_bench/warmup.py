"""How fast documents are back in memory after a start."""

import random
import statistics
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread
from .server import Server
from .wire import GET, Connection, frame, vbucket_of

VALUE_BYTES = 512


def documents(count):
    """Entries to store. Incompressible, so that the store cannot make them smaller than they are."""
    noise = random.Random(1).randbytes(1 << 20)
    for index in range(count):
        key = b"document-%09d" % index
        start = index * 769 % (len(noise) - VALUE_BYTES)
        yield vbucket_of(key), key, noise[start:start + VALUE_BYTES]


def is_done(metrics):
    samples = [value for name, value in metrics.items() if name.startswith("oribi_bucket_warmup_done")]
    if not samples:
        raise SystemExit("no oribi_bucket_warmup_done sample in /metrics")
    return all(value == 1 for value in samples)


def items_of(metrics):
    return sum(value for name, value in metrics.items() if name.startswith("oribi_bucket_items{"))


def load(binary, data_dir, count):
    """Stores the documents and stops; figures of that."""
    with Server(binary, data_dir, "--memory-quota-mib", 4096) as server:
        begin = time.perf_counter()
        connection = Connection(server.port).login()
        connection.store(documents(count))
        connection.close()
        load_s = time.perf_counter() - begin
        loaded_mib = server.resident_mib()
        stop_s = server.stop()
    disk_mib = sum(path.stat().st_size for path in data_dir.rglob("*") if path.is_file()) / 2**20
    return {"load_s": load_s, "loaded_resident_mib": loaded_mib, "stop_s": stop_s, "disk_mib": disk_mib}


def warm_up(binary, data_dir, count):
    """One start on the documents, until all are in memory; the last one is read."""
    begin = time.perf_counter()
    with Server(binary, data_dir, "--memory-quota-mib", 4096) as server:
        while not is_done(server.metrics()):
            time.sleep(0.002)
        warm_s, cpu_s = time.perf_counter() - begin, server.cpu_total_s()
        items = items_of(server.metrics())
        if items != count:
            raise SystemExit(f"{items} items after warmup, {count} were loaded")
        key = b"document-%09d" % (count - 1)
        connection = Connection(server.port).login()
        status, _ = connection.call(frame(GET, key, vbucket=vbucket_of(key)))
        connection.close()
        if status != 0:
            raise SystemExit(f"a loaded document is answered {status:#x}")
        return {"ready_s": server.ready_s, "warm_s": warm_s, "cpu_s": cpu_s,
                "items_per_s": count / warm_s, "resident_mib": server.resident_mib()}


def measure(options):
    count = options.documents
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "data"
        loaded = load(options.binary, data_dir, count)
        runs = [warm_up(options.binary, data_dir, count) for _ in range(3)]
    rate = spread([run["items_per_s"] for run in runs])
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    figures = {"documents": count, "value_bytes": VALUE_BYTES, **loaded, "runs": runs}
    return Outcome(figures, [
        Row(f"warmup of {count} documents of {VALUE_BYTES} B",
            f"{rate['median'] / 1000:.0f} k items/s (start to warm {median['warm_s']:.2f} s, n {len(runs)})"),
        Row("processor time of start and warmup",
            f"{median['cpu_s']:.2f} s ({count / median['cpu_s'] / 1000:.0f} k items per CPU-second)"),
        Row("serving while it warms up, after", f"{median['ready_s'] * 1000:.0f} ms"),
        Row("orderly stop right after loading", f"{loaded['stop_s']:.2f} s"),
        Row("resident memory right after loading", f"{loaded['loaded_resident_mib']:.0f} MiB"),
        Row("resident memory after warmup", f"{median['resident_mib']:.0f} MiB"),
        Row("store on disk", f"{loaded['disk_mib']:.0f} MiB"),
    ])
