"""Sub-document operations by span beside parsing, editing and printing; and JSON detection in bytes a second.

The bench program of the crate takes processor time on one thread, both ways in turn, round by round.
"""

import json
import subprocess

from .report import ROOT, Outcome, Row
from .samples import ratios, spread, text_of, text_of_bytes

LIMIT_AT_BYTES = 100_000


def samples_of(rounds):
    command = ["cargo", "bench", "--quiet", "--locked", "-p", "oribi-subdoc", "--bench", "subdoc", "--",
               "--rounds", str(rounds)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def grouped(samples, bench, *fields):
    """Samples of one bench in lists by some of their fields."""
    groups = {}
    for sample in samples:
        if sample["bench"] == bench:
            groups.setdefault(tuple(sample[field] for field in fields), []).append(sample["ns"])
    return groups


def rows_of_operations(samples, figures):
    groups = grouped(samples, "subdoc", "work", "place", "size_bytes", "way")
    for (work, place, size, way), spans in groups.items():
        if way != "span":
            continue
        trees = groups[work, place, size, "tree"]
        cheaper = ratios(trees, spans)
        name = f"{work} at the {place} of {text_of_bytes(size)}"
        figures[name] = {"span_ns": spread(spans), "tree_ns": spread(trees)}
        limit = (">= 5 times", cheaper["median"] >= 5) if size >= LIMIT_AT_BYTES else ()
        yield Row(name, f"{text_of(spread(spans), 0)} ns: {text_of(cheaper, 1)} times cheaper than by a tree", *limit)


def rows_of_detection(samples, figures):
    groups = grouped(samples, "json", "work", "size_bytes", "way")
    for (work, size, way), taken in groups.items():
        if way != "check":
            continue
        speed = spread([size / ns for ns in taken])
        other = ratios(groups[work, size, "serde_json"], taken)
        figures[work] = {"gigabytes_per_s": speed, "over_serde_json": other}
        yield Row(f"JSON detection, {work}", f"{text_of(speed)} GB/s, {text_of(other)} times serde_json's",
                  ">= 1 GB/s", speed["median"] >= 1)


def measure(options):
    samples = samples_of(options.rounds or (1 if options.quick else 9))
    figures = {}
    rows = [*rows_of_operations(samples, figures), *rows_of_detection(samples, figures)]
    return Outcome(figures, rows, {})
