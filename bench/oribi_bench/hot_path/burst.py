"""A load without a running client: the client sleeps until all answers are there.

Requests are laid into the server's sockets while its process is stopped. Then it is let go, and the clock runs until
the last answer has arrived. Each socket becomes readable only once all its answers are there, so the client
sleeps nearly all the time and every processor is the server's. Only then the answers are read and checked.
"""

import os
import random
import select
import signal
import socket
import struct
import time

from ..wire import GET, HEADER, SET, frame, vbucket_of

VBUCKETS = 64
WAIT_MS = 60_000


def key_of(number):
    """As `oribi perf kv` writes it."""
    return b"%020d" % number


class BurstConnection:
    """A connection with its requests and what they are answered with."""

    def __init__(self, connection, requests, count, answer_bytes):
        self.connection = connection
        self.requests = requests
        self.count = count
        self.answers = bytearray(answer_bytes)
        self.expected = None
        # The kernel reports the socket readable only when this many bytes are there.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, answer_bytes)
        self.poll = select.poll()
        self.poll.register(connection.socket, select.POLLIN)

    def send(self):
        self.connection.socket.sendall(self.requests)

    def wait(self):
        if not self.poll.poll(WAIT_MS):
            raise SystemExit("a burst was not answered within a minute")

    def read(self):
        view, at = memoryview(self.answers), 0
        while at < len(view):
            got = self.connection.socket.recv_into(view[at:])
            if got == 0:
                raise SystemExit("the server closed a connection during a burst")
            at += got

    def check(self):
        """Every answer is a success. Equal answers need no second look."""
        if self.answers == self.expected:
            return
        at = 0
        for number in range(self.count):
            head = HEADER.unpack_from(self.answers, at)
            if head[0] not in (0x81, 0x18) or head[5] != 0 or head[7] != number:
                raise SystemExit(f"answer {number} of a burst: {head}")
            at += HEADER.size + head[6]
        if at != len(self.answers):
            raise SystemExit(f"answers of a burst have {at} bytes, not {len(self.answers)}")
        self.expected = bytes(self.answers)


def run_at_once(bursts):
    """One burst on each of several servers, all let go in the same moment; figures of all together."""
    operations = sum(burst.operations for burst in bursts)
    for burst in bursts:
        os.kill(burst.server.pid, signal.SIGSTOP)
    try:
        for burst in bursts:
            for connection in burst.connections:
                connection.send()
        cpu_before = sum(burst.server.cpu_s() for burst in bursts)
    finally:
        begin = time.perf_counter()
        for burst in bursts:
            os.kill(burst.server.pid, signal.SIGCONT)
    for burst in bursts:
        for connection in burst.connections:
            connection.wait()
    took_s = time.perf_counter() - begin
    cpu_s = sum(burst.server.cpu_s() for burst in bursts) - cpu_before
    for burst in bursts:
        for connection in burst.connections:
            connection.read()
            connection.check()
    return {"wall_ns": took_s * 1e9 / operations, "cpu_ns": cpu_s * 1e9 / operations, "cores": cpu_s / took_s}


class Burst:
    """The same requests again and again on a number of connections, about documents with these numbers."""

    def __init__(self, contender, server, load, connections, per_connection, seed=1, numbers=None):
        self.contender, self.server = contender, server
        self.operations = connections * per_connection
        self.numbers = numbers or range(load.items)
        chooser = random.Random(seed)
        self.gets = self.sets = 0
        self.connections = [self.open(load, per_connection, chooser) for _ in range(connections)]

    def open(self, load, count, chooser):
        connection = self.contender.connect(self.server)
        requests, answer_bytes = bytearray(), 0
        for number in range(count):
            key = key_of(chooser.choice(self.numbers))
            vbucket = vbucket_of(key, VBUCKETS) if self.contender.is_oribi else 0
            if chooser.randrange(100) < load.set_pct:
                request = frame(SET, key, bytes(8), chooser.randbytes(load.value_bytes), vbucket)
                answer_bytes += HEADER.size + self.set_answer_body()
                self.sets += 1
            else:
                request = frame(GET, key, vbucket=vbucket)
                answer_bytes += HEADER.size + 4 + load.value_bytes
                self.gets += 1
            # The opaque tells answers apart.
            requests += request[:12] + struct.pack(">I", number) + request[16:]
        return BurstConnection(connection, bytes(requests), count, answer_bytes)

    def set_answer_body(self):
        """Oribi adds vbucket id and seqno when asked for mutation tokens, as its clients do."""
        return 16 if self.contender.is_oribi else 0

    def close(self):
        for connection in self.connections:
            connection.connection.close()
