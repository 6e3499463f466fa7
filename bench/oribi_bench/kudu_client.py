"""The two clients of Kudu under comparison, as commands: the C++ tool and this project's.

A run is one process. Its processor time and its largest resident memory are what the kernel accounts to
that process when it ends (`wait4`), start-up included; what it reports itself is its number of rows and time.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading

CPP, ORIBI = "C++", "oribi"
CLIENTS = (CPP, ORIBI)


EXIT_INTERRUPTED = 130


def run_measured(command, environment=None, interrupt_after_s=None):
    """Runs a command to its end, or until it is interrupted: its output, and what it took."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as problems:
        process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=problems)
        interrupt = threading.Timer(interrupt_after_s or 0, os.kill, (process.pid, signal.SIGINT))
        if interrupt_after_s:
            interrupt.start()
        _, status, usage = os.wait4(process.pid, 0)
        was_interrupted = interrupt_after_s is not None and not interrupt.is_alive()
        interrupt.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        problems.seek(0)
        if process.returncode not in ({0, EXIT_INTERRUPTED} if was_interrupted else {0}):
            raise SystemExit(f"`{' '.join(map(str, command))}` ended with {process.returncode}: "
                             f"{problems.read()[-2000:]}{output.read()[-2000:]}")
        return output.read(), {"cpu_s": usage.ru_utime + usage.ru_stime, "user_s": usage.ru_utime,
                               "rss_kib_max": usage.ru_maxrss}


def loadgen(client, cluster, binary, arguments):
    """One load; the created table stays. Flags are the same for both, in the spelling both understand."""
    flags = ["--keep_auto_table", *[f"--{name}={value}" for name, value in arguments.items()]]
    if client == ORIBI:
        output, usage = run_measured([binary, "perf", "loadgen", cluster.masters, "--json", *flags])
        summary = json.loads(output)
        written = summary["write"]
        report = {"table": summary["table"], "rows": written["rows"], "seconds": written["seconds"],
                  "write_latency_ms": written["write_latency_ms"]}
    else:
        command = cluster.tool_command("perf", "loadgen", cluster.masters, *flags)
        output, usage = run_measured(command, cluster.environment())
        report = {"table": found(r"table '(.*)'", output), "rows": int(found(r"rows total: (\d+)", output)),
                  "seconds": float(found(r"time total: (\S+) ms", output)) / 1000}
    return {"client": client, **report, **usage}


def verify(cluster, table, rows):
    """Counts the rows with the C++ tool; the sum of the checksums of all tablets."""
    scanned = cluster.tool("perf", "table_scan", cluster.masters, table, "-row_count_only")
    count = int(found(r"Total count (\d+)", scanned))
    if count != rows:
        raise SystemExit(f"{table} has {count} rows instead of {rows}")
    report = cluster.tool("cluster", "ksck", cluster.masters, "-checksum_scan", "-sections=CHECKSUM_RESULTS",
                          f"-tables={table}")
    return sum(int(sum_of_tablet) for sum_of_tablet in re.findall(r"Checksum: (\d+)", report))


def drop(cluster, table):
    cluster.tool("table", "delete", cluster.masters, table, "-reserve_seconds=0")


def found(pattern, text):
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"no {pattern} in {text[-2000:]}")
    return match.group(1)
