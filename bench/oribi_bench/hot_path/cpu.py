"""Server time per pipelined operation: half a kilobyte of a million documents, 32 bytes of four million."""

from ..kv_load import Load
from ..report import Outcome, Row
from .comparison import compare
from .contender import chosen

CONNECTIONS = 50
BATCH = 100
# Bytes of a value, documents.
SHAPES = ((512, 1_000_000), (32, 4_000_000))


def load_of(value_bytes, items, options):
    items, duration_s = (items // 200, 0.3) if options.quick else (items, 2)
    return Load(items, value_bytes, BATCH, connections=CONNECTIONS, duration_s=duration_s)


def measure(options):
    rounds = options.rounds or (2 if options.quick else 5)
    comparisons = [comparison for value_bytes, items in SHAPES
                   for comparison in compare(options, chosen(options), [load_of(value_bytes, items, options)], rounds)]
    return Outcome({"comparisons": [one.figures() for one in comparisons]}, [row_of(one) for one in comparisons])


def row_of(comparison):
    load = comparison.load
    what = f"server CPU per operation, {load.value_bytes} B, batch {load.batch}, {load.set_pct} % sets"
    result = comparison.cpu_text("oribi-memory")
    if "oribi-log" in comparison.runs:
        result += f"; log store {comparison.ratio_text('oribi-log')}"
    return Row(what, result, comparison.peer_text())
