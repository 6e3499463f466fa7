"""Contenders in turn: in every round each runs once, in an order that rotates, and ratios are of runs of
the same round. So what slows the machine for a while slows all of them."""

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..samples import ratios, spread, text_of
from . import trial
from .contender import KINDS, PEER
from .placement import place


def progress(text):
    """Says what is under way, because a full run takes half an hour."""
    print(f"  {text}", file=sys.stderr, flush=True)


def in_turn(things, round_number):
    """The same things, beginning with another one in each round."""
    shift = round_number % len(things)
    return things[shift:] + things[:shift]


@dataclass
class Comparison:
    """What contenders did under one load; runs by name, round by round."""

    load: object
    contenders: list
    runs: dict = field(default_factory=dict)

    def add(self, name, run):
        self.runs.setdefault(name, []).append(run)

    def samples(self, name, figure):
        return [run[figure] for run in self.runs[name]]

    def spread(self, name, figure):
        return spread(self.samples(name, figure))

    def ratio(self, name, figure, base=PEER.name):
        """Of a figure to that of another contender in the same round."""
        return ratios(self.samples(name, figure), self.samples(base, figure))

    def kind_samples(self, name, kind):
        return [run["server_ns_by_kind"][kind] for run in self.runs[name]]

    def kind_medians(self, name):
        """Median time per operation of each kind of thread that took any."""
        medians = {kind: spread(self.kind_samples(name, kind))["median"] for kind in KINDS}
        return {kind: ns for kind, ns in medians.items() if ns >= 0.5}

    def has_peer(self):
        return PEER.name in self.runs

    def cpu_text(self, name):
        """Server time per operation with its parts."""
        parts = ", ".join(f"{kind} {ns:.0f}" for kind, ns in self.kind_medians(name).items())
        return f"{text_of(self.spread(name, 'server_ns'), 0)} ns: {parts}"

    def figures(self):
        """For the record."""
        load = {name: value for name, value in vars(self.load).items() if value is not None}
        return {"load": load, "runs": self.runs}


def compare(options, contenders, loads, rounds, memory_mib=4096):
    """Fills a server of each contender once and puts the loads on them in turn; a comparison for each load.
    The loads must be on the same documents."""
    comparisons = [Comparison(load, contenders) for load in loads]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = []
        for contender in contenders:
            server = stack.enter_context(contender.start(options.binary, directory, memory_mib=memory_mib))
            trial.fill(options.binary, contender, server, loads[0])
            place(server)
            servers.append((contender, server))
        for number in range(rounds):
            for comparison in comparisons:
                progress(f"{comparison.load}: round {number + 1} of {rounds}")
                for contender, server in in_turn(servers, number):
                    run = trial.run(options.binary, contender, server, comparison.load, number)
                    comparison.add(contender.name, run)
    return comparisons
