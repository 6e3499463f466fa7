"""T4: what the checkpoint queue costs under its lock, by the number of items, and in memory."""

from .plot import Series, line_chart
from .report import Outcome, Row
from .rust_bench import samples_of
from .samples import spread

KINDS = {"closed": "checkpoints of a server's length", "open": "one checkpoint, open until it is read"}
HOLD_MAX_NS = 5000
ENQUEUE_MAX_NS = 150
BYTES_MAX = 16
# Shorter queues have no meaningful average: one item takes a checkpoint of its own.
ITEMS_OF_MEMORY = 1000
NOTE = "Expelling N items and settling their memory; they are freed without the lock."


def arguments_of(options):
    if options.quick:
        return ["--rounds", 2, "--items", "1,100,10000", "--queued", "1000,10000"]
    return ["--rounds", options.rounds or 9]


def figures_of(samples):
    """Spreads by measure, kind and number of items."""
    fields = {"expel": ("hold_ns", "read_ns", "free_ns"), "streams": ("hold_ns", "read_ns", "drop_ns"), "enqueue": ("ns",), "memory": ("bytes_per_item",)}
    groups = {}
    for sample in samples:
        key = (sample["measure"], sample.get("kind", ""), sample["items"])
        groups.setdefault(key, []).append(sample)
    return {key: {name: spread([one[name] for one in group]) for name in fields[key[0]]}
            for key, group in groups.items()}


def measure(options):
    figures = figures_of(samples_of("checkpoint_queue", arguments_of(options), package="oribi-engine"))
    named = {f"{measure} {kind} {items}": one for (measure, kind, items), one in figures.items()}
    rows = [row for kind, what in KINDS.items() for row in expel_rows(figures, kind, what)]
    rows += stream_rows(figures) + enqueue_rows(figures) + memory_rows(figures)
    return Outcome({"by_items": named}, rows, {"t4-expel": plot_of(figures)})


def of(figures, measure, kind=""):
    """Figures of one measure by number of items."""
    return sorted((items, one) for (name, of_kind, items), one in figures.items() if (name, of_kind) == (measure, kind))


def expel_rows(figures, kind, what):
    rows = []
    for items, one in of(figures, "expel", kind):
        hold = one["hold_ns"]
        measured = (f"{hold['median']:.0f} ns under the lock ({hold['min']:.0f} to {hold['max']:.0f}); longest hold of the read "
                    f"before {one['read_ns']['median']:.0f} ns; freed in {one['free_ns']['median'] / 1e6:.3f} ms without it")
        rows.append(Row(f"expel {items} items, {what}", measured, "<= 5 us under the lock",
                        hold["median"] <= HOLD_MAX_NS))
    return rows


def stream_rows(figures):
    rows = []
    for streams, one in of(figures, "streams"):
        hold = one["hold_ns"]
        measured = (f"{hold['median']:.0f} ns under the lock ({hold['min']:.0f} to {hold['max']:.0f}); longest hold of a stream's "
                    f"read {one['read_ns']['min']:.0f} ns in the calmest round, {one['read_ns']['median']:.0f} ns at the median, which "
                    "has the time that the thread did not run")
        rows.append(Row(f"expel beside {streams} streams", measured, "<= 5 us under the lock", hold["median"] <= HOLD_MAX_NS))
        drop = one["drop_ns"]
        rows.append(Row(f"removal of the cursors of {streams} streams that have read nothing",
                        f"{drop['median']:.0f} ns under the lock ({drop['min']:.0f} to {drop['max']:.0f})",
                        "<= 5 us under the lock", drop["median"] <= HOLD_MAX_NS))
    return rows


def enqueue_rows(figures):
    rows = []
    for items, one in of(figures, "enqueue"):
        rows.append(Row(f"enqueue a hot key's new version beside {items} items",
                        f"{one['ns']['median']:.0f} ns ({one['ns']['min']:.0f} to {one['ns']['max']:.0f})",
                        "<= 150 ns", one["ns"]["median"] <= ENQUEUE_MAX_NS))
    return rows


def memory_rows(figures):
    figure = [(items, one["bytes_per_item"]["median"]) for items, one in of(figures, "memory", "closed")
              if items >= ITEMS_OF_MEMORY]
    return [Row(f"memory per queued item beyond the item, of {items}", f"{bytes_each:.1f} B", "<= 16 B",
                bytes_each <= BYTES_MAX) for items, bytes_each in figure]


def plot_of(figures):
    series = [Series(what, [(items, one["hold_ns"]) for items, one in of(figures, "expel", kind)])
              for kind, what in KINDS.items()]
    return line_chart("Time under the queue lock to expel N items", "items", "ns", series, str, [NOTE])
