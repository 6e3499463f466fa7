"""What a measurement returns, and how it is shown and kept."""

import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Row:
    """One row of the table in docs/benchmarks.md."""

    what: str
    result: str
    # Who was measured in the same rounds, and its figure.
    peer: str = ""


@dataclass
class Outcome:
    """The samples of one measurement, and its rows."""

    figures: dict
    rows: list


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def environment(binary):
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().splitlines()[0].split()
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": output_of("git", "rev-parse", "--short", "HEAD") or "unknown",
        "uncommitted_changes": bool(output_of("git", "status", "--porcelain", "--", "crates", "Cargo.lock")),
        "cpu": cpu[0].split(":", 1)[1].strip() if cpu else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1),
        "kernel": platform.release(),
        "rustc": output_of("rustc", "--version"),
        "load_average": list(os.getloadavg()),
        "binary_mib": round(binary.stat().st_size / 2**20, 1) if binary.exists() else None,
    }


def text(outcomes):
    rows = [row for outcome in outcomes.values() for row in outcome.rows]
    width = max(len(row.what) for row in rows)
    return "\n".join(f"{row.what:<{width}}  {row.result}" + f"  [{row.peer}]" * bool(row.peer) for row in rows)


def table(outcomes):
    """The rows as docs/benchmarks.md has them."""
    lines = ["| what | peer | result (smallest to largest) | command |", "|---|---|---|---|"]
    for name, outcome in outcomes.items():
        lines += [f"| {row.what} | {row.peer} | {row.result} | `bench/run --only {name}` |" for row in outcome.rows]
    return "\n".join(lines)


def write(about, outcomes, file_name, directory=None):
    """Writes samples, environment and table; returns the directory."""
    directory = directory or ROOT / "bench/runs" / f"{about['date'][:10]}-{about['commit']}"
    directory.mkdir(parents=True, exist_ok=True)
    figures = {name: outcome.figures for name, outcome in outcomes.items()}
    result = {"environment": about, "figures": figures}
    (directory / f"{file_name}.json").write_text(json.dumps(result, indent=1) + "\n")
    commit = about["commit"] + (" with uncommitted changes" if about["uncommitted_changes"] else "")
    head = f"{about['date']}, commit {commit}, {about['cores']} cores {about['cpu']}, {about['rustc']}, " \
           f"TCP {about['congestion_control']}"
    (directory / f"{file_name}.md").write_text(f"{head}\n\n{table(outcomes)}\n")
    return directory
