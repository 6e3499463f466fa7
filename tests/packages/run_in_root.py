"""Runs a packaged server in a root directory of its own, and a client against it.

    run_in_root.py unit ROOT UNIT -- CLIENT [ARGUMENT...]     a unit of Type=notify in a Debian root
    run_in_root.py image BUNDLE -- CLIENT [ARGUMENT...]       an unpacked image (umoci), by its own configuration
    run_in_root.py bare ROOT -- CLIENT [ARGUMENT...]          /oribi alone in a directory

It plays the service manager: user, directory, environment, command, the notification socket and the
watchdog. CLIENT runs when the server says READY, with ORIBI_CONNSTR, and has to succeed. Then
`oribi health` has to succeed, and at SIGTERM the server has to say STOPPING and to end with 0.
Root is needed, for chroot(2). The hardening of a unit is not applied; systemd-analyze checks it.
"""

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60
WATCHDOG_US = 1_000_000


@dataclass
class Service:
    """What is started, where, and as which user."""

    root: Path
    owner: tuple
    command: list
    environment: dict
    # Written by the server, named from inside the root.
    state: str
    umask: int = 0o022

    def enter(self):
        os.chroot(self.root)
        os.chdir("/")
        os.setgroups([])
        os.setgid(self.owner[1])
        os.setuid(self.owner[0])
        os.umask(self.umask)


def of_unit(root, unit):
    """The service of a unit; the last of each setting counts."""
    settings, section = {}, ""
    for line in Path(unit).read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings[name] = value
    file = root / settings["EnvironmentFile"].lstrip("-/")
    lines = file.read_text().splitlines() if file.is_file() else []
    environment = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    users = (line.split(":") for line in (root / "etc/passwd").read_text().splitlines())
    owner = next(((int(user[2]), int(user[3])) for user in users if user[0] == settings["User"]), None)
    if owner is None:
        sys.exit(f"the package made no user {settings['User']}")
    state = "/var/lib/" + settings["StateDirectory"]
    place = root / state[1:]
    place.mkdir(parents=True, exist_ok=True)
    os.chown(place, *owner)
    place.chmod(int(settings["StateDirectoryMode"], 8))
    return Service(root, owner, shlex.split(settings["ExecStart"]), environment, state, int(settings["UMask"], 8))


def of_image(bundle):
    """The service that a runtime would start; it listens on all addresses, so it has a user."""
    process = json.loads((bundle / "config.json").read_text())["process"]
    owner = (process["user"]["uid"], process["user"]["gid"])
    if 0 in owner:
        sys.exit("the image runs as root")
    environment = dict(entry.split("=", 1) for entry in process["env"])
    state = environment["ORIBI_DATA_DIR"]
    # Every runtime has to supply them.
    for name, minor in (("random", 8), ("urandom", 9)):
        device = bundle / "rootfs/dev" / name
        device.parent.mkdir(exist_ok=True)
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        device.chmod(0o666)
    service = Service(bundle / "rootfs", owner, process["args"], environment, state)
    add = [process["args"][0], "user", "add", "Administrator", "--role", "admin"]
    with_password = {**environment, "ORIBI_PASSWORD": "password"}
    subprocess.run(add, check=True, env=with_password, preexec_fn=service.enter)
    return service


def of_binary(root):
    return Service(root, (0, 0), ["/oribi", "serve", "--data-dir", "/data"], {}, "/")


class Manager:
    """The notification socket of a service manager."""

    NAME = "/notify-of-test"

    def __init__(self, service):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = service.root / self.NAME[1:]
        place.unlink(missing_ok=True)
        self.socket.bind(str(place))
        os.chown(place, *service.owner)
        self.socket.settimeout(1)

    def await_line(self, wanted, process):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if wanted in self.socket.recv(4096).decode().splitlines():
                    return
            except TimeoutError:
                if process.poll() is not None:
                    break
        sys.exit(f"the server did not say {wanted}; its status is {process.poll()}")


def run(service, client):
    manager = Manager(service)
    ready_file = service.state.rstrip("/") + "/ready-of-test"
    environment = {
        **service.environment,
        "NOTIFY_SOCKET": manager.NAME,
        "WATCHDOG_USEC": str(WATCHDOG_US),
        # The machine may have a server at the usual ports.
        "ORIBI_PORT": "0",
        "ORIBI_ADMIN_PORT": "0",
        "ORIBI_READY_FILE": ready_file,
    }
    process = subprocess.Popen(
        service.command, env=environment, preexec_fn=service.enter, stdin=subprocess.DEVNULL
    )
    try:
        manager.await_line("READY=1", process)
        port = json.loads((service.root / ready_file[1:]).read_text())["port"]
        connection = {**os.environ, "ORIBI_CONNSTR": f"couchbase://127.0.0.1:{port}"}
        subprocess.run(client, check=True, env=connection)
        manager.await_line("WATCHDOG=1", process)
        health = [service.command[0], "health"]
        subprocess.run(health, check=True, env=environment, preexec_fn=service.enter)
        process.send_signal(signal.SIGTERM)
        manager.await_line("STOPPING=1", process)
        status = process.wait(PATIENCE_S)
        if status != 0:
            sys.exit(f"the server ended with {status}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    print("ready, watched, healthy, a document served, stopped")


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments:
        sys.exit(__doc__)
    separator = arguments.index("--")
    client = arguments[separator + 1 :]
    match arguments[:separator]:
        case ["unit", root, unit]:
            run(of_unit(Path(root), unit), client)
        case ["image", bundle]:
            run(of_image(Path(bundle)), client)
        case ["bare", root]:
            run(of_binary(Path(root)), client)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
