"""What a consumer of change streams has written down, and whether a server may send it.

A journal has a line for each thing that a stream said, fields separated by tabs:

    change    VB UUID SEQNO START END  mutation|deletion|expiration COLLECTION KEY CAS VALUE
    event     VB UUID SEQNO START END  KIND MANIFEST SCOPE COLLECTION NAME
    advanced  VB UUID SEQNO START END
    rollback  VB UUID SEQNO START END
    marker    VB START END FLAGS
    opened    VB UUID SEQNO
    ended     VB REASON
    unexpected VB WHAT

UUID, SEQNO, START and END are where the stream would go on. Ids of collections and scopes, keys and values are in
hexadecimal. `Journal` reads a growing file and notes every broken rule of the protocol.
"""

from collections import namedtuple

Change = namedtuple("Change", "vb seqno kind collection key cas value")
Event = namedtuple("Event", "vb seqno kind manifest scope collection name")
MAY_DUPLICATE_KEYS = 0x20


class Stream:
    """What was heard of one vbucket."""

    def __init__(self):
        self.seqno, self.marker, self.in_snapshot = 0, None, set()
        self.is_first_marker, self.is_open = True, False
        self.changes, self.events, self.dropped, self.rollbacks, self.histories = [], [], set(), [], []
        # How many of the changes were taken.
        self.taken = 0


class Journal:
    """`violations` are texts about rules that were broken."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.streams, self.violations, self.ends = {}, [], []
        # The last change of each document.
        self.newest = {}
        # A document whose last change has not come yet.
        self.missing = None

    def read(self):
        """Takes in what was appended since the last time; cut-off lines of a killed consumer come again."""
        if not self.path.exists():
            return self
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            content = file.read()
        whole = content[:content.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.decode().splitlines():
            word, vb, *fields = line.split("\t")
            stream = self.streams.setdefault(int(vb), Stream())
            getattr(self, f"take_{word}")(int(vb), stream, fields)
        return self

    def complain(self, vb, stream, text):
        self.violations.append(f"vb {vb} after seqno {stream.seqno}, marker {stream.marker}: {text}")

    def take_opened(self, vb, stream, fields):
        uuid, seqno = map(int, fields)
        if seqno != stream.seqno:
            self.complain(vb, stream, f"opened at {seqno}")
        stream.marker, stream.is_first_marker, stream.is_open = None, True, True
        if uuid not in stream.histories:
            stream.histories.append(uuid)

    def take_marker(self, vb, stream, fields):
        start, end, flags = map(int, fields)
        if start > end or end < stream.seqno:
            self.complain(vb, stream, f"marker {start}..{end}")
        if stream.marker and stream.marker[1] != stream.seqno:
            self.complain(vb, stream, f"marker {start}..{end} in the middle of a snapshot")
        if not stream.is_first_marker and start < stream.seqno:
            self.complain(vb, stream, f"marker {start}..{end} begins too early")
        if flags & MAY_DUPLICATE_KEYS:
            self.complain(vb, stream, "a snapshot with duplicate keys")
        stream.marker, stream.in_snapshot, stream.is_first_marker = (start, end), set(), False

    def take_change(self, vb, stream, fields):
        seqno, kind, collection, key, cas = int(fields[1]), fields[4], int(fields[5], 16), fields[6], int(fields[7])
        value = bytes.fromhex(fields[8]) if kind == "mutation" else None
        key = bytes.fromhex(key).decode()
        self.move(vb, stream, seqno)
        if (collection, key) in stream.in_snapshot:
            self.complain(vb, stream, f"{key} twice in a snapshot")
        stream.in_snapshot.add((collection, key))
        if collection in stream.dropped:
            self.complain(vb, stream, f"{key} of the dropped collection {collection:x}")
        change = Change(vb, seqno, kind, collection, key, cas, value)
        stream.changes.append(change)
        self.newest[collection, key] = change

    def take_event(self, vb, stream, fields):
        seqno, kind, manifest = int(fields[1]), fields[4], int(fields[5])
        scope, collection = int(fields[6], 16), int(fields[7], 16)
        self.move(vb, stream, seqno)
        stream.events.append(Event(vb, seqno, kind, manifest, scope, collection, fields[8]))
        if kind == "collection-dropped":
            stream.dropped.add(collection)

    def take_advanced(self, vb, stream, fields):
        # The Java client says this after every event, too.
        if int(fields[1]) != stream.seqno:
            self.move(vb, stream, int(fields[1]))

    def move(self, vb, stream, seqno):
        if seqno <= stream.seqno:
            self.complain(vb, stream, f"seqno {seqno} again")
        if stream.marker is None or not stream.marker[0] <= seqno <= stream.marker[1]:
            self.complain(vb, stream, f"seqno {seqno} outside of the snapshot")
        stream.seqno = seqno

    def take_rollback(self, vb, stream, fields):
        seqno = int(fields[1])
        if seqno >= stream.seqno:
            self.complain(vb, stream, f"rollback to {seqno}")
        stream.rollbacks.append((stream.seqno, seqno))
        stream.changes = [change for change in stream.changes if change.seqno <= seqno]
        stream.events = [event for event in stream.events if event.seqno <= seqno]
        stream.taken = min(stream.taken, len(stream.changes))
        stream.dropped = {event.collection for event in stream.events if event.kind == "collection-dropped"}
        stream.seqno, stream.marker = seqno, None
        self.newest = {(change.collection, change.key): change for change in self.changes()}

    def take_ended(self, vb, stream, fields):
        if not stream.is_open:
            self.complain(vb, stream, f"ended again: {fields[0]}")
        stream.is_open = False
        self.ends.append((vb, fields[0]))

    def take_unexpected(self, vb, stream, fields):
        self.complain(vb, stream, fields[0])

    def changes(self):
        """Every change that is not rolled back, in the order of its vbucket."""
        return [change for stream in self.streams.values() for change in stream.changes]

    def take_new_changes(self):
        """The changes since the last time."""
        for stream in self.streams.values():
            new = stream.changes[stream.taken:]
            stream.taken = len(stream.changes)
            yield from new

    def events(self):
        return [event for stream in self.streams.values() for event in stream.events]

    def rollbacks(self):
        return [rollback for stream in self.streams.values() for rollback in stream.rollbacks]

    def dropped_in(self, vb):
        """The collections that were dropped as far as a vbucket's stream has said so."""
        return self.streams[vb].dropped if vb in self.streams else set()

    def forge(self, vb, uuid, seqno):
        """Makes a consumer that is not running believe that it has heard everything up to a seqno."""
        line = f"advanced\t{vb}\t{uuid}\t{seqno}\t{seqno}\t{seqno}\n".encode()
        with open(self.path, "ab") as file:
            file.seek(self.offset)
            file.truncate()
            file.write(line)
        self.offset += len(line)
        self.streams[vb].seqno, self.streams[vb].marker = seqno, None

    def table(self):
        """The last change of every document that its collection still has."""
        return {place: change for place, change in self.newest.items()
                if change.collection not in self.streams[change.vb].dropped}
