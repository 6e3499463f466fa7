"""The SDKs behind mapped ports: all that they reach are forwarded ports, as those of a container.

The server listens at an address that it does not advertise, so a client that connects to the ports of the server itself
finds nobody there. Each program runs twice: with `--advertise-port`, and with the address that a module of Testcontainers
sets, after the requests with which it sets up a server.
"""

import base64
import socket
import threading
import time
import urllib.parse
import urllib.request

from . import layout
from .program import run_program
from .server import Server, free_ports

# Of loopback, but not where clients look.
INSIDE = "127.0.0.2"
# Nobody answers there (RFC 5737), as nobody answers at a container's address from elsewhere.
UNREACHABLE = "192.0.2.77"
ADMINISTRATOR = ("ci", "secret-ci")
# Those that find the documents of the program before and do not mind.
STEPS = ["connect", "crud", "not-found", "append-prepend"]
INITIAL_STATE = """
[[user]]
name = "app"
password = "secret-app"
roles = ["data_reader[*]", "data_writer[*]"]
"""


class Forwarder:
    """Passes connections to one port on to another, as a container's runtime does."""

    def __init__(self, target, port):
        self.target, self.port = target, port
        self.count = 0
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=forward, args=ends, daemon=True).start()

    def close(self):
        self.listener.close()


def forward(source, target):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def ask(port, method, path, fields=None, login=None):
    """The body of an answer; an answer that is no success is an error."""
    data = urllib.parse.urlencode(fields or {}).encode() if fields is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method)
    if login:
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(login).encode()).decode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def set_up(kv, admin):
    """What the Couchbase module of Testcontainers for Java sends, with the service kv."""
    ask(admin, "GET", "/pools")
    ask(admin, "GET", "/pools", login=ADMINISTRATOR)
    ask(admin, "POST", "/node/controller/rename", {"hostname": INSIDE})
    ask(admin, "POST", "/node/controller/setupServices", {"services": "kv"})
    ask(admin, "POST", "/settings/web", {"username": ADMINISTRATOR[0], "password": ADMINISTRATOR[1], "port": "8091"})
    ask(admin, "PUT", "/node/controller/setupAlternateAddresses/external",
        {"hostname": "localhost", "mgmt": admin, "mgmtSSL": 1, "kv": kv, "kvSSL": 2, "capi": 3, "capiSSL": 4}, ADMINISTRATOR)
    ask(admin, "GET", "/pools/default", login=ADMINISTRATOR)
    # What no module does: a name inside that nobody reaches, so that the SDKs have to choose the one outside.
    ask(admin, "POST", "/node/controller/rename", {"hostname": UNREACHABLE}, ADMINISTRATOR)


def run(report, suite, binary, commands, environment):
    """`commands` are those of the programs by language."""
    for way in ("advertised", "external"):
        kv, admin = free_ports(2)
        initial = layout.DATA / f"{suite}-{way}.toml"
        initial.parent.mkdir(parents=True, exist_ok=True)
        initial.write_text(INITIAL_STATE)
        arguments = ["--listen", INSIDE, "--init", str(initial)]
        if way == "advertised":
            arguments += ["--advertise-port", str(kv), "--advertise-admin-port", str(admin)]
        server = Server(binary, layout.DATA / f"{suite}-{way}", layout.LOGS / f"{suite}-{way}-server.log", arguments, expected_warnings=(),
                        environment={"ORIBI_ADMIN_USER": ADMINISTRATOR[0], "ORIBI_ADMIN_PASSWORD": ADMINISTRATOR[1]})
        ports = []
        try:
            server.start()
            ports = [Forwarder((INSIDE, server.port), kv), Forwarder((INSIDE, server.admin_port), admin)]
            started = time.monotonic()
            if way == "external":
                set_up(kv, admin)
            report.add(suite, f"{way}-set-up", True, time.monotonic() - started)
            for language, command in commands.items():
                before = ports[0].count
                one_program(report, suite, f"{way}-{language}", command, kv, environment)
                report.add(suite, f"{way}-{language}-forwarded", ports[0].count > before, 0.0, f"{ports[0].count - before} connections")
            server.stop()
        finally:
            for port in ports:
                port.close()
            server.kill()
            complaints = server.log_complaints()
            report.add(suite, f"{way}-server-log", not complaints, 0.0, complaints[0] if complaints else "")


def one_program(report, suite, name, command, kv, environment):
    """The steps of one program as one outcome."""
    outcomes = Outcomes()
    started = time.monotonic()
    run_program(outcomes, suite, command, {
        **environment, "ORIBI_CONNSTR": f"couchbase://localhost:{kv}", "ORIBI_USER": "app", "ORIBI_PASSWORD": "secret-app",
        "ORIBI_STEPS": ",".join(STEPS), "ORIBI_SUB_DOCUMENTS": str(layout.SUB_DOCUMENTS), "ORIBI_CONTROL": "",
    }, layout.LOGS / f"{suite}-{name}.log", STEPS)
    failed = [f"{step}: {detail}" for step, passed, detail in outcomes.all if not passed]
    report.add(suite, name, not failed and len(outcomes.all) == len(STEPS), time.monotonic() - started, " ".join(failed))


class Outcomes:
    """Takes outcomes as a report does."""

    def __init__(self):
        self.all = []

    def add(self, _suite, step, passed, _seconds, detail=""):
        self.all.append((step, passed, detail))
