"""A Kudu cluster under measurement: one master and tablet servers as child processes on loopback.

Flags are the servers' own defaults but for the clock, which need not be synchronised on a test machine, and
the web pages, which only cost ports. Kudu is where ORIBI_KUDU_HOME says, else tests/kudu/fetch obtains it.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from .report import ROOT
from .server import free_port

FLAGS = ["--unlock_unsafe_flags", "--unlock_experimental_flags", "--time_source=system_unsync",
         "--webserver_enabled=false", "--logtostderr=true"]
START_SECONDS_MAX = 60
# Below this share of a processor the servers have finished the work of earlier runs.
QUIET_SHARE, QUIET_SECONDS, QUIET_SECONDS_MAX = 0.05, 0.5, 120
# Memory of the empty MemRowSets of some tens of tablets.
FLUSHED_MIB_MAX = 1
# Servers end with the measurement, also with one that is killed.
DIES_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]


def home():
    """The directory of an unpacked Kudu."""
    named = os.environ.get("ORIBI_KUDU_HOME")
    if named:
        return Path(named)
    fetched = subprocess.run([ROOT / "tests/kudu/fetch"], stdout=subprocess.PIPE, text=True, check=False)
    if fetched.returncode != 0:
        raise SystemExit("Kudu cannot be obtained")
    return Path(fetched.stdout.strip().splitlines()[-1])


class KuduCluster:
    """A started cluster; `masters` is its address."""

    def __init__(self, tablet_servers=1, flags=()):
        self.home = home()
        self.flags = [*FLAGS, *flags]
        self.directory = tempfile.TemporaryDirectory(prefix="oribi-bench-kudu-")
        self.processes = []
        self.tablet_servers = []
        port = free_port()
        self.masters = f"127.0.0.1:{port}"
        try:
            self.start("kudu-master", port)
            for _ in range(tablet_servers):
                port = free_port()
                self.start("kudu-tserver", port, f"--tserver_master_addrs={self.masters}")
                self.tablet_servers.append(f"127.0.0.1:{port}")
            self.wait_healthy(tablet_servers)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def environment(self):
        library = self.home / "lib"
        return {**os.environ, "LD_LIBRARY_PATH": str(library), "SASL_PATH": str(library / "sasl2")}

    def start(self, program, port, *flags):
        directory = Path(self.directory.name) / f"{program}-{port}"
        directory.mkdir()
        command = [*DIES_WITH_PARENT, self.home / "bin" / program, f"--fs_wal_dir={directory / 'data'}",
                   f"--rpc_bind_addresses=127.0.0.1:{port}", *self.flags, *flags]
        with open(directory / "log", "wb") as log:
            process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
        self.processes.append(process)

    def wait_healthy(self, tablet_servers):
        """Returns once ksck finds nothing wrong and knows every tablet server."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            done = self.run_tool("cluster", "ksck", self.masters, "-ksck_format=json_compact")
            if done.returncode == 0 and len(json.loads(done.stdout).get("tserver_summaries", [])) == tablet_servers:
                return
            ended = [process for process in self.processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise SystemExit(f"Kudu did not start: {done.stderr[-2000:]}")
            time.sleep(0.1)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.directory.cleanup()

    def tool_command(self, *arguments):
        return [str(self.home / "bin/kudu"), *map(str, arguments)]

    def run_tool(self, *arguments):
        return subprocess.run(self.tool_command(*arguments), env=self.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    def tool(self, *arguments):
        """Output of the C++ tool, which has to succeed."""
        done = self.run_tool(*arguments)
        if done.returncode != 0:
            raise SystemExit(f"kudu {' '.join(map(str, arguments))} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def cpu_s(self):
        """Processor time of all servers so far; threads that ended are counted in ticks only."""
        total = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def row_set_mib(self):
        """Rows that tablet servers have in memory only, their log left out."""
        def sum_of(tracker):
            own = tracker["current_consumption"] if tracker["id"].startswith("MemRowSet") else 0
            return own + sum(map(sum_of, tracker.get("child_trackers", [])))

        outputs = [self.tool("tserver", "dump_memtrackers", address, "-memtracker_output=json_compact")
                   for address in self.tablet_servers]
        return sum(sum_of(json.loads(output)) for output in outputs) / 2**20

    def wait_flushed(self, seconds_max):
        """Returns once the rows of all tablets are on disk and the servers are quiet; the seconds that it took.
        Tablet servers begin by themselves when rows are as old as their --flush_threshold_secs."""
        begin = time.monotonic()
        while (left := self.row_set_mib()) > FLUSHED_MIB_MAX:
            if time.monotonic() > begin + seconds_max:
                raise SystemExit(f"{left:.0f} MiB of rows are not flushed after {seconds_max} s")
            time.sleep(0.5)
        self.wait_quiet()
        return time.monotonic() - begin

    def wait_quiet(self):
        """Returns once the servers have little left to do."""
        deadline = time.monotonic() + QUIET_SECONDS_MAX
        while time.monotonic() < deadline:
            before, begin = self.cpu_s(), time.monotonic()
            time.sleep(QUIET_SECONDS)
            if (self.cpu_s() - before) / (time.monotonic() - begin) < QUIET_SHARE:
                return
