"""Destroying a batch of a million operations: objects per row, the same with prefetching, buffers.

The first two are what the C++ client does, before and after it learnt to prefetch what it is about to
destroy, rebuilt with the same chain of heap objects per operation; the third is a session of this client with as many
rows in its buffers. The bench program of the crate makes each batch anew and takes the processor time of dropping it.
"""

import json
import subprocess

from .plot_bars import Bar, bar_chart
from .report import ROOT, Outcome, Row
from .samples import ratios, spread, text_of

OBJECTS, PREFETCHED, BUFFERS = "heap_objects", "heap_objects_prefetched", "session_buffers"
NAMES = {OBJECTS: "heap objects per row", PREFETCHED: "the same, prefetching", BUFFERS: "a session's buffers"}
ENCODED = "session_encode"


def samples_of(rounds, rows):
    command = ["cargo", "bench", "--quiet", "--locked", "-p", "oribi-kudu", "--bench", "batch_drop", "--",
               "--rounds", str(rounds), "--rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(options):
    count = 20_000 if options.quick else 1_000_000
    samples = samples_of(options.rounds or (3 if options.quick else 15), count)
    milliseconds = {way: [one["ns_per_row"] * one["rows"] / 1e6 for one in samples if one["way"] == way]
                    for way in NAMES}
    prefetched = ratios(milliseconds[PREFETCHED], milliseconds[OBJECTS])
    cheaper = ratios(milliseconds[OBJECTS], milliseconds[BUFFERS])
    figures = {way: spread(milliseconds[way]) for way in NAMES}
    encoded = spread([one["ns_per_row"] for one in samples if one["way"] == ENCODED])
    rows = [
        Row(f"destroying a batch of {count:,} operations, {NAMES[OBJECTS]}", f"{text_of(figures[OBJECTS])} ms"),
        Row(f"{NAMES[PREFETCHED]}, over the first", text_of(prefetched)),
        Row(NAMES[BUFFERS], f"{text_of(figures[BUFFERS], 3)} ms: {text_of(cheaper, 0)} times cheaper than the first",
            ">= 50 times", cheaper["median"] >= 50),
        Row("a row from its first cell to the laid-out request", f"{text_of(encoded, 0)} ns"),
    ]
    bars = [Bar(NAMES[way], {"drop": figure["median"]}, figure["min"], figure["max"])
            for way, figure in figures.items()]
    chart = bar_chart("Destroying a batch", "ms", [(f"{count:,} operations", bars)])
    return Outcome({"operations": count, "drop_ms": figures, "encode_ns_per_row": encoded}, rows,
                   {} if options.quick else {"kudu-batch-drop": chart})
