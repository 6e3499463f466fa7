"""memcached's text protocol and its meta commands: server time per operation, and operations one at a time.

The loads are those of `cpu` and `unpipelined`, in the protocols that most clients of a cache speak: pipelined `get`, a
`get` of 100 keys, pipelined `mg` and pipelined `set`. memcached speaks the same protocol in the same rounds.
"""

from ..kv_load import Load
from ..report import Outcome, Row
from ..samples import text_of
from .comparison import compare
from .contender import PEER, chosen

CONTENDERS = ("oribi-memory", "memcached")
CONNECTIONS = 50
BATCH = KEYS_PER_GET = 100
# Bytes of a value, documents.
SHAPES = ((512, 1_000_000), (32, 1_000_000))
# Protocol, keys of a get, percentage of sets.
COMMANDS = (("text", 1, 0), ("text", KEYS_PER_GET, 0), ("meta", 1, 0), ("text", 1, 100))
CPU_GOAL, CPU_GOAL_TEXT = 1 / 3, "<= 1/3"
# One operation per round trip: many short rounds, as in `unpipelined`.
UNPIPELINED_CONNECTIONS = (1, 50)
UNPIPELINED_ITEMS, UNPIPELINED_ROUNDS, UNPIPELINED_S = 100_000, 24, 0.25
# Within this tolerance a throughput counts as equal, because rounds differ by more.
TOLERANCE = 0.05


def command_of(load):
    """What a load sends; `load` as it is recorded."""
    if load["set_pct"] == 100:
        return "ms" if load["protocol"] == "meta" else "set"
    if load["keys_per_get"] > 1:
        return f"get of {load['keys_per_get']} keys"
    return "mg" if load["protocol"] == "meta" else "get"


def pipelined_loads(value_bytes, items, options):
    items, duration_s = (items // 200, 0.3) if options.quick else (items, 2)
    return [Load(items, value_bytes, BATCH, set_pct, connections=CONNECTIONS, duration_s=duration_s, protocol=protocol,
                 keys_per_get=keys) for protocol, keys, set_pct in COMMANDS]


def unpipelined_loads(options):
    items, duration_s = (2_000, 0.3) if options.quick else (UNPIPELINED_ITEMS, UNPIPELINED_S)
    return [Load(items, 512, 1, 0, connections=connections, duration_s=duration_s, protocol=protocol)
            for connections in UNPIPELINED_CONNECTIONS for protocol in ("text", "meta")]


def measure(options):
    options.contenders = options.contenders or list(CONTENDERS)
    contenders = chosen(options)
    rounds = options.rounds or (2 if options.quick else 5)
    pipelined = [comparison for value_bytes, items in SHAPES
                 for comparison in compare(options, contenders, pipelined_loads(value_bytes, items, options), rounds)]
    rounds = options.rounds or (2 if options.quick else UNPIPELINED_ROUNDS)
    unpipelined = compare(options, contenders, unpipelined_loads(options), rounds)
    rows = [row for comparison in pipelined for row in cpu_rows(comparison)]
    rows += [row for comparison in unpipelined for row in throughput_rows(comparison)]
    figures = {"pipelined": [one.figures() for one in pipelined], "unpipelined": [one.figures() for one in unpipelined]}
    return Outcome(figures, rows)


def cpu_rows(comparison):
    """One row per contender: its ratio to memcached, then what it took."""
    load = comparison.load
    for contender in comparison.contenders:
        name = contender.name
        what = f"server CPU per operation, {command_of(vars(load))}, {load}: {contender.label}"
        measured = (f"{comparison.cpu_text(name)}; {comparison.spread(name, 'operations_per_second')['median'] / 1e6:.2f} "
                    f"M op/s, client {comparison.spread(name, 'client_ns')['median']:.0f} ns")
        if contender == PEER or not comparison.has_peer():
            yield Row(what, measured)
            continue
        ratio = comparison.ratio(name, "server_ns")
        yield Row(f"{what} over memcached", f"{text_of(ratio)}; {measured}", CPU_GOAL_TEXT, ratio["median"] <= CPU_GOAL)


def throughput_rows(comparison):
    load = comparison.load
    for contender in comparison.contenders:
        name = contender.name
        connections = f"{load.connections} connection{'s' * (load.connections > 1)}"
        what = f"unpipelined {command_of(vars(load))}, {connections}: {contender.label}"
        rate, p99 = (comparison.spread(name, figure)["median"] for figure in ("operations_per_second", "p99_us"))
        measured = f"{rate / 1000:.1f} k op/s, p99 {p99:.0f} µs, server CPU {comparison.cpu_text(name)}"
        if contender == PEER or not comparison.has_peer():
            yield Row(what, measured)
            continue
        speed = comparison.ratio(name, "operations_per_second")
        yield Row(f"{what}: throughput over memcached", f"{text_of(speed)}: {measured}", ">= 1",
                  speed["median"] >= 1 - TOLERANCE)
