"""How long a node's documents are away when it dies, and how fast the node that takes over has them in memory."""

import statistics
import tempfile
import time
from pathlib import Path

from .etcd import Etcd
from .kudu_server import KuduCluster
from .report import Outcome, Row
from .server import Server
from .warmup import VALUE_BYTES, documents, is_done, items_of
from .wire import GET, Connection, frame, vbucket_of

VBUCKETS = 64
LEASE_S = 5
TAKE_OVER_SECONDS_MAX = 120
# --settle makes Kudu write rows to disk at this age instead of 120 s, so the wait is short.
FLUSH_THRESHOLD_S, FLUSH_SECONDS_MAX = 10, 300
STATUS_OK = 0
STATUS_MISS = 1


def node(options, directory, name, kudu, etcd, run):
    return Server(options.binary, Path(directory) / name, "--memory-quota-mib", 4096,
                  "--storage", f"kudu://{kudu.masters}/takeover{run}?replicas=1",
                  "--cluster-etcd", etcd.url, "--cluster-lease-s", LEASE_S, "--node-name", name,
                  "--cluster-name", f"bench{run}")


def samples(count):
    """A stored key of each vbucket."""
    found = {}
    for index in range(count):
        key = b"document-%09d" % index
        found.setdefault(vbucket_of(key), key)
        if len(found) == VBUCKETS:
            break
    return found


def login(server):
    """A connection with the bucket selected, which a node has only once it knows the cluster."""
    end = time.monotonic() + TAKE_OVER_SECONDS_MAX
    while True:
        connection = Connection(server.port)
        try:
            return connection.login()
        except ConnectionError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


def wait_served(server, keys):
    """Asks for a document of each vbucket until all are answered; seconds until the first was, and all."""
    begin, first = time.perf_counter(), None
    left = dict(keys)
    connection = login(server)
    while left:
        for vbucket, key in list(left.items()):
            status, _ = connection.call(frame(GET, key, vbucket=vbucket))
            if status == STATUS_OK:
                first = first or time.perf_counter() - begin
                del left[vbucket]
        if time.perf_counter() - begin > TAKE_OVER_SECONDS_MAX:
            raise SystemExit(f"{len(left)} vbuckets are not served")
        time.sleep(0.002)
    connection.close()
    return first, time.perf_counter() - begin


def wait_owned(server):
    """Until every vbucket answers, be it that there is no such document."""
    connection, left = login(server), set(range(VBUCKETS))
    end = time.monotonic() + TAKE_OVER_SECONDS_MAX
    while left:
        left = {vbucket for vbucket in left
                if connection.call(frame(GET, b"none", vbucket=vbucket))[0] != STATUS_MISS}
        if time.monotonic() > end:
            raise SystemExit(f"{len(left)} vbuckets are not served")
        time.sleep(0.01)
    connection.close()


def take_over(options, run):
    count = options.documents
    keys = samples(count)
    flags = [f"--flush_threshold_secs={FLUSH_THRESHOLD_S}"] if options.settle else []
    with tempfile.TemporaryDirectory() as directory, KuduCluster(flags=flags) as kudu, Etcd() as etcd:
        with node(options, directory, "first", kudu, etcd, run) as first:
            wait_owned(first)
            connection = login(first)
            connection.store(documents(count))
            connection.close()
            first.wait_persisted(TAKE_OVER_SECONDS_MAX)
            in_memory_mib = kudu.row_set_mib()
            if options.settle:
                kudu.wait_flushed(FLUSH_SECONDS_MAX)
            elif not options.quick:
                kudu.wait_quiet()
            first.process.kill()
            first.process.wait()
            killed = time.perf_counter()
        # The second node starts only now, so the first one owns everything. It waits for the lease to end.
        with node(options, directory, "second", kudu, etcd, run) as second:
            first_s, served_s = (since + second.ready_s for since in wait_served(second, keys))
            while not is_done(second.metrics()) or items_of(second.metrics()) < count:
                if time.perf_counter() - killed > TAKE_OVER_SECONDS_MAX:
                    raise SystemExit(f"{items_of(second.metrics())} of {count} documents are loaded")
                time.sleep(0.01)
            loaded_s = time.perf_counter() - killed
    return {"first_served_s": first_s, "all_served_s": served_s, "all_loaded_s": loaded_s,
            "served_after_lease_s": served_s - LEASE_S, "loaded_after_served_s": loaded_s - served_s,
            "row_set_mib": in_memory_mib}


def measure(options):
    runs = [take_over(options, run) for run in range(options.rounds or (1 if options.quick else 3))]
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    figures = {"documents": options.documents, "value_bytes": VALUE_BYTES, "lease_s": LEASE_S,
               "settled": options.settle, "runs": runs}
    where = "on Kudu's disks" if options.settle else "in the memory of Kudu's tablets as far as it holds them"
    return Outcome(figures, [
        Row(f"a node is killed that has {options.documents} documents, {where}, lease {LEASE_S} s: served again after",
            f"{median['all_served_s']:.2f} s (n {len(runs)})"),
        Row("the same beyond the lease", f"{max(median['served_after_lease_s'], 0):.2f} s at most"),
        Row("from there until all documents are in memory", f"{median['loaded_after_served_s']:.2f} s"),
    ], options="--settle" * options.settle)
