"""Query indexes: what their upkeep costs a mutation, and one row by index.

CPU is the server's, by the kernel's exact account of its threads. The feed of the indexes is a thread of its own, so
what it costs is told apart from what a mutation costs the workers.
"""

import base64
import http.client
import json
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread, text_of
from .server import Server
from .wire import PASSWORD, USER, Connection, vbucket_of

VALUE_BYTES = 512
CATCH_UP_SECONDS_MAX = 300
FEED_THREAD, WORKERS = "oribi-index", ("oribi-worker", "worker")
INDEXES = [
    "CREATE INDEX by_n ON `default`(n)",
    "CREATE INDEX by_name ON `default`(name)",
    "CREATE INDEX by_kind ON `default`(kind, n DESC)",
    "CREATE INDEX by_tag ON `default`(DISTINCT ARRAY t FOR t IN tags END)",
]
ROW = "SELECT d.* FROM `default` d WHERE d.n = $1"


class Queries:
    """Statements on one connection."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=600)
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def run(self, statement, *args, **options):
        body = json.dumps({"statement": statement, "args": args, **options})
        self.connection.request("POST", "/query/service", body, self.headers)
        answer = json.loads(self.connection.getresponse().read())
        if answer["status"] != "success":
            raise SystemExit(f"{statement}: {answer}")
        return answer["results"]


def documents(items, generation):
    """Documents of half a kibibyte, each of whose indexed fields changes with the generation."""
    for number in range(items):
        key = f"document-{number:012}".encode()
        n = number + generation * items
        fields = {"n": n, "name": f"name-{n % 100_003}", "kind": f"kind-{n % 7}", "tags": [n % 101]}
        text = json.dumps(fields)
        fields["filler"] = "x" * (VALUE_BYTES - len(text) - 14)
        yield vbucket_of(key), key, json.dumps(fields).encode()


def wait_caught_up(server):
    end = time.monotonic() + CATCH_UP_SECONDS_MAX
    while server.metrics().get('oribi_bucket_index_lag_items{bucket="default"}', 0) > 0:
        if time.monotonic() > end:
            raise SystemExit("the indexes do not catch up")
        time.sleep(0.05)


def written(server, connection, items, generation):
    """CPU of the feed and of all other threads per mutation, in ns."""
    before = server.cpu_s_by_thread()
    count = connection.store(documents(items, generation))
    wait_caught_up(server)
    after = server.cpu_s_by_thread()
    feed = after.get(FEED_THREAD, 0) - before.get(FEED_THREAD, 0)
    workers = sum(after[name] - before.get(name, 0) for name in after if name.startswith(WORKERS))
    return feed * 1e9 / count, workers * 1e9 / count


def measure(options):
    items, rows = (5_000, 500) if options.quick else (200_000, 20_000)
    rounds = options.rounds or (1 if options.quick else 5)
    feed, workers = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        with Server(options.binary, Path(directory) / "oribi", "--workers", 1, "--memory-quota-mib", 2048) as server:
            connection, queries = Connection(server.port).login(), Queries(server)
            generation, created = 0, 0
            written(server, connection, items, generation)
            for indexes in (0, 1, len(INDEXES)):
                for statement in INDEXES[created:indexes]:
                    queries.run(statement)
                created = indexes
                # The server closes connections that are idle as long as the writes take.
                queries.connection.close()
                for _ in range(rounds):
                    generation += 1
                    of_feed, of_workers = written(server, connection, items, generation)
                    feed.setdefault(indexes, []).append(of_feed / max(indexes, 1))
                    workers.setdefault(indexes, []).append(of_workers)
            base = generation * items
            queries.run(ROW, base, scan_consistency="request_plus")
            before = server.cpu_total_s()
            for number in range(rows):
                if len(queries.run(ROW, base + number % items)) != 1:
                    raise SystemExit("a document is not found by index")
            row_us = (server.cpu_total_s() - before) * 1e6 / rows
            connection.close()
    most = len(INDEXES)
    return Outcome({"feed_ns": feed, "workers_ns": workers, "row_us": row_us}, [
        Row("upkeep of one index: CPU of the feed a mutation", f"{text_of(spread(feed[1]), 0)} ns"),
        Row(f"upkeep of {most} indexes: CPU of the feed a mutation and index", f"{text_of(spread(feed[most]), 0)} ns"),
        Row("SET without, with one and with four indexes: CPU of the workers",
            ", ".join(f"{spread(workers[count])['median']:.0f}" for count in (0, 1, most)) + " ns"),
        Row("one row of 512 B by index, ad hoc with a parameter: server CPU", f"{row_us:.0f} µs"),
    ])
