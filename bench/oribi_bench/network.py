"""The network under measurement: loopback with TCP congestion control as the kernel has it by default.

A machine may set another one for all its sockets, and then it counts on loopback too: `bbr` paces each socket by
timers, which doubles or trebles the CPU of a send. `use_default` therefore moves this process, and so every server
and client that it starts, to a network namespace of its own, which has a loopback interface and nothing else. The
machine's own settings stay as they are. Without root it stays where it is. The results name what was used.
"""

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

from . import kudu_server
from .report import ROOT

# The kernel's default, and what it falls back to where that is not built in or not allowed in a namespace.
DEFAULTS = ("cubic", "reno")
SETTING = Path("/proc/sys/net/ipv4/tcp_congestion_control")
# Of linux/sched.h, linux/sockios.h and linux/if.h; an `ifreq` is a name of 16 bytes, flags and padding.
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
IFREQ = "16sh22x"


def congestion_control():
    """The name of what a new socket uses."""
    with socket.socket() as probe:
        return probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def use_default(needs_kudu=False):
    """Returns what connections of this process and its children use from now on. Downloads first what builds, and
    Kudu if it is needed, because the namespace reaches no other machine. Call it before there are threads."""
    found = congestion_control()
    if found in DEFAULTS:
        return found
    if os.geteuid() == 0:
        download(needs_kudu)
    try:
        enter_namespace()
    except OSError as error:
        print(f"measuring under TCP congestion control {found}, no network namespace: {error.strerror}", file=sys.stderr)
        return found
    for name in DEFAULTS:
        try:
            SETTING.write_text(name)
            break
        except OSError:
            # Not built in, or the machine does not allow it in namespaces.
            continue
    return congestion_control()


def download(needs_kudu):
    if shutil.which("cargo"):
        # What is missing without it, a build names.
        subprocess.run(["cargo", "fetch", "--quiet", "--locked"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    if needs_kudu:
        kudu_server.home()


def enter_namespace():
    """Moves the calling thread to a new network namespace and brings its loopback interface up. OSError without the
    right to do so, which root in a container may lack."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack(IFREQ, b"lo", IFF_UP))
