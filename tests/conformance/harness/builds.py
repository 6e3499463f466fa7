"""Installs and builds on a thread of its own, each thing once and one at a time.

Builds use all cores by themselves, so two at a time would gain nothing; but suites whose programs are ready, and
downloads, go on beside them.
"""

import time
from concurrent.futures import ThreadPoolExecutor


class Builds:
    def __init__(self):
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.results = {}

    def begin(self, what, make):
        """Asks for what `make` makes; the first who asks decides when it is its turn."""
        if make not in self.results:
            self.results[make] = self.executor.submit(run, what, make)

    def close(self):
        """Gives up what has not begun."""
        self.executor.shutdown(cancel_futures=True)

    def get(self, what, make):
        """Waits for what `make` makes, and raises what it raised."""
        self.begin(what, make)
        return self.results[make].result()


def run(what, make):
    started = time.monotonic()
    made = make()
    seconds = time.monotonic() - started
    # What was there already is no news.
    if seconds >= 1:
        print(f"       {what} is built after {seconds:.1f} s", flush=True)
    return made
