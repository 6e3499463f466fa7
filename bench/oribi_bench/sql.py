"""SQL over a running server: a scan of a million JSON documents with a condition on a field, small reads of other clients
beside such scans, and look-ups of a key.

CPU is that of server and client together, by the kernel's account of both processes. The reads are due at fixed times,
like those of `interference`: the worker has a processor to itself, and `oribi sql` runs where and when the reader does
not want to, because it must not be the clients' scheduling that is measured. What the server does for a scan runs
where the scheduler puts it.
"""

import json
import http.client
import base64
import os
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from .hot_path.comparison import progress
from .hot_path.placement import client_cpus, other_cpus, worker_cpus
from .kv_load import Load, Tool, populate
from .report import Outcome, Row
from .samples import quantile, ratios, spread, text_of
from .server import Server
from .wire import PASSWORD, USER, Connection, vbucket_of

VALUE_BYTES = 512
PERSIST_SECONDS_MAX = 600
# One of a hundred documents fulfils the condition.
TOTALS, LEAST_TOTAL = 1000, 990
TABLE = '"default._default._default"'
SCAN = f"select count(*) as n from {TABLE} where json ->> 'total' >= {LEAST_TOTAL} and id glob 'order-*'"
RATE = 10_000
GOALS = {"scan_s": 1.5, "p99": 2, "look_up_ms": 1}


def documents(count):
    """Orders of 512 B: the field of the condition has some before it and some behind it."""
    letters = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=1 << 16))
    for index in range(count):
        key = b"order-%09d" % index
        head = (f'{{"id":{index},"customer":{{"name":"customer {index % 5000}","city":"Oslo"}},"items":[{index % 7},'
                f'{index % 11}],"total":{index * 7919 % TOTALS},"paid":true,"note":"')
        start = index * 769 % (len(letters) - VALUE_BYTES)
        yield vbucket_of(key), key, (head + letters[start:start + VALUE_BYTES - len(head) - 2] + '"}').encode()


def statement(options, server, text, before_start=None):
    """Runs one with `oribi sql`; its rows and its seconds of CPU."""
    command = [str(options.binary), "sql", "--port", str(server.port), "--format", "json", text]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=before_start)
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {process.returncode}")
    return [json.loads(line) for line in output.splitlines()], usage.ru_utime + usage.ru_stime


def scan(options, server, count, before_start=None):
    begin, server_before = time.perf_counter(), server.cpu_total_s()
    rows, client_s = statement(options, server, SCAN, before_start)
    server_s, wall_s = server.cpu_total_s() - server_before, time.perf_counter() - begin
    expected = sum(index * 7919 % TOTALS >= LEAST_TOTAL for index in range(count))
    if rows != [{"n": expected}]:
        raise SystemExit(f"the scan found {rows}, not {expected}")
    return {"client_s": client_s, "server_s": server_s, "cpu_s": client_s + server_s, "wall_s": wall_s}


class Scans(threading.Thread):
    """One scan after the other until the end."""

    def __init__(self, options, server, count):
        super().__init__()
        self.work = (options, server, count)
        self.is_over, self.scans, self.begun = threading.Event(), 0, threading.Event()

    def run(self):
        def before_start():
            os.sched_setaffinity(0, other_cpus())
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

        while not self.is_over.is_set():
            self.begun.set()
            scan(*self.work, before_start)
            self.scans += 1


def reads(options, server, load, seed):
    phase = Tool(options.binary, server, load.run_arguments(seed), cpus=client_cpus()).summary()["load"]
    if phase["misses"] or phase["unanswered"]:
        raise SystemExit("reads without an answer")
    return phase["latency_us"]


def reads_beside_scans(options, server, count, seed, load):
    """Latencies of the reader alone, and beside scans."""
    quiet = reads(options, server, load, seed)
    scans = Scans(options, server, count)
    scans.start()
    scans.begun.wait()
    try:
        loaded = reads(options, server, load, seed)
    finally:
        scans.is_over.set()
        scans.join()
    return {"quiet": quiet, "loaded": loaded, "scans": scans.scans}


def place_workers(server):
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("oribi-worker"):
            os.sched_setaffinity(int(task.name), worker_cpus())


def look_ups_of_tool(options, server, count, many):
    """Milliseconds of a statement in a session: of many, beyond the start of the tool."""
    def seconds(statements):
        choose = random.Random(3)
        text = ";".join(f"select json ->> 'total' from {TABLE} where id = 'order-{choose.randrange(count):09}'"
                        for _ in range(statements))
        begin = time.perf_counter()
        rows, _ = statement(options, server, text)
        if len(rows) != statements:
            raise SystemExit(f"{len(rows)} rows of {statements} look-ups")
        return time.perf_counter() - begin

    return (seconds(many + 1) - seconds(1)) * 1000 / many


def look_ups_over_http(server, count, many):
    """Milliseconds of each of many requests on one connection, ascending."""
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {token}"}
    connection, choose, samples = http.client.HTTPConnection("127.0.0.1", server.admin_port), random.Random(4), []
    for _ in range(many):
        text = f"select json ->> 'total' from {TABLE} where id = 'order-{choose.randrange(count):09}'"
        begin = time.perf_counter()
        connection.request("POST", "/query/sql", text, headers)
        lines = connection.getresponse().read().splitlines()
        samples.append((time.perf_counter() - begin) * 1000)
        if len(lines) != 3:
            raise SystemExit(f"{lines}")
    connection.close()
    return sorted(samples)


def measure(options):
    count, rounds = (20_000, 1) if options.quick else (1_000_000, options.rounds or 5)
    many = 50 if options.quick else 1000
    load = Load(2_000 if options.quick else 100_000, VALUE_BYTES, 100, 0, duration_s=1 if options.quick else 5, rate=RATE,
                key_prefix="small:")
    figures = {"documents": count, "value_bytes": VALUE_BYTES, "scans": [], "reads": [], "tool_ms": [], "http_ms": []}
    with tempfile.TemporaryDirectory() as directory:
        with Server(options.binary, Path(directory) / "data", "--memory-quota-mib", 4096, "--workers", 1) as server:
            connection = Connection(server.port).login()
            connection.store(documents(count))
            connection.close()
            populate(options.binary, server, load)
            server.wait_persisted(PERSIST_SECONDS_MAX)
            for number in range(rounds):
                progress(f"sql: round {number + 1} of {rounds}")
                figures["scans"].append(scan(options, server, count))
                figures["tool_ms"].append(look_ups_of_tool(options, server, count, many))
                figures["http_ms"].append(quantile(look_ups_over_http(server, count, many), 0.5))
            place_workers(server)
            for number in range(rounds):
                progress(f"sql beside reads: round {number + 1} of {rounds}")
                figures["reads"].append(reads_beside_scans(options, server, count, number, load))
    return Outcome(figures, rows_of(figures))


def rows_of(figures):
    def of(name):
        return spread([one[name] for one in figures["scans"]])

    cpu, tool, http_ms = of("cpu_s"), spread(figures["tool_ms"]), spread(figures["http_ms"])
    p99 = p99_ratio(figures)
    what = f"SQL: scan of {figures['documents']:,} JSON documents of {figures['value_bytes']} B by a field"
    return [
        Row(f"{what}: CPU of client and server", f"{text_of(cpu)} s", f"<= {GOALS['scan_s']} s", cpu["median"] <= GOALS["scan_s"]),
        Row(f"{what}: the client's; the server's", f"{text_of(of('client_s'))}; {text_of(of('server_s'))} s"),
        Row("SQL: p99 of small GETs beside scans, over quiet", text_of(p99, 1), f"<= {GOALS['p99']}", p99["median"] <= GOALS["p99"]),
        Row("SQL: a key looked up, statement of `oribi sql`; over HTTP", f"{text_of(tool, 3)}; {text_of(http_ms, 3)} ms",
            f"<= {GOALS['look_up_ms']} ms", max(tool["median"], http_ms["median"]) <= GOALS["look_up_ms"]),
    ]


def p99_ratio(figures):
    """Of the reads beside scans over those without."""
    return ratios(*([one[state]["p99"] for one in figures["reads"]] for state in ("loaded", "quiet")))
