"""SQL++ over HTTP, one statement at a time on one connection: the server's CPU of a statement and of a row.

Rows are documents of 512 B. Their CPU is that of statements over all of them, without what a statement over none costs.
"""

import base64
import json
import re
import socket
import tempfile
import time
from pathlib import Path

from .report import Outcome, Row
from .samples import spread, text_of
from .server import Server
from .wire import PASSWORD, USER, Connection, vbucket_of

DOCUMENT_BYTES = 512
GROUPS = 1000


class QueryConnection:
    """A connection that is kept, as SDKs keep theirs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.head = ("POST /query/service HTTP/1.1\r\nHost: localhost\r\n"
                     f"Authorization: Basic {token}\r\nContent-Type: application/json\r\nContent-Length: ")

    def request(self, fields):
        body = json.dumps(fields)
        return f"{self.head}{len(body)}\r\n\r\n{body}".encode()

    def send(self, request):
        """The body of the answer."""
        self.socket.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        # A short answer has its length.
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        while len(body) < int(length[1]) if length else not body.endswith(b"\r\n0\r\n\r\n"):
            body += self.receive()
        if b'"status":"success"' not in body:
            raise SystemExit(f"a statement failed: {body.decode()}")
        return body

    def receive(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise SystemExit("the server closed the connection")
        return data

    def run(self, statement, **fields):
        return self.send(self.request({"statement": statement, "timeout": "600s", **fields}))


def cpu_of(server, times, work):
    """Server CPU of one of `times` runs in microseconds. Statements have threads that end, so it is counted with them."""
    before = server.cpu_total_s()
    for _ in range(times):
        work()
    return (server.cpu_total_s() - before) / times * 1e6


def fill(server, documents):
    """Numbers, groups, and a text that makes up the length."""
    def value(number):
        start = f'{{"n":{number},"g":{number % GROUPS},"t":"'
        return (start + "x" * (DOCUMENT_BYTES - len(start) - 2) + '"}').encode()

    connection = Connection(server.port).login()
    keys = (b"document-%d" % number for number in range(documents))
    connection.store((vbucket_of(key), key, value(number)) for number, key in enumerate(keys))
    connection.close()
    server.wait_persisted(300)


def grown_mib(server, work):
    """By how much the resident memory grows at most."""
    before = server.resident_mib()
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    work()
    return server.peak_resident_mib() - before


def measure(options):
    documents, statements = (20_000, 200) if options.quick else (500_000, 5_000)
    scans = 2 if options.quick else 4
    figures = {name: [] for name in ("ad_hoc_us", "prepared_us", "keys_us", "count_us", "filter_us", "group_us", "group_mib",
                                     "idle_mib")}
    for _ in range(options.rounds or 3):
        with tempfile.TemporaryDirectory() as directory:
            data_dir = Path(directory) / "data"
            with Server(options.binary, data_dir, "--vbuckets", 64, "--workers", 1) as server:
                time.sleep(1)
                idle_mib = server.status_mib("RssAnon")
                connection = QueryConnection(server.admin_port)
                for _ in range(100):
                    connection.run("SELECT 1")
                time.sleep(2)
                figures["idle_mib"].append(server.status_mib("RssAnon") - idle_mib)
                measure_statements(server, connection, statements, figures)
                fill(server, documents)
                measure_rows(server, connection, (documents, scans), figures)
    figures = {name: spread(samples) for name, samples in figures.items()}
    rows = [
        Row("`SELECT 1` over HTTP, ad hoc; prepared; one document by its key: CPU",
            "; ".join(f"{text_of(figures[name], 0)} µs" for name in ("ad_hoc_us", "prepared_us", "keys_us"))),
        Row("scan of documents of 512 B: CPU a document that is counted; filtered; more to group it by 1,000 values",
            "; ".join(f"{text_of(figures[name])} µs" for name in ("count_us", "filter_us", "group_us"))),
        Row("memory of that grouping; memory that statements leave",
            "; ".join(f"{text_of(figures[name], 1)} MiB" for name in ("group_mib", "idle_mib"))),
    ]
    return Outcome({"documents": documents, **figures}, rows)


def measure_statements(server, connection, statements, figures):
    one = json.dumps({"n": 1, "t": "x" * 480})
    connection.run(f'UPSERT INTO `default` VALUES ("one", {one})')
    connection.run("PREPARE one AS SELECT 1")
    for name, fields in (("ad_hoc_us", {"statement": "SELECT 1"}), ("prepared_us", {"prepared": "one"}),
                         ("keys_us", {"statement": 'SELECT d.* FROM `default` d USE KEYS "one"'})):
        request = connection.request(fields)
        connection.send(request)
        figures[name].append(cpu_of(server, statements, lambda request=request: connection.send(request)))


def measure_rows(server, connection, extent, figures):
    documents, scans = extent
    group = "SELECT RAW [d.g, COUNT(*), SUM(d.n)] FROM `default` d GROUP BY d.g"

    def per_row(statement):
        return cpu_of(server, scans, lambda: connection.run(statement)) / documents

    connection.run(group)
    filtered = per_row("SELECT RAW COUNT(*) FROM `default` d WHERE d.n < 0")
    figures["count_us"].append(per_row("SELECT RAW COUNT(*) FROM `default` d"))
    figures["filter_us"].append(filtered)
    figures["group_us"].append(per_row(group) - filtered)
    figures["group_mib"].append(grown_mib(server, lambda: connection.run(group)))
