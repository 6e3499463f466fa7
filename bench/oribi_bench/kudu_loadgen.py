"""Writing into Kudu: `oribi perf loadgen` and `kudu perf loadgen` against the same cluster, in turn.

Both write the same rows. After each run the C++ tool counts them and sums up the checksums of the tablets, which
have to be the same for both clients. Then the table is dropped, and the next run waits until the servers are quiet.
"""

import shutil
import tempfile
from dataclasses import dataclass

from .kudu_client import CLIENTS, CPP, ORIBI, drop, loadgen, verify
from .kudu_server import KuduCluster
from .plot import Series, line_chart
from .report import Outcome, Row
from .samples import ratios, spread, text_of

# Bytes of a row of the created table as both clients count it: operation, bitmaps, cells, text.
ROW_BYTES = 63
# Rows that are held back until the end, twice; memory per row is the difference.
# Both need more memory than the interpreter that starts the client, which the kernel counts as the least.
BUFFERED_ROWS = (800_000, 2_400_000)
DISK_BYTES_80M = 40 << 30


@dataclass(frozen=True)
class Load:
    """What one run writes."""

    threads: int
    rows_per_thread: int
    further: tuple = ()

    def arguments(self):
        return {"num_threads": self.threads, "num_rows_per_thread": self.rows_per_thread, **dict(self.further)}

    def __str__(self):
        return f"{self.threads} thread{'s' * (self.threads > 1)} of {self.rows_per_thread:,} rows"


def run_once(client, cluster, binary, load, is_quick):
    if not is_quick:
        cluster.wait_quiet()
    before = cluster.cpu_s()
    run = loadgen(client, cluster, binary, load.arguments())
    run["server_cpu_s"] = cluster.cpu_s() - before
    run["checksum"] = verify(cluster, run["table"], load.threads * load.rows_per_thread)
    drop(cluster, run["table"])
    return run


def compare(cluster, options, load, rounds):
    """Rounds of both clients; who goes first changes with each round. Runs by client."""
    runs = {client: [] for client in CLIENTS}
    for number in range(rounds):
        for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
            runs[client].append(run_once(client, cluster, options.binary, load, options.quick))
        checksums = {runs[client][-1]["checksum"] for client in CLIENTS}
        if len(checksums) > 1:
            raise SystemExit(f"{load}: the two clients did not write the same rows: {checksums}")
    return runs


def figures_of(runs):
    """What is compared, sample by sample, by client."""
    return {client: {
        "client_cpu_us_per_row": [run["cpu_s"] * 1e6 / run["rows"] for run in runs[client]],
        "server_cpu_us_per_row": [run["server_cpu_s"] * 1e6 / run["rows"] for run in runs[client]],
        "rows_per_second": [run["rows"] / run["seconds"] for run in runs[client]],
        "rss_mib_max": [run["rss_kib_max"] / 1024 for run in runs[client]],
    } for client in CLIENTS}


def ratio_of(figures, name):
    return ratios(figures[ORIBI][name], figures[CPP][name])


def rows_of(load, figures):
    def pair(name, digits, unit, scale=1.0):
        return ", ".join(f"{client} {text_of(spread([one * scale for one in figures[client][name]]), digits)}"
                         for client in CLIENTS) + f" {unit}"

    cpu, rate = ratio_of(figures, "client_cpu_us_per_row"), ratio_of(figures, "rows_per_second")
    is_goal = load.threads == 2
    return [
        Row(f"loadgen, {load}: client CPU per row", f"{pair('client_cpu_us_per_row', 3, 'µs')}; ratio {text_of(cpu)}",
            "ratio <= 0.33" if is_goal else "", cpu["median"] <= 1 / 3 if is_goal else None),
        Row("the same, rows per second", f"{pair('rows_per_second', 0, 'k/s', 1e-3)}; ratio {text_of(rate)}",
            "ratio >= 1.2" if is_goal else "", rate["median"] >= 1.2 if is_goal else None),
        Row("the same, server CPU per row", pair("server_cpu_us_per_row", 2, "µs")),
    ]


def buffered_memory(cluster, options, rounds):
    """Bytes of resident memory per row that is held back until the end, its own bytes left out, by client."""
    few, many = (count // 20 if options.quick else count for count in BUFFERED_ROWS)
    samples = {client: [] for client in CLIENTS}
    for _ in range(rounds):
        for client in CLIENTS:
            kib = []
            for rows in (few, many):
                held_back = (("flush_per_n_rows", rows + 1), ("buffer_size_bytes", 1 << 28))
                load = Load(1, rows, held_back)
                kib.append(run_once(client, cluster, options.binary, load, options.quick)["rss_kib_max"])
            samples[client].append((kib[1] - kib[0]) * 1024 / (many - few) - ROW_BYTES)
    return samples


def measure(options):
    rows = 20_000 if options.quick else 2_000_000
    rounds = options.rounds or (2 if options.quick else 7)
    loads = [Load(threads, rows // threads) for threads in ((2,) if options.quick else (1, 2, 4, 8))]
    all_figures, table_rows, raw = {}, [], {}
    with KuduCluster() as cluster:
        # The first load of a fresh cluster pays one-time costs.
        run_once(ORIBI, cluster, options.binary, Load(2, 1000), options.quick)
        for load in loads:
            raw[str(load)] = compare(cluster, options, load, rounds)
            all_figures[load.threads] = figures_of(raw[str(load)])
            table_rows += rows_of(load, all_figures[load.threads])
        memory = buffered_memory(cluster, options, min(rounds, 3))
    found = {client: spread(memory[client]) for client in CLIENTS}
    texts = ", ".join(f"{client} {text_of(found[client], 0)}" for client in CLIENTS)
    table_rows.append(Row("client memory per buffered row beyond its 63 bytes", f"{texts} B", "<= 16 B",
                          found[ORIBI]["median"] <= 16))
    plots = {} if options.quick else plots_of(all_figures)
    return Outcome({"runs": raw, "bytes_per_buffered_row_beyond_its_own": memory}, table_rows, plots)


def plots_of(all_figures):
    def chart(title, label, name):
        series = [Series(client, [(threads, spread(figures[client][name]))
                                  for threads, figures in all_figures.items()]) for client in CLIENTS]
        return line_chart(title, "threads of the client", label, series, str)

    return {"kudu-loadgen-cpu": chart("loadgen: client CPU per row", "µs", "client_cpu_us_per_row"),
            "kudu-loadgen-rate": chart("loadgen: rows per second", "rows/s", "rows_per_second")}


def measure_80m(options):
    """The published result's size: 80 million rows, 8 threads. Tens of minutes and tens of gigabytes."""
    rows = 10_000 if options.quick else 10_000_000
    if not options.quick and shutil.disk_usage(tempfile.gettempdir()).free < DISK_BYTES_80M:
        raise SystemExit(f"{tempfile.gettempdir()} needs {DISK_BYTES_80M >> 30} GiB of room")
    load = Load(8, rows)
    with KuduCluster() as cluster:
        runs = compare(cluster, options, load, options.rounds or 1)
    figures = figures_of(runs)
    return Outcome({"runs": runs}, rows_of(load, figures))
