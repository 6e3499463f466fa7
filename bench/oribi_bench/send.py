"""T3: the cost of sending a value, copied next to its header or from where it lies."""

from .plot import Series, line_chart
from .report import Outcome, Row
from .rust_bench import by_size, samples_of
from .samples import ratios, spread, text_of, text_of_bytes

NAMES = {"copy": "copied, then sent", "gather": "scatter-gather", "adaptive": "adaptive"}
TSAN_SIZES = "1024,16384,1048576,20971520"


def arguments_of(options):
    if options.quick:
        return ["--rounds", 3, "--sizes", "1024,16384,1048576", "--sample-bytes", 4 << 20]
    if options.tsan:
        return ["--rounds", options.rounds or 5, "--sizes", TSAN_SIZES]
    return ["--rounds", options.rounds or 15]


def measure(options):
    tsan = options.tsan_target_dir if options.tsan else None
    samples = samples_of("send_value", arguments_of(options), tsan)
    figures = {}
    for (way, size), group in by_size(samples, "way").items():
        figures[way, size] = {
            "cpu_ns_per_value": spread([one["cpu_ns"] / one["values"] for one in group]),
            "wall_ns_per_value": spread([one["wall_ns"] / one["values"] for one in group]),
            "batch": group[0]["batch"],
        }
    sizes = sorted({size for _, size in figures})
    comparisons = {size: comparison_of(figures, size) for size in sizes}
    suffix = " under ThreadSanitizer" if options.tsan else ""
    rows = [row_of(figures, comparisons[size], size, suffix) for size in sizes]
    worst = max(comparisons.values(), key=lambda one: one["adaptive_over_better"]["median"])
    rows.insert(0, Row(f"adaptive over the better way, worst size{suffix}",
                       f"{text_of(worst['adaptive_over_better'])} at {text_of_bytes(worst['size_bytes'])}",
                       "<= 1.05"))
    named = {f"{way} {size}": figure for (way, size), figure in figures.items()}
    plots = {"t3-send-tsan" if options.tsan else "t3-send": plot_of(figures, sizes, suffix)}
    return Outcome({"by_size": named, "comparisons": list(comparisons.values())}, rows, plots,
                   "--tsan" if options.tsan else "")


def comparison_of(figures, size):
    """Processor times of the same round, divided."""
    cpu = {way: figures[way, size]["cpu_ns_per_value"]["samples"] for way in NAMES}
    wall = {way: figures[way, size]["wall_ns_per_value"]["samples"] for way in NAMES}
    better = min(("copy", "gather"), key=lambda way: figures[way, size]["cpu_ns_per_value"]["median"])
    return {
        "size_bytes": size,
        "better": better,
        "gather_over_copy": ratios(cpu["gather"], cpu["copy"]),
        "gather_over_copy_wall": ratios(wall["gather"], wall["copy"]),
        "adaptive_over_better": ratios(cpu["adaptive"], cpu[better]),
    }


def row_of(figures, comparison, size, suffix):
    def microseconds(way, clock):
        return figures[way, size][f"{clock}_ns_per_value"]["median"] / 1000

    cpu = ", ".join(f"{way} {microseconds(way, 'cpu'):.2f}" for way in NAMES)
    wall = ", ".join(f"{microseconds(way, 'wall'):.2f}" for way in NAMES)
    return Row(f"send {text_of_bytes(size)}, {figures['copy', size]['batch']} to a flush{suffix}",
               f"µs of CPU: {cpu} (wall {wall}); gather/copy {text_of(comparison['gather_over_copy'])}, "
               f"adaptive/better {text_of(comparison['adaptive_over_better'])}")


def plot_of(figures, sizes, suffix):
    """Processor time relative to copying, so that both sides of the switch point can be seen."""
    series = []
    for way, name in NAMES.items():
        points = []
        for size in sizes:
            ours, copied = (figures[one, size]["cpu_ns_per_value"]["samples"] for one in (way, "copy"))
            points.append((size, ratios(ours, copied)))
        series.append(Series(name, points))
    return line_chart(f"Sender CPU by value size{suffix}", "value", "CPU, copied = 1", series, text_of_bytes)
