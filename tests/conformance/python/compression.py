"""Documents that one client compresses and another, which did not negotiate it, reads and changes."""

import couchbase.subdocument as SD
from couchbase.subdocument import LookupInMacro
from couchbase.transcoder import RawBinaryTranscoder

from checks import equal

TEXT = "compressible " * 400
BINARY = RawBinaryTranscoder()


def datatype(collection, key):
    """What the server keeps the document as."""
    found = collection.lookup_in(key, [SD.get(f"{LookupInMacro.document()}.datatype", xattr=True)])
    return found.content_as[list](0)


def compression(collection, without):
    document = {"n": 1, "text": TEXT}
    collection.upsert("compressed", document)
    equal(sorted(datatype(without, "compressed")), ["json", "snappy"])
    for reader in (collection, without):
        equal(reader.get("compressed").content_as[dict], document)
        equal(reader.lookup_in("compressed", [SD.get("text"), SD.get("n")]).content_as[str](0), TEXT)
    without.mutate_in("compressed", [SD.increment("n", 1), SD.upsert("user", 1, xattr=True)])
    for reader in (collection, without):
        equal(reader.get("compressed").content_as[dict], {"n": 2, "text": TEXT})
    without.upsert("plain", document)
    equal(datatype(collection, "plain"), ["json"])
    equal(collection.get("plain").content_as[dict], document)
    text = TEXT.encode()
    collection.upsert("bytes", text, transcoder=BINARY)
    without.binary().append("bytes", b"-end")
    collection.binary().prepend("bytes", text)
    for reader in (collection, without):
        equal(reader.get("bytes", transcoder=BINARY).value, text + text + b"-end")
