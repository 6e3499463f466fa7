"""`oribi perf kv` as the load of a measurement."""

import json
import os
import subprocess
from dataclasses import dataclass

from .server import Memcached

# The store may be slower than the load; then the server asks for writes again until it has caught up.
RETRIES_MAX = 60_000


@dataclass(frozen=True)
class Load:
    """What is put on a server. Bodies are random, so that no store can compress them."""

    items: int = 1_000_000
    value_bytes: int = 512
    batch: int = 100
    set_pct: int = 20
    threads: int = 1
    # Of each thread.
    connections: int = 1
    duration_s: float = 5
    # Batches of each connection, instead of a time.
    cycles: int | None = None
    # Operations per second, due at fixed times whether or not earlier ones were answered.
    rate: int | None = None
    key_prefix: str = ""
    key_digits: int = 20
    # Protocol of the run: text; None for the binary protocol. Documents are written in the binary one.
    protocol: str | None = None

    def document_arguments(self):
        """Which documents there are, as the tool has it."""
        return ["--items", self.items, "--min-size", self.value_bytes, "--max-size", self.value_bytes,
                "--key-prefix", self.key_prefix, "--key-digits", self.key_digits, "--random-body",
                "--num-threads", self.threads, "--connections-per-thread", self.connections,
                "--batch-size", self.batch, "--retries", RETRIES_MAX]

    def run_arguments(self, seed):
        """What is done with them."""
        extent = ["--duration", self.duration_s] if self.cycles is None else ["--num-cycles", self.cycles]
        pace = [] if self.rate is None else ["--rate-limit", self.rate, "--open-loop"]
        protocol = [] if self.protocol is None else ["--protocol", self.protocol]
        return [*self.document_arguments(), "--no-population", "--set-pct", self.set_pct,
                "--random-seed", seed, *extent, *pace, *protocol]

    def __str__(self):
        connections = self.threads * self.connections
        return (f"{self.value_bytes} B, {self.items:,} items, {self.set_pct} % sets, "
                f"{connections} connection{'s' * (connections > 1)}, batch {self.batch}")


class Tool:
    """A running `oribi perf kv` against a server."""

    def __init__(self, binary, server, arguments, cpus=None):
        """`cpus` are the processors it may use."""
        self.command = [str(binary), "perf", "kv", "--port", str(server.port), "--server-pid", str(server.pid),
                        "--json", *map(str, arguments)]
        if isinstance(server, Memcached) and "--protocol" not in self.command:
            self.command.append("--memcached")

        def before_start():
            if cpus:
                os.sched_setaffinity(0, cpus)

        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=before_start)

    def summary(self):
        """Its JSON once it has ended; ends the measurement if it found a problem."""
        output, problems = self.process.communicate()
        if self.process.returncode != 0:
            raise SystemExit(f"`{' '.join(self.command)}` ended with {self.process.returncode}: "
                             f"{problems[-2000:]}{output[:2000]}")
        return json.loads(output)


def run_tool(binary, server, arguments):
    """Runs `oribi perf kv` against a server; its JSON."""
    return Tool(binary, server, arguments).summary()


def populate(binary, server, load):
    """Writes every document once."""
    return run_tool(binary, server, [*load.document_arguments(), "--populate-only"])["population"]
