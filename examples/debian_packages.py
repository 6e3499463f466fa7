#!/usr/bin/env python3
"""Turns the Debian package index of this machine into JSON lines for `oribi doc import`.

One object per package version, with every field of the index and a unique `_key` of the form
package:version:architecture. Sources, in order: `apt-cache dumpavail`, the package lists of apt
that are stored uncompressed, the packages that are installed. Uses the standard library only.
"""

import argparse
import glob
import json
import shutil
import subprocess
import sys

KEY_BYTES_MAX = 246
INTEGER_FIELDS = {"Size", "Installed-Size"}
LIST_FIELDS = {"Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Breaks",
               "Conflicts", "Replaces", "Provides", "Tag"}


def stanzas(lines):
    """Yields each paragraph of a control file as a dict; continuation lines are joined."""
    fields, name = {}, None
    for line in lines:
        line = line.rstrip("\n")
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, None
        elif line[0] in " \t":
            if name is not None:
                fields[name] += "\n" + line.strip()
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def document(fields):
    """The JSON object for one stanza: numbers as numbers, comma-separated relations as lists."""
    result = {}
    for name, value in fields.items():
        if name in INTEGER_FIELDS and value.isdigit():
            result[name] = int(value)
        elif name in LIST_FIELDS:
            result[name] = [part.strip() for part in value.replace("\n", " ").split(",") if part.strip()]
        else:
            result[name] = value
    return result


def key_of(fields, taken):
    """A key that no earlier document has, or None for a stanza without package and version."""
    package, version = fields.get("Package"), fields.get("Version")
    if not package or not version:
        return None
    key = f"{package}:{version}:{fields.get('Architecture', 'all')}"
    if len(key.encode()) > KEY_BYTES_MAX or key in taken:
        return None
    taken.add(key)
    return key


def source_lines(source):
    """Yields the lines of a source; nothing when this machine does not have it."""
    if source == "apt":
        if shutil.which("apt-cache") is None:
            return
        command = ["apt-cache", "dumpavail"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              encoding="utf-8", errors="replace") as process:
            yield from process.stdout
        return
    paths = {"lists": sorted(glob.glob("/var/lib/apt/lists/*_Packages")),
             "installed": ["/var/lib/dpkg/status"]}[source]
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from file
                yield "\n"
        except FileNotFoundError:
            pass


def main():
    """Writes the documents and says on standard error how many there were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", default="-", help="file to write; - is standard output")
    parser.add_argument("--source", choices=["apt", "lists", "installed"],
                        help="read only this source, instead of the first that has packages")
    parser.add_argument("--limit", type=int, help="stop after this many documents")
    arguments = parser.parse_args()
    output = sys.stdout if arguments.output == "-" else open(arguments.output, "w", encoding="utf-8")
    count = 0
    taken = set()
    with output:
        for source in [arguments.source] if arguments.source else ["apt", "lists", "installed"]:
            for fields in stanzas(source_lines(source)):
                if arguments.limit is not None and count >= arguments.limit:
                    break
                key = key_of(fields, taken)
                if key is None:
                    continue
                row = {"_key": key, **document(fields)}
                output.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                count += 1
            if count:
                break
    print(f"{count} documents", file=sys.stderr)
    return 0 if count else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.exit(1)
