"""The recipes of docs/ci-kit.md: those of examples/testcontainers with the Testcontainers library of each language, and the job
of examples/github-actions.

Containers are those of `container_engine`: a process behind forwarded ports instead of an image, so what the libraries and
their Couchbase module send and wait for is real. Every recipe reads or writes the document `order-1`, and leaves no container.
The job's service is started with its variables and ports, and the job's steps have to succeed beside it.
"""

import json
import os
import re
import shutil
import subprocess
import time

from . import documents, layout, toolchains
from .capture import captured
from .container_engine import IMAGE, Engine

JOB = layout.REPOSITORY / "examples" / "github-actions" / "test.yml"
RECIPES = layout.REPOSITORY / "examples" / "testcontainers"
SOURCES = layout.SOURCES / "testcontainers"
WORK = layout.WORK / "testcontainers"
SECONDS_MAX = 180
FOUND = "order-1: 12"


def python():
    return [toolchains.python()[0], RECIPES / "python" / "recipe.py"]


def node():
    toolchains.npm_packages(SOURCES / "node", WORK / "node")
    return ["node", RECIPES / "node" / "recipe.js"]


def node_module():
    node()
    return ["node", RECIPES / "node" / "module.js"]


def java():
    return java_program("Recipe")


def java_module():
    return java_program("Module")


def java_program(name):
    directory, source = WORK / "java", RECIPES / "java" / f"{name}.java"
    toolchains.maven("testcontainers", SOURCES / "java" / "pom.xml", directory, ["dependency:copy-dependencies"])
    class_path = f"{directory / 'classes'}{os.pathsep}{directory / 'lib' / '*'}"
    toolchains.execute("testcontainers", ["javac", "-cp", class_path, "-d", directory / "classes", source])
    return ["java", "-Xmx1g", "-cp", class_path, name]


def go():
    return [toolchains.go_build("recipe", RECIPES / "go" / "recipe.go", module=SOURCES / "go")]


PROGRAMS = {"python": python, "node": node, "node-module": node_module, "java": java, "java-module": java_module, "go": go}


def run(report, suite, binary, builds):
    directory = layout.DATA / suite
    shutil.rmtree(directory, ignore_errors=True)
    with Engine(binary, directory, layout.LOGS) as engine:
        place = directory / "place"
        place.mkdir()
        (place / "init.toml").write_text(documents.file_of("docs/ci-kit.md", "init.toml"))
        for name, make in PROGRAMS.items():
            try:
                command = builds.get(f"{suite} {name}", make)
            except toolchains.ToolchainError as error:
                report.add(suite, name, False, 0.0, str(error))
                continue
            started, first = time.monotonic(), len(engine.asked)
            environment = {**engine.environment(), "NODE_PATH": str(WORK / "node" / "node_modules")}
            code, output = captured(command, environment, SECONDS_MAX, f"{suite}-{name}", place)
            asked = engine.asked[first:]
            with open(layout.LOGS / f"{suite}-{name}.log", "a") as log:
                log.write("\n".join(["--- asked the container engine", *asked, ""]))
            problem = problem_of(code, output, asked, engine)
            report.add(suite, name, not problem, time.monotonic() - started, problem)
        started = time.monotonic()
        problem = problem_of_job(engine, parsed(builds, JOB), layout.LOGS / f"{suite}-job.log")
        report.add(suite, "github-actions", not problem, time.monotonic() - started, problem)


def parsed(builds, path):
    """A YAML file."""
    interpreter = builds.get("python", toolchains.python)[0]
    program = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)"
    return json.loads(subprocess.run([interpreter, "-c", program, path], check=True, capture_output=True).stdout)


def problem_of_job(engine, workflow, log_path):
    """What is wrong with a workflow of one job with one service, or nothing."""
    [job], [service] = workflow["jobs"].values(), workflow["jobs"]["test"]["services"].values()
    if service["image"] != IMAGE:
        return f"the image is {service['image']}"
    mapped = dict(port.split(":") for port in service["ports"])
    container = engine.create({"Env": [f"{name}={value}" for name, value in service["env"].items()],
                               "ExposedPorts": {f"{inside}/tcp": {} for inside in mapped.values()}})
    container.start()
    try:
        for step in job["steps"]:
            command = step["run"]
            for outside, inside in mapped.items():
                command = re.sub(rf"localhost:{outside}\b", f"localhost:{container.ports[inside + '/tcp'].port}", command)
            with open(log_path, "a") as log:
                log.write(f"--- {command}\n")
                log.flush()
                done = subprocess.run(["bash", "-e", "-c", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      timeout=SECONDS_MAX, check=False)
            if done.returncode:
                return f"{step['run']} ended with {done.returncode}"
        return ""
    finally:
        container.end()
        del engine.containers[container.id]


def problem_of(code, output, asked, engine):
    """What is wrong with a run, or nothing."""
    if code != 0 or FOUND not in output:
        return f"exit code {code}: {output.strip().splitlines()[-1][:200] if output.strip() else 'no output'}"
    if not any(each.startswith("POST") and each.endswith("/start") for each in asked):
        return "it started no container"
    if engine.containers:
        return f"{len(engine.containers)} containers are left"
    return ""
