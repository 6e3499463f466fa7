"""`oribi stats collections-details`: millions of statistics through server, client and into a file.

T1: a huge response stream. The server has one worker.
"""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread, text_of
from .server import Server
from .wire import Connection, collection_prefix, vbucket_of

VBUCKETS, VBUCKETS_QUICK = 1024, 64
DOCUMENTS_PER_COLLECTION = 10
SCOPE = "bench"

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
    connection.store(entries)
    connection.close()
    return Listing(manifest, vbuckets, dict.fromkeys(ids, DOCUMENTS_PER_COLLECTION))


def ask(binary, server, path):
    """Runs the client into a file; wall and processor times of both sides."""
    command = [str(binary), "stats", "collections-details", "--raw", "--port", str(server.port)]
    server_before = server.cpu_s()
    begin = time.perf_counter()
    with open(path, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {process.returncode}")
    return {"wall_s": wall_s, "client_cpu_s": usage.ru_utime + usage.ru_stime,
            "server_cpu_s": server.cpu_s() - server_before}


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
    stats = listing.count
    return {
        "collections": listing.collections, "vbuckets": vbuckets, "stats": stats,
        "wall_s_per_million": spread([run["wall_s"] / stats * 1e6 for run in runs]),
        "client_us_per_stat": spread([run["client_cpu_s"] / stats * 1e6 for run in runs]),
        "server_us_per_stat": spread([run["server_cpu_s"] / stats * 1e6 for run in runs]),
    }


def row_of(figure):
    client, server = figure["client_us_per_stat"], figure["server_us_per_stat"]
    return Row(f"`collections-details` of {figure['collections']:,} collections, {figure['stats']:,} statistics: "
               "wall per million; client CPU, server CPU per statistic",
               f"{text_of(figure['wall_s_per_million'])} s; {client['median']:.3f}, {server['median']:.3f} µs",
               "published elsewhere for 1000 collections: 5 min, later 25 s")


def measure(options):
    figure = measure_one(options, VBUCKETS_QUICK if options.quick else VBUCKETS)
    return Outcome(figure, [row_of(figure)])
