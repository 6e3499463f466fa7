"""Instructions per operation, counted by callgrind on one connection in memory (the bench `instructions`).

A count does not depend on how busy the machine is, so a regression of a few per cent shows where time cannot tell
it. Each kind of operation is run twice, shorter and longer; the difference is free of what any run costs. Counts
differ by one or two instructions from run to run, because hash tables are seeded at random, and between compilers by
more: the record says which.

`bench/run --only callgrind` compares with the record in bench/callgrind.jsonl; with `--record` it replaces it. The
file's history has the earlier ones.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..report import ROOT, Outcome, Row, environment
from .comparison import progress

RECORDS = ROOT / "bench/callgrind.jsonl"
# Name in the records: operation, bytes of the value.
CASES = {
    "noop": ("noop", 32),
    "get_32": ("get", 32),
    "get_512": ("get", 512),
    "get_miss": ("get_miss", 32),
    "set_32": ("set", 32),
    "set_512": ("set", 512),
}
BATCH = 100
BATCHES = (100, 500)
# A smaller difference is noise, in instructions.
NOISE = 4
FUNCTIONS_SHOWN = 5
# callgrind counts `rep movs` once per byte and vector loops as they are, so the former is turned off.
TUNABLES = "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824"


def measure(options):
    if not shutil.which("valgrind"):
        return Outcome({}, [Row("instructions per operation", "not run: valgrind is not installed")])
    program = build()
    profiles = {name: profile_of(program, operation, value_bytes, options)
                for name, (operation, value_bytes) in CASES.items()}
    about = environment(options.binary)
    record = {"date": about["date"], "commit": about["commit"], "uncommitted_changes": about["uncommitted_changes"],
              "rustc": about["rustc"], "instructions": {name: round(one["instructions"], 1) for name, one in profiles.items()}}
    last = last_record()
    rows = [row_of(name, one, last) for name, one in profiles.items()]
    if options.record:
        RECORDS.write_text(json.dumps(record) + "\n")
    return Outcome({"record": record, "last_record": last, "profiles": profiles}, rows)


def build():
    """Builds the bench as it is released; its path."""
    progress("building the bench `instructions`")
    command = ["cargo", "build", "--release", "--locked", "-p", "oribi-server", "--bench", "instructions",
               "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(one["executable"] for one in messages
                if one["reason"] == "compiler-artifact" and one["target"]["name"] == "instructions" and one["executable"])


def profile_of(program, operation, value_bytes, options):
    """Instructions per operation, in total and by function."""
    shorter, longer = (BATCHES[0] // 10, BATCHES[1] // 10) if options.quick else BATCHES
    progress(f"callgrind: {operation}, {value_bytes} B")
    arguments = ["--operation", operation, "--value-bytes", value_bytes, "--batch", BATCH]
    before, after = (count(program, [*arguments, "--batches", batches]) for batches in (shorter, longer))
    operations = (longer - shorter) * BATCH
    by_function = {name: (after[name] - before.get(name, 0)) / operations for name in after}
    largest = sorted(((name, ns) for name, ns in by_function.items() if ns >= 1), key=lambda one: -one[1])
    return {"instructions": sum(by_function.values()), "by_function": {name: round(ns, 1) for name, ns in largest}}


def count(program, arguments):
    """Instructions of one run by function, each function's own."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, *map(str, arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=dict(os.environ, GLIBC_TUNABLES=TUNABLES))
        if done.returncode != 0:
            raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr[-2000:]}")
        text = out.read_text()
    counts = own_counts(text)
    total = int(re.search(r"^totals: (\d+)", text, re.MULTILINE).group(1))
    if sum(counts.values()) != total:
        raise SystemExit(f"functions have {sum(counts.values())} instructions, the whole program {total}")
    return counts


def own_counts(text):
    """Own instructions of each function in callgrind's format: a cost line belongs to the last `fn=`, but for
    the one after `calls=`, which is what the callee cost."""
    names, counts = {}, {}
    function, is_call = None, False
    for line in text.splitlines():
        if line.startswith(("fn=", "cfn=")):
            number, _, name = line.split("=", 1)[1].partition(" ")
            if name:
                names[number] = readable(name)
            if line.startswith("fn="):
                function = names[number]
        elif line.startswith("calls="):
            is_call = True
        elif line and line[0] in "0123456789+-*":
            if not is_call:
                counts[function] = counts.get(function, 0) + int(line.split()[1])
            is_call = False
    return counts


def readable(name):
    """Without the copy that callgrind tells recursion apart by, and without types in angle brackets."""
    name = re.sub(r"'\d+$", "", name)
    shorter = None
    while shorter != name:
        shorter, name = name, re.sub(r"::<[^<>]*>(?!::)", "", name)
    return name


def last_record():
    """The one that is kept, if there is any."""
    if not RECORDS.exists():
        return None
    lines = RECORDS.read_text().splitlines()
    return json.loads(lines[-1]) if lines else None


def row_of(name, profile, last):
    found = profile["instructions"]
    measured = f"{found:.0f}"
    before = (last or {}).get("instructions", {}).get(name)
    if before is not None:
        change = found - before
        verdict = "as recorded" if abs(change) <= NOISE else f"{change:+.0f} ({change / before:+.1%})"
        measured += f", {verdict} against {before:.0f} at {last['commit']}"
    parts = list(profile["by_function"].items())[:FUNCTIONS_SHOWN]
    measured += "; " + ", ".join(f"{short_name(function)} {instructions:.0f}" for function, instructions in parts)
    return Row(f"instructions per operation: {name}", measured)


def short_name(function):
    """The last two parts of a path."""
    return "::".join(re.sub(r"<impl [^>]*>::", "", function).split("::")[-2:])
