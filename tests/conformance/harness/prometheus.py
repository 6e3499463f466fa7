"""The alert rules and the queries of the dashboard, read by Prometheus's own `promtool`.

That they name metrics that there are is a test of oribi-server (`admin/tests/metrics.rs`). The Debian package is unpacked, not
installed: it would start a server.
"""

import json
import re
import subprocess
import time

from . import layout, toolchains

PACKAGING = layout.REPOSITORY / "packaging"
PLACE = layout.WORK / "prometheus"
# Variables of Grafana that stand for a time.
INTERVALS = re.compile(r"\$__(rate_)?interval")
QUERIES_MIN = 15


def promtool():
    binary = PLACE / "usr" / "bin" / "promtool"
    if not binary.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        toolchains.execute("prometheus", [*toolchains.APT_GET, "update", "--quiet"])
        toolchains.execute("prometheus", ["apt-get", "download", "prometheus"], PLACE)
        for package in PLACE.glob("*.deb"):
            toolchains.execute("prometheus", ["dpkg", "--extract", package, PLACE])
    return binary


def run(report, suite, builds):
    binary = builds.get(suite, promtool)
    queries = queries_in(json.loads((PACKAGING / "grafana" / "oribi.json").read_text()))
    rules = PLACE / "dashboard.yml"
    # A query is right when it could be a recorded series. JSON is YAML.
    recorded = [{"record": f"query_{number}", "expr": INTERVALS.sub("5m", query)} for number, query in enumerate(queries)]
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))
    for name, path in (("alert-rules", PACKAGING / "prometheus" / "oribi.rules.yml"), ("dashboard", rules)):
        started = time.monotonic()
        done = subprocess.run([binary, "check", "rules", path], capture_output=True, text=True, check=False)
        problem = " ".join((done.stdout + done.stderr).split())[-300:] if done.returncode else ""
        report.add(suite, name, not problem, time.monotonic() - started, problem)
    report.add(suite, "queries", len(queries) >= QUERIES_MIN, 0.0, f"{len(queries)} in the dashboard")


def queries_in(value):
    """Every `expr` in a JSON document."""
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [query for each in value.values() for query in queries_in(each)]
    return [query for each in value for query in queries_in(each)] if isinstance(value, list) else []
