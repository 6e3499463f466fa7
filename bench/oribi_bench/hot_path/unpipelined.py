"""One operation per round trip: throughput and latency on 1, 50 and 1000 connections.

Two ways of asking. In closed loop every connection sends its next operation when it has its answer: that is the
most that goes through, but a server that stalls is asked less meanwhile, which hides the stall. In open loop
operations are due at fixed times, at a rate that all contenders can take, and latency counts from when
an operation was due.

A virtual machine's host takes its processors away for some milliseconds about once a second. That is one percent of
the operations of a second, and would decide every p99; many rounds shorter than that leave most of them alone, and
medians of rounds are what is compared.
"""

import dataclasses
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..kv_load import Load
from ..plot import Series, line_chart
from ..report import Outcome, Row
from ..samples import text_of
from . import trial
from .comparison import Comparison, in_turn, progress
from .contender import PEER, chosen
from .placement import place

CONNECTIONS = (1, 50, 1000)
FILES = 4096
# A thousand connections that log in at once derive a key each, which takes seconds.
SETTINGS = ("--auth-deadline-ms", 120_000)
# Rounds, and seconds of each. A thousand connections take longer to log in than that.
ROUNDS = {1: (24, 0.25), 50: (24, 0.25), 1000: (10, 0.5)}
# The rate in open loop, of the throughput of the slowest contender in closed loop.
RATE_SHARE = 0.5
# Within this tolerance a result counts as equal, because rounds differ by more.
TOLERANCE = 0.05


def base_load(options):
    if options.quick:
        return Load(2_000, 512, 1)
    return Load(100_000, 512, 1)


def measure(options):
    allow_files()
    figures, rows, closed_by_connections = {}, [], {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = []
        for contender in chosen(options):
            server = stack.enter_context(contender.start(options.binary, directory, settings=SETTINGS))
            trial.fill(options.binary, contender, server, base_load(options))
            place(server)
            servers.append((contender, server))
        for connections in CONNECTIONS:
            rounds, duration_s = (1, 0.5) if options.quick else ROUNDS[connections]
            rounds = options.rounds or rounds
            load = dataclasses.replace(base_load(options), connections=connections, duration_s=duration_s)
            closed = take_turns(options, servers, load, rounds)
            slowest = min(closed.spread(name, "operations_per_second")["median"] for name in closed.runs)
            paced = dataclasses.replace(load, rate=max(connections, int(slowest * RATE_SHARE)))
            opened = take_turns(options, servers, paced, rounds)
            figures[connections] = {"closed_loop": closed.figures(), "open_loop": opened.figures()}
            rows += rows_of(connections, closed, opened)
            closed_by_connections[connections] = closed
    return Outcome(figures, rows, plots_of(closed_by_connections))


def allow_files():
    """A connection is a file on both sides; both inherit the limit from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def take_turns(options, servers, load, rounds):
    comparison = Comparison(load, [contender for contender, _ in servers])
    for number in range(rounds):
        pace = "" if load.rate is None else f", {load.rate} operations per second"
        progress(f"unpipelined, {load.connections} connections{pace}: round {number + 1} of {rounds}")
        for contender, server in in_turn(servers, number):
            comparison.add(contender.name, trial.run(options.binary, contender, server, load, number))
    return comparison


def rows_of(connections, closed, opened):
    rows = []
    for contender in closed.contenders:
        name = contender.name
        what = f"unpipelined, {connections} connection{'s' * (connections > 1)}: {contender.label}"
        rate = opened.load.rate
        texts = {"throughput": f"{closed.spread(name, 'operations_per_second')['median'] / 1000:.1f} k op/s, "
                               f"server CPU {closed.cpu_text(name)}",
                 "closed": latency_text(closed, name), "open": latency_text(opened, name)}
        if contender == PEER or not closed.has_peer():
            rows += [Row(what, f"{texts['throughput']}; {texts['closed']}"),
                     Row(f"{what}, {rate} op/s in open loop", texts["open"])]
            continue
        speed, p99 = closed.ratio(name, "operations_per_second"), closed.ratio(name, "p99_us")
        open_p99 = opened.ratio(name, "p99_us")
        rows += [Row(f"{what}: throughput over memcached", f"{text_of(speed)}: {texts['throughput']}",
                     ">= 1", speed["median"] >= 1 - TOLERANCE),
                 Row(f"{what}: p99 over memcached", f"{text_of(p99)}: {texts['closed']}", "<= 1", p99["median"] <= 1 + TOLERANCE),
                 Row(f"{what}: p99 over memcached, {rate} op/s in open loop", f"{text_of(open_p99)}: {texts['open']}",
                     "<= 1", open_p99["median"] <= 1 + TOLERANCE)]
    return rows


def latency_text(comparison, name):
    p50, p99, p99_9 = (comparison.spread(name, figure)["median"] for figure in ("p50_us", "p99_us", "p99_9_us"))
    return f"p50 {p50:.0f}, p99 {p99:.0f}, p99.9 {p99_9:.0f} µs"


def plots_of(comparisons):
    contenders = next(iter(comparisons.values())).contenders

    def chart(title, unit, figure):
        series = [Series(contender.label, [(connections, comparison.spread(contender.name, figure))
                                           for connections, comparison in comparisons.items()])
                  for contender in contenders]
        return line_chart(title, "connections", unit, series, str)

    return {
        "hot-path-unpipelined-throughput": chart("One operation per round trip", "operations per second", "operations_per_second"),
        "hot-path-unpipelined-p99": chart("One operation per round trip: p99", "µs", "p99_us"),
    }
