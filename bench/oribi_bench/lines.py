"""Samples of a run as the lines of the table in docs/benchmarks.md.

A line names the figure, its goal, the result with its spread, the peer measured in the same rounds, and what
bounds the figure. Everything but the last is computed from the samples.
"""

from dataclasses import dataclass

from .backup import rows_of as backup_rows
from .cache import TOLERANCE, Case
from .hot_path import sharing
from .hot_path.text import command_of
from .samples import ratios, spread, text_of, text_of_bytes
from .sql import GOALS as SQL_GOALS
from .sql import p99_ratio
from .streams import STREAMING_THREADS, extra_ns


@dataclass
class Line:
    """One row of the table."""

    measure: str
    figure: str
    result: str
    bound: str
    goal: str = ""
    peer: str = ""
    # None where there is no goal.
    met: bool | None = None

    def cells(self):
        return [self.figure, self.peer, self.result, f"`bench/run --only {self.measure}`"]


def column(runs, name):
    return [run[name] for run in runs]


def ratio_of(runs, ours, theirs, name):
    return ratios(column(runs[ours], name), column(runs[theirs], name))


def median_of(runs, name, unit=1):
    return spread(column(runs, name))["median"] / unit


def cpu(figures):
    bound = "memory: the first touch of an item's cache lines; then receive and send in the kernel"
    for one in figures["comparisons"]:
        load, runs = one["load"], one["runs"]
        figure = f"server CPU per operation, {load['value_bytes']} B, batch {load['batch']}, {load['set_pct']} % sets"
        ratio = ratio_of(runs, "oribi-memory", "memcached", "server_ns")
        result = f"{text_of(ratio)} of memcached, {median_of(runs['oribi-memory'], 'server_ns'):.0f} ns"
        if "oribi-log" in runs:
            log = ratio_of(runs, "oribi-log", "memcached", "server_ns")
            result += f"; log store {text_of(log)}"
        peer = f"memcached, {median_of(runs['memcached'], 'server_ns'):.0f} ns"
        yield Line("cpu", figure, result, bound, "<= 1/3", peer, ratio["median"] <= 1 / 3)


def workers(figures):
    for one in figures["sharing"].values():
        samples, set_pct = one["samples"], one["set_pct"]
        ratio, goal = sharing.overhead(samples["oribi-memory"]), sharing.GOALS.get(set_pct)
        peer = f"memcached, {text_of(sharing.overhead(samples['memcached']))}" if "memcached" in samples else ""
        yield Line("workers", f"server CPU per operation, 32 B, {one['pattern']}, {set_pct} % sets: 2 workers over 2 servers",
                   f"{text_of(ratio)}, {sharing.median_ns(samples['oribi-memory'], sharing.ONE_SERVER):.0f} ns",
                   "cache lines that both workers write: of a GET none, of a SET those of its vbucket",
                   f"<= {goal}" if goal else "reported", peer, ratio["median"] <= goal if goal else None)


def redis(figures):
    runs, load = figures["runs"], figures["load"]
    ratio = ratio_of(runs, "oribi", "redis", "server_ns")
    yield Line("redis", f"server CPU per operation, {load['value_bytes']} B, batch {load['batch']}, {load['set_pct']} % sets",
               f"{text_of(ratio)} of Redis, {median_of(runs['oribi'], 'server_ns'):.0f} ns",
               "as above; each side is driven by its own load generator", "reported",
               f"{figures['version']}, {median_of(runs['redis'], 'server_ns'):.0f} ns")


def sizes(figures):
    for size, one in figures["by_size"].items():
        ratio = ratio_of(one["runs"], "oribi-memory", "memcached", "server_ns")
        peer = f"memcached, {median_of(one['runs']['memcached'], 'server_ns', 1000):.1f} µs"
        yield Line("sizes", f"server CPU per operation, {text_of_bytes(int(size))}, 50 % sets",
                   f"{text_of(ratio)} of memcached, {median_of(one['runs']['oribi-memory'], 'server_ns', 1000):.1f} µs",
                   "copies in the kernel, from 64 KiB on nine tenths of the time", "< 1", peer, ratio["median"] < 1)


def unpipelined(figures):
    bound = "one poll, receive and send per request, on both sides"
    for connections, one in figures.items():
        closed, opened = one["closed_loop"]["runs"], one["open_loop"]["runs"]
        name = f"one operation per round trip, {connections} connection{'s' * (connections != '1')}"
        peer = f"memcached, {median_of(closed['memcached'], 'operations_per_second', 1000):.0f} k/s"
        speed = ratio_of(closed, "oribi-memory", "memcached", "operations_per_second")
        yield Line("unpipelined", f"{name}: throughput", f"{text_of(speed)} of memcached", bound, ">= 1", peer,
                   speed["median"] >= 0.95)
        p99, open_p99 = (ratio_of(runs, "oribi-memory", "memcached", "p99_us") for runs in (closed, opened))
        yield Line("unpipelined", f"{name}: p99, closed loop; open loop",
                   f"{p99['median']:.2f}; {open_p99['median']:.2f} of memcached",
                   "stalls of the host, which both sides meet at random", "<= 1",
                   f"memcached, {median_of(closed['memcached'], 'p99_us'):.0f}; {median_of(opened['memcached'], 'p99_us'):.0f} µs",
                   max(p99["median"], open_p99["median"]) <= 1.05)


def text(figures):
    bound = "as in the binary protocol, and reading lines"
    for one in figures["pipelined"]:
        load, runs = one["load"], one["runs"]
        ratio = ratio_of(runs, "oribi-memory", "memcached", "server_ns")
        yield Line("text", f"text protocol, server CPU per operation, {command_of(load)}, {load['value_bytes']} B, batch {load['batch']}",
                   f"{text_of(ratio)} of memcached, {median_of(runs['oribi-memory'], 'server_ns'):.0f} ns", bound, "<= 1/3",
                   f"memcached, {median_of(runs['memcached'], 'server_ns'):.0f} ns", ratio["median"] <= 1 / 3)
    for one in figures["unpipelined"]:
        load, runs = one["load"], one["runs"]
        speed = ratio_of(runs, "oribi-memory", "memcached", "operations_per_second")
        connections = f"{load['connections']} connection{'s' * (load['connections'] > 1)}"
        yield Line("text", f"text protocol, one {command_of(load)} per round trip, {connections}: throughput",
                   f"{text_of(speed)} of memcached", "one poll, receive and send per request, on both sides", ">= 1",
                   f"memcached, {median_of(runs['memcached'], 'operations_per_second', 1000):.0f} k/s", speed["median"] >= 0.95)


def cache(figures):
    for run in figures["runs"]:
        found, case = run["found"], Case(**{name: value for name, value in run["case"].items() if name != "items"})
        oribi, peer = found["oribi"], found["memcached"]
        yield Line("cache", f"cache of {case}: hit ratio",
                   f"{oribi['hit_ratio']:.4f} with {oribi['documents']:,} documents; {oribi['peak_resident_mib']:.0f} MiB resident at most",
                   "which documents stay", ">= memcached", f"memcached, {peer['hit_ratio']:.4f} with {peer['documents']:,} documents; {peer['peak_resident_mib']:.0f} MiB",
                   oribi["hit_ratio"] >= peer["hit_ratio"] - TOLERANCE)


def streams(figures):
    one, ten = ([run["cpu_s"] for run in figures["backfill"][streams]] for streams in ("1", "10"))
    rate = spread([run["items"] / run["cpu_s"] / 1e6 for run in figures["backfill"]["1"]])
    items = figures["backfill"]["1"][0]["items"]
    yield Line("streams", f"change streams: backfill of {items:,} documents of 512 B from the log, one reader",
               f"{text_of(rate)} M items per second of server CPU", "reading and checking the log, then framing and the copy into the socket",
               ">= 1.5 M", met=rate["median"] >= 1.5)
    shared, floors = ratios(ten, one), figures["floors"]
    yield Line("streams", "the same, ten readers at once over one: server CPU", text_of(shared),
               "the kernel's copy into ten sockets; the scan is shared, and so are its messages", "<= 2",
               f"a program that only writes the same bytes to ten sockets, over one reader's backfill, "
               f"{floors['ten']['median'] * rate['median'] / 1000:.2f}", shared["median"] <= 2)
    per_write = {side: [run["cpu_s"] / run["writes"] for run in runs] for side, runs in figures["live"].items()}
    redis = figures["redis"]
    more = ratios(per_write["with"], per_write["without"])
    yield Line("streams", "SET of 512 B, with one live stream over without: server CPU", text_of(more),
               "framing and the copy into the socket, in turns between those of writers", "<= 1.15",
               f"Redis with one replica, {text_of(ratios(redis['with'], redis['without']))}" if redis else "", more["median"] <= 1.15)
    extra = extra_ns(figures["live"], STREAMING_THREADS)
    yield Line("streams", "the same, for each streamed mutation: the thread that sends", f"{text_of(extra, 0)} ns", "the kernel's send, then framing and cold items",
               "<= 150 ns", f"a program that only writes the same bytes, {text_of(floors['live'], 0)} ns", extra["median"] <= 150)
    persisted = {side: [run["persisted"] / run["writes"] for run in runs] for side, runs in figures["zipf"].items()}
    more = ratios(persisted["with"], persisted["without"])
    yield Line("streams", "zipfian updates, with one live stream over without: records persisted", text_of(more),
               "the reader's snapshots, over which the flusher still coalesces", "<= 1.1", met=more["median"] <= 1.1)
    late, idle = figures["latency"], figures["idle"]
    yield Line("streams", "acknowledgement of a write to its change at the consumer, p50; p99",
               f"{late['p50_us'] / 1000:.2f}; {late['p99_us'] / 1000:.2f} ms", "one wake-up", "<= 1; 5 ms",
               met=late["p50_us"] <= 1000 and late["p99_us"] <= 5000)
    yield Line("streams", f"idle consumers with {idle['streams']:,} streams in all: memory; CPU",
               f"{idle['mib']:.1f} MiB; {idle['cpu_share']:.2%} of a core", "a cursor and a stream per vbucket", "<= 10 MiB; 0.5 %",
               met=idle["mib"] <= 10 and idle["cpu_share"] <= 0.005)


def backup(figures):
    bounds = ["compressing, then what a backfill costs the server", "the checksum of each file, and a copy",
              "finding repetitions in short fields", "asking each vbucket where it is",
              "the writes themselves, and persisting them", "the host's faults, for memory that the machine had given back",
              "one worker, and two cores for all", "zstd level 1 in blocks of 512 KiB",
              "two segments of each job"]
    for row, bound in zip(backup_rows(figures), bounds, strict=True):
        yield Line("backup", row.what, row.measured, bound, row.goal, met=row.met)


def sql(figures):
    cpu_s, client_s, server_s = (spread(column(figures["scans"], name)) for name in ("cpu_s", "client_s", "server_s"))
    yield Line("sql", f"SQL: scan of {figures['documents']:,} JSON documents of {figures['value_bytes']} B by a field, CPU of client and server",
               f"{text_of(cpu_s)} s; the client {client_s['median']:.2f}, the server {server_s['median']:.2f}",
               "copies into and out of the socket, and SQLite's step from row to row", f"<= {SQL_GOALS['scan_s']} s",
               met=cpu_s["median"] <= SQL_GOALS["scan_s"])
    p99 = p99_ratio(figures)
    yield Line("sql", "the same: p99 of other clients' GETs meanwhile, over quiet", text_of(p99, 1),
               "the scheduler: a scan's thread has a low priority", f"<= {SQL_GOALS['p99']}", met=p99["median"] <= SQL_GOALS["p99"])
    tool, http_ms = spread(figures["tool_ms"]), spread(figures["http_ms"])
    yield Line("sql", "SQL: look-up of a key, statement of `oribi sql`; over HTTP", f"{text_of(tool, 3)}; {text_of(http_ms, 3)} ms",
               "a round trip; over HTTP a thread and a new database", f"<= {SQL_GOALS['look_up_ms']} ms",
               met=max(tool["median"], http_ms["median"]) <= SQL_GOALS["look_up_ms"])


def callgrind(figures):
    names = {"get_512": "GET 512 B", "get_32": "GET 32 B", "get_miss": "GET that misses", "set_512": "SET 512 B",
             "set_32": "SET 32 B", "noop": "NOOP"}
    found = figures["record"]["instructions"]
    before = (figures.get("last_record") or {}).get("instructions", {})
    texts = [f"{what} {found[name]:.0f}" + (f" ({found[name] / before[name] - 1:+.1%})" if name in before else "")
             for name, what in names.items()]
    peer = f"the record, {figures['last_record']['commit']}" if before else ""
    worse = [name for name in names if name in before and found[name] > before[name] * 1.01]
    yield Line("callgrind", "instructions per operation, and change", ", ".join(texts),
               "code alone; a count repeats within 4 instructions", "no more than recorded", peer, not worse)


def start(figures):
    ready = figures["ready_ms"]
    yield Line("start", "ready to serve, empty directory", f"{text_of(ready, 1)} ms",
               "the disk: a new data directory is synced before the server is ready", "<= 50 ms", "",
               ready["median"] <= 50)


def idle(figures):
    yield Line("idle", "resident memory, idle for 2 s", f"{text_of(figures['resident_mib'], 1)} MiB",
               "code and thread stacks", "<= 20 MB", "", figures["resident_mib"]["median"] <= 19)


def connections(figures):
    yield Line("connections", f"memory of {figures['connections']:,} idle, authenticated connections",
               f"{figures['kib_per_connection']:.2f} KiB each", "state of the connection; an idle one holds no buffer")


def warmup(figures):
    rate = spread([run["items_per_s"] / 1000 for run in figures["runs"]])
    ready_ms = median_of(figures["runs"], "ready_s", 0.001)
    yield Line("warmup", f"warmup of {figures['documents']:,} documents of {figures['value_bytes']} B, process start included",
               f"{text_of(rate, 0)} k items/s; serves after {ready_ms:.0f} ms", "reading the log, fresh memory and its copy")
    yield Line("warmup", "orderly stop right after loading them", f"{figures['stop_s']:.2f} s", "the last flush and its sync")


def flush_rate(figures):
    for size in ("512 log", "32 log") if "insert 512 log" in figures else ("512", "32"):
        taken = {what: figures[f"{what} {size}"] for what in ("insert", "overwrite", "open", "load")}
        value = size.split()[0]
        new, over = (taken[what]["cpu_ns_per_item"] for what in ("insert", "overwrite"))
        rate = 1e6 / taken["insert"]["wall_ns_per_item"]["median"]
        yield Line("flush-rate", f"persisting a document of {value} B: new; overwritten",
                   f"{text_of(new, 0)}; {text_of(over, 0)} ns of CPU; {rate:.0f} k items/s",
                   "a copy into the write buffer, the kernel's copy, the checksum")
        wall = [sum(pair) for pair in zip(*(taken[what]["wall_ns_per_item"]["samples"] for what in ("open", "load")))]
        rates = spread([1e3 / ns for ns in wall])
        yield Line("flush-rate", f"opening the store and loading {value} B by one thread", f"{text_of(rates)} M items/s",
                   "fresh memory and the kernel's copy", ">= 1 M items/s", "", rates["median"] >= 1)


def checkpoint(figures):
    expel = {name: one for name, one in figures["by_items"].items() if name.startswith("expel")}
    held = [one["hold_ns"]["median"] for one in expel.values()]
    most = max(int(name.split()[-1]) for name in expel)
    yield Line("checkpoint", f"queue lock held to take N items out, N = 1 to {most:,}",
               f"{min(held) / 1000:.2f} to {max(held) / 1000:.2f} µs",
               "a move of references; items are freed without the lock", "<= 5 µs",
               "published elsewhere for 10,000: 3.29 ms, later 1.37 ms", max(held) <= 5000)
    queued = [one["ns"]["median"] for name, one in figures["by_items"].items() if name.startswith("enqueue")]
    yield Line("checkpoint", "queueing a hot key's new version", f"{min(queued):.0f} to {max(queued):.0f} ns",
               "cache misses, whatever the length of the queue", "<= 150 ns", "", max(queued) <= 150)


def pressure(figures):
    for run in figures["runs"]:
        case = run["case"]
        if case["storage"] != "log":
            continue
        size = f"{case['min_bytes']} B" if case["min_bytes"] == case["max_bytes"] else f"{case['min_bytes']} to {case['max_bytes']} B"
        sound = run["misses"] == 0 and run["peak_resident_mib"] <= run["resident_bound_mib"]
        yield Line("pressure", f"data of 3 x the quota ({case['quota_mib']} MiB), zipf 0.99, {size}, {case['eviction']} eviction",
                   f"{run['misses']} failed reads; hits {run['hit_ratio']:.3f}; p99 {run['latency_us']['p99'] / 1000:.1f} ms; "
                   f"{run['peak_resident_mib']:.0f} MiB resident",
                   "which documents stay: an ideal cache knows every frequency beforehand",
                   f"0 failed, <= {run['resident_bound_mib']:.0f} MiB", f"ideal LFU, hits {run['ideal_hit_ratio']:.3f}", sound)


def subdoc(figures):
    size = max((name for name in figures if name.startswith("get at the first")), key=lambda name: int(name.split()[-2]))
    size = size.split(" of ")[1]
    for work in ("get", "counter"):
        found = [figures[f"{work} at the {place} of {size}"] for place in ("first", "middle", "last")]
        cheaper = [ratios(one["tree_ns"]["samples"], one["span_ns"]["samples"])["median"] for one in found]
        yield Line("subdoc", f"sub-document {work} at the beginning, middle and end of {size}",
                   ", ".join(f"{one:.0f}" for one in cheaper) + " times cheaper",
                   "scanning the bytes before the path", ">= 5 times", "parse, edit and print a tree", min(cheaper) >= 5)
    speeds = {name: one["gigabytes_per_s"]["median"] for name, one in figures.items() if "gigabytes_per_s" in one}
    over = [one["over_serde_json"]["median"] for one in figures.values() if "over_serde_json" in one]
    yield Line("subdoc", "deciding whether a value is JSON",
               ", ".join(f"{name} {speed:.2f}" for name, speed in speeds.items()) + " GB/s",
               "validating UTF-8, which ASCII skips", ">= 1 GB/s", f"serde_json: {min(over):.1f} to {max(over):.1f} times its speed",
               min(speeds.values()) >= 1)


def kudu_loadgen(figures):
    [load] = [name for name in figures["runs"] if name.startswith("2 threads")]
    runs = figures["runs"][load]
    per_row = {client: [run["cpu_s"] / run["rows"] * 1e6 for run in runs[client]] for client in ("oribi", "C++")}
    rates = {client: [run["rows"] / run["seconds"] / 1000 for run in runs[client]] for client in ("oribi", "C++")}
    cost, speed = ratios(per_row["oribi"], per_row["C++"]), ratios(rates["oribi"], rates["C++"])
    yield Line("kudu-loadgen", f"Kudu, loadgen, {load}: client CPU per row",
               f"{text_of(cost)} of the C++ client, {spread(per_row['oribi'])['median']:.3f} µs",
               "encoding rows and the kernel's send", "<= 1/3", f"C++, {spread(per_row['C++'])['median']:.3f} µs",
               cost["median"] <= 1 / 3)
    yield Line("kudu-loadgen", "the same, rows per second",
               f"{text_of(speed)} of the C++ client, {spread(rates['oribi'])['median']:.0f} k/s",
               "the tablet server, on the same two cores", ">= 1.2", f"C++, {spread(rates['C++'])['median']:.0f} k/s",
               speed["median"] >= 1.2)
    memory = {client: spread(samples)["median"] for client, samples in figures["bytes_per_buffered_row_beyond_its_own"].items()}
    yield Line("kudu-loadgen", "client memory per buffered row beyond its 63 bytes", f"{memory['oribi']:.0f} B",
               "rows are encoded into the buffer that is sent", "<= 16 B", f"C++, {memory['C++']:.0f} B", memory["oribi"] <= 16)


# In the order of the table.
LINES = {"cpu": cpu, "workers": workers, "redis": redis, "sizes": sizes, "unpipelined": unpipelined, "text": text, "cache": cache, "sql": sql, "streams": streams,
         "backup": backup,
         "callgrind": callgrind, "start": start,
         "idle": idle, "connections": connections, "warmup": warmup, "flush-rate": flush_rate, "checkpoint": checkpoint,
         "pressure": pressure, "subdoc": subdoc, "kudu-loadgen": kudu_loadgen}


def lines_of(figures):
    """Of all measures that there are figures of."""
    return [line for measure, make in LINES.items() if measure in figures for line in make(figures[measure])]
