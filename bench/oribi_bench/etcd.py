"""An etcd for nodes of a cluster to agree through, as a child process on loopback."""

import subprocess
import tempfile
import time
from pathlib import Path

from .kudu_server import DIES_WITH_PARENT
from .server import free_port
from .wire import Connection

START_SECONDS_MAX = 30


class Etcd:
    """An etcd of one member, without fsync as nothing crashes the machine; `url` is where nodes find it."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="oribi-etcd-")
        client, peer = free_port(), free_port()
        self.url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.process = subprocess.Popen(
            [*DIES_WITH_PARENT, "etcd", "--name", "only", "--unsafe-no-fsync", "--log-level", "error",
             "--data-dir", str(Path(self.directory.name) / "data"),
             "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
             "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
             "--initial-cluster", f"only={peer_url}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = client

    def __enter__(self):
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                Connection(self.client).close()
                return self
            except ConnectionError:
                if time.monotonic() > end:
                    raise SystemExit("etcd does not start") from None
                time.sleep(0.01)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()
