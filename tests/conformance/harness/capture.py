"""Runs a short command and keeps what it printed."""

import os
import subprocess

from . import layout


def captured(command, environment, seconds_max, name, directory=None):
    """Runs a short command; returns its exit code and everything it printed."""
    try:
        done = subprocess.run([str(part) for part in command], env={**os.environ, **environment},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds_max, cwd=directory)
        code, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as expired:
        code, output = -1, (expired.stdout or b"").decode(errors="replace") + f"\nkilled after {seconds_max} s\n"
    (layout.LOGS / f"{name}.log").write_text(output)
    return code, output
