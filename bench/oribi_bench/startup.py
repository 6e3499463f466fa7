"""What a user notices before the first request: time until ready, memory when idle."""

import resource
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread
from .server import Server
from .wire import NOOP, Connection, frame


def measure_start(options):
    samples, cpu_samples = [], []
    for _ in range(options.starts):
        with tempfile.TemporaryDirectory() as directory:
            with Server(options.binary, Path(directory) / "data") as server:
                samples.append(server.ready_s * 1000)
                cpu_samples.append(server.ready_cpu_s * 1000)
    ready, cpu = spread(samples), spread(cpu_samples)
    return Outcome({"ready_ms": ready, "ready_cpu_ms": cpu}, [
        Row("ready to serve, empty directory",
            f"{ready['median']:.1f} ms (min {ready['min']:.1f}, max {ready['max']:.1f}, n {len(samples)})",
            "<= 50 ms"),
        Row("processor time until ready",
            f"{cpu['median']:.1f} ms (min {cpu['min']:.1f}, max {cpu['max']:.1f})"),
    ])


def measure_idle(options):
    samples = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            with Server(options.binary, Path(directory) / "data") as server:
                time.sleep(2)
                samples.append(server.resident_mib())
    figure = spread(samples)
    measured = f"{figure['median']:.1f} MiB (min {figure['min']:.1f}, max {figure['max']:.1f}, n {len(samples)})"
    return Outcome({"resident_mib": figure}, [Row("resident memory, idle for 2 s", measured, "<= 20 MB")])


def measure_connections(options):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections
    usable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usable + 200, hard))
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "data"
        with Server(options.binary, data_dir, "--connections-max", usable + 100) as server:
            time.sleep(1)
            before = server.resident_mib()
            connections = [Connection(server.port).login() for _ in range(usable)]
            time.sleep(2)
            after = server.resident_mib()
            begin = time.perf_counter()
            connections[-1].call(frame(NOOP))
            noop_us = (time.perf_counter() - begin) * 1e6
            for connection in connections:
                connection.close()
    per_connection = (after - before) * 1024 / usable
    figures = {"connections": usable, "before_mib": before, "after_mib": after,
               "kib_per_connection": per_connection, "noop_us": noop_us}
    measured = f"{after:.1f} MiB ({before:.1f} before, {per_connection:.2f} KiB each)"
    return Outcome(figures, [Row(f"resident memory, {usable} idle connections", measured)])
