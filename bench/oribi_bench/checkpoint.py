"""T4: what the checkpoint queue costs under its lock, by the number of items."""

from .report import Outcome, Row
from .rust_bench import samples_of
from .samples import spread


def arguments_of(options):
    if options.quick:
        return ["--rounds", 2, "--items", "1,100,10000", "--queued", "1000,10000"]
    return ["--rounds", options.rounds or 9]


def measure(options):
    samples = samples_of("oribi-engine", "checkpoint_queue", arguments_of(options))
    groups = {}
    for one in samples:
        groups.setdefault((one["measure"], one.get("kind", ""), one["items"]), []).append(one)
    hold_ns = {items: spread([one["hold_ns"] for one in group])["median"]
               for (measure_name, kind, items), group in groups.items() if (measure_name, kind) == ("expel", "closed")}
    enqueue_ns = [spread([one["ns"] for one in group])["median"]
                  for (measure_name, _, _), group in groups.items() if measure_name == "enqueue"]
    return Outcome({"samples": samples}, [
        Row(f"queue lock held to take N items out, N = 1 to {max(hold_ns):,}; to queue a hot key's new version",
            f"{min(hold_ns.values()) / 1000:.2f} to {max(hold_ns.values()) / 1000:.2f} µs; {max(enqueue_ns):.0f} ns",
            "published elsewhere for 10,000 items: 3.29 ms, later 1.37 ms"),
    ])
