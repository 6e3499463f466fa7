#!/usr/bin/env python3
"""Writes the Unicode characters that Python knows as JSON lines for `oribi doc import`.

One object per named character, some 140,000, with a unique `_key` such as U+0041. Real data that is
on every machine with Python. Uses the standard library only.
"""

import argparse
import json
import sys
import unicodedata


def document(code):
    """The JSON object for one code point, or None for one without a name."""
    character = chr(code)
    name = unicodedata.name(character, None)
    if name is None:
        return None
    result = {
        "_key": f"U+{code:04X}",
        "character": character,
        "code": code,
        "name": name,
        "words": name.replace("-", " ").split(),
        "category": unicodedata.category(character),
        "bidirectional": unicodedata.bidirectional(character),
    }
    number = unicodedata.numeric(character, None)
    if number is not None:
        result["number"] = number
    for form in ("upper", "lower"):
        other = getattr(character, form)()
        if other != character:
            result[form] = other
    return result


def main():
    """Writes the documents and reports their number on standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", default="-", help="file to write; - is standard output")
    parser.add_argument("--limit", type=int, help="stop after this many documents")
    arguments = parser.parse_args()
    output = sys.stdout if arguments.output == "-" else open(arguments.output, "w", encoding="utf-8")
    count = 0
    with output:
        for code in range(sys.maxunicode + 1):
            if count == arguments.limit:
                break
            row = document(code)
            if row is not None:
                output.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                count += 1
    print(f"{count} documents", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
