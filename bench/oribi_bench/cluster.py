"""Nodes with replicas of bucket `default` under measurement, which agree through an etcd of their own."""

import json
import os
import secrets
import time
from contextlib import ExitStack
from pathlib import Path

from .etcd import Etcd
from .server import Server

VBUCKETS = 64
QUOTA_MIB = 1024
SETTLE_SECONDS_MAX = 300


class Cluster:
    """The nodes of one cluster, each with one worker."""

    def __init__(self, options, directory, *settings):
        self.binary, self.directory, self.settings = options.binary, Path(directory), settings
        self.stack, self.nodes = ExitStack(), []
        secret = self.directory / "secret"
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        self.secret = secret

    def __enter__(self):
        self.etcd = self.stack.enter_context(Etcd())
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.process.kill()
            node.process.wait()
        self.stack.close()

    def add(self):
        """Starts another node and waits until all show it."""
        name = f"node-{len(self.nodes) + 1}"
        node = Server(self.binary, self.directory / name, "--workers", 1, "--buckets", "", "--cluster-etcd",
                      self.etcd.url, "--cluster-secret-file", self.secret, "--node-name", name, *self.settings)
        self.nodes.append(node)
        self.wait(lambda: all(len(shown(each, "/pools/default/nodeServices")["nodesExt"]) == len(self.nodes)
                              for each in self.nodes), "all nodes form a cluster")
        return node

    def create(self, replicas):
        self.nodes[0].admin("/pools/default/buckets", {"name": "default", "ramQuotaMB": QUOTA_MIB,
                                                        "numVBuckets": VBUCKETS, "replicaNumber": replicas})

    def wait_for_service(self):
        """Until every vbucket has an active copy."""
        self.wait(lambda: self.are_complete("served"), "all vbuckets are served")

    def wait_for_copies(self):
        """Until every copy has everything."""
        self.wait(lambda: self.are_complete("served", "missing", "behind"), "copies are complete")

    def are_complete(self, *counts):
        buckets = shown(self.nodes[0], "/node/cluster")["buckets"]
        complete = {"served": VBUCKETS, "missing": 0, "behind": 0}
        return buckets and all(each[count] == complete[count] for each in buckets for count in counts)

    def wait(self, is_done, what):
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while not is_done():
            if time.monotonic() > end:
                raise SystemExit(f"after {SETTLE_SECONDS_MAX} s this is not so: {what}")
            time.sleep(0.05)

    def active_nodes(self, at):
        """The port of the active node of each vbucket, as node `at` shows it; `None` where there is none."""
        server_map = shown(at, "/pools/default/b/default")["vBucketServerMap"]
        ports = [int(place.rsplit(":", 1)[1]) for place in server_map["serverList"]]
        return [ports[row[0]] if row[0] >= 0 else None for row in server_map["vBucketMap"]]

    def wait_persisted(self):
        """Until every write is on the disks of all nodes that have it."""
        self.wait_for_copies()
        for node in self.nodes:
            node.wait_persisted(SETTLE_SECONDS_MAX)


def shown(node, path):
    return json.loads(node.admin(path))
