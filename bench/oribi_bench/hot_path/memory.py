"""Resident memory of ten million small documents."""

import tempfile
import time
from pathlib import Path

from ..kv_load import Load
from ..plot_bars import Bar, bar_chart
from ..report import Outcome, Row
from . import trial
from .comparison import progress
from .contender import PEER, chosen

ITEMS, VALUE_BYTES, KEY_BYTES = 10_000_000, 32, 16
MEMORY_MIB = 8192
# Idle time before memory is read again.
IDLE_S = 10
PAYLOAD = VALUE_BYTES + KEY_BYTES


def load_of(options):
    items = 50_000 if options.quick else ITEMS
    return Load(items, VALUE_BYTES, 1000, 0, connections=4, duration_s=0.5 if options.quick else 3, key_digits=KEY_BYTES)


def measure(options):
    """Each contender alone, so that none is in the other's memory."""
    load = load_of(options)
    figures = {contender.name: measure_one(options, contender, load) for contender in chosen(options)}
    return Outcome({"load": vars(load), **figures}, rows_of(options, load, figures),
                   {"hot-path-memory": plot_of(options, load, figures)})


def measure_one(options, contender, load):
    progress(f"memory: {load.items:,} documents into {contender.label}")
    with tempfile.TemporaryDirectory() as directory:
        with contender.start(options.binary, Path(directory), memory_mib=MEMORY_MIB) as server:
            time.sleep(1)
            empty_mib = server.resident_mib()
            before = contender.counters(server)
            population = trial.populate(options.binary, server, load)
            loaded_mib = server.resident_mib()
            trial.expect(contender, "documents stored", population["stored"], load.items)
            contender.settle(server)
            settled_mib = server.resident_mib()
            time.sleep(1 if options.quick else IDLE_S)
            idle_mib = server.resident_mib()
            after = contender.counters(server)
            trial.expect(contender, "documents in the server", after["curr_items"] - before["curr_items"], load.items)
            # Reading some of them shows that they are there.
            trial.run(options.binary, contender, server, load, seed=1)
            return {"empty_mib": empty_mib, "loaded_mib": loaded_mib, "settled_mib": settled_mib, "idle_mib": idle_mib,
                    "peak_mib": server.peak_resident_mib(), "load_s": population["seconds"],
                    "bytes_per_document": (idle_mib - empty_mib) * 2**20 / load.items}


def rows_of(options, load, figures):
    rows = []
    for contender in chosen(options):
        one = figures[contender.name]
        overhead = one["bytes_per_document"] - PAYLOAD
        measured = (f"{one['idle_mib']:.0f} MiB: {one['bytes_per_document']:.1f} bytes per document, {overhead:.1f} more than "
                    f"key and value; {one['loaded_mib']:.0f} MiB right after loading, {one['settled_mib']:.0f} MiB settled, "
                    f"{one['peak_mib']:.0f} MiB at most; loaded in {one['load_s']:.0f} s")
        what = f"resident memory, {load.items:,} documents, {KEY_BYTES} B keys, {VALUE_BYTES} B values: {contender.label}"
        goal = ()
        if contender != PEER and PEER.name in figures:
            peer_mib = figures[PEER.name]["idle_mib"]
            measured = f"{one['idle_mib'] / peer_mib:.2f} of memcached's; {measured}"
            goal = ("less than memcached's", one["idle_mib"] < peer_mib)
        rows.append(Row(what, measured, *goal))
    return rows


def plot_of(options, load, figures):
    moments = {"right after loading": "loaded_mib", "settled": "settled_mib", "idle": "idle_mib"}
    groups = []
    for contender in chosen(options):
        one = figures[contender.name]
        groups.append((contender.label, [Bar(name, {"MiB": one[figure]}) for name, figure in moments.items()]))
    payload_mib = load.items * PAYLOAD / 2**20
    return bar_chart(f"Resident memory, {load.items:,} documents", "MiB", groups,
                     f"keys of {KEY_BYTES} B and values of {VALUE_BYTES} B are {payload_mib:.0f} MiB of it")
