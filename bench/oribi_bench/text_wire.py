"""The text protocol, as little of it as a cache's client needs, on a blocking connection."""

import socket

RECEIVE_BYTES = 1 << 18


class TextConnection:
    """A blocking connection that reads many keys at once and writes without waiting for each answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def get(self, keys):
        """The values of these keys that are there, by key."""
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found, at = {}, 0
        while True:
            line, at = self.line(at)
            if line == b"END":
                self.received = self.received[at:]
                return found
            words = line.split(b" ")
            if words[0] != b"VALUE":
                raise SystemExit(f"the answer to a get is {line!r}")
            end = at + int(words[3])
            while len(self.received) < end + 2:
                self.receive()
            found[words[1]] = self.received[at:end]
            at = end + 2

    def store(self, entries):
        """Writes these keys and values; how many of them were refused."""
        self.socket.sendall(b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value) for key, value in entries))
        refused, at = 0, 0
        for _ in entries:
            line, at = self.line(at)
            refused += line != b"STORED"
        self.received = self.received[at:]
        return refused

    def line(self, begin):
        """The line that begins there, and where the next one begins."""
        while (end := self.received.find(b"\r\n", begin)) < 0:
            self.receive()
        return self.received[begin:end], end + 2

    def receive(self):
        chunk = self.socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise SystemExit("the server closed the connection")
        self.received += chunk

    def close(self):
        self.socket.close()
