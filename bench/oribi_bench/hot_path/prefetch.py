"""What looking ahead in a pipeline is worth: the same binary with and without, on documents that no cache holds."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..kv_load import Load
from ..plot_bars import Bar, bar_chart
from ..report import Outcome, Row
from ..samples import text_of
from . import trial
from .comparison import Comparison, in_turn, progress
from .contender import chosen_oribi
from .placement import place

# Names of the two servers, and their extra settings.
VARIANTS = {"on": (), "off": ("--prefetch-keys", 0)}
ITEMS = 4_000_000
VALUE_BYTES = (32, 512)
CONNECTIONS, BATCH = 50, 1000
MEMORY_MIB = 6144
GOAL = 1.5


def loads(options):
    for value_bytes in VALUE_BYTES:
        if options.quick:
            yield Load(20_000, value_bytes, BATCH, 0, connections=CONNECTIONS, duration_s=0.3)
        else:
            yield Load(ITEMS, value_bytes, BATCH, 0, connections=CONNECTIONS, duration_s=3)


def measure(options):
    rounds = options.rounds or (2 if options.quick else 5)
    contender = chosen_oribi(options)[0]
    comparisons = [compare(options, contender, load, rounds) for load in loads(options)]
    rows = [row_of(contender, comparison) for comparison in comparisons]
    return Outcome({"comparisons": [one.figures() for one in comparisons]}, rows,
                   {"hot-path-prefetch": plot_of(contender, comparisons)})


def compare(options, contender, load, rounds):
    """Both variants in turn."""
    comparison = Comparison(load, [contender])
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {}
        for name, settings in VARIANTS.items():
            server = contender.start(options.binary, directory, memory_mib=MEMORY_MIB, settings=settings)
            servers[name] = stack.enter_context(server)
            trial.fill(options.binary, contender, server, load)
            place(server)
        for number in range(rounds):
            progress(f"prefetch, {load}: round {number + 1} of {rounds}")
            for name in in_turn(list(servers), number):
                comparison.add(name, trial.run(options.binary, contender, servers[name], load, number))
    return comparison


def row_of(contender, comparison):
    """Operations per processor second with looking ahead, over those without."""
    ratio = comparison.ratio("off", "server_ns", "on")
    on, off = (comparison.spread(name, "server_ns")["median"] for name in VARIANTS)
    return Row(f"operations per CPU second, prefetch on over off, cold: {contender.label}, {comparison.load}",
               f"{text_of(ratio)}: {on:.0f} instead of {off:.0f} ns per operation", f">= {GOAL}", ratio["median"] >= GOAL)


def plot_of(contender, comparisons):
    groups = []
    for comparison in comparisons:
        spreads = {name: comparison.spread(name, "server_ns") for name in VARIANTS}
        groups.append((str(comparison.load), [
            Bar(f"prefetch {name}", comparison.kind_medians(name), one["min"], one["max"]) for name, one in spreads.items()]))
    return bar_chart(f"Server CPU per GET of a cold document, {contender.label}", "ns", groups)
