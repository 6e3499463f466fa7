"""T3: the cost of sending a value, copied next to its header or from where it lies."""

from .report import Outcome, Row
from .rust_bench import samples_of
from .samples import ratios, spread, text_of, text_of_bytes

# Bytes; the other sizes are in the samples.
SIZE_SHOWN = 20 << 20


def arguments_of(options):
    if options.quick:
        return ["--rounds", 3, "--sizes", "1024,16384,1048576", "--sample-bytes", 4 << 20]
    return ["--rounds", options.rounds or 15]


def measure(options):
    samples = samples_of("oribi-client", "send_value", arguments_of(options))
    cpu_ns = {}
    for one in samples:
        cpu_ns.setdefault((one["way"], one["size_bytes"]), []).append(one["cpu_ns"] / one["values"])
    rows = [row_of(cpu_ns, size) for size in sorted({size for _, size in cpu_ns}) if options.quick or size == SIZE_SHOWN]
    return Outcome({"cpu_ns": {f"{way} {size}": values for (way, size), values in cpu_ns.items()}}, rows)


def row_of(cpu_ns, size):
    adaptive, copied, gathered = (cpu_ns[way, size] for way in ("adaptive", "copy", "gather"))
    return Row(f"sending {text_of_bytes(size)}, CPU over copying: as the client decides; always scatter-gather",
               f"{text_of(ratios(adaptive, copied))}; {text_of(ratios(gathered, copied))}",
               f"copying, {spread(copied)['median'] / 1000:.2f} µs")
