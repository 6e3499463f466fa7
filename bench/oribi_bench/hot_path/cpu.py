"""Server time per pipelined operation: half a kilobyte of a million documents, 32 bytes of four million."""

from ..kv_load import Load
from ..plot_bars import Bar, bar_chart
from ..report import Outcome, Row
from ..samples import ratios, text_of
from .comparison import compare
from .contender import PEER, chosen

CONNECTIONS = 50
BATCHES = (100, 1000)
# Bytes of a value, documents.
SHAPES = ((512, 1_000_000), (32, 4_000_000))
GOAL, GOAL_TEXT = 1 / 3, "<= 1/3 of memcached (stretch 1/4)"


def loads_of(value_bytes, items, options):
    items, duration_s = (items // 200, 0.3) if options.quick else (items, 2)
    return [Load(items, value_bytes, batch, connections=CONNECTIONS, duration_s=duration_s) for batch in BATCHES]


def measure(options):
    rounds = options.rounds or (2 if options.quick else 5)
    comparisons = [comparison for value_bytes, items in SHAPES
                   for comparison in compare(options, chosen(options), loads_of(value_bytes, items, options), rounds)]
    rows = [row for comparison in comparisons for row in rows_of(comparison)]
    return Outcome({"comparisons": [one.figures() for one in comparisons]}, rows, {"hot-path-cpu": plot_of(comparisons)})


def rows_of(comparison):
    """One row per contender: its ratio to memcached, then what it took."""
    rows = []
    for contender in comparison.contenders:
        name = contender.name
        measured = (f"{comparison.cpu_text(name)}; {comparison.spread(name, 'operations_per_second')['median'] / 1e6:.2f} "
                    f"M op/s, client {comparison.spread(name, 'client_ns')['median']:.0f} ns")
        what = f"server CPU per operation, {comparison.load}: {contender.label}"
        if contender == PEER or not comparison.has_peer():
            rows.append(Row(what, measured))
            continue
        whole, worker = comparison.ratio(name, "server_ns"), worker_ratio(comparison, name)
        rows.append(Row(f"{what} over memcached", f"{text_of(whole)} (worker threads alone {text_of(worker)}); {measured}",
                        GOAL_TEXT, whole["median"] <= GOAL))
    return rows


def worker_ratio(comparison, name):
    return ratios(comparison.kind_samples(name, "worker"), comparison.kind_samples(PEER.name, "worker"))


def plot_of(comparisons):
    groups = []
    for comparison in comparisons:
        bars = []
        for contender in comparison.contenders:
            figure = comparison.spread(contender.name, "server_ns")
            bars.append(Bar(contender.label, comparison.kind_medians(contender.name), figure["min"], figure["max"]))
        groups.append((str(comparison.load), bars))
    return bar_chart("Server CPU per pipelined operation", "ns", groups,
                     "medians by kind of thread; the line goes from the smallest to the largest whole")
