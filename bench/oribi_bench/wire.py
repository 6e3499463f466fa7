"""The key-value protocol, as little of it as the measurements need, on a blocking connection."""

import socket
import struct
import zlib

HEADER = struct.Struct(">BBHBBHIIQ")
SET, SETQ, NOOP, HELLO, SASL_AUTH, SELECT_BUCKET, GET = 0x01, 0x11, 0x0A, 0x1F, 0x21, 0x89, 0x00
STAT = 0x10
USER, PASSWORD = "Administrator", "password"
# Mutation tokens, error map, bucket selection, JSON; collections only where keys have their prefix.
FEATURES, COLLECTIONS = (0x04, 0x07, 0x08, 0x0B), 0x12


def frame(opcode, key=b"", extras=b"", value=b"", vbucket=0):
    """One request."""
    body = len(extras) + len(key) + len(value)
    head = HEADER.pack(0x80, opcode, len(key), len(extras), 0, vbucket, body, 0, 0)
    return head + extras + key + value


def vbucket_of(key, vbuckets=64):
    """The vbucket of a key without its collection prefix."""
    return ((zlib.crc32(key) >> 16) & 0x7FFF) % vbuckets


def collection_prefix(collection_id):
    """The id as the groups of seven bits that precede a key."""
    prefix = bytearray()
    while collection_id >= 0x80:
        prefix.append(collection_id & 0x7F | 0x80)
        collection_id >>= 7
    prefix.append(collection_id)
    return bytes(prefix)


class Connection:
    """A blocking connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_exact(self, length):
        data = bytearray()
        while len(data) < length:
            chunk = self.socket.recv(length - len(data))
            if not chunk:
                raise ConnectionError("the server closed the connection")
            data += chunk
        return bytes(data)

    def receive(self):
        """Status and value of one answer."""
        head = HEADER.unpack(self.read_exact(24))
        body = self.read_exact(head[6])
        return head[5], body[head[3] + head[2]:]

    def call(self, request):
        self.socket.sendall(request)
        return self.receive()

    def login(self, collections=False):
        """Authenticates as the development user and selects bucket `default`, in two round trips."""
        features = FEATURES + ((COLLECTIONS,) if collections else ())
        plain = f"\0{USER}\0{PASSWORD}".encode()
        self.socket.sendall(
            frame(HELLO, b"bench", value=struct.pack(f">{len(features)}H", *features))
            + frame(SASL_AUTH, b"PLAIN", value=plain)
        )
        for _ in range(2):
            status, value = self.receive()
            if status != 0:
                raise ConnectionError(f"handshake: status {status:#x} {value!r}")
        status, _ = self.call(frame(SELECT_BUCKET, b"default"))
        if status != 0:
            raise ConnectionError(f"select bucket: status {status:#x}")
        return self

    def stats(self, group=b""):
        """The server's general statistics, or those of a group, as text by name."""
        self.socket.sendall(frame(STAT, group))
        stats = {}
        while True:
            head = HEADER.unpack(self.read_exact(24))
            body = self.read_exact(head[6])
            if head[5] != 0:
                raise SystemExit(f"statistics: status {head[5]:#x} {body!r}")
            if head[2] == 0:
                return stats
            name = body[head[3]:head[3] + head[2]].decode()
            stats[name] = body[head[3] + head[2]:].decode()

    def store(self, entries):
        """Stores (vbucket, key field, value) by quiet SETs, a thousand to a round trip."""
        batch, count = bytearray(), 0
        for vbucket, key, value in entries:
            batch += frame(SETQ, key, bytes(8), value, vbucket)
            count += 1
            if count % 1000 == 0:
                self.finish(batch)
                batch.clear()
        self.finish(batch)
        return count

    def finish(self, batch):
        self.socket.sendall(batch + frame(NOOP))
        # Quiet SETs answer only when they fail, so the first answer is the NOOP's.
        status, value = self.receive()
        if status != 0:
            raise SystemExit(f"storing failed with status {status:#x} {value!r}")

    def close(self):
        self.socket.close()
