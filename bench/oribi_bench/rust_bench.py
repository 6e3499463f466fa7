"""Runs a bench program of a crate and takes in the samples that it prints."""

import json
import os
import subprocess
import sys

from .report import ROOT, output_of

TSAN_FLAGS = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"


def host_triple():
    lines = output_of("rustc", "-vV").splitlines()
    return next(line.split(": ", 1)[1] for line in lines if line.startswith("host: "))


def command_of(bench, arguments, tsan, package):
    """The command, and the environment if it needs another one. Under ThreadSanitizer everything is built
    with a nightly compiler into a directory of its own."""
    toolchain = ["+nightly"] if tsan else []
    target = ["--target", host_triple()] if tsan else []
    command = ["cargo", *toolchain, "bench", "--quiet", "--locked", "-p", package, *target,
               "--bench", bench, "--", *map(str, arguments)]
    if not tsan:
        return command, None
    return command, dict(os.environ, RUSTFLAGS=TSAN_FLAGS, CARGO_TARGET_DIR=str(tsan.resolve()))


def samples_of(bench, arguments, tsan=None, package="oribi-client"):
    """All samples, in order. `tsan` is the target directory of a build under ThreadSanitizer."""
    command, environment = command_of(bench, arguments, tsan, package)
    shown = sys.stderr.isatty()
    samples = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            samples.append(json.loads(line))
            if shown:
                last = samples[-1]
                size = f"{last['size_bytes']} B" if "size_bytes" in last else f"{last['items']} items"
                print(f"\r  {len(samples)} samples, round {last['round']}, {size}    ",
                      end="", file=sys.stderr, flush=True)
    if shown:
        print(file=sys.stderr)
    if process.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {process.returncode}")
    return samples


def by_size(samples, variant):
    """Samples by (value of field `variant`, size), in the order of rounds."""
    groups = {}
    for sample in samples:
        groups.setdefault((sample[variant], sample["size_bytes"]), []).append(sample)
    return groups
