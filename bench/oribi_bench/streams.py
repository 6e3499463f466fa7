"""DCP: what a reader of all changes costs writes, beside Redis with one replica.

The reader is `oribi watch`. CPU is the server's, by the kernel's exact account of its threads.
"""

import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .hot_path.comparison import in_turn, progress
from .hot_path.redis import Redis
from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Server, free_port
from .wire import Connection

VALUE_BYTES = 512
PERSIST_SECONDS_MAX = 600
START_SECONDS_MAX = 60


def wait_until(is_done, what):
    end = time.monotonic() + START_SECONDS_MAX
    while not is_done():
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not start")
        time.sleep(0.05)


def open_streams(server):
    connection = Connection(server.port).login()
    try:
        return int(connection.stats(b"dcpagg :").get(":total:activestream_count", 0))
    finally:
        connection.close()


@contextmanager
def reader_of(binary, server):
    """A reader of all changes from now on, around a block."""
    command = [str(binary), "watch", "--port", str(server.port), "--with-values"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: open_streams(server), "the reader")
        yield
        if process.poll() is not None:
            raise SystemExit(f"the reader ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def replica_of(redis, home):
    """A replica of Redis that has caught up, around a block."""
    command = ["redis-server", "--port", str(free_port()), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
               "--dir", str(home), "--replicaof", "127.0.0.1", str(redis.port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "state=online" in redis.info("replication").get("slave0", ""), "the replica")
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def writes_of_oribi(options, directory, items, rounds):
    """CPU per write by side, in ns."""
    load = Load(items, VALUE_BYTES, set_pct=100, connections=10, cycles=max(items // 1000, 1))
    ns = {"without": [], "with": []}
    with Server(options.binary, Path(directory) / "oribi", "--workers", 1, "--memory-quota-mib", 4096) as server:
        populate(options.binary, server, load)
        for number in range(rounds):
            progress(f"streams: round {number + 1} of {rounds}")
            for side in in_turn(list(ns), number):
                with ExitStack() as stack:
                    if side == "with":
                        stack.enter_context(reader_of(options.binary, server))
                    server.wait_persisted(PERSIST_SECONDS_MAX)
                    cpu_s = server.cpu_total_s()
                    writes = run_tool(options.binary, server, load.run_arguments(number))["load"]["operations"]
                    server.wait_persisted(PERSIST_SECONDS_MAX)
                    ns[side].append((server.cpu_total_s() - cpu_s) * 1e9 / writes)
    return ns


def writes_of_redis(options, directory, rounds):
    """The peer: as many SETs of redis-benchmark, without and with one replica; None where it is not installed."""
    if not all(shutil.which(tool) for tool in ("redis-server", "redis-benchmark")):
        return None
    items, operations = (10_000, 50_000) if options.quick else (1_000_000, 3_000_000)
    ns = {"without": [], "with": []}
    for number in range(rounds):
        progress(f"streams: Redis, round {number + 1} of {rounds}")
        for side in in_turn(list(ns), number):
            with ExitStack() as stack:
                home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                redis = stack.enter_context(Redis(home))
                if side == "with":
                    stack.enter_context(replica_of(redis, home))
                cpu_s = redis.cpu_total_s()
                redis.run("set", operations, items, VALUE_BYTES)
                ns[side].append((redis.cpu_total_s() - cpu_s) * 1e9 / operations)
    return ns


def measure(options):
    items = 20_000 if options.quick else 1_000_000
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory() as directory:
        oribi = writes_of_oribi(options, directory, items, rounds)
        redis = writes_of_redis(options, directory, rounds)
    peer = f"Redis with one replica, {text_of(ratios(redis['with'], redis['without']))}" if redis else ""
    return Outcome({"oribi": oribi, "redis": redis}, [
        Row(f"SET of {VALUE_BYTES} B, log store, with one reader of all changes over without: server CPU",
            f"{text_of(ratios(oribi['with'], oribi['without']))}; {spread(oribi['with'])['median']:.0f} ns", peer),
    ])
