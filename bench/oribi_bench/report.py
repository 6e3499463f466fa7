"""What a measurement hands back, and how it is kept and shown."""

import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Row:
    """One figure for people."""

    what: str
    measured: str
    goal: str = ""
    # Whether it was reached, where that can be said.
    met: bool | None = None

    def goal_text(self):
        verdict = {None: "", True: ": met", False: ": missed"}[self.met]
        return f"{self.goal}{verdict}"


@dataclass
class Outcome:
    """Everything that one measurement found."""

    figures: dict
    rows: list
    # SVG text by file name without suffix.
    plots: dict = field(default_factory=dict)
    # What the command needs besides --only NAME.
    options: str = ""


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


def table(outcomes):
    rows = [row for outcome in outcomes.values() for row in outcome.rows]
    width = max(len(row.what) for row in rows)
    goals = [f"  [goal {row.goal_text()}]" if row.goal else "" for row in rows]
    return "\n".join(f"{row.what:<{width}}  {row.measured}{goal}" for row, goal in zip(rows, goals))


def markdown(outcomes):
    """The rows as docs/benchmarks.md has them."""
    lines = ["| What | Goal | Measured | Command |", "|---|---|---|---|"]
    for name, outcome in outcomes.items():
        command = f"bench/run --only {name} {outcome.options}".strip()
        lines += [f"| {row.what} | {row.goal_text()} | {row.measured} | `{command}` |" for row in outcome.rows]
    return "\n".join(lines)


def write(about, outcomes, file_name, directory=None):
    """Keeps samples, table, markdown rows and plots; returns the directory."""
    directory = directory or ROOT / "bench/runs" / f"{about['date'][:10]}-{about['commit']}"
    directory.mkdir(parents=True, exist_ok=True)
    figures = {name: outcome.figures for name, outcome in outcomes.items()}
    result = {"environment": about, "figures": figures}
    (directory / f"{file_name}.json").write_text(json.dumps(result, indent=1) + "\n")
    commit = about["commit"] + (" with uncommitted changes" if about["uncommitted_changes"] else "")
    head = f"{about['date']}, commit {commit}, {about['cores']} cores {about['cpu']}, {about['rustc']}, " \
           f"TCP {about['congestion_control']}"
    text = f"{head}\n\n{table(outcomes)}\n\n{markdown(outcomes)}\n"
    (directory / f"{file_name}.txt").write_text(text)
    for outcome in outcomes.values():
        for name, svg in outcome.plots.items():
            (directory / f"{name}.svg").write_text(svg)
    return directory
