"""Change streams, heard by a client that was written elsewhere.

Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_ADMIN, ORIBI_CONTROL, ORIBI_STEPS, ORIBI_CONSUMER (the command
of the consumer as a list in JSON), ORIBI_HEARS (what that client can tell apart), ORIBI_DIRECTORY, ORIBI_LOG (how
paths of the consumers' logs begin), ORIBI_BUCKET and ORIBI_CHANGES (what happens to nodes), and writes BEGIN, PASS and FAIL lines; see harness/steps.py. Documents are written
with the Python SDK; consumers write what they hear into journals, which are compared with the answers that the writes
got.
"""

import base64
import json
import os
import subprocess
import threading
import time
import traceback
import urllib.request
from collections import Counter, defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException
from couchbase.options import ClusterOptions, UpsertMultiOptions

from checks import check, equal, eventually
from journals import Journal

DOCUMENTS = 100_000
BATCH = 1_000
# Of each batch, these parts are written again, removed, or expire.
UPDATED, REMOVED, EXPIRING = 5, 10, 50
PATIENCE = 60
SCOPE = "streams"
# What `oribi serve` makes when it is not told otherwise.
VBUCKETS = int(os.environ.get("ORIBI_VBUCKETS", "64"))
KILLS, CRASHES = 3, 2
# Threads that write while servers are killed, and the batches that they write before.
WRITERS, BATCHES_BEFORE = 4, 40
UNKNOWN_HISTORY = 0x5157
# More seqnos than a vbucket ever has here.
AHEAD = 1_000_000_000
DURABLY = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)
Written = namedtuple("Written", "vb seqno cas value expires")


class Consumer:
    """A process that can be killed and goes on where its journal ends."""

    def __init__(self, name, filter_text=""):
        self.path = Path(os.environ["ORIBI_DIRECTORY"]) / f"{name}.journal"
        self.log_path = Path(f"{os.environ['ORIBI_LOG']}-{name}.log")
        self.filter_text, self.process, self.restarts = filter_text, None, 0
        self.journal = Journal(self.path)

    def start(self):
        """Returns when all streams are open."""
        self.begin()
        return self.ready()

    def begin(self):
        environment = {**os.environ, "ORIBI_JOURNAL": str(self.path), "ORIBI_FILTER": self.filter_text}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(json.loads(os.environ["ORIBI_CONSUMER"]), env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        return self

    def ready(self):
        check(self.process.stdout.readline() == b"READY\n", f"the consumer says READY, see {self.log_path}")
        return self

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def until(self, condition, what, may_end=False):
        """Waits until the journal fulfils a condition, which is a function that returns what is missing.

        A consumer that `may_end` is started again, as a connector's task is after an error.
        """
        deadline = time.monotonic() + PATIENCE
        while missing := condition(self.journal.read()):
            if self.process.poll() is not None:
                check(may_end, f"the consumer goes on, see {self.log_path}")
                self.kill()
                self.begin()
                self.restarts += 1
            check(time.monotonic() < deadline, f"{what}, but {str(missing)[:200]} is missing")
            check(not self.journal.violations, f"no violation, got {self.journal.violations[:3]}")
            time.sleep(0.1)
        equal(self.journal.violations, [])


class Program:
    def __init__(self):
        self.hears = os.environ["ORIBI_HEARS"].split(",")
        self.everything = Consumer("everything")
        self.consumers = [self.everything]
        self.cluster = None
        # For each document by collection and key, every write with its answer.
        self.written = defaultdict(list)
        self.dropped = set()
        # Of documents that are written while servers change, when some answers are lost.
        self.crash_keys = set()
        self.lock = threading.Lock()

    def connect(self):
        authenticator = PasswordAuthenticator(os.environ["ORIBI_USER"], os.environ["ORIBI_PASSWORD"])
        self.cluster = Cluster.connect(os.environ["ORIBI_CONNSTR"], ClusterOptions(authenticator))
        self.bucket = self.cluster.bucket(os.environ["ORIBI_BUCKET"])
        self.bucket.collections().create_scope(SCOPE)
        self.places = {0: self.bucket.default_collection()}
        self.left = self.create("left")

    def create(self, name):
        """Creates a collection; returns its id."""
        self.bucket.collections().create_collection(SCOPE, name)
        collection = self.bucket.scope(SCOPE).collection(name)
        eventually(lambda: collection.exists("nothing"), CouchbaseException)
        found = [each for scope in self.manifest() if scope["name"] == SCOPE
                 for each in scope["collections"] if each["name"] == name]
        number = int(found[0]["uid"], 16)
        self.places[number] = collection
        return number

    def drop(self, name, number):
        self.bucket.collections().drop_collection(SCOPE, name)
        del self.places[number]
        self.dropped.add(number)
        with self.lock:
            for place in [place for place in self.written if place[0] == number]:
                del self.written[place]

    def manifest(self):
        request = urllib.request.Request(f"{os.environ['ORIBI_ADMIN']}/pools/default/buckets/{os.environ['ORIBI_BUCKET']}/scopes")
        token = base64.b64encode(f"{os.environ['ORIBI_USER']}:{os.environ['ORIBI_PASSWORD']}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["scopes"]

    def consumer(self, name, filter_text=""):
        made = Consumer(name, filter_text)
        self.consumers.append(made)
        return made

    # Writes.

    def write(self, collection, documents, options=None, expires=False):
        """Writes documents and notes the answers."""
        done = self.places[collection].upsert_multi(documents, options or UpsertMultiOptions())
        check(done.all_ok, f"{len(documents)} writes, got {str(done.exceptions)[:300]}")
        self.note(collection, done, documents, expires)

    def remove(self, collection, keys):
        done = self.places[collection].remove_multi(keys)
        check(done.all_ok, f"{len(keys)} removals, got {str(done.exceptions)[:300]}")
        self.note(collection, done, dict.fromkeys(keys), False)

    def note(self, collection, done, values, expires):
        with self.lock:
            for key, result in done.results.items():
                token = result.mutation_token()
                self.written[collection, key].append(
                    Written(token.partition_id, token.sequence_number, result.cas, values[key], expires))

    def batch(self, collection, name, count=BATCH):
        """Writes documents, some of them twice, removes some and lets some expire; returns the last ones."""
        documents = {f"{name}-{number}": {"name": name, "number": number, "round": 1, "text": "x" * (number % 100)}
                     for number in range(count)}
        keys = list(documents)
        self.write(collection, documents)
        self.write(collection, {key: {**documents[key], "round": 2} for key in keys[::UPDATED]})
        self.remove(collection, keys[1::REMOVED])
        expiring = keys[2::EXPIRING]
        self.write(collection, {key: {"expires": True} for key in expiring},
                   UpsertMultiOptions(expiry=timedelta(seconds=1)), expires=True)
        return expiring

    # What consumers have to hear.

    def missing(self, journal, collections):
        """A document whose last state was not heard yet."""
        def is_missing(place):
            newest = journal.newest.get(place)
            return newest is None or not self.is_last(newest, self.written[place][-1])

        # To look at all of them takes long, so the one that was missing comes first.
        if journal.missing in self.written and is_missing(journal.missing):
            return journal.missing
        with self.lock:
            places = (place for place in self.written if place[0] in collections)
            journal.missing = next((place for place in places if is_missing(place)), None)
        return journal.missing

    def is_last(self, change, write):
        if write.expires:
            return change.kind in ("expiration", "deletion") and change.seqno > write.seqno
        return change.seqno == write.seqno and change.vb == write.vb

    def compare(self, consumer, collections):
        """Every change that was heard is one that was written, with its content, in the order of the writes."""
        for change in consumer.journal.take_new_changes():
            place = (change.collection, change.key)
            if change.collection in self.dropped:
                continue
            check(change.collection in collections, f"nothing of collection {change.collection:x}")
            writes = {write.seqno: write for write in self.written[place]}
            if change.seqno not in writes:
                last = self.written[place][-1]
                check(last.expires and self.is_last(change, last), f"something that was written, got {change}")
                equal(change.kind, "expiration" if "expirations" in self.hears else "deletion")
                continue
            write = writes[change.seqno]
            equal((change.vb, change.cas), (write.vb, write.cas))
            value = json.loads(change.value) if change.kind == "mutation" else None
            equal((change.kind, value), ("deletion" if write.value is None else "mutation", write.value))

    def hear(self, consumer, collections):
        """Waits until a consumer has heard the last state of every document, and compares."""
        consumer.until(lambda journal: self.missing(journal, collections), "the last state of every document")
        self.compare(consumer, collections)
        kinds = Counter(change.kind for change in consumer.journal.changes())
        return ", ".join(f"{count} {kind}s" for kind, count in sorted(kinds.items()))

    # Steps.

    def changes(self):
        self.everything.start()
        right = self.create("right")
        started = time.monotonic()
        collections = [0, self.left, right]
        expiring = []
        for number in range(DOCUMENTS // BATCH):
            collection = collections[number % len(collections)]
            expiring += [(collection, key) for key in self.batch(collection, f"batch-{number}")]
        written = time.monotonic() - started
        self.expire(expiring)
        heard = self.hear(self.everything, collections)
        created = [event for event in self.everything.journal.events()
                   if event.kind == "collection-created" and event.collection == right]
        equal(len(created), VBUCKETS)
        return f"{written:.1f} s of writing, {heard}"

    def expire(self, places):
        """Reads documents until they have expired: who reads one that has, removes it."""
        for collection in {collection for collection, _ in places}:
            keys = [key for each, key in places if each == collection]
            deadline = time.monotonic() + PATIENCE
            while keys:
                check(time.monotonic() < deadline, f"{len(keys)} documents expire")
                found = self.places[collection].exists_multi(keys).results
                keys = [key for key in keys if found[key].exists]
                time.sleep(0.1 if keys else 0)
        for collection, key in places:
            try:
                self.places[collection].get(key)
                check(False, f"{key} has expired")
            except CouchbaseException:
                pass

    def backfill(self):
        late = self.consumer("late").start()
        heard = self.hear(late, list(self.places))
        live = self.everything.journal.read().table()
        equal(len(late.journal.table()), len(live))
        check(late.journal.table() == live, "the same table from a stream that began late")
        late.kill()
        return heard

    def filters(self):
        """Streams of a scope, of a collection, and of a client that knows no collections."""
        scope = [scope for scope in self.manifest() if scope["name"] == SCOPE][0]["uid"]
        in_scope = [number for number in self.places if number]
        wanted = {"scope": (f"scope:{scope}", in_scope), "collection": (f"collections:{self.left:x}", [self.left]),
                  "legacy": ("legacy", [0])}
        consumers = {name: self.consumer(name, text).begin() for name, (text, _) in wanted.items()}
        for consumer in consumers.values():
            consumer.ready()
        later = self.create("later")
        in_scope.append(later)
        for collection in (0, self.left, later):
            self.expire([(collection, key) for key in self.batch(collection, "filtered", 100)])
        heard = [f"{name}: {self.hear(consumer, wanted[name][1])}" for name, consumer in consumers.items()]
        equal({event.kind for event in consumers["legacy"].journal.events()}, set())
        equal({event.collection for event in consumers["collection"].journal.events()}, {self.left})
        begun = [event for event in consumers["scope"].journal.events() if event.kind == "collection-created"]
        equal({event.collection for event in begun}, set(in_scope))
        for consumer in consumers.values():
            consumer.kill()
        return "; ".join(heard)

    def dropped_collection(self):
        """One of two collections is dropped while both are written."""
        kept, gone = self.create("kept"), self.create("gone")
        consumer = self.consumer("dropped", f"collections:{kept:x},{gone:x}").start()
        begun, going = threading.Event(), self.places[gone]

        def write():
            is_there, number = True, 0
            while is_there:
                documents = {f"drop-{number}-{each}": {"number": each} for each in range(200)}
                self.write(kept, documents)
                is_there = going.upsert_multi(documents).all_ok
                number += 1
                if number == 5:
                    begun.set()
            self.write(kept, {"drop-last": {"number": number}})

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            check(begun.wait(PATIENCE), "some documents are written")
            self.drop("gone", gone)
            writer.result()

        def missing(journal):
            return self.missing(journal, [kept]) or [vb for vb in range(VBUCKETS) if gone not in journal.dropped_in(vb)]

        consumer.until(missing, "the end of the collection in every vbucket")
        self.compare(consumer, [kept])
        heard = Counter(change.collection for change in consumer.journal.changes())
        equal(set(heard), {kept, gone})
        equal(consumer.journal.ends, [])
        if "filter-empty" in self.hears:
            self.drop("kept", kept)
            consumer.until(lambda journal: VBUCKETS - len(journal.ends), "the end of every stream")
            equal(sorted(vb for vb, _ in consumer.journal.ends), list(range(VBUCKETS)))
        consumer.kill()
        return f"{heard[gone]} changes of the dropped collection, {heard[kept]} of the other"

    def consumer_killed(self):
        """A consumer is killed in the middle, several times, and hears everything once all the same."""
        for number in range(KILLS):
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(lambda: [self.batch(0, f"killed-{number}-{part}") for part in range(3)])
                self.everything.kill()
                self.everything.start()
                expiring = writing.result()
            self.expire([(0, key) for keys in expiring for key in keys])
        return self.hear(self.everything, list(self.places))

    def rollback(self):
        """A consumer that knows more than the server, and one of another history, have to go back."""
        self.everything.kill()
        journal = self.everything.journal.read()
        known = journal.streams[0].seqno
        journal.forge(0, journal.streams[0].histories[-1], known + 1_000)
        journal.forge(1, UNKNOWN_HISTORY, journal.streams[1].seqno)
        self.everything.start()
        self.expire([(0, key) for key in self.batch(0, "rolled-back")])
        heard = self.hear(self.everything, list(self.places))
        # The Java client forgets the history then, and so has to go back further.
        equal(journal.streams[0].rollbacks[0], (known + 1_000, known))
        equal([seqno for _, seqno in journal.streams[1].rollbacks], [0])
        return heard

    def server_killed(self):
        """After a crash the consumer goes on by itself; at the end it knows what is there, no more and no less."""
        return self.crashed(["kill-restart"] * CRASHES, VBUCKETS)

    def failovers(self):
        """The same over nodes that are killed, whose vbuckets others take over."""
        self.everything.start()
        # The consumer says that all streams are open before its journal does.
        self.everything.until(lambda journal: VBUCKETS - sum(bool(each.histories) for each in journal.streams.values()),
                              "the history of every vbucket")
        return self.crashed(os.environ["ORIBI_CHANGES"].split(","), 1)

    def failover_rollback(self):
        """A consumer that is ahead of everything that copies have goes back after a failover, as one that has heard of
        writes which were lost with a node."""
        self.everything.kill()
        journal = self.everything.journal.read()
        before, ahead = newest_histories(journal), {}
        for vb, stream in journal.streams.items():
            ahead[vb] = stream.seqno + AHEAD
            journal.forge(vb, stream.histories[-1], ahead[vb])
        self.change_servers("kill-restart")
        self.everything.begin()
        self.everything.until(lambda journal: [vb for vb, stream in journal.streams.items() if stream.seqno == ahead[vb]],
                              "the rollback of every vbucket")
        return self.compare_with_read(before, 1)

    def crashed(self, actions, histories_min):
        """Writes while the servers change; at least so many vbuckets get a new history."""
        before = newest_histories(self.everything.journal.read())
        for action in actions:
            self.write_during(action)
        return self.compare_with_read(before, histories_min)

    def compare_with_read(self, before, histories_min):
        """Waits until the table that the consumer's streams make is the one of a full read."""
        found = self.found(sorted(self.crash_keys))

        def differing(journal):
            begun = [vb for vb, history in newest_histories(journal).items() if history != before[vb]]
            if len(begun) < histories_min:
                return f"a new history: only {begun} have one"
            table = {key: (json.loads(change.value), change.cas) for (collection, key), change in journal.table().items()
                     if collection == 0 and key in self.crash_keys and change.kind == "mutation"}
            return [key for key in found.keys() | table.keys() if found.get(key) != table.get(key)]

        self.everything.until(differing, "the documents that are there", may_end=True)
        return f"{len(found)} documents, {len(self.everything.journal.rollbacks())} rollbacks in all, {self.everything.restarts} restarts"

    def write_during(self, action):
        """Asks for a change of the servers in the middle of writes, of which some may fail."""
        stop, begun = threading.Event(), threading.Semaphore(0)

        def write(writer):
            number = 0
            while not stop.is_set():
                documents = {f"crash-{writer}-{each % 2_000}": {"number": each} for each in range(number, number + 50)}
                self.crash_keys.update(documents)
                durability = DURABLY if number % 200 == 0 else None
                self.places[0].upsert_multi(documents, **({"durability": durability} if durability else {}))
                begun.release()
                number += 50

        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(write, writer) for writer in range(WRITERS)]
            try:
                for _ in range(BATCHES_BEFORE):
                    check(begun.acquire(timeout=PATIENCE), "documents are written")
                self.change_servers(action)
            finally:
                stop.set()
            for writer in writers:
                writer.result()

    @staticmethod
    def change_servers(action):
        request = urllib.request.Request(f"{os.environ['ORIBI_CONTROL']}/{action}", method="POST")
        urllib.request.urlopen(request, timeout=230).read()

    def found(self, keys):
        """What a full read finds: values and CAS by key."""
        eventually(lambda: self.places[0].exists(keys[0]), CouchbaseException)
        found = {}
        for start in range(0, len(keys), BATCH):
            got = self.places[0].get_multi(keys[start:start + BATCH])
            unexpected = [error for error in got.exceptions.values() if not isinstance(error, DocumentNotFoundException)]
            equal(unexpected, [])
            found.update({key: (result.value, result.cas) for key, result in got.results.items() if result.success})
        return found

    def close(self):
        for consumer in self.consumers:
            consumer.kill()
        if self.cluster:
            self.cluster.close()


def newest_histories(journal):
    """The newest history of each vbucket."""
    return {vb: stream.histories[-1] for vb, stream in journal.streams.items() if stream.histories}


def main():
    program = Program()
    steps = {
        "connect": program.connect,
        "changes": program.changes,
        "backfill": program.backfill,
        "filters": program.filters,
        "dropped-collection": program.dropped_collection,
        "consumer-killed": program.consumer_killed,
        "rollback": program.rollback,
        "server-killed": program.server_killed,
        "failovers": program.failovers,
        "failover-rollback": program.failover_rollback,
    }
    try:
        for name in os.environ["ORIBI_STEPS"].split(","):
            print(f"BEGIN {name}", flush=True)
            try:
                print(f"PASS {name} {steps[name]() or ''}", flush=True)
            except Exception as error:
                traceback.print_exc()
                print(f"FAIL {name} {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
    finally:
        program.close()


if __name__ == "__main__":
    main()
