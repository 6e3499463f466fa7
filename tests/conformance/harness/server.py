"""Owns one `oribi serve` process on a data directory of its own.

The ports are chosen once and kept across restarts, because the point of the
restart step is that a client finds the server again under the same address.
They lie below the range from which the kernel picks client ports: a client
that retries a port inside that range while nobody listens there can end up
connected to itself.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

READY_SECONDS_MAX = 30
# Warnings that a healthy run does write: there is no user on a fresh directory.
EXPECTED_WARNINGS = ("DEVELOPMENT MODE",)
# What a server may write after a SIGKILL: the log store says how it mended the end of the log.
AFTER_KILL_WARNINGS = ("bytes of an unfinished commit were cut off", "a segment was still being made at the end",
                       "a bad index file; the segment is read instead")
STOP_SECONDS_MAX = 60


class ServerError(Exception):
    """The server did not start, or did not stop, as it must."""


class Server:
    def __init__(self, binary, directory, log_path, arguments=(), certificates=None,
                 expected_warnings=EXPECTED_WARNINGS, environment=None):
        self.binary = binary
        self.directory = directory
        self.arguments = list(arguments)
        self.log_path = log_path
        self.ready_file = directory.parent / (directory.name + ".ready.json")
        self.certificates = certificates
        self.expected_warnings = expected_warnings
        self.environment = environment or {}
        self.port, self.admin_port, self.tls_port, self.tls_admin_port = free_ports(4)
        self.query_port, self.tls_query_port = free_ports(2)
        self.process = None
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log_path.write_bytes(b"")

    def add_user(self, name, password, *roles, bucket=None):
        """To be called before the start."""
        arguments = [argument for role in roles for argument in ("--role", role)]
        arguments += ["--bucket", bucket] if bucket else []
        command = [str(self.binary), "user", "add", name, *arguments, "--password-stdin", "--data-dir", str(self.directory)]
        added = subprocess.run(command, input=password + "\n", text=True, capture_output=True, check=False)
        if added.returncode != 0:
            raise ServerError(f"`oribi user add` ended with {added.returncode}: {added.stderr.strip()}")

    @property
    def connection_string(self):
        if self.certificates is not None:
            return f"couchbases://127.0.0.1:{self.tls_port}"
        return f"couchbase://127.0.0.1:{self.port}"

    @property
    def admin_url(self):
        return f"http://127.0.0.1:{self.admin_port}"

    def start(self):
        """Starts the process and returns once it says that it serves."""
        self.ready_file.unlink(missing_ok=True)
        command = [
            str(self.binary), "serve",
            "--data-dir", str(self.directory),
            "--port", str(self.port),
            "--admin-port", str(self.admin_port),
            "--query-port", str(self.query_port),
            "--ready-file", str(self.ready_file),
            *self.tls_arguments(),
            *self.arguments,
        ]
        with open(self.log_path, "ab") as log:
            log.write(f"--- {' '.join(command)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**{k: v for k, v in os.environ.items() if not k.startswith("ORIBI_")}, **self.environment},
            )
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.is_ready():
            if self.process.poll() is not None:
                raise ServerError(f"the server exited with {self.process.returncode} at start, see {self.log_path}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"the server was not ready after {READY_SECONDS_MAX} s")
            time.sleep(0.01)

    def tls_arguments(self):
        if self.certificates is None:
            return []
        return [
            "--tls-certificate", str(self.certificates.certificate),
            "--tls-key", str(self.certificates.key),
            "--tls-port", str(self.tls_port),
            "--tls-admin-port", str(self.tls_admin_port),
            "--tls-query-port", str(self.tls_query_port),
        ]

    def is_ready(self):
        try:
            return json.loads(self.ready_file.read_text())["pid"] == self.process.pid
        except (OSError, ValueError, KeyError):
            return False

    def kill(self):
        """Ends the process with SIGKILL: nothing is flushed."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.expected_warnings = (*self.expected_warnings, *AFTER_KILL_WARNINGS)

    def kill_and_restart(self):
        self.kill()
        self.start()

    def stop(self):
        """Ends the process with SIGTERM, and requires that it exits with 0."""
        if self.process.poll() is not None:
            raise ServerError(f"the server had already exited with {self.process.returncode}")
        self.process.terminate()
        try:
            code = self.process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server ignored SIGTERM for {STOP_SECONDS_MAX} s") from None
        if code != 0:
            raise ServerError(f"SIGTERM ended the server with exit code {code}")

    def log_complaints(self):
        """Lines of the server log that no healthy run writes."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", self.log_path.read_text(errors="replace"))
        complaints = [line for line in text.splitlines() if re.search(r"\b(WARN|ERROR)\b|panicked at", line)]
        return [line for line in complaints if not any(expected in line for expected in self.expected_warnings)]


# Ports that servers of this run have or had: another may be about to use them.
TAKEN = set()
TAKING = threading.Lock()


def free_ports(count):
    """Ports that nobody uses now, all below the ephemeral range."""
    with TAKING:
        ports = unused_ports(count)
        TAKEN.update(ports)
    return ports


def unused_ports(count):
    ports = []
    while len(ports) < count:
        port = random.randrange(15000, 31000)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports and port not in TAKEN:
            ports.append(port)
    return ports
