"""What it costs two workers to serve the same documents, with both processors loaded alike.

Two workers are compared with two servers of one worker each that are busy at the same time. Each worker has a
processor to itself in both cases, and the two processors share their memory, their power and their host in both. So
one server costs more than two by what its workers share: cache lines that one writes and the other needs, and locks.
The load is bursts (see `burst`): only the servers run.
"""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..kv_load import Load
from ..report import Outcome, Row
from ..samples import ratios, spread, text_of
from . import trial
from .burst import Burst, run_at_once
from .comparison import in_turn, progress
from .contender import PEER, chosen, kind_of
from .placement import usable

DOCUMENTS, VALUE_BYTES = 100_000, 32
SET_PCTS = (0, 20)
PROCESSORS = 2
# Of all connections together; a burst of reads takes some fifty milliseconds of both processors.
CONNECTIONS, PER_CONNECTION = 128, 2000
WARM_UP_BURSTS = 2
ONE_SERVER, TWO_SERVERS = "one server", "two servers"


def measure(options):
    contenders = [one for one in chosen(options) if not one.writes_to_disk]
    documents = 2000 if options.quick else DOCUMENTS
    connections, per_connection = (8, 200) if options.quick else (CONNECTIONS, PER_CONNECTION)
    rounds = options.rounds or (2 if options.quick else 14)
    load = Load(documents, VALUE_BYTES)
    if len(usable()) < PROCESSORS:
        raise SystemExit(f"two workers need {PROCESSORS} processors")
    figures, rows = {}, []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {contender.name: start(stack, options, contender, directory, load) for contender in contenders}
        for set_pct in SET_PCTS:
            progress(f"workers: one hot key, {set_pct} % sets: {rounds} rounds")
            hot = Load(documents, VALUE_BYTES, set_pct=set_pct)
            figures[set_pct] = bursts_in_turn(contenders, servers, hot, [0], (connections, per_connection), rounds)
            rows.append(row_of(set_pct, figures[set_pct]))
    return Outcome(figures, rows)


def start(stack, options, contender, directory, load):
    """One server with two workers and two with one, filled, each worker on its processor."""
    servers = {}
    for case, workers in ((ONE_SERVER, [PROCESSORS]), (TWO_SERVERS, [1] * PROCESSORS)):
        servers[case] = [stack.enter_context(contender.start(options.binary, directory, count, memory_mib=1024))
                         for count in workers]
        processors = usable()
        for server in servers[case]:
            trial.fill(options.binary, contender, server, load)
            processors = pin(server, processors)
    return servers


def pin(server, processors):
    """Gives each worker of a server one of these processors; those that are left."""
    left = list(processors)
    for task in sorted(Path(f"/proc/{server.pid}/task").iterdir(), key=lambda task: int(task.name)):
        if kind_of((task / "comm").read_text()) == "worker":
            os.sched_setaffinity(int(task.name), {left.pop(0)})
    return left


def bursts_in_turn(contenders, servers, load, numbers, size, rounds):
    """Samples by contender and case. All cases of all contenders run in each round."""
    with ExitStack() as stack:
        cases = {}
        for contender in contenders:
            for case, group in servers[contender.name].items():
                bursts = [Burst(contender, server, load, size[0] // len(group), size[1], seed, numbers)
                          for seed, server in enumerate(group)]
                for burst in bursts:
                    stack.callback(burst.close)
                cases[contender, case] = bursts
        before = {key: counts(key[0], bursts) for key, bursts in cases.items()}
        samples = {contender.name: {case: [] for case in (ONE_SERVER, TWO_SERVERS)} for contender in contenders}
        for number in range(WARM_UP_BURSTS + rounds):
            for contender, case in in_turn(list(cases), number):
                sample = run_at_once(cases[contender, case])
                if number >= WARM_UP_BURSTS:
                    samples[contender.name][case].append(sample)
        for (contender, case), bursts in cases.items():
            after = counts(contender, bursts)
            for at, wanted in enumerate((sum(b.gets for b in bursts), sum(b.sets for b in bursts))):
                grown = after[at] - before[contender, case][at]
                trial.expect(contender, ("hits", "writes")[at], grown, wanted * (WARM_UP_BURSTS + rounds))
    return samples


def counts(contender, bursts):
    """Hits and writes of the servers so far."""
    all_counters = [contender.counters(burst.server) for burst in bursts]
    return [sum(counters[name] for counters in all_counters) for name in ("get_hits", "cmd_set")]


def overhead(cases):
    """CPU of one server over two, in pairs of the same round."""
    return ratios(*([sample["cpu_ns"] for sample in cases[case]] for case in (ONE_SERVER, TWO_SERVERS)))


def row_of(set_pct, samples):
    cases = samples["oribi-memory"]
    ns = spread([sample["cpu_ns"] for sample in cases[ONE_SERVER]])["median"]
    peer = f"{PEER.label}, {text_of(overhead(samples[PEER.name]))}" if PEER.name in samples else ""
    return Row(f"CPU per operation, {VALUE_BYTES} B, one hot key, {set_pct} % sets: 2 workers over 2 servers",
               f"{text_of(overhead(cases))}; {ns:.0f} ns", peer)
