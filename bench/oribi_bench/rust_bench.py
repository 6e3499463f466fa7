"""Runs a bench program of a crate and takes in the samples that it prints."""

import json
import subprocess

from .report import ROOT


def samples_of(package, bench, arguments):
    """All samples, in order."""
    command = ["cargo", "bench", "--quiet", "--locked", "-p", package, "--bench", bench, "--", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]
