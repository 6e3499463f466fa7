"""`oribi stats collections-details`: millions of statistics through server, client and into a file.

The server has one worker, so that everything else it does is done by the thread that also produces the
statistics; what another client sees of that is measured as the latency of its GETs.
"""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import quantile, spread, text_of
from .server import Server
from .wire import GET, Connection, collection_prefix, frame, vbucket_of

DOCUMENTS_PER_COLLECTION = 10
SCOPE = "bench"
PROBE_KEY = b"probe"
PROBE_PAUSE_S = 0.001

NUMBER = re.compile(rb"\d+")
TRUTH = re.compile(rb"true|false")
VBUCKET_STATS = {"default_mvs": NUMBER, "default_legacy_max_dcp_seqno": NUMBER}
COLLECTION_STATS = {"start_seqno": NUMBER, "high_seqno": NUMBER, "persisted_high_seqno": NUMBER,
                    "items": NUMBER, "disk_size": NUMBER, "history": TRUTH, "flush_uid": NUMBER}


class Listing:
    """What the output must consist of, made from the manifest: for every name the only value that it may
    have, or the pattern of its values."""

    def __init__(self, manifest, vbuckets, stored):
        self.vbuckets = vbuckets
        # Documents by collection id.
        self.stored = stored
        collections = [(int(scope["uid"], 16), scope["name"], int(one["uid"], 16), one["name"])
                       for scope in manifest["scopes"] for one in scope["collections"]]
        self.collections = len(collections)
        uid = str(int(manifest["uid"], 16)).encode()
        self.once = {b"manifest_uid": re.compile(rb"[0-9a-f]+")}
        per_vbucket = {"collections": str(self.collections).encode(), "manifest:uid": uid, **VBUCKET_STATS}
        for scope_id, scope, collection_id, name in collections:
            self.once[f"{scope_id:#x}:{collection_id:#x}:name".encode()] = name.encode()
            self.once[f"{scope_id:#x}:{collection_id:#x}:history".encode()] = TRUTH
            per_vbucket[f"{collection_id:#x}:name"] = name.encode()
            per_vbucket[f"{collection_id:#x}:scope"] = re.compile(
                rb"%s|0x%x" % (re.escape(scope.encode()), scope_id))
            for stat, pattern in COLLECTION_STATS.items():
                per_vbucket[f"{collection_id:#x}:{stat}"] = pattern
        self.slots = {name.encode(): (slot, value) for slot, (name, value) in enumerate(per_vbucket.items())}
        self.count = len(self.once) + vbuckets * len(self.slots)
        assert self.count == 2 * self.collections + 1 + vbuckets * (4 + 9 * self.collections)

    def check(self, path):
        """Goes through every line; the number of lines. Ends the run at the first wrong one."""
        seen = bytearray(self.vbuckets * len(self.slots))
        seen_once, items, lines = set(), {}, 0
        with open(path, "rb") as file:
            for lines, line in enumerate(file, 1):
                name, separator, value = line[:-1].partition(b": ")
                if not separator or line[-1:] != b"\n":
                    fail(lines, line, "is not `name: value`")
                if name.startswith(b"vb_"):
                    vbucket, _, rest = name[3:].partition(b":")
                    if not vbucket.isdigit() or rest not in self.slots or int(vbucket) >= self.vbuckets:
                        fail(lines, line, "is unknown")
                    slot, expected = self.slots[rest]
                    place = int(vbucket) * len(self.slots) + slot
                    if seen[place]:
                        fail(lines, line, "was there before")
                    seen[place] = 1
                    if rest.endswith(b":items") and value != b"0":
                        collection = int(rest[2:-6], 16)
                        items[collection] = items.get(collection, 0) + int(value)
                elif name in self.once and name not in seen_once:
                    seen_once.add(name)
                    expected = self.once[name]
                else:
                    fail(lines, line, "is unknown or was there before")
                if not (value == expected if isinstance(expected, bytes) else expected.fullmatch(value)):
                    fail(lines, line, f"has another value than {expected!r}")
        if lines != self.count:
            raise SystemExit(f"{lines} lines where {self.count} must be")
        if items != self.stored:
            raise SystemExit(f"items of the collections are {items}, stored were {self.stored}")
        return lines


def fail(number, line, why):
    raise SystemExit(f"line {number}: {line!r} {why}")


def prepare(server, options, vbuckets):
    """Creates collections with documents; what the output must be."""
    server.admin("/pools/default/buckets/default/scopes", {"name": SCOPE})
    for index in range(options.collections):
        server.create_collection(SCOPE, f"collection-{index:04}")
    manifest = server.manifest()
    ids = [int(one["uid"], 16) for scope in manifest["scopes"] for one in scope["collections"]
           if scope["name"] == SCOPE]
    connection = Connection(server.port).login(collections=True)
    entries = []
    for collection in ids:
        for index in range(DOCUMENTS_PER_COLLECTION):
            key = b"document-%d-%d" % (collection, index)
            entries.append((vbucket_of(key, vbuckets), collection_prefix(collection) + key, b"value"))
    entries.append((vbucket_of(PROBE_KEY, vbuckets), b"\0" + PROBE_KEY, b"value"))
    connection.store(entries)
    connection.close()
    stored = dict.fromkeys(ids, DOCUMENTS_PER_COLLECTION)
    stored[0] = 1
    return Listing(manifest, vbuckets, stored)


def ask(binary, server, path, during=None):
    """Runs the client into a file; wall and processor times of both sides. `during` is called until it ends."""
    command = [str(binary), "stats", "collections-details", "--raw", "--port", str(server.port)]
    server_before = server.cpu_s()
    begin = time.perf_counter()
    with open(path, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG if during else 0)
        if ended:
            break
        during()
    wall_s = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {process.returncode}")
    return {"wall_s": wall_s, "client_cpu_s": usage.ru_utime + usage.ru_stime,
            "server_cpu_s": server.cpu_s() - server_before}


class Probe:
    """A client that reads one document again and again, with a pause, and keeps the latencies."""

    def __init__(self, server, vbuckets):
        self.connection = Connection(server.port).login(collections=True)
        self.request = frame(GET, b"\0" + PROBE_KEY, vbucket=vbucket_of(PROBE_KEY, vbuckets))
        self.latencies_us = []

    def __call__(self):
        time.sleep(PROBE_PAUSE_S)
        begin = time.perf_counter()
        status, _ = self.connection.call(self.request)
        self.latencies_us.append((time.perf_counter() - begin) * 1e6)
        if status != 0:
            raise SystemExit(f"the probe's document is answered {status:#x}")

    def summary(self):
        ordered = sorted(self.latencies_us)
        return {"gets": len(ordered), "p50_us": quantile(ordered, 0.5), "p99_us": quantile(ordered, 0.99),
                "max_us": ordered[-1]}


def latencies(binary, server, vbuckets, path):
    """Latency of GETs while statistics are produced for another client, and as long without."""
    busy, idle = Probe(server, vbuckets), Probe(server, vbuckets)
    wall_s = ask(binary, server, path, busy)["wall_s"]
    until = time.perf_counter() + max(wall_s, 1)
    while time.perf_counter() < until:
        idle()
    return {"with_stats": busy.summary(), "without": idle.summary()}


def measure_one(options, vbuckets):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stats.txt"
        data_dir = Path(directory) / "data"
        with Server(options.binary, data_dir, "--vbuckets", vbuckets, "--workers", 1) as server:
            listing = prepare(server, options, vbuckets)
            time.sleep(1)
            runs = []
            for _ in range(options.rounds or 3):
                runs.append(ask(options.binary, server, path))
                listing.check(path)
            bytes_written = path.stat().st_size
            latency = latencies(options.binary, server, vbuckets, path)
            listing.check(path)
    stats = listing.count
    return {
        "collections": listing.collections, "vbuckets": vbuckets, "stats": stats, "bytes": bytes_written,
        "wall_s_per_million": spread([run["wall_s"] / stats * 1e6 for run in runs]),
        "client_us_per_stat": spread([run["client_cpu_s"] / stats * 1e6 for run in runs]),
        "server_us_per_stat": spread([run["server_cpu_s"] / stats * 1e6 for run in runs]),
        "get_latency": latency,
    }


def rows_of(figure):
    what = f"collections-details, {figure['collections']} collections, {figure['vbuckets']} vbuckets"
    with_stats, without = figure["get_latency"]["with_stats"], figure["get_latency"]["without"]

    def percentiles(one):
        return f"{one['p50_us']:.0f} / {one['p99_us']:.0f} / {one['max_us']:.0f} µs"

    return [
        Row(f"{what}: wall per million",
            f"{text_of(figure['wall_s_per_million'])} s; {figure['stats']} stats, every line checked", "<= 0.5 s"),
        Row(f"{what}: client CPU per stat", f"{text_of(figure['client_us_per_stat'], 3)} µs", "<= 0.3 µs"),
        Row(f"{what}: server CPU per stat", f"{text_of(figure['server_us_per_stat'], 3)} µs"),
        Row(f"{what}: another client's GET on that worker, p50 / p99 / max",
            f"{percentiles(with_stats)} while it runs, {percentiles(without)} without"),
    ]


def measure(options):
    figures = [measure_one(options, vbuckets) for vbuckets in options.vbuckets]
    return Outcome({"by_vbuckets": figures}, [row for figure in figures for row in rows_of(figure)])
