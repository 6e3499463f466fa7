"""Data of a hundred times the memory: new documents of 1 KiB into the log store, then reads of random ones.

Every document is written once, in batches of 100, with full eviction and a quota of a hundredth of what their values
take. Then random documents are read, nearly all from the disk; the tool checks each value and fails the run if one is
missing or wrong. What has to hold: the resident memory never passes the quota, a tenth of it and 64 MiB, and the
index takes at most eight bytes a key.
"""

import tempfile
from pathlib import Path

from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .server import Server
from .wire import Connection

MIB = 1 << 20
VALUE_BYTES = 1024
TIMES = 100
INDEX_BYTES_MAX = 8
# Until everything that was written is persisted.
WAIT_S = 300


def stat(server, group, name):
    connection = Connection(server.port).login()
    figures = connection.stats(group)
    connection.close()
    return int(figures[name])


def measure(options):
    quota_mib = 16 if options.quick else 128
    documents = TIMES * quota_mib * MIB // VALUE_BYTES
    cycles = 20 if options.quick else 2000
    load = Load(items=documents, value_bytes=VALUE_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        settings = ["--workers", 1, "--memory-quota-mib", quota_mib, "--storage", "log", "--eviction", "full"]
        with Server(options.binary, Path(directory) / "data", *settings) as server:
            populate(options.tool, server, load)
            server.wait_persisted(WAIT_S)
            reading = Load(items=documents, value_bytes=VALUE_BYTES, set_pct=0, cycles=cycles)
            read = run_tool(options.tool, server, reading.run_arguments(1))["load"]
            index_bytes = stat(server, b"memory", "ep_store_memory") / documents
            kept = stat(server, b"", "curr_items")
            peak_mib = server.peak_resident_mib()
    if kept != documents:
        raise SystemExit(f"{kept:,} of {documents:,} documents are there")
    bound_mib = quota_mib * 1.1 + 64
    name = f"{documents:,} documents of {VALUE_BYTES} B through a quota of {quota_mib} MiB"
    rows = [
        Row(f"{name}: resident memory at most", f"{peak_mib:.0f} MiB", f"<= {bound_mib:.0f} MiB", peak_mib <= bound_mib),
        Row("the same: index for each key", f"{index_bytes:.2f} B", f"<= {INDEX_BYTES_MAX} B",
            index_bytes <= INDEX_BYTES_MAX),
        Row("the same: random reads, each value checked", f"{read['hits']:,}, none missing or wrong"),
    ]
    figures = {"documents": documents, "quota_mib": quota_mib, "peak_resident_mib": peak_mib,
               "index_bytes_per_key": index_bytes, "reads": read["hits"]}
    return Outcome(figures, rows)
