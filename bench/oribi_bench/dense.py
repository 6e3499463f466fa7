"""The dense tier: documents in memory at one quota, and reads by zipf, with `--memory-tier off` and `dense`.

Both servers get the same orders and the same operations, batch by batch in turn. Orders are JSON of half a kibibyte
with names, addresses, lines and random numbers; a client that gets "temporary failure" sends again.
"""

import json
import random
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from .report import Outcome, Row
from .server import Server
from .wire import GET, HEADER, NOOP, SETQ, Connection, frame, vbucket_of

TIERS = ("off", "dense")
TEMPORARY_FAILURES = (0x82, 0x86)
BATCH = 500
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
        "items": lines, "total": round(sum(line["price"] for line in lines), 2), "currency": "EUR",
        "token": f"{int(draw() * 2**53):014x}"}).encode()


def key_of(number):
    return b"order::%010d" % number


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
        "resident_mib": client.server.resident_mib(), "cpu_s": client.server.cpu_s()}


def settle(client):
    """Returns when nothing is queued and the pager rests."""
    client.server.wait_persisted(600)
    time.sleep(2)


def zipf(binary, items, reads, directory):
    path = Path(directory) / "choices"
    command = [binary, "perf", "kv", "--choices", path, "--items", items, "--no-population", "--set-pct", 0,
               "--distribution", "zipf", "--zipf-exponent", 0.99, "--batch-size", 100, "--num-cycles", reads // 100]
    subprocess.run(list(map(str, command)), check=True)
    return [number >> 1 for (number,) in struct.iter_unpack("<Q", path.read_bytes())]


def measure(options):
    quota_mib = 128 if options.quick else 256
    items = 200_000 if options.quick else 1_600_000
    zipf_items = items if options.quick else 3 * quota_mib * (1 << 20) // 560
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = [Client(stack.enter_context(
            Server(options.binary, directory / tier, "--workers", 1, "--memory-quota-mib", quota_mib,
                   "--memory-tier", tier)), tier) for tier in TIERS]
        loaded = {}

        def load(begin, end):
            for at in range(begin, end, BATCH):
                entries = [(key_of(number), order(number)) for number in range(at, min(at + BATCH, end))]
                for client in clients:
                    client.store(entries)

        # Zipf first, over three times the quota; then the rest of the orders.
        load(0, zipf_items)
        for client in clients:
            settle(client)
        chosen = zipf(options.binary, zipf_items, 2 * zipf_items, directory)
        half, before = len(chosen) // 2, {}
        versions = {}
        for at in range(0, len(chosen), BATCH):
            if at >= half and not before:
                before = {client.tier: figures(client) for client in clients}
            numbers = chosen[at:at + BATCH]
            writes = numbers[:len(numbers) * SET_PCT // 100]
            for number in writes:
                versions[number] = versions.get(number, 0) + 1
            entries = list({key_of(number): order(number, versions[number]) for number in writes}.items())
            reads = numbers[len(writes):]
            for client in clients:
                client.store(entries)
                for number, (status, value) in zip(reads, client.read([key_of(number) for number in reads])):
                    if status != 0 or json.loads(value)["id"] != number:
                        raise SystemExit(f"{client.tier}: order {number}: status {status:#x} {value[:80]!r}")
        operations = len(chosen) - half
        reads_by_tier = {}
        for client in clients:
            now, then = figures(client), before[client.tier]
            reads_by_tier[client.tier] = {
                "fetches": now["fetches_total"] - then["fetches_total"],
                "inflations": now["dense_inflations_total"] - then["dense_inflations_total"],
                "cpu_us": (now["cpu_s"] - then["cpu_s"]) * 1e6 / operations, "figures": now}
        load(zipf_items, items)
        for client in clients:
            settle(client)
            loaded[client.tier] = figures(client)
            client.connection.close()
    rows = [
        Row(f"orders of {len(order(7))} B with their values in memory, {items:,} at a quota of {quota_mib} MiB",
            f"{loaded['dense']['items_resident']:,.0f} dense ({loaded['dense']['resident_mib']:.0f} MiB resident)",
            f"{loaded['off']['items_resident']:,.0f} off ({loaded['off']['resident_mib']:.0f} MiB resident)"),
        Row(f"zipf 0.99 over {zipf_items:,} orders, {100 - SET_PCT} % reads: fetches, CPU of an operation",
            f"{reads_by_tier['dense']['fetches']:,.0f}, {reads_by_tier['dense']['cpu_us']:.2f} µs dense",
            f"{reads_by_tier['off']['fetches']:,.0f}, {reads_by_tier['off']['cpu_us']:.2f} µs off"),
    ]
    return Outcome({"loaded": loaded, "zipf": reads_by_tier, "operations": operations}, rows)
