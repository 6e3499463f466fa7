"""The commands of the README and of docs/, block by block, as a newcomer would type them.

Every block in the language `sh` is one script, run in the directory of its page against a server of that page, with the usual
administrator. Marks stand on lines of their own before a block:

    <!-- not run: REASON -->        it is left out
    <!-- first: COMMANDS -->        commands that run before it, once, for what the page takes as given
    <!-- file: NAME -->             a block of any language is written to this file

`documented.sh` says what differs from what is shown: clients find the server by variables, `oribi serve` is stopped once it is
ready, and what would go on for long is cut short. Commands of cargo are left out, which other steps of CI run. Other languages
than `sh` are held by `cargo xtask tidy`, which wants every block to say how it is run.
"""

import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field

from . import layout
from .certificates import Certificates

SECONDS_MAX = 120
MARK = re.compile(r"^<!-- (not run|first|file): (.*) -->$")
PRELUDE = layout.SOURCES / "harness" / "documented.sh"
# Ports of a machine of its own, or mapped ones, and directories of the system.
# The key is one of the packages that the README imports.
FIRST_KEY = """"$(sed -E '1!d; s/.*"_key": ?"([^"]*)".*/\\1/' packages.jsonl)\""""
SUBSTITUTED = ((r"(127\.0\.0\.1|localhost):2?8091\b", r"\1:{admin}"), (r"(?<![\w.])/(backups|var/lib)/", r"{place}/\1/"))
SMALLER = {"--items 1000000": "--items 20000", "--duration 30": "--duration 2", "--duration 60": "--duration 2"}


@dataclass
class Block:
    """A code block, the line of its fence, and its marks by name."""

    page: str
    line: int
    language: str
    text: str = ""
    marks: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.page}:{self.line}"


def pages():
    found = [layout.REPOSITORY / "README.md", *sorted((layout.REPOSITORY / "docs").glob("*.md"))]
    return [str(path.relative_to(layout.REPOSITORY)) for path in found]


def blocks(page):
    """All code blocks of a page."""
    found, marks, inside = [], {}, None
    for number, line in enumerate((layout.REPOSITORY / page).read_text().splitlines(), 1):
        if inside is not None:
            if line == "```":
                inside, marks = None, {}
            else:
                inside.text += line + "\n"
        elif line.startswith("```"):
            inside = Block(page, number, line[3:], marks=marks)
            found.append(inside)
        elif mark := MARK.match(line):
            marks[mark[1]] = mark[2]
        elif line:
            marks = {}
    return found


def file_of(page, name):
    """The content of a file that a page shows."""
    return next(block.text for block in blocks(page) if block.marks.get("file") == name)


def is_run(block):
    return block.language == "sh" and "not run" not in block.marks


def run(report, suite, binary, served):
    """`served` starts a server for a page."""
    count = 0
    for page in pages():
        found = blocks(page)
        if not any(is_run(block) for block in found):
            continue
        place = layout.DATA / f"{suite}-place"
        prepare(place, binary)
        with served() as server:
            for block in found:
                if name := block.marks.get("file"):
                    (place / name).write_text(block.text)
                if is_run(block):
                    count += 1
                    started = time.monotonic()
                    problem = execute(block, place, server, layout.LOGS / f"{suite}.log")
                    report.add(suite, block.name, not problem, time.monotonic() - started, problem)
        shutil.rmtree(place, ignore_errors=True)
    report.add(suite, "blocks", count > 20, 0.0, f"{count} are run")


def prepare(place, binary):
    shutil.rmtree(place, ignore_errors=True)
    for directory in ("bin", "backups", "var/lib", "home"):
        (place / directory).mkdir(parents=True)
    (place / "bin" / "oribi").symlink_to(binary)
    (place / "examples").symlink_to(layout.REPOSITORY / "examples")
    certificates = Certificates(place / "certificates")
    for file in (certificates.ca, certificates.certificate, certificates.key):
        (place / file.name).symlink_to(file)


def script(block, place, server):
    """The block for the server of the page."""
    lines = block.text.replace("\\\n", " ").splitlines()
    text = "\n".join([block.marks.get("first", ""), "set -x", *(line for line in lines if not line.startswith("cargo "))])
    text = text.replace(" KEY ", f" {FIRST_KEY} ")
    for usual, less in SMALLER.items():
        text = text.replace(usual, less)
    for pattern, replacement in SUBSTITUTED:
        text = re.sub(pattern, replacement.format(admin=server.admin_port, place=place), text)
    return f". {PRELUDE}\n{text}"


def execute(block, place, server, log_path):
    """Runs a block; what went wrong, or nothing."""
    environment = {
        "PATH": f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(place / "home"), "LANG": "C.UTF-8",
        "ORIBI_PORT": str(server.port), "ORIBI_ADMIN_PORT": str(server.admin_port), "ORIBI_NEW_PASSWORD": "secret-new",
    }
    with open(log_path, "a") as log:
        log.write(f"=== {block.name}\n")
        log.flush()
        try:
            done = subprocess.run(["bash", "-c", script(block, place, server)], cwd=place, stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=log, timeout=SECONDS_MAX, env=environment, check=False)
        except subprocess.TimeoutExpired:
            return f"more than {SECONDS_MAX} s"
    return f"exit code {done.returncode}, see {log_path}" if done.returncode else ""
