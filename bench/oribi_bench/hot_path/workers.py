"""Two workers against one, alone on their processors.

A load generator on the same two processors takes time that the second worker would need, so throughput under it says
little about the server. Two measurements do without: bursts of requests that are laid into the server's sockets
before the clock starts (see `burst`), where wall time is the server's alone; and, under the usual load, processor
time per operation, which rises when workers are in each other's way. What workers share is measured by `sharing`.

On a virtual machine each processor is slowed down by its host's other guests at its own times, and a burst ends with
the slower of two. So what two processors would do that are the server's all the time is shown beside it: twice the
processor time of an operation with one worker over that with two.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..kv_load import Load
from ..plot_bars import Bar, bar_chart
from ..report import Outcome, Row
from ..samples import ratios, spread, text_of
from . import placement, sharing, trial
from .burst import Burst
from .comparison import Comparison, in_turn, progress
from .contender import chosen

WORKERS = (1, 2)
SET_PCTS = (0, 20)
# Enough for a burst of some hundred milliseconds, so that wake-ups and stragglers do not decide it.
BURST_CONNECTIONS, BURST_OPERATIONS = 256, 1000
WARM_UP_BURSTS = 3
GOAL = 1.8


def load_of(options):
    if options.quick:
        return Load(5_000, 512, 100, threads=2, connections=4, duration_s=0.3)
    return Load(500_000, 512, 100, threads=2, connections=25, duration_s=2)


def measure(options):
    rounds = options.rounds or (2 if options.quick else 4)
    load = load_of(options)
    figures, rows, groups = {}, [], []
    figures["sharing"], shared_rows = sharing.measure(options, [one for one in chosen(options) if not one.writes_to_disk])
    for contender in chosen(options):
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers = {}
            for workers in WORKERS:
                server = stack.enter_context(contender.start(options.binary, directory, workers))
                trial.fill(options.binary, contender, server, load)
                servers[workers] = server
            loaded = under_load(options, contender, servers, load, rounds)
            # Last, because the load generator does not know the values they write.
            bursts = {set_pct: burst_samples(options, contender, servers, load, set_pct) for set_pct in SET_PCTS}
        figures[contender.name] = {"bursts": bursts, "under_load": loaded.figures()}
        rows += [burst_row(contender, set_pct, samples) for set_pct, samples in bursts.items()]
        rows.append(load_row(contender, loaded))
        groups.append((contender.label, [bar_of(workers, set_pct, bursts[set_pct][workers])
                                         for set_pct in SET_PCTS for workers in WORKERS]))
    plot = bar_chart("Operations per second when only the server runs", "M op/s", groups,
                     "512 B; medians of bursts; the line goes from the slowest to the fastest")
    return Outcome(figures, shared_rows + rows, {"hot-path-workers": plot})


def burst_samples(options, contender, servers, load, set_pct):
    """Bursts on all servers in turn; samples by number of workers."""
    connections, operations = (8, 200) if options.quick else (BURST_CONNECTIONS, BURST_OPERATIONS)
    count = 5 if options.quick else (24 if set_pct else 40)
    progress(f"workers, {contender.label}, {set_pct} % sets: {count} bursts of {connections * operations}")
    mixed = Load(load.items, load.value_bytes, set_pct=set_pct)
    bursts = {workers: Burst(contender, server, mixed, connections, operations) for workers, server in servers.items()}
    before = {workers: contender.counters(servers[workers]) for workers in servers}
    samples = {workers: [] for workers in servers}
    for number in range(WARM_UP_BURSTS + count):
        for workers in in_turn(list(bursts), number):
            sample = bursts[workers].run()
            contender.settle(servers[workers])
            if number >= WARM_UP_BURSTS:
                samples[workers].append(sample)
    for workers, burst in bursts.items():
        after = contender.counters(servers[workers])
        for name, wanted in (("get_hits", burst.gets), ("cmd_set", burst.sets)):
            grown = after[name] - before[workers][name]
            trial.expect(contender, f"{name} of bursts", grown, wanted * (WARM_UP_BURSTS + count))
        burst.close()
    return samples


def under_load(options, contender, servers, load, rounds):
    comparison = Comparison(load, [contender])
    for number in range(rounds):
        progress(f"workers, {contender.label}, {load}: round {number + 1} of {rounds}")
        for workers in in_turn(list(servers), number):
            comparison.add(workers, trial.run(options.binary, contender, servers[workers], load, number, placement.usable()))
    return comparison


def burst_row(contender, set_pct, samples):
    def all_of(workers, figure):
        return [sample[figure] for sample in samples[workers]]

    # Wall time of one worker over that of two is throughput of two over that of one.
    ratio = ratios(all_of(1, "wall_ns"), all_of(2, "wall_ns"))
    by_cpu = ratios(all_of(1, "cpu_ns"), all_of(2, "cpu_ns"))["median"] * 2
    parts = [f"{workers}: {1000 / spread(all_of(workers, 'wall_ns'))['median']:.2f} M op/s, "
             f"{spread(all_of(workers, 'cpu_ns'))['median']:.0f} ns of CPU on "
             f"{spread(all_of(workers, 'cores'))['median']:.2f} cores" for workers in WORKERS]
    goal = (f">= {GOAL}", ratio["median"] >= GOAL) if contender.is_oribi else ()
    return Row(f"throughput of 2 workers over 1, only the server runs, {set_pct} % sets: {contender.label}",
               f"{text_of(ratio)}, by processor time {by_cpu:.2f}; {'; '.join(parts)}", *goal)


def load_row(contender, comparison):
    ratio = comparison.ratio(2, "server_ns", 1)
    speed = comparison.ratio(2, "operations_per_second", 1)
    one, two = (comparison.spread(workers, "server_ns")["median"] for workers in WORKERS)
    return Row(f"server CPU per operation, 2 workers over 1, {comparison.load}: {contender.label}",
               f"{text_of(ratio)}: {two:.0f} instead of {one:.0f} ns; throughput beside the client {text_of(speed)} times")


def bar_of(workers, set_pct, samples):
    speeds = spread([1000 / sample["wall_ns"] for sample in samples])
    label = f"{workers} worker{'s' * (workers > 1)}, {set_pct} % sets"
    return Bar(label, {"operations": speeds["median"]}, speeds["min"], speeds["max"])
