"""How long a clean build and a clean run of all tests take."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from .report import ROOT, Outcome, Row

COMMANDS = {
    "release_build_s": ["cargo", "build", "--release", "--locked", "-p", "oribi"],
    "test_run_s": ["cargo", "test", "--workspace", "--locked"],
}


def measure(options):
    """Builds in directories of their own, so that nothing built before helps."""
    figures, rows = {}, []
    for name, command in COMMANDS.items():
        target = tempfile.mkdtemp(prefix="oribi-build-")
        environment = dict(os.environ, CARGO_TARGET_DIR=target)
        try:
            subprocess.run(["cargo", "fetch", "--locked"], cwd=ROOT, check=True, env=environment)
            before, begin = os.times(), time.perf_counter()
            subprocess.run(command, cwd=ROOT, check=True, env=environment, stdin=subprocess.DEVNULL)
            wall_s, after = time.perf_counter() - begin, os.times()
            cpu_s = (after.children_user + after.children_system
                     - before.children_user - before.children_system)
            figures[name] = {"wall_s": wall_s, "cpu_s": cpu_s}
            rows.append(Row(f"clean `{' '.join(command)}`", f"{wall_s:.0f} s ({cpu_s:.0f} s of processor time)"))
            if name == "release_build_s":
                figures["binary_mib"] = (Path(target) / "release/oribi").stat().st_size / 2**20
        finally:
            shutil.rmtree(target, ignore_errors=True)
    return Outcome(figures, rows)
