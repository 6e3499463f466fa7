#!/usr/bin/env python3
"""Reads an archive of `oribi backup` and prints the newest version of each document as JSON lines.

Written from docs/backup-format.md alone, without Oribi's code. It needs Python 3.9 and, for zstd, one of:
Python 3.14, the package `zstandard`, or the program `zstd`. Encrypted archives are not read.

    docs/backup-reader.py ARCHIVE [ID]
"""
import base64
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

RECORD = struct.Struct(">IBBHQQQIIIH")
KINDS = {1: "mutation", 2: "deletion", 3: "expiration"}
SNAPPY, ATTRIBUTES = 2, 4


def inflate(frame, size):
    """Inflates one zstd frame."""
    try:
        from compression import zstd
        return zstd.decompress(frame)
    except ImportError:
        pass
    try:
        import zstandard
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except ImportError:
        pass
    if shutil.which("zstd") is None:
        sys.exit("zstd is needed: Python 3.14, the package zstandard, or the program zstd")
    return subprocess.run(["zstd", "-dcq"], input=frame, stdout=subprocess.PIPE, check=True).stdout


def checked_text(path):
    """JSON, line feed, SHA-256 of the JSON, line feed."""
    content = path.read_bytes()
    text, checksum = content[:-66], content[-65:-1].decode()
    if hashlib.sha256(text).hexdigest() != checksum:
        sys.exit(f"{path} is damaged")
    return json.loads(text)


def blocks(path, entry):
    """The inflated blocks of a segment."""
    content = path.read_bytes()
    footer_bytes = struct.unpack(">I", content[-16:-12])[0]
    footer = content[-16 - footer_bytes:-16]
    if (content[:12] != b"ORIBISEG" + struct.pack(">I", 2) or content[-8:] != b"ORIBIEND" or len(content) != entry["bytes"]
            or hashlib.sha256(footer).hexdigest() != entry["footer_sha256"]):
        sys.exit(f"{path} is damaged")
    for block in json.loads(footer)["blocks"]:
        frame = content[block["offset"]:block["offset"] + block["stored"]]
        if zlib.crc32(frame) != block["crc32"]:
            sys.exit(f"{path} is damaged")
        yield inflate(frame, block["inflated"])


def records(block):
    at = 0
    while at < len(block):
        behind, kind, datatype, vbucket, seqno, cas, rev, flags, expiry, collection, key_bytes = RECORD.unpack_from(block, at)
        key_at, end = at + RECORD.size, at + 4 + behind
        key, value = block[key_at:key_at + key_bytes], block[key_at + key_bytes:end]
        yield vbucket, collection, key, value, {
            "kind": KINDS[kind], "datatype": datatype, "seqno": seqno, "cas": str(cas), "rev": rev, "flags": flags,
            "expiry": expiry}
        at = end


def split_attributes(value):
    """u32 bytes of the section, then for each attribute u32 bytes, name, zero, JSON, zero; then the body."""
    section_bytes = struct.unpack_from(">I", value)[0]
    at, end, attributes = 4, 4 + section_bytes, {}
    while at < end:
        size = struct.unpack_from(">I", value, at)[0]
        name, text, _ = value[at + 4:at + 4 + size].split(b"\0")
        attributes[name.decode()] = json.loads(text)
        at += 4 + size
    return attributes, value[end:]


def main():
    archive = pathlib.Path(sys.argv[1])
    if checked_text(archive / "archive.json")["encryption"] is not None:
        sys.exit("the archive is encrypted")
    # The newest backup unless one is named, and what it builds on, the full one first.
    finished = sorted(path.parent for path in archive.glob("backups/*/manifest.json"))
    chain = [archive / "backups" / sys.argv[2] if len(sys.argv) > 2 else finished[-1]]
    manifests = [checked_text(chain[0] / "manifest.json")]
    while manifests[0]["parent"] is not None:
        chain.insert(0, archive / "backups" / manifests[0]["parent"])
        manifests.insert(0, checked_text(chain[0] / "manifest.json"))
    places = {place["id"]: place for place in manifests[-1]["places"]}

    table = {}
    for directory, manifest in zip(chain, manifests):
        for number, entry in enumerate(manifest["segments"]):
            for block in blocks(directory / f"{number:05}.seg", entry):
                for vbucket, collection, key, value, version in records(block):
                    if collection in places:
                        table[collection, key] = vbucket, value, version
            for reset in entry["resets"]:
                table = {name: found for name, found in table.items() if found[0] != reset}

    for (collection, key), (_, value, version) in table.items():
        datatype = version.pop("datatype")
        place, is_compressed, attributes = places[collection], bool(datatype & SNAPPY), {}
        if datatype & ATTRIBUTES and value and not is_compressed:
            attributes, value = split_attributes(value)
        print(json.dumps({
            "scope": place["scope"], "collection": place["collection"], "key": base64.b64encode(key).decode(), **version,
            "snappy": is_compressed, "attributes": attributes, "value": base64.b64encode(value).decode()}))


main()
