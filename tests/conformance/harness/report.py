"""Collects outcomes and prints them as one table.

Rows are steps, columns are suites. The last line printed is always
`N passed, M failed`, because other tools read it.
"""

import threading
from dataclasses import dataclass


@dataclass
class Outcome:
    suite: str
    step: str
    passed: bool
    seconds: float
    detail: str = ""


class Report:
    """Outcomes may come from several threads; the table has suites in the order that was asked for."""

    def __init__(self, suites):
        self.suites = suites
        self.outcomes = []
        self.lock = threading.Lock()

    def add(self, suite, step, passed, seconds, detail=""):
        outcome = Outcome(suite, step, passed, seconds, detail)
        word = "ok  " if passed else "FAIL"
        with self.lock:
            self.outcomes.append(outcome)
            print(f"  {word} {suite:<11} {step:<20} {seconds:7.2f} s  {detail}", flush=True)
        return passed

    @property
    def failed(self):
        return [outcome for outcome in self.outcomes if not outcome.passed]

    def print_table(self):
        suites = sorted(unique(outcome.suite for outcome in self.outcomes), key=self.place)
        cells = {(o.step, o.suite): o for o in self.outcomes}
        # Suites that share the SDK steps go into one table; the others have
        # steps of their own, and a wide table of gaps would hide them.
        groups = {}
        for suite in suites:
            steps = tuple(o.step for o in self.outcomes if o.suite == suite)
            key = "sdk" if "connect" in steps else suite
            key = "transactions" if suite.endswith("-transactions") else key
            key = "streams" if suite.endswith("-streams") else key
            groups.setdefault(key, []).append(suite)
        for members in groups.values():
            rows = unique(o.step for o in self.outcomes if o.suite in members)
            width = max(14, *(len(suite) + 2 for suite in members))
            print()
            print(f"{'step':<20}" + "".join(f"{suite:>{width}}" for suite in members))
            for row in rows:
                print(f"{row:<20}" + "".join(f"{cell(cells.get((row, s))):>{width}}" for s in members))

    def place(self, suite):
        """Where a suite, or a part of one, is in the order."""
        parts = [index for index, name in enumerate(self.suites) if suite.startswith(name)]
        return self.suites.index(suite) if suite in self.suites else min(parts, default=len(self.suites))

    def print_summary(self):
        if self.failed:
            print()
            for outcome in self.failed:
                print(f"FAILED {outcome.suite} {outcome.step}: {outcome.detail}")
        print()
        print(f"{len(self.outcomes) - len(self.failed)} passed, {len(self.failed)} failed", flush=True)


def unique(values):
    return list(dict.fromkeys(values))


def cell(outcome):
    if outcome is None:
        return "-"
    return f"{outcome.seconds:.2f} s" if outcome.passed else "FAIL"
