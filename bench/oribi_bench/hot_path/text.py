"""memcached's text protocol: server time per pipelined operation.

memcached speaks the same protocol in the same rounds.
"""

from ..kv_load import Load
from ..report import Outcome, Row
from .comparison import compare
from .contender import chosen

CONTENDERS = ("oribi-memory", "memcached")
CONNECTIONS = 50
BATCH = 100
VALUE_BYTES, DOCUMENTS = 512, 1_000_000
# Percentage of sets by command.
COMMANDS = {"get": 0, "set": 100}


def loads_of(options):
    items, duration_s = (DOCUMENTS // 200, 0.3) if options.quick else (DOCUMENTS, 2)
    return [Load(items, VALUE_BYTES, BATCH, set_pct, connections=CONNECTIONS, duration_s=duration_s, protocol="text")
            for set_pct in COMMANDS.values()]


def measure(options):
    options.contenders = options.contenders or list(CONTENDERS)
    comparisons = compare(options, chosen(options), loads_of(options), options.rounds or (2 if options.quick else 5))
    rows = [Row(f"text protocol, server CPU per operation, {command}, {VALUE_BYTES} B, batch {BATCH}",
                one.cpu_text("oribi-memory"), one.peer_text()) for command, one in zip(COMMANDS, comparisons)]
    return Outcome({"comparisons": [one.figures() for one in comparisons]}, rows)
