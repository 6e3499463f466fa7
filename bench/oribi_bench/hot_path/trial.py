"""One run of a load on one contender, which counts only when nothing is missing.

Every value that the client reads is verified by it. Afterwards the client's counts and the server's own
must agree to the last operation: each read a hit, each write stored, nothing evicted, nothing given up.
A run that fails any of this ends the measurement; its speed is not shown.
"""

from ..kv_load import Tool, populate
from .contender import BACKGROUND_KINDS, by_kind
from .placement import client_cpus


def fill(binary, contender, server, load):
    """Writes every document of a load, makes sure that they are all there, and lets the server settle."""
    before = contender.counters(server)
    population = populate(binary, server, load)
    after = contender.counters(server)
    expect(contender, "documents stored", population["stored"], load.items)
    expect(contender, "documents in the server", after["curr_items"] - before["curr_items"], load.items)
    expect(contender, "documents evicted", after["evictions"], 0)
    contender.settle(server)
    return population


def expect(contender, what, found, wanted):
    """Ends the measurement when a figure is not what it has to be."""
    if found != wanted:
        disbelieve(contender, [f"{what}: {found:,}, not {wanted:,}"])


def disbelieve(contender, wrong):
    raise SystemExit(f"{contender.label}: {', '.join(wrong)}; nothing of this run is believed")


def believe(contender, phase, before, after):
    """Compares what the client counted with the server's counters."""
    def grown(name):
        return after[name] - before[name]

    gets, sets, retries = phase["gets"], phase["sets"], phase["retries"]
    figures = (
        ("reads that were hits", phase["hits"], gets),
        ("reads that were misses", phase["misses"], 0),
        ("writes that were stored", phase["stored"], sets),
        ("wrong values", sum(phase["corrupt"].values()), 0),
        ("operations given up", phase["given_up"], 0),
        ("operations without an answer", phase["unanswered"], 0),
        ("reads by the server's count", grown("cmd_get"), gets),
        ("hits by the server's count", grown("get_hits"), gets),
        ("misses by the server's count", grown("get_misses"), 0),
        ("documents evicted", grown("evictions"), 0),
        ("documents in the server", after["curr_items"], before["curr_items"]),
    )
    if wrong := [f"{what}: {found:,}, not {wanted:,}" for what, found, wanted in figures if found != wanted]:
        disbelieve(contender, wrong)
    # The server may or may not have counted a refused write that was retried.
    if not sets <= grown("cmd_set") <= sets + retries:
        expect(contender, "writes by the server's count", grown("cmd_set"), sets)
    if gets + sets == 0:
        raise SystemExit(f"{contender.label}: no operation was executed")


def run(binary, contender, server, load, seed):
    """Runs a load on a filled server; figures of it."""
    before = contender.counters(server)
    background_before = by_kind(server.cpu_s_by_thread())
    phase = Tool(binary, server, load.run_arguments(seed), client_cpus()).summary()["load"]
    contender.settle(server)
    background_after = by_kind(server.cpu_s_by_thread())
    believe(contender, phase, before, contender.counters(server))
    operations = phase["operations"]
    ns = by_kind(phase["server_thread_cpu_ns_per_operation"])
    # Work that flusher and store finish after the load belongs to its writes, too.
    for kind in BACKGROUND_KINDS:
        ns[kind] = (background_after[kind] - background_before[kind]) * 1e9 / operations
    return {**figures_of(phase), "server_ns": sum(ns.values()), "server_ns_by_kind": ns}


def figures_of(phase):
    """What the client saw."""
    latency = phase["latency_us"]
    return {
        "operations": phase["operations"],
        "operations_per_second": phase["operations_per_second"],
        "megabytes_per_second": phase["megabytes_per_second"],
        "retries": phase["retries"],
        "client_ns": phase["client_cpu_ns_per_operation"]["total"],
        **{f"{name}_us": latency[name] for name in ("p50", "p90", "p99", "p99_9", "p99_99", "max")},
    }

