"""Docker's HTTP API as far as the Testcontainers libraries use it. A container is a process on an address of its own,
behind forwarded ports.

There is one image, Oribi's: its entry point, variables and ports are those that `cargo xtask dist` writes. What a library copies
or mounts into a container is below a directory; paths in variables are led there. The server takes free ports, so that several
containers may run; the container's ports are those of the image.
"""

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import tarfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .mapped_ports import INSIDE, Forwarder
from .server import free_ports

IMAGE = "oribi:latest"
IMAGE_ID = "sha256:" + "0" * 64
KV, ADMIN, QUERY = "11210/tcp", "8091/tcp", "8093/tcp"
EXPOSED = {KV: {}, ADMIN: {}}
API_VERSION = "1.44"
ENTRY_POINT, COMMAND = ["/usr/bin/oribi"], ["serve"]
LONG_AGO = "2026-01-01T00:00:00Z"
STOP_SECONDS_MAX = 60
# Of a frame of a log: the stream, three bytes of nothing, the length.
STANDARD_ERROR = b"\x02\0\0\0"


class Container:
    def __init__(self, engine, number, name, request):
        self.engine = engine
        self.id = f"{number:064x}"
        self.name = name or f"container-{number}"
        self.request = request
        self.root = engine.directory / self.id[-8:]
        self.log = engine.logs / f"container-{number}.log"
        (self.root / "var/lib/oribi").mkdir(parents=True)
        self.log.write_bytes(b"")
        self.process, self.ports = None, {}

    def start(self):
        host = self.request.get("HostConfig") or {}
        for bind in host.get("Binds") or []:
            source, target = bind.split(":")[:2]
            self.place(target).symlink_to(source)
        for mount in host.get("Mounts") or []:
            self.place(mount["Target"]).symlink_to(mount["Source"])
        exposed = self.request.get("ExposedPorts") or EXPOSED
        # Ports on which the server does not listen are mapped all the same.
        inside = dict(zip([KV, ADMIN, *(port for port in exposed if port not in EXPOSED)], free_ports(2 + len(exposed)), strict=False))
        given = dict(each.split("=", 1) for each in self.request.get("Env") or [])
        given = {name: str(self.place(value)) if value.startswith("/") else value for name, value in given.items()}
        environment = {"PATH": os.environ["PATH"], "ORIBI_DATA_DIR": str(self.root / "var/lib/oribi"), **given,
                       "ORIBI_LISTEN": INSIDE, "ORIBI_PORT": str(inside[KV]), "ORIBI_ADMIN_PORT": str(inside[ADMIN]),
                       "ORIBI_QUERY_PORT": str(inside.get(QUERY, 0))}
        command = self.request.get("Cmd") or COMMAND
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(self.engine.binary), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment, cwd=self.root, start_new_session=True)
        self.ports = {port: Forwarder((INSIDE, inside[port]), free_ports(1)[0]) for port in exposed}

    def place(self, path):
        """Where a path of the container is."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def receive(self, path, archive):
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.place(path), filter="data")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def end(self, signal_number=signal.SIGTERM):
        if self.is_running():
            self.process.send_signal(signal_number)
            self.process.wait(STOP_SECONDS_MAX)
        for port in self.ports.values():
            port.close()
        self.ports = {}

    def description(self):
        outside = {inside: [{"HostIp": "0.0.0.0", "HostPort": str(port.port)}] for inside, port in self.ports.items()}
        code = 0 if self.process is None or self.is_running() else self.process.returncode
        status = "running" if self.is_running() else "created" if self.process is None else "exited"
        network = {"IPAddress": INSIDE, "Gateway": "", "NetworkID": "bridge", "EndpointID": "", "MacAddress": "", "Aliases": []}
        return {
            "Id": self.id, "Created": LONG_AGO, "Path": ENTRY_POINT[0], "Args": COMMAND, "Image": IMAGE_ID, "Name": f"/{self.name}",
            "RestartCount": 0, "Driver": "overlay2", "Platform": "linux", "Mounts": [],
            "State": {"Status": status, "Running": self.is_running(), "Paused": False, "Restarting": False, "OOMKilled": False,
                      "Dead": False, "Pid": self.process.pid if self.process else 0, "ExitCode": code, "Error": "",
                      "StartedAt": LONG_AGO, "FinishedAt": "0001-01-01T00:00:00Z"},
            "HostConfig": {"NetworkMode": "bridge", **(self.request.get("HostConfig") or {})},
            "Config": {"Hostname": self.id[-12:], "Image": IMAGE, "Env": self.request.get("Env") or [],
                       "Labels": self.request.get("Labels") or {}, "ExposedPorts": self.request.get("ExposedPorts") or EXPOSED,
                       "Entrypoint": ENTRY_POINT, "Cmd": COMMAND},
            "NetworkSettings": {"Ports": outside, "IPAddress": INSIDE, "Gateway": "", "Networks": {"bridge": network}},
        }


class Engine:
    """`asked` has every request, so that a test can show what a library sends."""

    def __init__(self, binary, directory, logs):
        self.binary, self.directory, self.logs = Path(binary), directory, logs
        directory.mkdir(parents=True)
        self.containers, self.asked, self.numbers = {}, [], itertools.count(1)
        handler = type("Handler", (Handler,), {"engine": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        for container in list(self.containers.values()):
            container.end(signal.SIGKILL)
        self.http.shutdown()
        self.http.server_close()

    def create(self, request, name=None):
        """A container that is not started yet; `request` is as Docker's."""
        container = Container(self, next(self.numbers), name, request)
        self.containers[container.id] = container
        return container

    def environment(self):
        """What leads a Testcontainers library here. There is no second container that cleans up."""
        return {"DOCKER_HOST": f"tcp://localhost:{self.http.server_port}", "TESTCONTAINERS_RYUK_DISABLED": "true",
                "TESTCONTAINERS_HOST_OVERRIDE": "localhost", "TC_HOST": "localhost",
                "TESTCONTAINERS_CONNECTION_MODE": "docker_host", "DOCKER_API_VERSION": API_VERSION}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def route(self):
        body = self.body()
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.split("/") if part]
        if parts and parts[0].startswith("v1."):
            parts = parts[1:]
        self.engine.asked.append(f"{self.command} /{'/'.join(parts)}")
        options = dict(urllib.parse.parse_qsl(query))
        match (self.command, parts):
            case ("GET" | "HEAD", ["_ping"]):
                self.answer(200, b"OK", "text/plain")
            case ("GET", ["version"]):
                self.json({"Version": "27.0.0", "ApiVersion": API_VERSION, "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64",
                           "GitCommit": "", "GoVersion": "", "KernelVersion": "", "Components": []})
            case ("GET", ["info"]):
                self.json({"ID": "engine", "Name": "engine", "ServerVersion": "27.0.0", "OperatingSystem": "linux", "OSType": "linux",
                           "Architecture": "x86_64", "NCPU": 2, "MemTotal": 8 << 30, "Driver": "overlay2", "Labels": [],
                           "SecurityOptions": [], "IndexServerAddress": "", "RegistryConfig": {}})
            case ("GET", ["images", "json"]):
                self.json([{"Id": IMAGE_ID, "RepoTags": [IMAGE], "Created": 0, "Size": 1, "Labels": {}}])
            case ("GET", ["images", *name, "json"]) if "/".join(name).removeprefix("docker.io/").removeprefix("library/") == IMAGE:
                self.json({"Id": IMAGE_ID, "RepoTags": [IMAGE], "Created": LONG_AGO, "Os": "linux", "Architecture": "amd64", "Size": 1,
                           "Config": {"ExposedPorts": EXPOSED, "Entrypoint": ENTRY_POINT, "Cmd": COMMAND, "Env": [], "Labels": {}},
                           "RootFS": {"Type": "layers", "Layers": []}})
            case ("GET", ["networks"]):
                self.json([{"Name": "bridge", "Id": "bridge", "Driver": "bridge", "Scope": "local"}])
            case ("POST", [_, "prune"]):
                self.json({})
            case ("GET", ["containers", "json"]):
                self.json([])
            case ("POST", ["containers", "create"]):
                container = self.engine.create(json.loads(body), options.get("name"))
                self.json({"Id": container.id, "Warnings": []}, 201)
            case (method, ["containers", name, *rest]):
                container = self.engine.containers.get(name)
                if container is None:
                    self.json({"message": f"No such container: {name}"}, 404)
                else:
                    self.of_container(container, method, rest, options, body)
            case _:
                self.json({"message": f"there is no {self.command} {path}"}, 404)

    def of_container(self, container, method, rest, options, body):
        match (method, rest):
            case ("GET", ["json"]):
                self.json(container.description())
            case ("GET", ["logs"]):
                self.logs(container, options.get("follow") in ("1", "true", "True"))
            case ("PUT", ["archive"]):
                container.receive(options["path"], body)
                self.answer(200)
            case ("POST", ["start"]):
                container.start()
                self.answer(204)
            case ("POST", ["stop"]):
                container.end()
                self.answer(204)
            case ("POST", ["kill"]):
                container.end(signal.SIGKILL)
                self.answer(204)
            case ("POST", ["wait"]):
                container.process.wait()
                self.json({"StatusCode": container.process.returncode})
            case ("DELETE", []):
                container.end()
                del self.engine.containers[container.id]
                self.answer(204)
            case _:
                self.json({"message": f"there is no {method} /{'/'.join(rest)} of a container"}, 404)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = route

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        received = b""
        while length := int(self.rfile.readline().split(b";")[0], 16):
            received += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return received

    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("API-Version", API_VERSION)
        self.send_header("OSType", "linux")
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value, status=200):
        self.answer(status, json.dumps(value).encode())

    def logs(self, container, follows):
        """What was logged so far; with `follows`, and the connection open, also what comes until the container ends."""
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.docker.raw-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with open(container.log, "rb") as log:
            while True:
                is_running = container.is_running()
                piece = log.read()
                if piece:
                    self.wfile.write(STANDARD_ERROR + len(piece).to_bytes(4, "big") + piece)
                    self.wfile.flush()
                if not follows or not is_running:
                    return
                threading.Event().wait(0.05)

    def handle(self):
        # A library may leave without a word.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *arguments):
        pass
