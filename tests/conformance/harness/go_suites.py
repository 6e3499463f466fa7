"""The integration suites that gocb and gocbcore bring in their own modules, against a fresh server or three nodes.

A module on the Go module proxy has its `_test.go` files. Which versions are tested is what the program of the suite
`go` is built with. The module is copied to a directory that can be written to, its tests are built there with the
versions that its own `go.sum` pins, and run with the flags that its authors gave them.
What is left out, and which tests fail for which reason, is in `expected_failures.json`; a test that fails without
being listed there, or passes although it is, fails the suite.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from base64 import b64encode

from . import layout
from .capture import captured
from .toolchains import ToolchainError, execute, once, require

EXPECTED = layout.SOURCES / "go" / "expected_failures.json"
# A hang of one test ends all; the limit is several times what a quiet machine takes.
SECONDS_MAX = {"gocb": 600, "gocbcore": 300, "gocbcore-dcp": 300,
               "gocb-replicas": 900, "gocbcore-replicas": 600, "gocbcore-dcp-replicas": 600}
# Fewer tests than this, and something is wrong with how they are run.
PASSED_MIN = {"gocb": 400, "gocbcore": 380, "gocbcore-dcp": 15,
              "gocb-replicas": 350, "gocbcore-replicas": 380, "gocbcore-dcp-replicas": 15}
# A module can have several suites in one program.
PROGRAMS = {"gocbcore-dcp": "gocbcore", "gocbcore-dcp-replicas": "gocbcore",
            "gocb-replicas": "gocb", "gocbcore-replicas": "gocbcore"}
# Keys of some tests are made for 1024 vbuckets.
VBUCKETS = 1024
SERVER_ARGUMENTS = ["--vbuckets", str(VBUCKETS)]
CLUSTER_NAME = "conformance"


def expectations(suite):
    """What the checked-in file says about a suite.

    One that is `like` another adds to what it says, without the features in `not_features` and the failures of tests
    that pass. A test that fails there for another reason has that one.
    """
    everything = json.loads(EXPECTED.read_text())
    own = everything[suite]
    if "like" not in own:
        return own
    base = everything[own["like"]]
    features = [each for each in base["features"] if each not in own["not_features"]]
    other = {*own["passes"], *(each["test"] for each in own["failures"])}
    failures = [each for each in base["failures"] if each["test"] not in other]
    return {**base, "features": features + own["features"], "left_out": base["left_out"] + own["left_out"],
            "failures": failures + own["failures"]}


def build(suite):
    """Builds the tests of a module; returns the program."""
    require(go=None)
    module = expectations(suite)["module"]
    home = layout.GO / suite
    program = home / "tests"

    def install():
        # Without a version it is the one of go.mod, and its content is compared with go.sum.
        command = ["go", "mod", "download", "-json", module]
        answer = subprocess.run(command, cwd=layout.SOURCES / "go", capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise ToolchainError(f"{module} cannot be downloaded: {answer.stderr.strip()[:200]}")
        sources = home / "sources"
        shutil.rmtree(sources, ignore_errors=True)
        # The module cache is read-only, and so would be the copy.
        shutil.copytree(json.loads(answer.stdout)["Dir"], sources, copy_function=shutil.copyfile)
        for path in [sources, *sources.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        execute(suite, ["go", "test", "-c", "-mod=readonly", "-o", program, "."], sources)

    once(home, [layout.SOURCES / "go" / "go.mod", layout.SOURCES / "go" / "go.sum"], install)
    return program


def gocb():
    return build("gocb")


def gocbcore():
    return build("gocbcore")


def run(report, suite, program, server, user, password, name=None):
    """Runs the tests of a module; each that ran otherwise than expected is a failed step.

    `server` is what has an address for clients and one for administrators; `name` is the suite's in the report.
    """
    name = name or suite
    expected = expectations(suite)
    name_cluster(server, user, password)
    environment = {name: "" for name in os.environ if name.startswith(("GOCB", "GCB"))}
    started = time.monotonic()
    command = [program, "-test.v=test2json", f"-test.timeout={SECONDS_MAX[suite]}s", "-test.skip", skipped(expected),
               *flags(suite, expected, server, user, password)]
    directory = layout.GO / PROGRAMS.get(suite, suite) / "sources"
    # A group of tests ends with a second line of its own; only the log of the run is of use to people.
    code, output = captured(command, environment, SECONDS_MAX[suite] + 30, name, directory)
    outcomes, texts = understood(output)
    seconds = time.monotonic() - started
    complaints = differences(outcomes, expected)
    for test, complaint in complaints.items():
        last = texts.get(test, "").strip().splitlines()
        report.add(name, test, False, 0.0, f"{complaint}: {last[-1].strip() if last else ''}")
    counts = {word: list(outcomes.values()).count(word) for word in ("pass", "fail", "skip")}
    is_enough = counts["pass"] >= PASSED_MIN[suite]
    detail = f"{counts['pass']} passed, {counts['fail']} failed as expected, {counts['skip']} skipped"
    if complaints or not is_enough:
        detail = f"{counts}, {len(complaints)} not as expected, exit code {code}"
    report.add(name, "all", is_enough and not complaints, seconds, detail)


def flags(suite, expected, server, user, password):
    features = ",".join(expected["features"])
    if PROGRAMS.get(suite, suite) == "gocb":
        return ["-server", server.connection_string, "-user", user, "-pass", password, "-disable-logger",
                "-version", expected["server_version"], f"-features={features}"]
    # Its tests need its logger.
    return ["-test-suite", str(expected["suite"]), "-connstr", server.connection_string, "-user", user, "-pass", password,
            "-cluster-version", expected["server_version"], f"-features={features}"]


def skipped(expected):
    """A pattern of all tests that are left out. Elements of a pattern between slashes match level by level."""
    names = [entry["test"] for entry in expected["left_out"]]
    suites = {name.split("/", 1)[0] for name in names}
    if len(suites) > 1:
        raise ToolchainError(f"tests that are left out are in several suites: {sorted(suites)}")
    if not names:
        return "^$"
    tests = "|".join(name.split("/", 1)[1] for name in names)
    return f"^{suites.pop()}$/^({tests})$"


def understood(output):
    """The outcome of each test, and what it printed."""
    done = subprocess.run(["go", "tool", "test2json"], input=output, capture_output=True, text=True, check=False)
    outcomes, texts = {}, {}
    for line in done.stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        test = event.get("Test")
        if not test:
            continue
        if event["Action"] == "output":
            texts[test] = (texts.get(test, "") + event["Output"])[-4000:]
        elif event["Action"] == "run":
            outcomes[test] = "unfinished"
        elif event["Action"] in ("pass", "fail", "skip"):
            outcomes[test] = event["Action"]
    return outcomes, texts


def differences(outcomes, expected):
    """Tests that did not do what is expected of them. A test that has failed parts fails because of those."""
    failures = {entry["test"] for entry in expected["failures"]}
    parents = {test.rsplit("/", depth)[0] for test in failures for depth in range(1, test.count("/") + 1)}
    complaints = {}
    for test, outcome in outcomes.items():
        if test in failures or test in parents:
            if outcome != "fail":
                complaints[test] = f"is expected to fail, but the outcome is {outcome}"
        elif outcome in ("fail", "unfinished"):
            parts = [other for other in outcomes if other.startswith(test + "/") and outcomes[other] == outcome]
            if not parts:
                complaints[test] = "failed" if outcome == "fail" else "did not finish"
    for test in failures.difference(outcomes):
        complaints[test] = "is expected to fail, but did not run"
    return complaints


def name_cluster(server, user, password):
    """Tests of tracing want a cluster that has a name."""
    form = urllib.parse.urlencode({"clusterName": CLUSTER_NAME}).encode()
    request = urllib.request.Request(f"{server.admin_url}/pools/default", data=form, method="POST")
    request.add_header("Authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()
