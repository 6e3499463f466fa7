"""Large values: 4 KiB to 20 MiB, half of the operations writes."""

from ..kv_load import Load
from ..plot import Series, line_chart
from ..report import Outcome, Row
from ..samples import spread, text_of, text_of_bytes
from .comparison import compare
from .contender import MEMCACHED_ITEM_MAX, PEER, chosen

SIZES = (4 << 10, 64 << 10, 1 << 20, 20 << 20)
SET_PCT = 50
CONNECTIONS = 4
# Values of each size together, and what one run moves in both directions.
STORED_BYTES, MOVED_BYTES = 512 << 20, 2 << 30
# Most bytes that a connection has in flight; at most a hundred operations.
BATCH_BYTES = 1 << 20
MEMORY_MIB = 6144
NOTE = f"memcached with -I {MEMCACHED_ITEM_MAX} (at most 1024m); by default it refuses 1 MiB and more"


def load_of(size, options):
    stored, moved = (STORED_BYTES, MOVED_BYTES) if not options.quick else (4 * size, 16 * size)
    batch = max(1, min(100, BATCH_BYTES // size))
    cycles = max(2, moved // (size * batch * CONNECTIONS))
    return Load(max(4, stored // size), size, batch, SET_PCT, connections=CONNECTIONS, cycles=cycles)


def measure(options):
    rounds = options.rounds or (2 if options.quick else 4)
    comparisons = {}
    for size in SIZES:
        [comparisons[size]] = compare(options, chosen(options), [load_of(size, options)], rounds, MEMORY_MIB)
    rows = [row for size, comparison in comparisons.items() for row in rows_of(size, comparison)]
    figures = {size: comparison.figures() for size, comparison in comparisons.items()}
    return Outcome({"note": NOTE, "by_size": figures}, rows, {"hot-path-sizes": plot_of(comparisons)})


def rows_of(size, comparison):
    rows = []
    for contender in comparison.contenders:
        name = contender.name
        cpu = comparison.spread(name, "server_ns")
        parts = ", ".join(f"{kind} {ns / 1000:.1f}" for kind, ns in comparison.kind_medians(name).items())
        measured = (f"{cpu['median'] / 1000:.1f} ({cpu['min'] / 1000:.1f} to {cpu['max'] / 1000:.1f}) µs: {parts}; "
                    f"{comparison.spread(name, 'megabytes_per_second')['median']:.0f} MB/s")
        what = f"server CPU per operation, {text_of_bytes(size)} values, {SET_PCT} % sets: {contender.label}"
        if contender == PEER or not comparison.has_peer():
            rows.append(Row(what, measured))
            continue
        ratio = comparison.ratio(name, "server_ns")
        speed = comparison.ratio(name, "megabytes_per_second")
        rows.append(Row(f"{what} over memcached", f"{text_of(ratio)}; throughput {text_of(speed)} times; {measured}",
                        "better than memcached", ratio["median"] < 1))
    return rows


def plot_of(comparisons):
    first = next(iter(comparisons.values()))
    series = []
    for contender in first.contenders:
        points = [(size, spread([ns / 1000 for ns in comparison.samples(contender.name, "server_ns")]))
                  for size, comparison in comparisons.items()]
        series.append(Series(contender.label, points))
    return line_chart("Server CPU per operation by value size, half of them writes", "value", "µs per operation",
                      series, text_of_bytes, [NOTE], legend_left=True)
