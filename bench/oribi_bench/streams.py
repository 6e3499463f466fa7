"""Change streams: what they cost the server, beside the same load without them, and how late changes are.

The readers are `dcp`, a bench program of oribi-client, which counts what it got; a run whose counts are wrong
has no figures. CPU is the server's, by the kernel's exact account of its threads.
"""

import json
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from . import checkpoint
from .hot_path.comparison import in_turn, progress
from .hot_path.redis import Redis
from .kv_load import Load, populate, run_tool
from .report import ROOT, Outcome, Row
from .rust_bench import samples_of
from .samples import ratios, spread, text_of
from .server import Server, free_port
from .warmup import is_done
from .wire import Connection

VALUE_BYTES = 512
PERSIST_SECONDS_MAX = 600
WARMUP_SECONDS_MAX = 300
SETTLE_SECONDS_MAX, SETTLED_SECONDS = 300, 1
# Threads in which streaming is done; what the others do is persistence.
STREAMING_THREADS = ("oribi-worker", "backfill")
READERS = 10
# What a live stream of 64 vbuckets finds in a look, and how long it waits for that at 400,000 writes a second.
LIVE_LOOK, LIVE_PAUSE_US = 230, 600
IDLE_STREAMS = 100
# One line of a reader that has begun, and one of what it got.
START_SECONDS_MAX, END_SECONDS_MAX = 60, 600


def build_reader():
    """The bench program, built; its path."""
    command = ["cargo", "bench", "--quiet", "--locked", "-p", "oribi-client", "--bench", "dcp", "--no-run",
               "--message-format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr[-2000:]}")
    messages = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return next(message["executable"] for message in messages
                if message.get("target", {}).get("name") == "dcp" and message.get("executable"))


class Reader:
    """The program in one of its modes."""

    def __init__(self, program, server, mode, *arguments):
        command = [program, mode, "--port", str(server.port), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the reader ended with {self.process.wait()}")
        return json.loads(line)

    def end(self):
        """Ends a reader that follows, or waits for one that ends; what it got."""
        self.process.stdin.close()
        result = self.line()
        if self.process.wait(timeout=END_SECONDS_MAX) != 0:
            raise SystemExit("the reader failed")
        if result.get("rollbacks") or result.get("disconnected"):
            raise SystemExit(f"the server did not keep its streams: {result}")
        return result


class Following:
    """Readers from now on, around a block; `result` is what they got."""

    def __init__(self, program, server, streams):
        self.reader = Reader(program, server, "follow", "--streams", streams)

    def __enter__(self):
        self.reader.line()
        return self

    def __exit__(self, error, *_):
        if error is not None:
            self.reader.process.kill()
            return
        self.result = self.reader.end()


def stat(server, name, group=b""):
    connection = Connection(server.port).login()
    try:
        return int(connection.stats(group)[name])
    finally:
        connection.close()


def seqnos(server):
    """The high seqno of every vbucket."""
    connection = Connection(server.port).login()
    try:
        stats = connection.stats(b"vbucket-seqno")
    finally:
        connection.close()
    return [int(seqno) for name, seqno in stats.items() if name.endswith(":high_seqno")]


def high_seqnos(server):
    """Sum over all vbuckets: how many changes there were."""
    return sum(seqnos(server))


def items_sent(server):
    """Changes sent so far."""
    return stat(server, "ep_dcp_items_sent", b"dcp")


def backfills_begun(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("oribi_bucket_change_backfills"))


def wait_warm(server):
    """Returns once everything is loaded: streams of a vbucket open then, and loading costs nothing any more."""
    end = time.monotonic() + WARMUP_SECONDS_MAX
    while not is_done(server.metrics()):
        if time.monotonic() > end:
            raise SystemExit("the server does not load its documents")
        time.sleep(0.05)


def settle(server):
    """Returns once the log store is done with what was written: a run pays for its own garbage, and for no other's."""
    end = time.monotonic() + SETTLE_SECONDS_MAX
    before = None
    while (spent_s := server.cpu_s_by_thread().get("log-compaction", 0)) != before:
        if time.monotonic() > end:
            raise SystemExit("the log store does not come to rest")
        before = spent_s
        time.sleep(SETTLED_SECONDS)


class CpuAccount:
    """Processor time that a server uses from now on: in all, and by the first word of its threads' names."""

    def __init__(self, server):
        self.server = server
        self.total_s, self.by_thread = server.cpu_total_s(), server.cpu_s_by_thread()

    def figures(self):
        total_s, by_thread = self.server.cpu_total_s() - self.total_s, {}
        for name, seconds in self.server.cpu_s_by_thread().items():
            kind = name.split()[0]
            by_thread[kind] = by_thread.get(kind, 0) + seconds - self.by_thread.get(name, 0)
        return {"cpu_s": total_s, "cpu_s_by_thread": by_thread}


def drain(program, server, streams, expected):
    """All vbuckets from the beginning, by so many readers at once."""
    begun = backfills_begun(server)
    account = CpuAccount(server)
    reader = Reader(program, server, "drain", "--streams", streams)
    result = reader.end()
    cpu = account.figures()
    wanted = streams * len(seqnos(server))
    if backfills_begun(server) - begun < wanted:
        raise SystemExit(f"not all of {wanted} streams were read from disk")
    if any(changes != expected for changes in result["changes"]):
        raise SystemExit(f"{result['changes']} changes of {expected} documents")
    return {**cpu, "wall_s": result["wall_ns"] / 1e9, "items": expected}


def ns_by_thread(runs, count):
    """Text: medians of processor time by thread, in ns for each of what `count` names."""
    threads = sorted({thread for run in runs for thread in run["cpu_s_by_thread"]})
    medians = {thread: spread([run["cpu_s_by_thread"].get(thread, 0) * 1e9 / run[count] for run in runs])["median"]
               for thread in threads}
    return ", ".join(f"{thread} {ns:.0f} ns" for thread, ns in medians.items() if ns >= 1)


def backfills(options, program, directory, items, rounds):
    """One reader and ten, in turn, of a server that has just started: nothing waits in its queue."""
    load = Load(items, VALUE_BYTES)
    data = Path(directory) / "backfill"
    with Server(options.binary, data, "--workers", 1, "--memory-quota-mib", 4096) as server:
        populate(options.binary, server, load)
        server.wait_persisted(PERSIST_SECONDS_MAX)
    runs = {1: [], READERS: []}
    with Server(options.binary, data, "--workers", 1, "--memory-quota-mib", 4096) as server:
        wait_warm(server)
        for number in range(rounds):
            progress(f"streams: backfill, round {number + 1} of {rounds}")
            for streams in in_turn([1, READERS], number):
                runs[streams].append(drain(program, server, streams, items))
    rate = spread([run["items"] / run["cpu_s"] for run in runs[1]])
    ratio = ratios([run["cpu_s"] for run in runs[READERS]], [run["cpu_s"] for run in runs[1]])
    rows = [
        Row(f"backfill of {items:,} documents of {VALUE_BYTES} B, one reader of all vbuckets",
            f"{rate['median'] / 1e6:.2f} M items per second of server CPU "
            f"({rate['min'] / 1e6:.2f} to {rate['max'] / 1e6:.2f}), "
            f"{spread([run['wall_s'] for run in runs[1]])['median']:.2f} s by the clock; {ns_by_thread(runs[1], 'items')}",
            ">= 1.5 M items/s per core", rate["median"] >= 1.5e6),
        Row(f"the same, {READERS} readers at once: server CPU over that of one",
            f"{text_of(ratio)}; {ns_by_thread(runs[READERS], 'items')}", "<= 2", ratio["median"] <= 2),
    ]
    return runs, rows


def load_once(options, server, load, seed, distribution):
    """One run of writes; CPU per write, and what was persisted."""
    server.wait_persisted(PERSIST_SECONDS_MAX)
    settle(server)
    persisted, seqno, account = stat(server, "ep_total_persisted"), high_seqnos(server), CpuAccount(server)
    arguments = [*load.run_arguments(seed), *(["--distribution", "zipf"] if distribution else [])]
    operations = run_tool(options.binary, server, arguments)["load"]["operations"]
    server.wait_persisted(PERSIST_SECONDS_MAX)
    settle(server)
    return {"operations": operations, **account.figures(), "writes": high_seqnos(server) - seqno,
            "persisted": stat(server, "ep_total_persisted") - persisted}


def live(options, program, directory, items, rounds, distribution=None):
    """The same writes without and with one live stream of everything, in turn."""
    load = Load(items, VALUE_BYTES, set_pct=100, connections=10, cycles=items // 1000)
    runs = {"without": [], "with": []}
    data = Path(directory) / (distribution or "uniform")
    with Server(options.binary, data, "--workers", 1, "--memory-quota-mib", 4096) as server:
        populate(options.binary, server, load)
        for number in range(rounds):
            progress(f"streams: {distribution or 'uniform'} writes, round {number + 1} of {rounds}")
            for side in in_turn(["without", "with"], number):
                if side == "without":
                    run = load_once(options, server, load, number, distribution)
                else:
                    with Following(program, server, 1) as following:
                        run = load_once(options, server, load, number, distribution)
                    run["streamed"] = following.result["changes"][0]
                    if not 0 < run["streamed"] <= run["writes"]:
                        raise SystemExit(f"{run['streamed']} changes of {run['writes']} writes")
                if run["writes"] < run["operations"]:
                    raise SystemExit(f"{run['writes']} writes of {run['operations']} operations")
                runs[side].append(run)
    return runs


def extra_ns(runs, threads=None):
    """Processor time that writes with a live stream take more than those without, for each streamed change: of all
    threads, or of those that are named."""
    def cpu_s(run):
        return run["cpu_s"] if threads is None else sum(run["cpu_s_by_thread"].get(name, 0) for name in threads)

    pairs = zip(runs["with"], runs["without"], strict=True)
    return spread([(cpu_s(with_it) - cpu_s(without) * with_it["writes"] / without["writes"]) * 1e9 / with_it["streamed"]
                   for with_it, without in pairs])


def live_rows(runs, items):
    per_write = {side: [run["cpu_s"] / run["writes"] for run in runs[side]] for side in runs}
    ratio = ratios(per_write["with"], per_write["without"])
    more, of_all = extra_ns(runs, STREAMING_THREADS), extra_ns(runs)
    share = spread([run["streamed"] / run["writes"] for run in runs["with"]])
    what = f"SET of {VALUE_BYTES} B, {items:,} documents"
    return [
        Row(f"{what}: server CPU with one live stream over without",
            f"{text_of(ratio)}; without, {ns_by_thread(runs['without'], 'writes')}; with, "
            f"{ns_by_thread(runs['with'], 'writes')}", "<= 1.15", ratio["median"] <= 1.15),
        Row("the same, producer CPU per streamed mutation: the thread that sends, with the stream less without",
            f"{text_of(more, 0)} ns; {text_of(of_all, 0)} ns with the threads that persist; "
            f"{share['median']:.0%} of the writes streamed, the others coalesced", "<= 150 ns",
            more["median"] <= 150),
    ]


def held(options, program, directory, items, rounds):
    """A reader that stood still takes what has waited for it in the queue, while nobody writes."""
    load, runs = Load(items, VALUE_BYTES), []
    with Server(options.binary, Path(directory) / "held", "--workers", 1, "--memory-quota-mib", 4096) as server:
        for number in range(rounds):
            progress(f"streams: a held reader, round {number + 1} of {rounds}")
            begun, before = backfills_begun(server), high_seqnos(server)
            reader = Reader(program, server, "held", "--changes", items)
            reader.line()
            populate(options.binary, server, load)
            server.wait_persisted(PERSIST_SECONDS_MAX)
            settle(server)
            if high_seqnos(server) - before != items:
                raise SystemExit(f"not {items} writes")
            sent, account = items_sent(server), CpuAccount(server)
            reader.process.stdin.write("\n")
            result = reader.end()
            runs.append({**account.figures(), "streamed": items_sent(server) - sent})
            if result["changes"] != [items] or backfills_begun(server) != begun:
                raise SystemExit(f"{result['changes']} changes of {items}, or not from the queue alone")
            if runs[-1]["streamed"] < items / 2:
                raise SystemExit(f"only {runs[-1]['streamed']} of {items} changes waited")
    ns = spread([sum(run["cpu_s_by_thread"].get(name, 0) for name in STREAMING_THREADS) * 1e9 / run["streamed"]
                 for run in runs])
    return runs, [Row(f"a reader that stood still while {items:,} documents of {VALUE_BYTES} B were written: CPU of "
                      "the thread that sends, for each change in the queue", f"{text_of(ns, 0)} ns", "<= 150 ns",
                      ns["median"] <= 150)]


def zipf_rows(runs, items):
    persisted = {side: [run["persisted"] / run["writes"] for run in runs[side]] for side in runs}
    ratio = ratios(persisted["with"], persisted["without"])
    return [Row(f"zipfian updates of {items:,} documents: records persisted with one live stream over without",
                f"{text_of(ratio)}; without, {text_of(spread(persisted['without']))} per write", "<= 1.1",
                ratio["median"] <= 1.1)]


def redis_replica(options, directory, rounds):
    """The peer: the same number of SETs of redis-benchmark, without and with one replica."""
    if not all(shutil.which(tool) for tool in ("redis-server", "redis-benchmark")):
        return None, [Row("redis-server, SET with one replica over without", "not run: it is not installed")]
    items, operations = (10_000, 50_000) if options.quick else (1_000_000, 3_000_000)
    runs = {"without": [], "with": []}
    for number in range(rounds):
        progress(f"streams: redis, round {number + 1} of {rounds}")
        for side in in_turn(["without", "with"], number):
            with ExitStack() as stack:
                home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                redis = stack.enter_context(Redis(home))
                if side == "with":
                    stack.enter_context(replica_of(redis, home))
                cpu_s = redis.cpu_total_s()
                redis.run("set", operations, items, VALUE_BYTES)
                runs[side].append((redis.cpu_total_s() - cpu_s) * 1e9 / operations)
    ratio = ratios(runs["with"], runs["without"])
    return runs, [Row("redis-server, SET: server CPU with one replica over without",
                      f"{text_of(ratio)}: {text_of(spread(runs['with']), 0)} and "
                      f"{text_of(spread(runs['without']), 0)} ns", "reported")]


class replica_of:
    """A replica that has caught up, around a block."""

    def __init__(self, redis, home):
        self.redis = redis
        self.command = ["redis-server", "--port", str(free_port()), "--bind", "127.0.0.1", "--save", "", "--appendonly",
                        "no", "--dir", str(home), "--replicaof", "127.0.0.1", str(redis.port)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while "state=online" not in self.redis.info("replication").get("slave0", ""):
            if time.monotonic() > end:
                raise SystemExit("the replica does not come online")
            time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def latency(options, program, directory):
    """Light load: a thousand writes a second, one after the other."""
    with Server(options.binary, Path(directory) / "latency", "--workers", 1) as server:
        result = Reader(program, server, "latency", "--seconds", 1 if options.quick else 20).end()
    return result, [Row("acknowledgement of a write to its change at the consumer, 1,000 writes/s: p50 / p99",
                        f"{result['p50_us'] / 1000:.2f} / {result['p99_us'] / 1000:.2f} ms, "
                        f"{result['changes']:,} changes", "<= 1 / 5 ms",
                        result["p50_us"] <= 1000 and result["p99_us"] <= 5000)]


def idle(options, program, directory):
    """Connections with a stream of every vbucket and nothing to send."""
    streams, seconds = (5, 2) if options.quick else (IDLE_STREAMS, 30)
    with Server(options.binary, Path(directory) / "idle", "--workers", 1) as server:
        time.sleep(2)
        before_mib = server.resident_mib()
        with Following(program, server, streams) as following:
            # The last streams open, and figures are published.
            time.sleep(3)
            mib, cpu_s = server.resident_mib() - before_mib, server.cpu_s()
            open_streams = stat(server, ":total:activestream_count", b"dcpagg :")
            time.sleep(seconds)
            share = (server.cpu_s() - cpu_s) / seconds
        vbuckets = open_streams // streams
        if open_streams % streams or not vbuckets:
            raise SystemExit(f"{open_streams} streams of {streams} connections")
        if any(following.result["changes"]):
            raise SystemExit("idle streams had changes")
    return {"mib": mib, "cpu_share": share, "streams": open_streams}, [
        Row(f"{streams} idle connections with {vbuckets} vbuckets each: memory; CPU",
            f"{mib:.1f} MiB; {share:.2%} of a core", "<= 10 MiB; <= 0.5 %", mib <= 10 and share <= 0.005)]


def floor(program, items, rounds, *arguments):
    """Processor time of a program that only writes the bytes of changes to sockets, in ns for each change."""
    command = [program, "floor", "--changes", items, "--value-bytes", VALUE_BYTES, *arguments]
    runs = [subprocess.run([*map(str, command)], capture_output=True, text=True, check=True) for _ in range(rounds)]
    return spread([json.loads(run.stdout)["cpu_ns"] / items for run in runs])


def floors(program, items, rounds):
    """What the kernel takes of each figure."""
    found = {"one": floor(program, items, rounds, "--streams", 1),
             "ten": floor(program, items, rounds, "--streams", READERS),
             "live": floor(program, items, rounds, "--look", LIVE_LOOK, "--pause-us", LIVE_PAUSE_US)}
    return found, [
        Row(f"floor of the backfills: a program that writes the same bytes to 1 and to {READERS} sockets",
            f"{text_of(found['one'], 0)} and {text_of(found['ten'], 0)} ns of CPU for each document", "reported"),
        Row(f"floor of the live stream: the same for {LIVE_LOOK:,} changes at a time, {LIVE_PAUSE_US / 1000:.1f} ms apart",
            f"{text_of(found['live'], 0)} ns of CPU for each change", "reported"),
    ]


def cursors(options):
    """What streams cost under the lock of a vbucket's queue."""
    arguments = ["--items", 1, "--queued", 1000, "--rounds", 2 if options.quick else options.rounds or 9]
    samples = samples_of("checkpoint_queue", arguments, package="oribi-engine")
    figures = checkpoint.figures_of([sample for sample in samples if sample["measure"] == "streams"])
    if len(figures) != 3:
        raise SystemExit(f"{len(figures)} numbers of streams instead of 1, 10 and 100")
    return {f"{streams} streams": one for (_, _, streams), one in figures.items()}, checkpoint.stream_rows(figures)


def measure(options):
    program = build_reader()
    items = 20_000 if options.quick else 1_000_000
    rounds = options.rounds or (1 if options.quick else 5)
    figures, rows = {}, []
    with tempfile.TemporaryDirectory() as directory:
        figures["backfill"], found = backfills(options, program, directory, items, rounds)
        rows += found
        figures["live"] = live(options, program, directory, items, rounds)
        rows += live_rows(figures["live"], items)
        figures["held"], found = held(options, program, directory, items // 2, rounds)
        rows += found
        figures["zipf"] = live(options, program, directory, items, rounds, "zipf")
        rows += zipf_rows(figures["zipf"], items)
        for name, part in (("latency", latency), ("idle", idle)):
            progress(f"streams: {name}")
            figures[name], found = part(options, program, directory)
            rows += found
        figures["redis"], found = redis_replica(options, directory, rounds)
        rows += found
    progress("streams: floors")
    figures["floors"], found = floors(program, items, rounds)
    rows += found
    progress("streams: cursors")
    figures["cursors"], found = cursors(options)
    rows += found
    return Outcome(figures, rows)
