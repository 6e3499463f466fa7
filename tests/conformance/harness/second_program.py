"""Another program of the same language, which works until it is killed.

What it leaves half done is what the first program, or its SDK, has to cope with.
"""

import os
import queue
import subprocess
import threading
import time

from .program import kill_group, read_lines
from .server import ServerError

READY_SECONDS_MAX = 60


class SecondProgram:
    """It says `READY` on its standard output when it is in the middle of its work."""

    def __init__(self, command, environment, log_path):
        self.command = [str(part) for part in command]
        self.environment = {**os.environ, **environment}
        self.log_path = log_path
        self.process = None

    def start(self):
        """Returns once the program is at work."""
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self.environment,
                start_new_session=True,
            )
        lines = queue.Queue()
        threading.Thread(target=read_lines, args=(self.process.stdout, lines), daemon=True).start()
        deadline = time.monotonic() + READY_SECONDS_MAX
        line = ""
        while line != "READY":
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ServerError(f"the second program is not at work after {READY_SECONDS_MAX} s") from None
            if line is None:
                raise ServerError(f"the second program ended by itself, see {self.log_path}")

    def kill(self):
        """Ends it with SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            kill_group(self.process)
            self.process.wait()
