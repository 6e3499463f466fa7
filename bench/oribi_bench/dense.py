"""The dense tier: documents in memory at one quota, and operations, with `--memory-tier off` and `dense`.

Both servers get the same documents and the same operations, batch by batch in turn. Orders are JSON of a little more
than half a kibibyte with names, addresses, lines and random numbers. Packages are the index of this Debian machine.
ORIBI_BENCH_DOCUMENTS names a file with one more set, a document a line. A client that gets "temporary failure" sends
again.
"""

import json
import os
import random
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from .hot_path.placement import client_cpus, place, usable
from .report import Outcome, Row
from .server import Memcached, Server
from .text_wire import TextConnection
from .wire import GET, HEADER, NOOP, SETQ, Connection, frame, vbucket_of

TIERS = ("off", "dense")
TEMPORARY_FAILURES = (0x82, 0x86)
BATCH = 500
MIB = 1 << 20
SET_PCT = 5
FIRST = "Anna Ben Clara David Eva Felix Greta Hans Ida Jonas Klara Leo Mia Noah Olga Paul".split()
LAST = "Schmidt Miller Garcia Rossi Novak Jensen Dubois Kowalski Silva Tanaka Ivanov Nguyen".split()
CITIES = "Berlin Paris Madrid Rome Prague Oslo Lyon Krakow Porto Osaka Sofia Hanoi".split()
STATES = "new paid packed shipped delivered returned".split()
PRODUCTS = "keyboard monitor cable notebook pencil lamp chair desk headset camera".split()


def order(number, generation=0):
    """An order; the same number and generation give the same."""
    draw = random.Random(number * 1_000_003 + generation).random
    pick = lambda words: words[int(draw() * len(words))]
    lines = [{"sku": f"SKU-{int(draw() * 1e6):06}", "name": pick(PRODUCTS), "quantity": 1 + int(draw() * 9),
              "price": round(draw() * 500, 2)} for _ in range(3)]
    return json.dumps({
        "type": "order", "id": number,
        "customer": {"name": f"{pick(FIRST)} {pick(LAST)}", "email": f"user{int(draw() * 1e6)}@example.com",
                     "city": pick(CITIES), "zip": f"{int(draw() * 1e5):05}"},
        "status": pick(STATES), "created": f"2026-{1 + int(draw() * 12):02}-{1 + int(draw() * 28):02}T10:00:00Z",
        "delivery": {"street": f"{pick(LAST)}strasse {int(draw() * 200)}", "carrier": pick(FIRST)},
        "items": lines, "total": round(sum(line["price"] for line in lines), 2), "currency": "EUR",
        "token": f"{int(draw() * 2**53):014x}"}).encode()


def key_of(number):
    return b"order::%010d" % number


def packages():
    """Entries of the Debian package index of this machine, as apt has it."""
    found = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout
    return [entry for entry in found.split(b"\n\n") if entry.strip()]


def noise(number, length):
    return random.Random(number).randbytes(length)


class Client:
    """A pipelined client of one server."""

    def __init__(self, server, tier):
        self.server, self.tier = server, tier
        self.connection = Connection(server.port).login()

    def store(self, entries):
        """Stores keys with their values, and those again that were refused for a time."""
        left = list(entries)
        while left:
            requests = bytearray()
            for at, (key, value) in enumerate(left):
                request = bytearray(frame(SETQ, key, bytes(8), value, vbucket_of(key)))
                request[12:16] = at.to_bytes(4, "big")
                requests += request
            self.connection.socket.sendall(requests + frame(NOOP))
            refused = []
            while True:
                head = HEADER.unpack(self.connection.read_exact(24))
                self.connection.read_exact(head[6])
                if head[1] == NOOP:
                    break
                if head[5] not in TEMPORARY_FAILURES:
                    raise SystemExit(f"storing failed with status {head[5]:#x}")
                refused.append(left[head[7]])
            if refused:
                time.sleep(0.005)
            left = refused

    def read(self, keys):
        """The values of keys, in their order."""
        self.connection.socket.sendall(b"".join(frame(GET, key, vbucket=vbucket_of(key)) for key in keys))
        return [self.connection.receive() for _ in keys]

    def metrics(self):
        return {name.removeprefix("oribi_bucket_").split("{")[0]: value
                for name, value in self.server.metrics().items() if name.startswith("oribi_bucket_")}


def figures(client):
    found = client.metrics()
    names = ("items_resident", "items_evicted", "items_dense", "dense_plain_bytes", "dense_bytes", "fetches_total",
             "evictions_total", "dense_inflations_total", "dense_compressions_total", "memory_used_bytes",
             "dictionary_bytes")
    return {name: found.get(name, 0) for name in names} | {
        "resident_mib": client.server.resident_mib(), "cpu_s": client.server.cpu_s(),
        "threads": client.server.cpu_s_by_thread()}


def settle(client):
    """Returns when nothing is queued and the pager rests."""
    client.server.wait_persisted(600)
    before = None
    while before != (now := client.metrics().get("dense_compressions_total")):
        before = now
        time.sleep(1)


def start(stack, options, directory, quotas):
    """A client for each `(name, tier, quota in MiB)`."""
    def server(name, tier, quota_mib):
        return Server(options.binary, directory / name, "--workers", 1, "--memory-quota-mib", quota_mib,
                      "--memory-tier", tier)
    return {name: Client(stack.enter_context(server(name, tier, quota_mib)), name) for name, tier, quota_mib in quotas}


def load(clients, numbers, value_of):
    for at in range(0, len(numbers), BATCH):
        entries = [(key_of(number), value_of(number)) for number in numbers[at:at + BATCH]]
        for client in clients.values():
            client.store(entries)
    for client in clients.values():
        settle(client)


def both(quota_mib):
    return [(tier, tier, quota_mib) for tier in TIERS]


def row_of(what, dense, off):
    return Row(what, f"{dense} dense", f"{off} off")


def measure_documents(options, directory, name, count, value_of, quota_mib):
    """Documents with their values in memory, and the CPU of storing one and of reading one that was not used."""
    with ExitStack() as stack:
        clients = start(stack, options, directory, both(quota_mib))
        begun = {tier: client.server.cpu_s() for tier, client in clients.items()}
        load(clients, range(count), value_of)
        found = {tier: figures(client) for tier, client in clients.items()}
        for tier, client in clients.items():
            found[tier]["set_us"] = (found[tier]["cpu_s"] - begun[tier]) * 1e6 / count
    texts = {tier: f"{one['items_resident']:,.0f} ({one['resident_mib']:.0f} MiB resident, {one['set_us']:.2f} µs a SET)"
             for tier, one in found.items()}
    mean = sum(len(value_of(number)) for number in range(0, count, 97)) // len(range(0, count, 97))
    what = f"{name} of {mean} B with their values in memory, {count:,} at a quota of {quota_mib} MiB"
    return found, row_of(what, texts["dense"], texts["off"])


def measure_gets(options, directory, count):
    """CPU of a GET of a dense document, once each, and of an inflated one."""
    with ExitStack() as stack:
        # The same documents: all of them plain in one server, nearly all dense in the other.
        quotas = [("dense", "dense", count * 640 // MIB // 2), ("off", "off", count * 640 * 2 // MIB)]
        clients = start(stack, options, directory, quotas)
        load(clients, range(count), order)
        before = {name: figures(client) for name, client in clients.items()}
        for at in range(0, count, BATCH):
            keys = [key_of(number * 7919 % count) for number in range(at, at + BATCH)]
            for client in clients.values():
                client.read(keys)
        found = {}
        for name, client in clients.items():
            now = figures(client)
            found[name] = {"cpu_us": (now["cpu_s"] - before[name]["cpu_s"]) * 1e6 / count,
                           "inflations": now["dense_inflations_total"] - before[name]["dense_inflations_total"],
                           "fetches": now["fetches_total"] - before[name]["fetches_total"]}
    texts = {name: f"{one['cpu_us']:.2f} µs" for name, one in found.items()}
    share = found["dense"]["inflations"] * 100 / count
    return found, row_of(f"GET of {count:,} orders once each, {share:.0f} % of them dense: CPU", texts["dense"], texts["off"])


def zipf(binary, items, reads, directory):
    path = Path(directory) / "choices"
    command = [binary, "perf", "kv", "--choices", path, "--items", items, "--no-population", "--set-pct", 0,
               "--distribution", "zipf", "--zipf-exponent", 0.99, "--batch-size", 100, "--num-cycles", reads // 100]
    subprocess.run(list(map(str, command)), check=True)
    return [number >> 1 for (number,) in struct.iter_unpack("<Q", path.read_bytes())]


class ZipfLoad:
    """The same operations of several servers; what each did since the last look."""

    def __init__(self, clients):
        self.clients, self.versions, self.operations = clients, {}, 0
        self.then = {name: figures(client) for name, client in clients.items()}

    def batch(self, numbers, writes):
        for number in numbers[:writes]:
            self.versions[number] = self.versions.get(number, 0) + 1
        entries = list({key_of(number): order(number, self.versions[number]) for number in numbers[:writes]}.items())
        reads = numbers[writes:]
        self.operations += len(numbers)
        for name, client in self.clients.items():
            if entries:
                client.store(entries)
            for number, (status, value) in zip(reads, client.read([key_of(number) for number in reads]) if reads else []):
                if status != 0 or b'"id": %d,' % number not in value:
                    raise SystemExit(f"{name}: order {number}: status {status:#x} {value[:80]!r}")

    def look(self):
        found = {}
        for name, client in self.clients.items():
            now, then = figures(client), self.then[name]
            threads = {thread: (cpu - then["threads"].get(thread, 0)) * 1e6 / max(self.operations, 1)
                       for thread, cpu in now["threads"].items()}
            found[name] = {"fetches": now["fetches_total"] - then["fetches_total"], "operations": self.operations,
                           "inflations": now["dense_inflations_total"] - then["dense_inflations_total"],
                           "cpu_us": (now["cpu_s"] - then["cpu_s"]) * 1e6 / max(self.operations, 1),
                           "cpu_us_by_thread": {thread: cpu for thread, cpu in threads.items() if cpu > 0.01},
                           "figures": now}
            self.then[name] = now
        self.operations = 0
        return found


def measure_zipf(options, directory, quota_mib):
    items = 3 * quota_mib * MIB // 600
    with ExitStack() as stack:
        quotas = both(quota_mib) + [("all", "off", 6 * quota_mib)]
        clients = start(stack, options, directory, quotas)
        for client in clients.values():
            place(client.server.process)
        stack.callback(os.sched_setaffinity, 0, usable())
        os.sched_setaffinity(0, client_cpus())
        load(clients, range(items), order)
        chosen = zipf(options.binary, items, 2 * items, directory)
        operations = ZipfLoad(clients)

        def run(numbers, batch):
            owed = 0
            for at in range(0, len(numbers), batch):
                owed += batch * SET_PCT
                operations.batch(numbers[at:at + batch], owed // 100)
                owed %= 100

        run(chosen[:items], BATCH)
        operations.look()
        run(chosen[items:], BATCH)
        pipelined = operations.look()
        alone = chosen[items:items + (2_000 if options.quick else 100_000)]
        run(alone, 1)
        unpipelined = operations.look()
    rows = []
    for what, found in (("pipelined", pipelined), ("one a round trip", unpipelined)):
        text = {name: f"{one['fetches']:,.0f} fetches, {one['cpu_us']:.2f} µs" for name, one in found.items()}
        operations = found["dense"]["operations"]
        rows.append(Row(f"zipf 0.99 over {items:,} orders at {quota_mib} MiB, {100 - SET_PCT} % reads, {operations:,} {what}: "
                        "reads that go to disk, CPU", f"{text['dense']} dense",
                        f"{text['off']} off; {text['all']} with all in memory"))
    return {"pipelined": pipelined, "unpipelined": unpipelined}, rows


def measure_cache(options, directory, memory_mib):
    """Hit ratio of a read-through cache of orders, compared with memcached."""
    items = 3 * memory_mib * MIB // 560
    with ExitStack() as stack:
        servers = {tier: stack.enter_context(Server(options.binary, directory / tier, "--cache", "--workers", 1,
                                                    "--memory-quota-mib", memory_mib, "--memory-tier", tier))
                   for tier in TIERS}
        if Memcached.is_installed():
            servers["memcached"] = stack.enter_context(Memcached(1, memory_mib))
        connections = {name: TextConnection(server.port) for name, server in servers.items()}
        chosen = zipf(options.binary, items, 8 * items, directory)
        found = {name: {"reads": 0, "hits": 0} for name in servers}
        for at in range(0, len(chosen), 100):
            by_key = {key_of(number): number for number in chosen[at:at + 100]}
            for name, connection in connections.items():
                hits = connection.get(list(by_key))
                missing = [(key, order(number)) for key, number in by_key.items() if key not in hits]
                if missing:
                    connection.store(missing)
                if at >= len(chosen) // 2:
                    found[name]["reads"] += len(by_key)
                    found[name]["hits"] += len(hits)
        for name, server in servers.items():
            found[name] |= {"miss_ratio": 1 - found[name]["hits"] / found[name]["reads"], "cpu_s": server.cpu_s(),
                            "resident_mib": server.resident_mib()}
    text = {name: f"{one['miss_ratio']:.4f} ({one['resident_mib']:.0f} MiB resident)" for name, one in found.items()}
    peer = f"; {text['memcached']} memcached" if "memcached" in text else ""
    return found, Row(f"cache of {memory_mib} MiB, zipf 0.99 over {items:,} orders: misses", f"{text['dense']} dense",
                      f"{text['off']} off{peer}")


def measure(options):
    quick = options.quick
    parts = os.environ.get("ORIBI_BENCH_DENSE", "documents others gets zipf cache").split()
    data, rows = {}, []
    with tempfile.TemporaryDirectory() as directory:
        def run(name, measured, *arguments):
            data[name], found = measured(options, Path(directory) / name.replace(" ", "-"), *arguments)
            for row in found if isinstance(found, list) else [found]:
                print(f"{row}", flush=True)
                rows.append(row)

        if "documents" in parts:
            run("orders", measure_documents, "orders", 200_000 if quick else 1_600_000, order, 32 if quick else 256)
        if "others" in parts:
            sets = {"packages": packages()}
            if path := os.environ.get("ORIBI_BENCH_DOCUMENTS"):
                sets["documents of a file"] = Path(path).read_bytes().splitlines()
            for name, values in sets.items():
                values = values[:40_000] if quick else values
                quota_mib = max(8, sum(map(len, values)) // 4 // MIB)
                run(name, measure_documents, name, len(values), values.__getitem__, quota_mib)
            count, quota_mib = (40_000, 8) if quick else (400_000, 64)
            for name, value_of in {"incompressible values": lambda number: noise(number, 480),
                                   "small values": lambda number: b"%032d" % number}.items():
                run(name, measure_documents, name, count, value_of, quota_mib)
        if "gets" in parts:
            run("gets", measure_gets, 40_000 if quick else 400_000)
        if "zipf" in parts:
            run("zipf", measure_zipf, 16 if quick else 128)
        if "cache" in parts:
            run("cache", measure_cache, 8 if quick else 64)
    return Outcome(data, rows)
