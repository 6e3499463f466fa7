"""The contenders: Oribi with and without persistence, and memcached as Debian packages it.

A contender knows how its server is started, which of its threads do what, and what its own statistics
are called. All of them serve from one worker thread unless asked otherwise.
"""

import time
from dataclasses import dataclass

from ..server import Memcached, Server
from ..wire import Connection

# Kind of a thread by the beginning of its name; any other is `rest`.
THREAD_KINDS = {"oribi-worker": "worker", "mc-worker": "worker", "flusher": "flusher",
                "log-compaction": "store"}
KINDS = ("worker", "flusher", "store", "rest")
# Threads that continue to work on acknowledged writes.
BACKGROUND_KINDS = ("flusher", "store")
# The largest value that is stored is 20 MiB; memcached's own limit is 1 MiB unless it is told otherwise.
MEMCACHED_ITEM_MAX = "32m"

SETTLE_DEADLINE_S = 300
# A server is quiet below this share of a processor over this time.
QUIET_SHARE, QUIET_S = 0.02, 0.1


def kind_of(thread):
    """What a thread of this name is for."""
    return next((kind for start, kind in THREAD_KINDS.items() if thread.startswith(start)), "rest")


def by_kind(figure_by_thread):
    """Sums of figures by thread name, for all kinds of threads."""
    sums = dict.fromkeys(KINDS, 0)
    for thread, figure in figure_by_thread.items():
        sums[kind_of(thread)] += figure
    return sums


@dataclass(frozen=True)
class Contender:
    """A kind of server."""

    name: str
    label: str
    # Settings of Oribi; None for memcached.
    settings: tuple | None

    @property
    def is_oribi(self):
        return self.settings is not None

    @property
    def writes_to_disk(self):
        return self.is_oribi and "memory" not in self.settings

    def start(self, binary, directory, workers=1, memory_mib=4096, settings=()):
        """A new, empty server; its files, if it has any, are in `directory`."""
        if not self.is_oribi:
            return Memcached(workers, memory_mib, "-I", MEMCACHED_ITEM_MAX)
        return Server(binary, directory / f"{self.name}-{time.monotonic_ns()}", "--workers", workers,
                      "--memory-quota-mib", memory_mib, *self.settings, *settings)

    def connect(self, server):
        connection = Connection(server.port)
        return connection.login() if self.is_oribi else connection

    def counters(self, server):
        """The server's own account of what it did so far."""
        connection = self.connect(server)
        stats = connection.stats()
        connection.close()
        names = ("cmd_get", "get_hits", "get_misses", "cmd_set", "curr_items")
        counters = {name: int(stats[name]) for name in names}
        # Documents that a cache has evicted.
        counters["evictions"] = int(stats.get("evictions", 0))
        return counters

    def settle(self, server):
        """Waits until everything that was written is on disk and merged; at once without a disk."""
        if not self.writes_to_disk:
            return
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        connection = self.connect(server)
        while int(connection.stats()["ep_queue_size"]) > 0:
            self.expect_before(deadline)
            time.sleep(0.02)
        connection.close()
        busy = self.background_s(server)
        while True:
            time.sleep(QUIET_S)
            before, busy = busy, self.background_s(server)
            if busy - before < QUIET_SHARE * QUIET_S:
                return
            self.expect_before(deadline)

    def background_s(self, server):
        """Processor time so far of the threads that go on after a write was acknowledged."""
        kinds = by_kind(server.cpu_s_by_thread())
        return sum(kinds[kind] for kind in BACKGROUND_KINDS)

    def expect_before(self, deadline):
        if time.monotonic() > deadline:
            raise SystemExit(f"{self.label} is not done with its writes after {SETTLE_DEADLINE_S} s")


CONTENDERS = (
    Contender("oribi-memory", "Oribi (memory)", ("--storage", "memory")),
    Contender("oribi-log", "Oribi (log store)", ("--storage", "log")),
    Contender("memcached", "memcached", None),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}
PEER = BY_NAME["memcached"]


def chosen(options):
    """The contenders of this run."""
    contenders = [BY_NAME[name] for name in options.contenders or BY_NAME]
    if PEER in contenders and not Memcached.is_installed():
        raise SystemExit("memcached is not installed; --contenders names what to measure without it")
    return contenders

