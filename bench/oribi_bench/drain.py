"""T1: the cost of draining a stream of statistics, by its length."""

from .plot import Series, line_chart
from .report import Outcome, Row
from .rust_bench import by_size, samples_of
from .samples import ratios, spread, text_of, text_of_bytes

# Lengths whose cost per byte must be equal.
COMPARED_BYTES = [10**6, 10**8, 10**9]
NAMES = {"oribi": "oribi-client", "naive": "moves the rest after each frame",
         "naive_capped": "the same, at most 64 KiB in flight"}
NOTE = "A buffer that moves its rest after each frame costs what is in flight; not run beyond 4 MB in flight."


def arguments_of(options):
    if options.quick:
        return ["--rounds", 2, "--sizes", "64000,256000,1000000", "--sample-bytes", 2_000_000]
    return ["--rounds", options.rounds or 7]


def summary_of(samples):
    """Figures of one client at one length."""
    cpu = [sample["cpu_ns"] for sample in samples]
    return {
        "cpu_ns_per_byte": spread([ns / sample["received_bytes"] for ns, sample in zip(cpu, samples)]),
        "cpu_ns_per_stat": spread([ns / sample["stats"] for ns, sample in zip(cpu, samples)]),
        "wall_ns_per_byte": spread([one["wall_ns"] / one["received_bytes"] for one in samples]),
        "moved_per_received_byte": spread([one["moved_bytes"] / one["received_bytes"] for one in samples]),
        "streams_per_sample": samples[0]["streams"],
    }


def measure(options):
    samples = samples_of("drain_stats", arguments_of(options))
    figures = {key: summary_of(group) for key, group in by_size(samples, "drainer").items()}
    sizes = sorted({size for _, size in figures})
    rows = [row_of(figures["oribi", size], size) for size in sizes]
    rows += comparison_rows(figures, sizes)
    named = {f"{drainer} {size}": figure for (drainer, size), figure in figures.items()}
    equality = equality_of(figures)
    if equality:
        rows.insert(0, Row(f"drain {', '.join(map(text_of_bytes, COMPARED_BYTES))}: dearest over cheapest per byte",
                           f"{equality['median']:.3f} by medians, {equality['min']:.3f} by the best rounds", "<= 1.10"))
    return Outcome({"by_length": named, "dearest_over_cheapest": equality}, rows, {"t1-drain": plot_of(figures)})


def row_of(figure, size):
    moved = figure["moved_per_received_byte"]["median"]
    return Row(f"drain {text_of_bytes(size)} of statistics",
               f"{text_of(figure['cpu_ns_per_byte'])} ns of client CPU per byte, "
               f"{figure['cpu_ns_per_stat']['median']:.0f} ns per stat; "
               f"wall {figure['wall_ns_per_byte']['median']:.2f} ns per byte; {moved:.1%} of the bytes moved")


def comparison_rows(figures, sizes):
    """The buffers that move, against this client in the same round."""
    rows = []
    for drainer, what in (("naive_capped", "64 KiB in flight"), ("naive", "all in flight")):
        for size in sizes:
            what_size = f"{text_of_bytes(size)}, buffer that moves after each frame, {what}"
            if (drainer, size) not in figures:
                rows.append(Row(what_size, "not run"))
                continue
            theirs, ours = (figures[one, size]["cpu_ns_per_byte"] for one in (drainer, "oribi"))
            ratio = ratios(theirs["samples"], ours["samples"])
            rows.append(Row(what_size, f"{theirs['median']:.1f} ns per byte, {text_of(ratio, 1)} times ours"))
    return rows


def equality_of(figures):
    """Cost per byte of the dearest of the compared lengths over that of the cheapest."""
    compared = [figures["oribi", size]["cpu_ns_per_byte"] for size in COMPARED_BYTES if ("oribi", size) in figures]
    if len(compared) < len(COMPARED_BYTES):
        return None
    return {name: max(one[name] for one in compared) / min(one[name] for one in compared)
            for name in ("median", "min")}


def plot_of(figures):
    series = []
    for drainer, name in NAMES.items():
        points = sorted((size, figure["cpu_ns_per_byte"]) for (one, size), figure in figures.items()
                        if one == drainer)
        if points:
            series.append(Series(name, points))
    return line_chart("Client CPU to drain a stream of statistics", "length of the stream", "ns per byte",
                      series, text_of_bytes, [NOTE])
