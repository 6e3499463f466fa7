"""Contenders in turn: in every round each runs once, in an order that rotates, and ratios are of runs of
the same round. So what slows the machine for a while slows all of them."""

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..samples import ratios, spread, text_of
from . import trial
from .contender import PEER
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

    def ratio_text(self, name):
        """CPU of this contender over that of the peer."""
        return text_of(self.ratio(name, "server_ns")) if PEER.name in self.runs else "no peer"

    def cpu_text(self, name, unit_ns=1, unit="ns"):
        """The same, and its CPU per operation."""
        digits = 0 if unit_ns == 1 else 1
        return f"{self.ratio_text(name)}; {self.spread(name, 'server_ns')['median'] / unit_ns:.{digits}f} {unit}"

    def peer_text(self, unit_ns=1, unit="ns"):
        """CPU of the peer per operation."""
        if PEER.name not in self.runs:
            return ""
        digits = 0 if unit_ns == 1 else 1
        return f"{PEER.label}, {self.spread(PEER.name, 'server_ns')['median'] / unit_ns:.{digits}f} {unit}"

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
