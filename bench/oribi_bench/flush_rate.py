"""What a persisted document costs, through the flusher into the log store, and what loading it costs."""

from .report import Outcome, Row
from .rust_bench import samples_of
from .samples import spread, text_of

WHAT = {"insert": "new documents", "overwrite": "overwrites", "single": "one document a commit",
        "open": "opening the store", "load": "loading by one thread"}


def arguments_of(options):
    if options.quick:
        return ["--items", 20_000, "--rounds", 2, "--bytes", "32,512"]
    return ["--items", options.documents, "--rounds", options.rounds or 3, "--bytes", "32,512"]


def measure(options):
    samples = samples_of("persistence", arguments_of(options), package="oribi-engine")
    groups = {}
    for sample in samples:
        groups.setdefault((sample["what"], sample["size_bytes"]), []).append(sample)
    figures = {key: {"cpu_ns_per_item": spread([one["cpu_ns"] / one["items"] for one in group]),
                     "wall_ns_per_item": spread([one["wall_ns"] / one["items"] for one in group])}
               for key, group in groups.items()}
    rows = [row_of(figures, what, size) for size in sorted({key[1] for key in figures}) for what in WHAT]
    rows += [warm_row(figures, size) for size in sorted({key[1] for key in figures})]
    return Outcome({" ".join(map(str, key)): figure for key, figure in figures.items()}, rows)


def row_of(figures, what, size):
    """Rate and processor time of one kind of work."""
    figure = figures[what, size]
    rate = 1e9 / figure["wall_ns_per_item"]["median"]
    return Row(f"{WHAT[what]}, {size} B",
               f"{rate / 1000:.4g} k/s, {text_of(figure['cpu_ns_per_item'], 0)} ns of CPU each")


def warm_row(figures, size):
    """Opening and loading together, per core."""
    wall = [sum(pair) for pair in zip(*(figures[what, size]["wall_ns_per_item"]["samples"]
                                        for what in ("open", "load")))]
    rates = spread([1e9 / ns for ns in wall])
    return Row(f"warmup of the log store by one thread, opening included, {size} B",
               f"{rates['median'] / 1000:.0f} k items/s ({rates['min'] / 1000:.0f} to {rates['max'] / 1000:.0f})",
               ">= 1 M items/s", rates["median"] >= 1e6)
