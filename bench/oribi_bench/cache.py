"""A cache of data three times its size: the hit ratio of `oribi serve --cache` beside memcached with equal memory.

The client is a read-through cache's: it reads, and writes what it missed. Both servers get the same reads in the same
order, batch by batch in turn, over the text protocol; the memory of one is its quota, that of the other its `-m`. In
between, some loads read documents that are never read again, which a cache should not keep for them.
"""

import struct
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .report import Outcome, Row
from .server import Memcached, Server
from .text_wire import TextConnection
from .wire import Connection

MIB = 1 << 20
BATCH = 100
ZIPF_EXPONENT = 0.99
# Reads of the warm-up, and then of the measurement, per document.
READS_PER_DOCUMENT = 4


@dataclass(frozen=True)
class Case:
    memory_mib: int
    min_bytes: int = 512
    max_bytes: int = 512
    # Of a hundred batches, those of a scan.
    scan_pct: int = 0

    @property
    def items(self):
        """Three times the memory, by the documents' own bytes."""
        return 3 * self.memory_mib * MIB // ((self.min_bytes + self.max_bytes) // 2)

    def value_of(self, number, key):
        """The value of a document; its size is its own, and its bytes begin with the key."""
        span = self.max_bytes - self.min_bytes + 1
        size = self.min_bytes + number * 2654435761 % 2**32 * span // 2**32
        return key.ljust(size, b"v")

    def __str__(self):
        size = f"{self.min_bytes} B" if self.min_bytes == self.max_bytes else f"{self.min_bytes} to {self.max_bytes} B"
        scans = f", scans of {self.scan_pct} % of the reads" * (self.scan_pct > 0)
        return f"{self.memory_mib} MiB, zipf {ZIPF_EXPONENT}, {size}{scans}"


def choices(binary, case, directory):
    """Numbers of the documents in the order in which they are read, as `oribi perf kv` chooses them."""
    path = Path(directory) / "choices"
    batches = 2 * READS_PER_DOCUMENT * case.items // BATCH
    command = [binary, "perf", "kv", "--choices", path, "--items", case.items, "--no-population", "--set-pct", 0,
               "--distribution", "zipf", "--zipf-exponent", ZIPF_EXPONENT, "--batch-size", BATCH, "--num-cycles", batches]
    subprocess.run(list(map(str, command)), check=True)
    return [number >> 1 for (number,) in struct.iter_unpack("<Q", path.read_bytes())]


def batches_of(case, chosen):
    """Batches of reads and whether they are a scan's. A scan never reads a document that was read before."""
    scanned, owed = case.items, 0
    for begin in range(0, len(chosen), BATCH):
        yield chosen[begin:begin + BATCH], False
        owed += case.scan_pct
        while owed >= 100 - case.scan_pct and case.scan_pct:
            owed -= 100 - case.scan_pct
            yield range(scanned, scanned + BATCH), True
            scanned += BATCH


class Client:
    """A read-through client of one server."""

    def __init__(self, case, server):
        self.case, self.server = case, server
        self.connection = TextConnection(server.port)
        self.reads = self.hits = self.refused = 0

    def read(self, numbers, counts):
        """Reads a batch and writes what is missing; counts its hits if `counts`."""
        by_key = {b"%020d" % number: number for number in numbers}
        found = self.connection.get(list(by_key))
        for key, value in found.items():
            if value != self.case.value_of(by_key[key], key):
                raise SystemExit(f"{self.server.name}: a wrong value of {key.decode()}")
        missing = [(key, self.case.value_of(number, key)) for key, number in by_key.items() if key not in found]
        self.refused += self.connection.store(missing) if missing else 0
        if counts:
            self.reads += len(by_key)
            self.hits += len(found)

    def documents(self):
        """How many documents the server holds."""
        connection = Connection(self.server.port)
        if self.server.name == Server.name:
            connection.login()
        stats = connection.stats()
        connection.close()
        return int(stats["curr_items"])

    def figures(self):
        return {"documents": self.documents(), "reads": self.reads, "hits": self.hits, "hit_ratio": self.hits / self.reads, "refused": self.refused,
                "resident_mib": self.server.resident_mib(), "peak_resident_mib": self.server.peak_resident_mib()}


def measure_case(options, case):
    """Figures of both servers under one load, by server."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        servers = [stack.enter_context(Server(options.binary, Path(directory) / "data", "--cache", "--workers", 1,
                                              "--memory-quota-mib", case.memory_mib))]
        if Memcached.is_installed():
            servers.append(stack.enter_context(Memcached(1, case.memory_mib)))
        clients = [Client(case, server) for server in servers]
        chosen = choices(options.binary, case, directory)
        seen = 0
        for numbers, is_scan in batches_of(case, chosen):
            # The first half fills the caches and lets them learn.
            counts = not is_scan and seen >= len(chosen) // 2
            for client in clients:
                client.read(numbers, counts)
            seen += 0 if is_scan else len(numbers)
        found = {client.server.name: client.figures() for client in clients}
        for client in clients:
            client.connection.close()
    return {"case": vars(case) | {"items": case.items}, "found": found}


def row_of(case, found):
    def text(one):
        return f"{one['hit_ratio']:.4f}, {one['peak_resident_mib']:.0f} MiB resident at most"

    if found["oribi"]["refused"]:
        raise SystemExit(f"cache of {case}: {found['oribi']['refused']} writes were refused")
    peer = f"memcached, {text(found['memcached'])}" if "memcached" in found else ""
    return Row(f"cache of {case}: hit ratio", text(found["oribi"]), peer)


def cases_of(options):
    memory_mib = 16 if options.quick else 64
    return [Case(memory_mib), Case(memory_mib, scan_pct=30)]


def measure(options):
    runs, rows = [], []
    for case in cases_of(options):
        run = measure_case(options, case)
        runs.append(run)
        rows.append(row_of(case, run["found"]))
    version = Memcached.version() if Memcached.is_installed() else None
    return Outcome({"memcached": version, "runs": runs}, rows)
