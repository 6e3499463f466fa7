"""What TLS costs per operation: one server, the same load over both of its ports in turn.

The server keeps its documents in memory only, so that nothing but serving is in its time. Client and server
run on the same machine, and the client seals and opens as much as the server does; its own time is shown
apart. The ratio of the two ports is what carries over to other machines with the same instructions for AES.
"""

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from .kv_load import Load, populate, run_tool
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Server, free_port

WORKER = "oribi-worker"
LOADS = {
    "gets": Load(items=100_000, set_pct=0, duration_s=3),
    "mixed": Load(items=100_000, set_pct=20, duration_s=3),
    "64 KiB": Load(items=2_000, value_bytes=64 * 1024, batch=16, set_pct=20, duration_s=3),
}
QUICK = {"items": 500, "duration_s": 0.3}


class TlsPort:
    """The port with TLS of a server, as the tool sees it."""

    name = "tls"

    def __init__(self, server, port, ca):
        self.port, self.pid = port, server.pid
        self.arguments = ["--host", "localhost", "--tls", "--tls-ca", ca]


def certificate(directory):
    """Makes a certificate that is its own authority; paths of certificate and key."""
    paths = directory / "server.pem", directory / "server.key"
    extensions = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", paths[1], "-out", paths[0], "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "basicConstraints=critical,CA:FALSE", *extensions],
                   check=True, capture_output=True)
    return paths


def measure_port(binary, server, port, arguments, load, seed):
    before = server.cpu_s_by_thread()
    summary = run_tool(binary, port, [*load.run_arguments(seed), *arguments])
    after = server.cpu_s_by_thread()
    phase = summary["load"]
    return {
        "operations": phase["operations"],
        "operations_per_second": phase["operations_per_second"],
        "worker_ns": (after[WORKER] - before[WORKER]) * 1e9 / phase["operations"],
        "client_ns": phase["client_cpu_ns_per_operation"]["total"],
        "p99_us": phase["latency_us"]["p99"],
    }


def compare(options, load, rounds):
    runs = {"plain": [], "tls": []}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pem, key = certificate(directory)
        tls_port = free_port()
        server = stack.enter_context(Server(
            options.binary, directory / "data", "--workers", 1, "--storage", "memory", "--tls-certificate", pem,
            "--tls-key", key, "--tls-port", tls_port, "--tls-admin-port", free_port()))
        tls = TlsPort(server, tls_port, pem)
        ports = {"plain": (server, []), "tls": (tls, tls.arguments)}
        populate(options.binary, server, load)
        for seed in range(rounds):
            for name, (port, arguments) in ports.items():
                runs[name].append(measure_port(options.binary, server, port, arguments, load, seed))
    return runs


def rows_of(load, runs):
    def figure(port, name):
        return spread([run[name] for run in runs[port]])

    ratio = ratios(*(figure(port, "worker_ns")["samples"] for port in ("tls", "plain")))
    client = ratios(*(figure(port, "client_ns")["samples"] for port in ("tls", "plain")))
    what = f"TLS, {load}"
    return [
        Row(f"{what}: worker CPU per operation without TLS", f"{text_of(figure('plain', 'worker_ns'), 0)} ns"),
        Row(f"{what}: with TLS 1.3", f"{text_of(figure('tls', 'worker_ns'), 0)} ns"),
        Row(f"{what}: ratio of the worker's CPU, and of the client's", f"{text_of(ratio)}; {text_of(client)}"),
    ]


def measure(options):
    rounds = options.rounds or (2 if options.quick else 5)
    figures, rows = {}, []
    for name, load in LOADS.items():
        load = Load(**{**vars(load), **QUICK}) if options.quick else load
        runs = compare(options, load, rounds)
        figures[name] = {"load": vars(load), "runs": runs}
        rows += rows_of(load, runs)
    return Outcome(figures, rows)
