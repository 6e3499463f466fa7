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


def base_load(options):
    if options.quick:
        return Load(2_000, 512, 1)
    return Load(100_000, 512, 1)


def measure(options):
    allow_files()
    figures, rows = {}, []
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
            rows.append(row_of(connections, closed, opened))
    return Outcome(figures, rows)


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


def row_of(connections, closed, opened):
    what = f"one operation per round trip, {connections} connection{'s' * (connections > 1)}: throughput; p99; p99 in open loop"
    if PEER.name not in closed.runs:
        return Row(what, f"{closed.spread('oribi-memory', 'operations_per_second')['median'] / 1000:.0f} k/s")
    speed = closed.ratio("oribi-memory", "operations_per_second")
    p99, open_p99 = (one.ratio("oribi-memory", "p99_us")["median"] for one in (closed, opened))
    peer_speed = closed.spread(PEER.name, "operations_per_second")["median"] / 1000
    peer_p99, peer_open_p99 = (one.spread(PEER.name, "p99_us")["median"] for one in (closed, opened))
    return Row(what, f"{text_of(speed)}; {p99:.2f}; {open_p99:.2f}",
               f"{PEER.label}, {peer_speed:.0f} k/s; {peer_p99:.0f} µs; {peer_open_p99:.0f} µs")
