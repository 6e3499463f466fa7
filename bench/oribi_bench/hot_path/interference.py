"""Small reads while another connection moves values of 1 MiB, or of 20 MiB, through the same worker.

The reads are due at fixed times and their latency counts from then, so a stall is charged with all that it held up. The
worker has a processor to itself and the reader another one. Whoever moves the large values runs on the reader's
processor if there are only two, and there only when nobody else wants to: it must not be the client's scheduling that
is measured.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from ..kv_load import Load
from ..plot import Series, line_chart
from ..report import Outcome, Row
from ..samples import ratios, text_of, text_of_bytes
from . import trial
from .comparison import Comparison, in_turn, progress
from .contender import PEER, chosen
from .placement import client_cpus, other_cpus, place

LARGE_SIZES = (1 << 20, 20 << 20)
# Values of each size together.
STORED_BYTES = 80 << 20
RATE = 10_000
GOAL = 2
QUIET = "quiet"
# The large values move this long before the reader starts and after it ends.
MARGIN_S = 0.5
PERCENTILES = {"p50_us": 2, "p90_us": 10, "p99_us": 100, "p99_9_us": 1_000, "p99_99_us": 10_000}


def loads(options):
    """Of the reader, and of the movers by the state in which they run."""
    duration_s = 1 if options.quick else 5
    items = 2_000 if options.quick else 100_000
    small = Load(items, 512, 100, 0, duration_s=duration_s, rate=RATE, key_prefix="small:")
    movers = {text_of_bytes(size): Load(STORED_BYTES // size, size, 1, 50, duration_s=duration_s + 2 * MARGIN_S,
                                        key_prefix=f"{size}:") for size in LARGE_SIZES}
    return small, movers


def measure(options):
    rounds = options.rounds or (1 if options.quick else 4)
    small, large = loads(options)
    contenders = chosen(options)
    states = {state: Comparison(small, contenders) for state in (QUIET, *large)}
    movers = {state: Comparison(load, contenders) for state, load in large.items()}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = []
        for contender in contenders:
            server = stack.enter_context(contender.start(options.binary, directory))
            for load in (small, *large.values()):
                trial.fill(options.binary, contender, server, load)
            place(server)
            servers.append((contender, server))
        for number in range(rounds):
            progress(f"interference: round {number + 1} of {rounds}")
            for contender, server in in_turn(servers, number):
                [quiet] = read(options, contender, server, number, [small])
                states[QUIET].add(contender.name, quiet)
                for state, load in large.items():
                    reader, mover = read(options, contender, server, number, [small, load])
                    states[state].add(contender.name, reader)
                    movers[state].add(contender.name, mover)
    figures = {name: {state: comparison.figures() for state, comparison in parts.items()}
               for name, parts in (("readers", states), ("movers", movers))}
    return Outcome(figures, rows_of(states, movers), {"hot-path-interference": plot_of(states)})


def read(options, contender, server, seed, loads_of_run):
    """Runs the reader, with or without the mover beside it; what each saw."""
    small, *large = loads_of_run
    before = contender.counters(server)
    movers = [trial.start_tool(options.binary, server, load, seed, cpus=other_cpus(), yields=True) for load in large]
    for mover in movers:
        wait_until_moving(mover, contender, server, before)
    reader = trial.start_tool(options.binary, server, small, seed, cpus=client_cpus())
    phases = [tool.summary()["load"] for tool in (reader, *movers)]
    contender.settle(server)
    trial.believe(contender, phases, before, contender.counters(server))
    return [trial.figures_of(phase) for phase in phases]


def wait_until_moving(mover, contender, server, before):
    """The mover has connected and is at work once the server has counted operations of it."""
    def operations(counters):
        return counters["cmd_get"] + counters["cmd_set"]

    while operations(contender.counters(server)) == operations(before):
        if mover.process.poll() is not None:
            mover.summary()
            raise SystemExit("the large values stopped moving before the reader began")
        time.sleep(0.01)


def rows_of(states, movers):
    return [row_of(states[QUIET], states[state], mover, contender, state)
            for state, mover in movers.items() for contender in mover.contenders]


def row_of(quiet, loaded, mover, contender, state):
    name = contender.name
    ratio = ratios(loaded.samples(name, "p99_9_us"), quiet.samples(name, "p99_9_us"))
    texts = [", ".join(f"{figure.removesuffix('_us').replace('_', '.')} {readers.spread(name, figure)['median']:.0f}"
                       for figure in ("p50_us", "p99_us", "p99_9_us")) for readers in (loaded, quiet)]
    moved = mover.spread(name, "megabytes_per_second")["median"]
    peer = ""
    if contender != PEER and loaded.has_peer():
        peer = f"; {text_of(loaded.ratio(name, 'p99_9_us'), 1)} of memcached's p99.9 beside them"
    measured = f"{text_of(ratio, 1)}: {texts[0]} µs instead of {texts[1]} µs; {moved:.0f} MB/s of {state} values beside{peer}"
    what = f"p99.9 of small GETs while {state} values move, over quiet: {contender.label}"
    return Row(what, measured, *((f"<= {GOAL}", ratio["median"] <= GOAL) if contender.is_oribi else ()))


def plot_of(states):
    series = []
    for state, comparison in states.items():
        beside = state if state == QUIET else f"beside {state}"
        for contender in comparison.contenders:
            points = [(ops, comparison.spread(contender.name, figure)) for figure, ops in PERCENTILES.items()]
            series.append(Series(f"{contender.label}, {beside}", points))
    marks = {2: "p50", 10: "p90", 100: "p99", 1_000: "p99.9", 10_000: "p99.99"}
    return line_chart("Small GETs, quiet and while large values move", "percentile", "µs", series, marks.get,
                      legend_left=True)
