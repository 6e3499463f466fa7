"""How fast documents are back in memory after a start, and what reads see meanwhile."""

import random
import statistics
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import quantile, spread
from .server import Server
from .wire import GET, Connection, frame, vbucket_of

VALUE_BYTES = 512
# Time between two checks for the end of the warmup; a check is an HTTP request.
LOOK_EVERY_S = 0.02


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


def read_until(server, count, is_over):
    """Reads documents at random, one at a time, until it is over; latencies in microseconds."""
    connection = Connection(server.port).login()
    choose, latencies = random.Random(2), []
    looked = begin = time.perf_counter()
    while True:
        key = b"document-%09d" % choose.randrange(count)
        sent = time.perf_counter()
        status, _ = connection.call(frame(GET, key, vbucket=vbucket_of(key)))
        now = time.perf_counter()
        if status != 0:
            raise SystemExit(f"a stored document is answered {status:#x} {now - begin:.3f} s after the start")
        latencies.append((now - sent) * 1e6)
        if now - looked > LOOK_EVERY_S:
            if is_over():
                connection.close()
                return latencies
            looked = time.perf_counter()


def warm_up(binary, data_dir, count, reads):
    """One start on the documents, until all are in memory; with `reads`, documents are read meanwhile."""
    begin = time.perf_counter()
    with Server(binary, data_dir, "--memory-quota-mib", 4096) as server:
        latencies = read_until(server, count, lambda: is_done(server.metrics())) if reads else []
        while not is_done(server.metrics()):
            time.sleep(0.002)
        warm_s, cpu_s = time.perf_counter() - begin, server.cpu_total_s()
        items = items_of(server.metrics())
        if items != count:
            raise SystemExit(f"{items} items after warmup, {count} were loaded")
        resident_mib = server.resident_mib()
        if not reads:
            read_until(server, count, lambda: True)
        return {"ready_s": server.ready_s, "warm_s": warm_s, "cpu_s": cpu_s, "items_per_s": count / warm_s,
                "resident_mib": resident_mib, "reads": len(latencies),
                "read_us": {f"p{share * 100:g}": quantile(sorted(latencies), share) for share in (0.5, 0.99, 1)}
                if latencies else {}}


def measure(options):
    count = options.documents
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "data"
        loaded = load(options.binary, data_dir, count)
        runs = [warm_up(options.binary, data_dir, count, reads=False) for _ in range(3)]
        read = warm_up(options.binary, data_dir, count, reads=True)
    rate = spread([run["items_per_s"] for run in runs])
    median = {name: statistics.median(run[name] for run in runs) for name in ("warm_s", "cpu_s", "ready_s", "resident_mib")}
    figures = {"documents": count, "value_bytes": VALUE_BYTES, **loaded, "runs": runs, "while_read": read}
    latency = ", ".join(f"{name} {us:.0f}" for name, us in read["read_us"].items())
    rows = [
        Row(f"warmup of {count} documents of {VALUE_BYTES} B",
            f"{rate['median'] / 1000:.0f} k items/s (start to warm {median['warm_s']:.2f} s, n {len(runs)})"),
        Row(f"processor time of start and warmup",
            f"{median['cpu_s']:.2f} s ({count / median['cpu_s'] / 1000:.0f} k items per CPU-second)"),
        Row(f"serving while it warms up, after", f"{median['ready_s'] * 1000:.0f} ms"),
        Row(f"read one by one while it warms up",
            f"{read['reads']} documents in {read['warm_s']:.2f} s, none refused; {latency} us"),
        Row(f"orderly stop right after loading", f"{loaded['stop_s']:.2f} s"),
        Row(f"resident memory right after loading", f"{loaded['loaded_resident_mib']:.0f} MiB"),
        Row(f"resident memory after warmup", f"{median['resident_mib']:.0f} MiB"),
        Row(f"store on disk", f"{loaded['disk_mib']:.0f} MiB"),
    ]
    return Outcome(figures, rows)
