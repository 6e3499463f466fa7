"""Server time per pipelined operation, Oribi beside Redis in the same rounds.

Each side is driven by its own load generator, `oribi perf kv` and `redis-benchmark`, because they speak different
protocols. Redis keeps nothing on disk here, as Oribi with a bucket in memory. `redis-benchmark` does not mix reads and
writes, so a round of Redis is its reads and then its writes. It verifies no value; Redis's own counters say that every
read was a hit.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ..kv_load import Load
from ..report import Outcome, Row
from ..samples import ratios, spread, text_of
from ..server import ServerProcess, free_port
from . import trial
from .comparison import in_turn, progress
from .contender import BY_NAME
from .placement import client_cpus, place, worker_cpus

VALUE_BYTES, ITEMS, BATCH, CONNECTIONS, SET_PCT = 512, 1_000_000, 100, 50, 20
OPERATIONS = 3_000_000
START_SECONDS_MAX = 30
FILL_CHUNK = 10_000


class Redis(ServerProcess):
    """Redis as its distribution packages it, in memory only, with one thread that serves."""

    name = "redis"

    def __init__(self, directory):
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                   "--dir", str(directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.info("server")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("Redis does not start") from None
                time.sleep(0.01)

    def call(self, request):
        """Sends a request whose answer is one bulk string; the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection, connection.makefile("rb") as answers:
            connection.sendall(request)
            length = int(answers.readline()[1:])
            return answers.read(length).decode()

    def info(self, section):
        """Redis's own figures."""
        text = self.call(b"INFO %s\r\n" % section.encode())
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def fill(self, items, value_bytes):
        """Stores every document that `redis-benchmark` may ask for."""
        value = os.urandom(value_bytes // 2).hex().encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection, connection.makefile("rb") as answers:
            for first in range(0, items, FILL_CHUNK):
                keys = [b"key:%012d" % number for number in range(first, min(items, first + FILL_CHUNK))]
                connection.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\n%s\r\n$%d\r\n%s\r\n" % (key, len(value), value)
                                            for key in keys))
                if any(answers.readline() != b"+OK\r\n" for _ in keys):
                    raise SystemExit("Redis did not store a document")

    def place(self):
        """The thread that serves on the worker's processor, the others on that of clients."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            is_worker = int(task.name) == self.pid
            os.sched_setaffinity(int(task.name), worker_cpus() if is_worker else client_cpus())

    def run(self, command, operations, items, value_bytes):
        """One run of `redis-benchmark`; operations per second by the clock."""
        arguments = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(self.port), "-t", command, "-n", str(operations),
                     "-r", str(items), "-d", str(value_bytes), "-P", str(BATCH), "-c", str(CONNECTIONS), "-q"]
        begin = time.perf_counter()
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: os.sched_setaffinity(0, client_cpus()))
        if done.returncode != 0:
            raise SystemExit(f"`{' '.join(arguments)}` ended with {done.returncode}: {done.stderr[-1000:]}")
        return time.perf_counter() - begin


def run_redis(server, items, operations):
    """Reads and then writes, in the shares of the load; figures of both together."""
    sets = operations * SET_PCT // 100
    gets = operations - sets
    before, cpu_s = server.info("stats"), server.cpu_s()
    seconds = server.run("get", gets, items, VALUE_BYTES) + server.run("set", sets, items, VALUE_BYTES)
    cpu_s, after = server.cpu_s() - cpu_s, server.info("stats")
    grown = {name: int(after[name]) - int(before[name]) for name in ("keyspace_hits", "keyspace_misses")}
    if grown["keyspace_misses"] or grown["keyspace_hits"] < gets:
        raise SystemExit(f"Redis: {grown} of {gets} reads; nothing of this run is believed")
    return {"server_ns": cpu_s * 1e9 / operations, "operations": operations, "operations_per_second": operations / seconds}


def measure(options):
    missing = [tool for tool in ("redis-server", "redis-benchmark") if not shutil.which(tool)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    items, operations = (10_000, 100_000) if options.quick else (ITEMS, OPERATIONS)
    rounds = options.rounds or (2 if options.quick else 5)
    load = Load(items, VALUE_BYTES, BATCH, SET_PCT, connections=CONNECTIONS, duration_s=0.3 if options.quick else 2)
    contender, runs = BY_NAME["oribi-memory"], {"oribi": [], "redis": []}
    with tempfile.TemporaryDirectory() as directory, contender.start(options.binary, Path(directory)) as oribi, \
            Redis(directory) as redis:
        version = f"Redis {redis.info('server')['redis_version']}"
        trial.fill(options.binary, contender, oribi, load)
        place(oribi)
        redis.fill(items, VALUE_BYTES)
        redis.place()
        for number in range(rounds):
            progress(f"redis: round {number + 1} of {rounds}")
            for side in in_turn(["oribi", "redis"], number):
                run = trial.run(options.binary, contender, oribi, load, number) if side == "oribi" else \
                    run_redis(redis, items, operations)
                runs[side].append(run)
    return Outcome({"load": vars(load), "version": version, "runs": runs}, rows_of(load, version, runs))


def rows_of(load, version, runs):
    found = {side: spread([run["server_ns"] for run in runs[side]]) for side in runs}
    ratio = ratios(found["oribi"]["samples"], found["redis"]["samples"])
    return [Row(f"server CPU per operation, {load.value_bytes} B, batch {load.batch}, {load.set_pct} % sets",
                f"{text_of(ratio)}; {found['oribi']['median']:.0f} ns", f"{version}, {found['redis']['median']:.0f} ns")]
