"""Runs one SDK program and turns its lines into step outcomes.

A step that exceeds its limit ends the program, and every step the program did
not report counts as failed: silence is never success.
"""

import os
import queue
import signal
import subprocess
import threading
import time

from .steps import (CHANGE_STREAM_STEP_SECONDS_MAX, CLUSTER_STEP_SECONDS_MAX, QUERY_STEP_SECONDS_MAX,
                    REPLICA_STEP_SECONDS_MAX, STEP_SECONDS_MAX, TRANSACTION_STEP_SECONDS_MAX)

# Until the first line and between steps a program may start a runtime or close connections.
PAUSE_SECONDS_MAX = 60
LIMITS = {**STEP_SECONDS_MAX, **CLUSTER_STEP_SECONDS_MAX, **TRANSACTION_STEP_SECONDS_MAX,
          **REPLICA_STEP_SECONDS_MAX, **CHANGE_STREAM_STEP_SECONDS_MAX, **QUERY_STEP_SECONDS_MAX}


def run_program(report, suite, command, environment, log_path, steps):
    """Runs `command`, adds one outcome for each of `steps` to `report`."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            env={**os.environ, **environment}, start_new_session=True,
        )
        lines = queue.Queue()
        reader = threading.Thread(target=read_lines, args=(process.stdout, lines), daemon=True)
        reader.start()
        reported, problem = follow(report, suite, lines, log)
        if problem:
            kill_group(process)
        try:
            code = process.wait(timeout=PAUSE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            kill_group(process)
            code, problem = process.wait(), problem or "the program reported everything but did not exit"
        if not problem and code != 0:
            problem = f"exit code {code}"
    for step in steps:
        if step not in reported:
            report.add(suite, step, False, 0.0, problem or "not run")
    if problem:
        report.add(suite, "program", False, 0.0, f"{problem}, see {log_path}")


def follow(report, suite, lines, log):
    """Reads announcements until the program closes its output or exceeds a limit."""
    reported, current, since = set(), None, time.monotonic()
    while True:
        limit = LIMITS.get(current, PAUSE_SECONDS_MAX)
        try:
            line = lines.get(timeout=max(0.0, since + limit - time.monotonic()))
        except queue.Empty:
            where = f"step {current}" if current else "the program between steps"
            return reported, f"{where} exceeded {limit} s"
        if line is None:
            return reported, f"the program ended inside step {current}" if current else None
        log.write(line.encode() + b"\n")
        log.flush()
        word, _, rest = line.partition(" ")
        step, _, detail = rest.partition(" ")
        if word == "BEGIN":
            current, since = step, time.monotonic()
        elif word in ("PASS", "FAIL") and step == current:
            report.add(suite, step, word == "PASS", time.monotonic() - since, detail)
            reported.add(step)
            current, since = None, time.monotonic()


def read_lines(stream, lines):
    for line in stream:
        lines.put(line.decode(errors="replace").rstrip("\n"))
    lines.put(None)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
