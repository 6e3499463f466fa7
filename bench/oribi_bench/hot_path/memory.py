"""Resident memory of ten million small documents."""

import tempfile
import time
from pathlib import Path

from ..kv_load import Load
from ..report import Outcome, Row
from . import trial
from .comparison import progress
from .contender import PEER, chosen

ITEMS, VALUE_BYTES, KEY_BYTES = 10_000_000, 32, 16
MEMORY_MIB = 8192
# Idle time before memory is read.
IDLE_S = 10


def measure(options):
    """Each contender alone, so that none is in the other's memory."""
    items = 50_000 if options.quick else ITEMS
    load = Load(items, VALUE_BYTES, 1000, 0, connections=4, key_digits=KEY_BYTES)
    contenders = [one for one in chosen(options) if not one.writes_to_disk]
    bytes_each = {contender.name: bytes_per_document(options, contender, load) for contender in contenders}
    peer = f"{PEER.label}, {bytes_each[PEER.name]:.1f} B each" if PEER.name in bytes_each else ""
    what = f"memory of {items:,} documents of {KEY_BYTES} + {VALUE_BYTES} B"
    return Outcome(bytes_each, [Row(what, f"{bytes_each['oribi-memory']:.1f} B each", peer)])


def bytes_per_document(options, contender, load):
    progress(f"memory: {load.items:,} documents into {contender.label}")
    with tempfile.TemporaryDirectory() as directory:
        with contender.start(options.binary, Path(directory), memory_mib=MEMORY_MIB) as server:
            time.sleep(1)
            empty_mib = server.resident_mib()
            trial.fill(options.binary, contender, server, load)
            time.sleep(1 if options.quick else IDLE_S)
            return (server.resident_mib() - empty_mib) * 2**20 / load.items
