"""Which processor runs what: the worker has one to itself, clients another one.

Left alone, the scheduler sometimes puts a client and the worker on one processor, where they wake each other
twice as cheaply, and sometimes not; whoever meets the better placement would win. All else that a server runs, such as
flushing, shares what is left with the clients.
"""

import os
from pathlib import Path

from .contender import kind_of


def usable():
    return sorted(os.sched_getaffinity(0))


def worker_cpus():
    """Of the one worker that serves."""
    return set(usable()[:1])


def client_cpus():
    """Of the client whose latencies count."""
    return set(usable()[1:2]) or worker_cpus()


def other_cpus():
    """Of everything else."""
    return set(usable()[2:]) or client_cpus()


def place(server):
    """Puts the threads of a server with one worker where they belong."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        is_worker = kind_of((task / "comm").read_text()) == "worker"
        os.sched_setaffinity(int(task.name), worker_cpus() if is_worker else other_cpus())
