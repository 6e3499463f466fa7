"""What a user notices before the first request: time until ready, memory when idle."""

import resource
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread, text_of
from .server import Server
from .wire import Connection


def measure_start(options):
    samples = []
    for _ in range(options.starts):
        with tempfile.TemporaryDirectory() as directory:
            with Server(options.binary, Path(directory) / "data") as server:
                samples.append(server.ready_s * 1000)
    ready = spread(samples)
    return Outcome({"ready_ms": ready}, [Row("ready to serve, empty directory", f"{text_of(ready, 1)} ms")])


def measure_idle(options):
    samples = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            with Server(options.binary, Path(directory) / "data") as server:
                time.sleep(2)
                samples.append(server.resident_mib())
    figure = spread(samples)
    return Outcome({"resident_mib": figure}, [Row("resident memory, idle for 2 s", f"{text_of(figure, 1)} MiB")])


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
            for connection in connections:
                connection.close()
    per_connection = (after - before) * 1024 / usable
    figures = {"connections": usable, "before_mib": before, "after_mib": after}
    return Outcome(figures, [Row(f"memory of {usable:,} idle, authenticated connections", f"{per_connection:.2f} KiB each")])
