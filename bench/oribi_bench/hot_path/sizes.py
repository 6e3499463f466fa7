"""Large values: 4 KiB to 20 MiB, half of the operations writes."""

from ..kv_load import Load
from ..report import Outcome, Row
from ..samples import text_of_bytes
from .comparison import compare
from .contender import chosen

SIZES = (4 << 10, 1 << 20, 20 << 20)
SET_PCT = 50
CONNECTIONS = 4
# Values of each size together, and what one run moves in both directions.
STORED_BYTES, MOVED_BYTES = 512 << 20, 2 << 30
# Most bytes that a connection has in flight; at most a hundred operations.
BATCH_BYTES = 1 << 20
MEMORY_MIB = 6144


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
    rows = [Row(f"server CPU per operation, {text_of_bytes(size)}, {SET_PCT} % sets", one.cpu_text("oribi-memory", 1000, "µs"),
                one.peer_text(1000, "µs")) for size, one in comparisons.items()]
    return Outcome({"by_size": {size: one.figures() for size, one in comparisons.items()}}, rows)
