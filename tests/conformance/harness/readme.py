"""The README's shell commands, in their order, in one directory, as a newcomer would run them.

A block is run unless the line before it says `<!-- not run: REASON -->`, and so is a new command that nobody told this
file about. Commands of cargo are left out, which other steps of CI run. Clients find the server of the suite instead of
one on the usual ports, `oribi serve` is started with what the README adds to it and stopped again, and what would go on
until a key is pressed, or for half a minute, is cut short.
"""

import json
import re
import shlex
import shutil
import subprocess
import time

from . import layout
from .certificates import Certificates
from .server import Server, ServerError

COMMAND_SECONDS_MAX = 120
CLIENT = re.compile(r"^oribi (doc \w+|perf \w+|stats|ping|top)")
# What is put behind the name of a command that would not end by itself, or not soon.
CUT_SHORT = {"oribi top": "--once", "oribi stats --watch": "--count 2"}
SMALLER = {"--items 1000000": "--items 20000", "--duration 30": "--duration 2"}


def run(report, suite, binary, server):
    place = layout.DATA / f"{suite}-directory"
    shutil.rmtree(place, ignore_errors=True)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "oribi").symlink_to(binary)
    certificates = Certificates(layout.DATA / f"{suite}-certificates")
    shutil.copy(certificates.certificate, place / "server.pem")
    shutil.copy(certificates.key, place / "server.key")
    found = commands((layout.REPOSITORY / "README.md").read_text())
    report.add(suite, "commands", len(found) > 0, 0.0, f"{len(found)} in the README")
    with open(layout.LOGS / f"{suite}.log", "w") as log:
        for number, command in enumerate(found):
            started = time.monotonic()
            try:
                if command.startswith("oribi serve"):
                    serve(binary, f"{suite}-{number}", place, command)
                    problem = ""
                else:
                    problem = execute(adapted(command, place, server), place, log)
            except ServerError as error:
                problem = str(error)
            shown = " ".join(command.split("#")[0].split())
            report.add(suite, shown[:60], not problem, time.monotonic() - started, problem)


def commands(text):
    """The commands of all shell blocks that are run, comments included."""
    found, lines, before = [], iter(text.splitlines()), ""
    for line in lines:
        if line == "```sh":
            block = []
            for inner in lines:
                if inner == "```":
                    break
                block.append(inner)
            if not before.startswith("<!-- not run"):
                joined = "\n".join(block).replace("\\\n", " ")
                found += [each for each in joined.splitlines() if each and not each.startswith(("#", "cargo "))]
        before = line
    return found


def adapted(command, place, server):
    """The command for the server of the suite."""
    command = command.replace("127.0.0.1:8091", f"127.0.0.1:{server.admin_port}").replace("curl ", "curl -sf ")
    command = command.replace(" examples/", f" {layout.REPOSITORY}/examples/")
    for usual, less in SMALLER.items():
        command = command.replace(usual, less)
    for name, option in CUT_SHORT.items():
        if command.startswith(name):
            command = command.replace("oribi " + name.split()[1], f"oribi {name.split()[1]} {option}", 1)
    if " KEY " in command:
        with open(place / "packages.jsonl") as lines:
            command = command.replace(" KEY ", f" {shlex.quote(json.loads(next(lines))['_key'])} ")
    command = CLIENT.sub(rf"\g<0> --port {server.port}", command)
    if command.startswith("oribi user"):
        command += " --data-dir users" + " --password-stdin" * command.startswith("oribi user add")
    return command


def execute(command, place, log):
    """Runs a command; what went wrong, or nothing."""
    log.write(f"--- {command}\n")
    log.flush()
    try:
        done = subprocess.run(["bash", "-c", f"PATH={place}/bin:$PATH\n{command}"], cwd=place, input="secret-1\n", text=True,
                              stdout=log, stderr=log, timeout=COMMAND_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return f"more than {COMMAND_SECONDS_MAX} s"
    return f"exit code {done.returncode}" if done.returncode else ""


def serve(binary, name, place, command):
    """Starts the server with the options of the command, and stops it."""
    options = shlex.split(command, comments=True)[2:]
    if "--data-dir" in options:
        at = options.index("--data-dir")
        del options[at:at + 2]
    # The certificate of the README is in the directory of the suite.
    options = [str(place / each) if each.startswith("server.") else each for each in options]
    server = Server(binary, layout.DATA / name, layout.LOGS / f"{name}.log", options)
    server.arguments += ["--tls-port", str(server.tls_port), "--tls-admin-port", str(server.tls_admin_port)]
    try:
        server.start()
        server.stop()
    finally:
        server.kill()
    if complaints := server.log_complaints():
        raise ServerError(complaints[0])
