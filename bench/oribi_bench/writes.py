"""New documents into the log store: CPU of all the server's threads, and what the system takes for the same bytes.

Documents of 512 B are written once each, in batches of 100, until all are persisted. In one case all of them stay
in memory; in the other the quota is a small part of them, so that the pager evicts what was persisted. CPU is what
the kernel accounts to each thread, divided into user and system by the kernel's own ticks.

The floors are measured in the same run: a loop that writes as many bytes to a file, through the page cache and past
it, with a sync every 32 MiB as the flusher does; and the first touch of as much memory. On a virtual machine that
gives free memory back to its host, new memory costs several times what it costs elsewhere.
"""

import mmap
import os
import resource
import tempfile
import time
from pathlib import Path

from .kv_load import Load, populate
from .report import Outcome, Row
from .samples import spread, text_of
from .server import Server

MIB = 1 << 20
GOAL_NS = 1000
VALUE_BYTES = 512
# What a document of the load takes in the log: 56 bytes of header, the key, the value, rounded up to 8.
KEY_BYTES = 20
RECORD_BYTES = -(-(56 + KEY_BYTES + VALUE_BYTES) // 8) * 8
# What it takes in memory, to the size of its block.
BLOCK_BYTES = 640
WRITE_BYTES = MIB
SYNC_EVERY_BYTES = 32 * MIB
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ThreadTimes:
    """Time of each kind of thread of a process so far: user and system, in seconds."""

    def __init__(self, pid):
        self.of = {}
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                text = (task / "stat").read_text()
                total_s = int((task / "schedstat").read_text().split()[0]) / 1e9
            except FileNotFoundError:
                continue
            name = text[text.index("(") + 1:text.rindex(")")].rstrip("0123456789").rstrip("-_ ")
            fields = text.rsplit(")", 1)[1].split()
            user, system = (int(ticks) * TICK_S for ticks in fields[11:13])
            before = self.of.get(name, (0, 0, 0))
            self.of[name] = tuple(map(sum, zip(before, (total_s, user, system))))

    def since(self, earlier, documents):
        """Nanoseconds a document by kind of thread: total (exact), and of it user and system (by ticks)."""
        grown = {}
        for name, now in self.of.items():
            total_s, user, system = (new - old for new, old in zip(now, earlier.of.get(name, (0, 0, 0))))
            share = system / (user + system) if user + system > 0 else 0
            ns = total_s * 1e9 / documents
            if ns >= 1:
                grown[name] = {"total": ns, "user": ns * (1 - share), "system": ns * share}
        return dict(sorted(grown.items(), key=lambda one: -one[1]["total"]))


def written_bytes(pid):
    """Bytes that the process made the system write to disk."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


def load_documents(options, server, load):
    """Loads everything, returns once it is persisted."""
    populate(options.tool, server, load)
    server.wait_persisted(120)


def measure_case(options, directory, documents, quota_mib):
    load = Load(items=documents, value_bytes=VALUE_BYTES)
    settings = ["--workers", 1, "--memory-quota-mib", quota_mib, "--storage", "log"]
    if quota_mib * MIB < documents * BLOCK_BYTES:
        settings += ["--eviction", "full"]
    with Server(options.binary, Path(directory) / "data", *settings) as server:
        times, written, begun = ThreadTimes(server.pid), written_bytes(server.pid), time.monotonic()
        load_documents(options, server, load)
        wall_s = time.monotonic() - begun
        by_thread = ThreadTimes(server.pid).since(times, documents)
        written = written_bytes(server.pid) - written
        peak_mib = server.peak_resident_mib()
    return {
        "documents": documents, "quota_mib": quota_mib, "wall_s": wall_s,
        "ns": sum(thread["total"] for thread in by_thread.values()), "by_thread": by_thread,
        "written_per_record_byte": written / (documents * RECORD_BYTES), "peak_resident_mib": peak_mib,
    }


def system_s():
    """System time of this process so far, and user time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_stime, usage.ru_utime


def write_floor(directory, total_bytes, direct):
    """CPU in ns that a plain loop takes for the bytes of one record; None where the system refuses."""
    buffer = mmap.mmap(-1, WRITE_BYTES)
    buffer.write(os.urandom(WRITE_BYTES))
    path = Path(directory) / "floor"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | (os.O_DIRECT if direct else 0))
    except OSError:
        return None
    try:
        before = sum(system_s())
        for at in range(0, total_bytes, WRITE_BYTES):
            os.pwrite(file, buffer, at)
            if (at + WRITE_BYTES) % SYNC_EVERY_BYTES == 0:
                os.fdatasync(file)
        os.fdatasync(file)
        return (sum(system_s()) - before) * 1e9 * RECORD_BYTES / total_bytes
    finally:
        os.close(file)
        path.unlink()


def memory_floor(total_bytes):
    """CPU in ns of the first touch of one document's memory, on huge pages as the block arena asks for."""
    with mmap.mmap(-1, total_bytes) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        before, _ = system_s()
        for at in range(0, total_bytes, 4096):
            memory[at] = 1
        after, _ = system_s()
    return (after - before) * 1e9 * BLOCK_BYTES / total_bytes


def floors(directory, total_bytes):
    return {"page_cache_ns": write_floor(directory, total_bytes, False),
            "direct_ns": write_floor(directory, total_bytes, True), "memory_ns": memory_floor(total_bytes)}


def name_of(run):
    fits = run["quota_mib"] * MIB >= run["documents"] * BLOCK_BYTES
    return f"{run['documents']:,} new documents of {VALUE_BYTES} B, " + ("all in memory" if fits
                                                                        else f"quota of {run['quota_mib']} MiB")


def rows_of(runs):
    first = runs[0]
    figure = spread([run["ns"] for run in runs])
    threads = "; ".join(f"{name} {thread['total']:.0f} (user {thread['user']:.0f}, system {thread['system']:.0f})"
                        for name, thread in first["by_thread"].items() if thread["total"] >= 5)
    return [
        Row(f"{name_of(first)}: server CPU each", f"{text_of(figure, 0)} ns", f"<= {GOAL_NS} ns",
            figure["median"] <= GOAL_NS),
        Row("the same, by thread, first round", threads),
        Row("the same, bytes written to disk for each byte of a record",
            text_of(spread([run["written_per_record_byte"] for run in runs]))),
        Row("the same, throughput", f"{first['documents'] / first['wall_s'] / 1000:.0f} k/s; "
                                    f"{first['peak_resident_mib']:.0f} MiB resident at most"),
    ]


def floor_rows(found):
    def figure(name):
        values = [one[name] for one in found if one[name] is not None]
        return f"{text_of(spread(values), 0)} ns" if values else "refused"

    return [
        Row(f"floor: a loop of writes of {RECORD_BYTES} B each through the page cache", figure("page_cache_ns")),
        Row("floor: the same past the page cache", figure("direct_ns")),
        Row(f"floor: first touch of {BLOCK_BYTES} B of new memory", figure("memory_ns")),
    ]


def measure(options):
    documents = 20_000 if options.quick else options.write_documents
    quotas = [8, 1024] if options.quick else [1024, documents * 1024 // MIB + 512]
    by_quota, found = {quota: [] for quota in quotas}, []
    for _ in range(options.rounds or (1 if options.quick else 3)):
        with tempfile.TemporaryDirectory() as directory:
            found.append(floors(directory, 64 * MIB if options.quick else 1024 * MIB))
        for quota in quotas:
            with tempfile.TemporaryDirectory() as directory:
                by_quota[quota].append(measure_case(options, directory, documents, quota))
    rows = [row for runs in by_quota.values() for row in rows_of(runs)]
    return Outcome({"runs": list(by_quota.values()), "floors": found}, rows + floor_rows(found))
