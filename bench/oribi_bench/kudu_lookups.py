"""Reading from Kudu: point lookups, and scans of a whole table, beside the C++ tool.

The C++ client has no lookup and its tool none either: what it has is a scan with a predicate on the key, one process
for each. So lookups are compared with what that scan takes once it runs, which it prints itself, in turn on the same
table.
"""

import json
import random
import subprocess

from .kudu_client import CLIENTS, CPP, ORIBI, drop, found, loadgen, run_measured
from .kudu_server import KuduCluster
from .plot import Series, line_chart
from .report import ROOT, Outcome, Row
from .samples import ratios, spread, text_of

IN_FLIGHT = (1, 4, 16, 64)


def scan(client, cluster, binary, table, rows, counts_only):
    """Scans all rows; seconds as the tool itself reports them, and what the process took."""
    flags = ["-row_count_only"] if counts_only else []
    if client == ORIBI:
        flags = ["--json", *["--row-count-only" for _ in flags]]
        output, usage = run_measured([binary, "perf", "table-scan", cluster.masters, table, *flags])
        report = json.loads(output)
        count, seconds = report["rows"], report["seconds"]
    else:
        command = cluster.tool_command("perf", "table_scan", cluster.masters, table, *flags)
        output, usage = run_measured(command, cluster.environment())
        count, seconds = int(found(r"Total count (\d+)", output)), float(found(r"cost (\S+) seconds", output))
    if count != rows:
        raise SystemExit(f"{client} found {count} rows instead of {rows}")
    return {"client": client, "rows": count, "seconds": seconds, **usage}


def scans(cluster, options, table, rows, rounds, counts_only):
    runs = {client: [] for client in CLIENTS}
    for number in range(rounds):
        for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
            runs[client].append(scan(client, cluster, options.binary, table, rows, counts_only))
    return runs


def scan_rows(runs, what):
    rate = {client: [run["rows"] / run["seconds"] for run in runs[client]] for client in CLIENTS}
    cpu = {client: [run["cpu_s"] * 1e6 / run["rows"] for run in runs[client]] for client in CLIENTS}
    rates = ", ".join(f"{client} {text_of(spread([one / 1e6 for one in rate[client]]))}" for client in CLIENTS)
    cpus = ", ".join(f"{client} {text_of(spread(cpu[client]), 3)}" for client in CLIENTS)
    ratio = ratios(rate[ORIBI], rate[CPP])
    return [Row(f"{what}: rows per second", f"{rates} M/s; ratio {text_of(ratio)}", "ratio > 1", ratio["median"] > 1),
            Row("the same, client CPU per row", f"{cpus} µs")]


def lookups(cluster, table, rows, count, in_flight):
    """Lookups of keys that exist, chosen at random, by the bench program of the crate."""
    command = ["cargo", "bench", "--quiet", "--locked", "-p", "oribi-kudu", "--bench", "lookups", "--",
               "--masters", cluster.masters, "--table", table, "--keys", str(rows), "--lookups", str(count),
               "--in-flight", str(in_flight)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
    return json.loads(done.stdout)


def tool_lookup_seconds(cluster, table, key):
    """One lookup by the C++ tool: the seconds of the scan as it prints them, the start of the process left out."""
    predicates = json.dumps(["AND", ["=", "key", key]])
    output = cluster.tool("table", "scan", cluster.masters, table, f"-predicates={predicates}")
    if int(found(r"Total count (\d+)", output)) != 1:
        raise SystemExit(f"the tool did not find key {key}")
    return float(found(r"cost (\S+) seconds", output))


def measure(options):
    rows = 20_000 if options.quick else 4_000_000
    count = 500 if options.quick else 10_000
    rounds = options.rounds or (2 if options.quick else 7)
    chance = random.Random(1)
    with KuduCluster() as cluster:
        table = loadgen(CPP, cluster, options.binary, {"num_threads": 2, "num_rows_per_thread": rows // 2})["table"]
        if not options.quick:
            cluster.wait_quiet()
        full = scans(cluster, options, table, rows, rounds, counts_only=False)
        counted = scans(cluster, options, table, rows, rounds, counts_only=True)
        found_by_tool, looked_up = [], {in_flight: [] for in_flight in IN_FLIGHT}
        for _ in range(rounds):
            found_by_tool.append(tool_lookup_seconds(cluster, table, chance.randrange(rows)))
            for in_flight in IN_FLIGHT:
                looked_up[in_flight].append(lookups(cluster, table, rows, count, in_flight))
        drop(cluster, table)
    rate = {in_flight: [one["lookups"] / one["seconds"] for one in runs] for in_flight, runs in looked_up.items()}
    table_rows = scan_rows(full, f"scanning {rows:,} rows") + scan_rows(counted, "counting them")
    table_rows += [Row(f"point lookups, {in_flight} in flight", f"{text_of(spread(samples), 0)} /s; client CPU "
                       f"{text_of(spread([one['cpu_us_per_lookup'] for one in looked_up[in_flight]]), 1)} µs each")
                   for in_flight, samples in rate.items()]
    by_tool = spread([1 / seconds for seconds in found_by_tool])
    table_rows.append(Row("the same with `kudu table scan` and a predicate on the key, its start not counted",
                          f"{text_of(by_tool, 0)} /s"))
    figures = {"scans": full, "counts": counted, "lookups": looked_up, "tool_lookup_seconds": found_by_tool}
    points = [(in_flight, spread(samples)) for in_flight, samples in rate.items()]
    chart = line_chart("Point lookups", "lookups in flight", "lookups/s", [Series(ORIBI, points)], str)
    return Outcome(figures, table_rows, {} if options.quick else {"kudu-lookups": chart})
