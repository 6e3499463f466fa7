"""`oribi backup`: what it costs client and server together, full, incremental and back, and what a loaded server's
clients notice of it.

Documents are JSON as applications have it (`orders`), not noise: compression is most of the work. The archive is
compared with `tar --zstd` of the same documents as JSON lines. CPU is what the kernel accounts to both processes.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from . import host_memory, orders
from .hot_path.comparison import in_turn, progress
from .hot_path.placement import client_cpus, server_cpus, set_apart
from .kv_load import Load, Tool, populate
from .report import Outcome, Row
from .samples import ratios, spread, text_of
from .server import Server
from .streams import wait_warm

VALUE_BYTES = 512
PERSIST_SECONDS_MAX = 600
CHANGED_SHARE = 0.01
# Of the loaded server: operations per second, how long in each run, and rounds, because a p99 scatters.
RATE, LOADED_SECONDS, LOADED_ROUNDS = 20_000, 4, 15
LOADED_ITEMS = 100_000
# More than a restored server and its log have.
RESTORE_MIB = 1536


def environment_of(server):
    return {**os.environ, "ORIBI_PORT": str(server.port), "ORIBI_PASSWORD": "password"}


def run(binary, server, *arguments, idle=False):
    """A tool against a server: its output, and the CPU of both. `idle` lets the tool run only where nobody else wants
    to, as if it were on another machine."""
    def before_start():
        if idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    server_s, begin = server.cpu_total_s(), time.perf_counter()
    child = subprocess.Popen([str(binary), *map(str, arguments)], env=environment_of(server), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=before_start)
    output, problems = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"`oribi {' '.join(map(str, arguments))}` ended with {child.returncode}: {problems.decode()[-2000:]}")
    return output.decode(), {"wall_s": time.perf_counter() - begin, "client_s": usage.ru_utime + usage.ru_stime,
                             "client_mib": usage.ru_maxrss / 1024, "server_s": server.cpu_total_s() - server_s}


def us_per_document(found, items):
    return (found["client_s"] + found["server_s"]) * 1e6 / items


def tar_bytes(lines):
    """What `tar --zstd` makes of the lines."""
    packed = lines.with_suffix(".tar.zst")
    subprocess.run(["tar", "--zstd", "-cf", packed, "-C", lines.parent, lines.name], check=True)
    size = packed.stat().st_size
    packed.unlink()
    return size


def zstd_us(lines, items):
    """The floor: CPU in us of each document that the program `zstd` takes for the lines at level 1, the default of a
    backup, in one thread."""
    before = os.times()
    subprocess.run(["zstd", "-1", "--single-thread", "-q", "-f", "-o", os.devnull, lines], check=True)
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return used_s * 1e6 / items


def import_lines(binary, server, lines):
    run(binary, server, "doc", "import", lines, "--key", "{type}::{id}", "--json")
    server.wait_persisted(PERSIST_SECONDS_MAX)


def create(binary, server, archive, items, *arguments, idle=False):
    output, found = run(binary, server, "backup", "create", archive, "--json", *arguments, idle=idle)
    made = json.loads(output)
    if made["documents"] != items:
        raise SystemExit(f"{made['documents']} documents in a backup of {items}")
    return {**found, "stored_bytes": made["stored_bytes"], "plain_bytes": made["plain_bytes"]}


def restore(binary, directory, archive, versions):
    """Both backups into an empty server, up to its disk; so many versions. The server gets memory that the host has
    given already, because what a hypervisor takes for giving it says nothing about a restore."""
    data = Path(directory) / "restored"
    memory = host_memory.fetch(RESTORE_MIB)
    with Server(binary, data, "--workers", 1, "--memory-quota-mib", 4096) as server:
        output, found = run(binary, server, "backup", "restore", archive, "--json")
        if json.loads(output)["written"] != versions:
            raise SystemExit(f"not all of {versions} versions were restored: {output}")
    shutil.rmtree(data)
    return {**found, "memory": memory}


def whole(options, directory, lines, changed, items, rounds):
    """Full, incremental and back, in each round, of a server that has just started."""
    data, archives = Path(directory) / "data", Path(directory) / "archives"
    settings = ["--workers", 1, "--memory-quota-mib", 4096]
    with Server(options.binary, data, *settings) as server:
        import_lines(options.binary, server, lines)
    runs = {"full": [], "plain": [], "zstd_us": [], "incremental": [], "restore": []}
    for number in range(rounds):
        progress(f"backup: round {number + 1} of {rounds}")
        archive = archives / str(number)
        with Server(options.binary, data, *settings) as server:
            wait_warm(server)
            for side in in_turn(["full", "plain"], number):
                level = ["--level", 0] if side == "plain" else []
                to = archive if side == "full" else archives / "plain"
                runs[side].append(create(options.binary, server, to, items, *level))
            shutil.rmtree(archives / "plain")
            runs["zstd_us"].append(zstd_us(lines, items))
            import_lines(options.binary, server, changed)
            part = int(items * CHANGED_SHARE)
            runs["incremental"].append(create(options.binary, server, archive, part))
        runs["restore"].append(restore(options.binary, directory, archive, items + part))
        shutil.rmtree(archive)
    return runs


BACKUPS = 'while "$0" backup create "$1" --full >/dev/null; do echo >>"$2"; rm -rf "$1"; done'
# Takes what a backup's client takes of the machine, all idle time, and nothing of the server's.
BURNERS = 'for _ in $(seq "$(nproc)"); do while :; do :; done & done; wait'


class Beside:
    """A script that runs for as long as the block does; `finished` says how many backups came to their end.

    It gets only time that nobody else wants, as if it were on another machine. That holds within a session alone: Linux
    gives each session an equal part of a processor, whatever the policies of its threads (sched(7), autogroup). So the
    script is a group of processes in the session of server and load, not a session of its own.
    """

    def __init__(self, script, binary, server, archive):
        self.archive, self.count = archive, archive.with_suffix(".count")
        self.child = subprocess.Popen(["sh", "-c", script, str(binary), str(archive), str(self.count)],
                                      env=environment_of(server), stderr=subprocess.DEVNULL,
                                      preexec_fn=self.before_start)

    @staticmethod
    def before_start():
        os.setpgid(0, 0)
        os.sched_setaffinity(0, server_cpus())
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        has_failed = self.child.poll() is not None
        if not has_failed:
            os.killpg(self.child.pid, 15)
            self.child.wait()
            self.wait_for_group()
        self.finished = len(self.count.read_text()) if self.count.exists() else 0
        self.count.unlink(missing_ok=True)
        shutil.rmtree(self.archive, ignore_errors=True)
        if has_failed and error is None:
            raise SystemExit("a backup beside the load failed")

    def wait_for_group(self):
        """Until the backup has ended as well, which may still write to the archive."""
        try:
            while True:
                os.killpg(self.child.pid, 0)
                time.sleep(0.01)
        except ProcessLookupError:
            pass


def loaded(options, directory, rounds):
    """The latency of a steady load: twice alone, whose ratio is what noise makes; beside programs that only
    use the processors' idle time, whose ratio is what sharing the machine makes; and beside backups one after the other.

    The client of the load has a processor to itself. Without that the scheduler puts client and worker on one while
    backups keep the other busy, and requests wait for the client's turn to end.
    """
    load = Load(LOADED_ITEMS, VALUE_BYTES, connections=10, batch=1, rate=RATE,
                duration_s=1 if options.quick else LOADED_SECONDS)
    beside = {"burners": BURNERS, "with": BACKUPS}
    runs = {"without": [], "control": [], "burners": [], "with": []}
    archive = Path(directory) / "loaded"
    with Server(options.binary, Path(directory) / "load", "--workers", 1, "--memory-quota-mib", 4096) as server:
        populate(options.binary, server, load)
        server.wait_persisted(PERSIST_SECONDS_MAX)
        set_apart(server)
        for number in range(rounds):
            progress(f"backup: loaded server, round {number + 1} of {rounds}")
            for side in in_turn(list(runs), number):
                script = beside.get(side)
                program = Beside(script, options.binary, server, archive) if script else nullcontext()
                with program:
                    tool = Tool(options.binary, server, load.run_arguments(number), cpus=client_cpus())
                    latency = tool.summary()["load"]["latency_us"]
                run = {"p50_us": latency["p50"], "p99_us": latency["p99"]}
                runs[side].append(run | ({"backups": program.finished} if side == "with" else {}))
    return runs


def loaded_rows_of(figures):
    beside = figures["loaded"]
    p99 = {side: [one["p99_us"] for one in of] for side, of in beside.items()}
    impact, noise, burners = (ratios(p99[side], p99["without"]) for side in ("with", "control", "burners"))
    median = {side: spread(of)["median"] for side, of in p99.items()}
    finished = sum(one["backups"] for one in beside["with"])
    return [
        Row(f"p99 of {RATE:,} operations per second with backups over without, by round",
            f"{text_of(impact)}; without over without {text_of(noise)}, beside idle burners of all processors "
            f"{text_of(burners)}; medians {median['with']:.0f} and "
            f"{median['without']:.0f} µs; {finished} backups in {len(p99['with'])} rounds", "<= 1.5",
            impact["median"] <= 1.5),
    ]


def memory_text(runs):
    if any("memory" not in one for one in runs):
        return "not measured"
    median = {side: spread([one["memory"][f"{side}_ms_per_mib"] for one in runs])["median"] for side in ("first", "last")}
    return f"{median['first']:.2f} and {median['last']:.2f} ms"


def rows_of(figures):
    runs, items = figures["runs"], figures["items"]
    documents = f"{items:,} documents of {VALUE_BYTES} B"
    full = spread([us_per_document(one, items) for one in runs["full"]])
    client = spread([one["client_s"] * 1e6 / items for one in runs["full"]])["median"]
    back = spread([us_per_document(one, items) for one in runs["restore"]])
    plain = spread([us_per_document(one, items) for one in runs["plain"]])
    share = ratios([one["wall_s"] for one in runs["incremental"]], [one["wall_s"] for one in runs["full"]])
    size, tar = runs["full"][0]["stored_bytes"], figures["tar_bytes"]
    memory = max(one["client_mib"] for one in runs["full"] + runs["restore"])
    return [
        Row(f"full backup of {documents}: CPU of client and server per document",
            f"{text_of(full)} µs, {client:.2f} of it the client's", "<= 1.5 µs", full["median"] <= 1.5),
        Row("the same without compression (`--level 0`)", f"{text_of(plain)} µs, "
            f"{runs['plain'][0]['stored_bytes'] / items:.0f} B a document", "<= 1.5 µs", plain["median"] <= 1.5),
        Row("floor of the compressed one: `zstd -1` of the same JSON lines, alone", f"{text_of(spread(runs['zstd_us']))} µs",
            "reported"),
        Row(f"incremental backup of {CHANGED_SHARE:.0%} changed over the full one: time", text_of(share, 3), "<= 0.03",
            share["median"] <= 0.03),
        Row("restore up to the disk: CPU of client and server per document", f"{text_of(back)} µs", "<= 2.5 µs",
            back["median"] <= 2.5),
        Row("touching a MiB of memory before each restore, first and last time", memory_text(runs["restore"]),
            "reported"),
        *loaded_rows_of(figures),
        Row("archive over `tar --zstd` of the same JSON lines: bytes", f"{size / tar:.2f}: {size / items:.0f} and "
            f"{tar / items:.0f} B a document", "reported"),
        Row("memory of the program, at most", f"{memory:.0f} MiB", "reported"),
    ]


def measure(options):
    items = 20_000 if options.quick else 1_000_000
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory() as directory:
        lines, changed = Path(directory) / "orders.jsonl", Path(directory) / "changed.jsonl"
        progress("backup: documents")
        orders.write(lines, range(items), VALUE_BYTES)
        orders.write(changed, range(0, items, round(1 / CHANGED_SHARE)), VALUE_BYTES, "changed")
        figures = {"items": items, "value_bytes": VALUE_BYTES, "tar_bytes": tar_bytes(lines),
                   "runs": whole(options, directory, lines, changed, items, rounds),
                   "loaded": loaded(options, directory, loaded_rounds(options))}
    return Outcome(figures, rows_of(figures))


def loaded_rounds(options):
    return options.rounds or (2 if options.quick else LOADED_ROUNDS)


def measure_load(options):
    """The part of the loaded server alone."""
    with tempfile.TemporaryDirectory() as directory:
        figures = {"loaded": loaded(options, directory, loaded_rounds(options))}
    return Outcome(figures, loaded_rows_of(figures))
