"""The generated table of docs/benchmarks.md: a selection of one run, and of the long runs that are kept.

`bench/run --table` measures everything in `lines.LINES` and writes the table. `bench/run --page RESULT...` writes it
from existing results. With `--page-to` the page has every row. Figures of long runs are kept in bench/long_runs.json.
"""

import json
import shutil
from pathlib import Path

from .lines import LINES, lines_of
from .report import ROOT

PAGE = ROOT / "docs/benchmarks.md"
LONG_RUNS = ROOT / "bench/long_runs.json"
PLOTS = ("hot-path-cpu",)
TOOLS = ("memcached", "redis-server", "redis-benchmark", "valgrind")
HEAD = ["what", "peer", "ratio or result", "command"]
ROWS_MAX = 25
# Measures of the page, and how many rows of each it shows, from the first one on.
SELECTION = {"cpu": 3, "redis": 1, "sizes": 4, "unpipelined": 4, "text": 2, "cache": 2, "streams": 2, "backup": 1, "start": 1,
         "idle": 1, "warmup": 1, "subdoc": 1, "kudu-loadgen": 1}


def missing_tools():
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def between(text, name, body):
    """`text` with what stands between the markers of this name replaced."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise SystemExit(f"the markers of `{name}` are missing")
    return f"{before}{begin}\n{body}\n\n{end}{after}"


def table_of(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def environments_text(results):
    """Where and when the figures were measured; a row for each result."""
    rows = []
    for about, measures in results:
        commit = about["commit"] + (" with uncommitted changes" if about["uncommitted_changes"] else "")
        machine = f"{about['cores']} x {about['cpu']}, {about['memory_gib']} GiB, Linux {about['kernel']}"
        rows.append([about["date"][:10], commit, machine, about["rustc"].split(" (")[0],
                     about.get("congestion_control", "not recorded"), f"{about['load_average'][0]:.1f}", ", ".join(measures)])
    intro = "" if len(rows) == 1 else f"**Figures of {len(rows)} runs**, because no single run has all of them yet.\n\n"
    return intro + table_of(["date", "commit", "machine", "compiler", "TCP", "load before", "measures"], rows)


def read(paths):
    """Figures of all results, of a later one where two have the same measure, and which result has which."""
    figures, source = {}, {}
    for path in paths:
        result = json.loads(Path(path).read_text())
        for measure in LINES:
            if measure in result["figures"]:
                figures[measure], source[measure] = result["figures"][measure], (Path(path), result["environment"])
    chosen = []
    for path in dict.fromkeys(path for path, _ in source.values()):
        measures = [measure for measure, (of, _) in source.items() if of == path]
        chosen.append((source[measures[0]][1], [measure for measure in LINES if measure in measures]))
    return figures, chosen


def long_runs_rows():
    return [[one["figure"], one["peer"], one["result"], f"`{one['command']}`"] for one in json.loads(LONG_RUNS.read_text())]


def rows_of(lines, is_selection):
    """Rows of the table: the selection of the page, filled up with long runs that have a peer, or all of them."""
    if not is_selection:
        return [line.cells() for line in lines] + long_runs_rows()
    rows = [line.cells() for measure, count in SELECTION.items()
            for line in [line for line in lines if line.measure == measure][:count]]
    return (rows + [row for row in long_runs_rows() if row[1]])[:ROWS_MAX]


def write(paths, page=None):
    """Writes the page from these results; its path, and the measures that have no figures."""
    page = page or PAGE
    figures, results = read(paths)
    if any(about.get("quick") for about, _ in results) and page == PAGE:
        raise SystemExit("a run with --quick says that it works, not how fast; name another page by --page-to")
    rows = rows_of(list(lines_of(figures)), is_selection=page == PAGE)
    missing = [measure for measure in LINES if measure not in figures]
    body = f"{table_of(HEAD, rows)}\n\n{environments_text(results)}"
    if missing:
        body += f"\n\nNot measured: {', '.join(missing)}."
    text = (page if page.exists() else PAGE).read_text()
    text = between(text, "table", body)
    page.write_text(text)
    keep_plots(paths, page.parent / "plots")
    return missing


def keep_plots(paths, directory):
    """Copies the plots that the documents show."""
    directory.mkdir(exist_ok=True)
    for path in paths:
        for name in PLOTS:
            plot = Path(path).parent / f"{name}.svg"
            if plot.exists():
                shutil.copyfile(plot, directory / plot.name)
