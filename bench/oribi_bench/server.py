"""Servers under measurement: Oribi and memcached, each a child process on a free port of loopback."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from .wire import NOOP, PASSWORD, USER, Connection, frame


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess:
    """A started server; `ready_s` is how long it took until a NOOP was answered."""

    name = "server"
    clean_exit_codes = (0,)

    def __init__(self, command, port):
        self.port = port
        noop = frame(NOOP)
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        while True:
            try:
                connection = Connection(port)
                connection.call(noop)
                break
            except ConnectionError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{self.name} ended with {self.process.returncode}") from None
                time.sleep(0.0002)
        self.ready_s = time.perf_counter() - begin
        self.ready_cpu_s = self.cpu_s()
        connection.close()

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        # A measurement that failed must not leave its server behind.
        if self.process.poll() is None:
            if error is None:
                self.stop()
            else:
                self.process.kill()
                self.process.wait()

    @property
    def pid(self):
        return self.process.pid

    def cpu_s(self):
        """Processor time of all living threads so far, exact."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def cpu_s_by_thread(self):
        """The same by thread name, numbers at its end left out."""
        sums = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name = (task / "comm").read_text().strip().rstrip("0123456789").rstrip("-_ ")
            sums[name] = sums.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        return sums

    def cpu_total_s(self):
        """The same with threads that have ended, in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self):
        return self.status_mib("VmRSS")

    def peak_resident_mib(self):
        """The most there was so far."""
        return self.status_mib("VmHWM")

    def status_mib(self, name):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise SystemExit(f"no {name}")

    def stop(self):
        begin = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=300)
        if code not in self.clean_exit_codes:
            raise SystemExit(f"SIGTERM ended {self.name} with {code}")
        return time.perf_counter() - begin


class Server(ServerProcess):
    """Oribi on a data directory, with further settings as command line arguments."""

    name = "oribi"

    def __init__(self, binary, data_dir, *settings):
        self.admin_port = free_port()
        port = free_port()
        command = [str(binary), "serve", "--data-dir", str(data_dir), "--port", str(port),
                   "--admin-port", str(self.admin_port), "--query-port", "0", "--log", "warn", *map(str, settings)]
        super().__init__(command, port)

    def admin(self, path, form=None):
        """The text that the admin HTTP answers; a POST when there is a form."""
        body = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", data=body)
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from None

    def wait_persisted(self, seconds_max):
        """Returns once every write so far is persisted. An empty queue does not say so: what is being written has
        left it."""
        end = time.monotonic() + seconds_max
        connection = Connection(self.port).login()
        while True:
            stats = connection.stats(b"vbucket-seqno")
            high = {name: seqno for name, seqno in stats.items() if name.endswith(":high_seqno")}
            if all(stats[name.replace(":high_seqno", ":last_persisted_seqno")] == high[name] for name in high):
                connection.close()
                return
            if time.monotonic() > end:
                raise SystemExit("writes are not persisted")
            time.sleep(0.02)

    def metrics(self):
        """Samples of /metrics, by name with labels."""
        lines = self.admin("/metrics").splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def manifest(self):
        """Scopes and collections of bucket `default`."""
        return json.loads(self.admin("/pools/default/buckets/default/scopes"))

    def create_collection(self, scope, name):
        self.admin(f"/pools/default/buckets/default/scopes/{scope}/collections", {"name": name})


class Memcached(ServerProcess):
    """memcached as its distribution packages it, without persistence and without authentication, with
    further settings as command line arguments."""

    name = "memcached"

    def __init__(self, threads, memory_mib=4096, *settings):
        port = free_port()
        command = ["memcached", "-t", str(threads), "-U", "0", "-l", "127.0.0.1", "-m", str(memory_mib),
                   "-p", str(port), *map(str, settings)]
        if os.geteuid() == 0:
            command += ["-u", "root"]
        super().__init__(command, port)

    @staticmethod
    def is_installed():
        return shutil.which("memcached") is not None

    @staticmethod
    def version():
        done = subprocess.run(["memcached", "-V"], capture_output=True, text=True, check=False)
        return done.stdout.strip()
