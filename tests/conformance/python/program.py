"""The conformance steps with the Couchbase Python SDK.

Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_CONTROL, ORIBI_STEPS,
ORIBI_SUB_DOCUMENTS, ORIBI_BUCKET and ORIBI_REPLICAS, and writes BEGIN, PASS and FAIL lines; see harness/steps.py. The
blocking API is used throughout.
"""

import functools
import os
import sys
import threading
import time
import traceback
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (AmbiguousTimeoutException, AuthenticationException, CasMismatchException,
                                  CollectionAlreadyExistsException, CollectionNotFoundException, CouchbaseException,
                                  DeltaInvalidException, DocumentExistsException, DocumentNotFoundException,
                                  DurabilitySyncWriteAmbiguousException, KeyspaceNotFoundException,
                                  RequestCanceledException, ScopeAlreadyExistsException, ScopeNotFoundException,
                                  TimeoutException, UnAmbiguousTimeoutException)
from couchbase.mutation_state import MutationState
from couchbase.options import (ClusterOptions, DecrementOptions, DeltaValue, GetOptions, IncrementOptions,
                               InsertOptions, MutateInOptions, RemoveOptions, ReplaceOptions, SignedInt64, UpsertOptions)
from couchbase.transcoder import RawBinaryTranscoder

import compression
import locks
import managers
import nodes
import queries
import replicas
import rights
import scans
import sub_documents
import transactions
import transfers
from checks import check, differ, equal, eventually, raises

VALUE_BYTES_MAX = 20 * 1024 * 1024
# The SDK has no exception class of its own for this one: it raises the base class with the
# number of `value_too_large` in the core library's table of key-value errors.
VALUE_TOO_LARGE = 104
DOCUMENTS = 50_000
IN_FLIGHT_MAX = 1_000
BINARY = RawBinaryTranscoder()
TIMEOUTS = (AmbiguousTimeoutException, UnAmbiguousTimeoutException, TimeoutException)
BUCKET = os.environ.get("ORIBI_BUCKET", "default")
NOT_THERE_YET = (*TIMEOUTS, RequestCanceledException, CollectionNotFoundException, KeyspaceNotFoundException)


class Program:
    def __init__(self):
        self.connection_string = os.environ["ORIBI_CONNSTR"]
        self.user = os.environ["ORIBI_USER"]
        self.password = os.environ["ORIBI_PASSWORD"]
        # The authority that vouches for the server, where TLS is spoken.
        self.ca = {"cert_path": os.environ["ORIBI_CA"]} if "ORIBI_CA" in os.environ else {}
        self.cluster = self.bucket = self.collection = None
        self.nodes = nodes.Nodes((*TIMEOUTS, RequestCanceledException, DurabilitySyncWriteAmbiguousException))

    def open(self, password, user=None, **more):
        options = ClusterOptions(PasswordAuthenticator(user or self.user, password, **self.ca), **more)
        return Cluster.connect(self.connection_string, options)

    def connect(self):
        self.cluster = self.open(self.password)
        # The SDK's defaults ask every service of every node, which includes the admin HTTP port.
        self.cluster.wait_until_ready(timedelta(seconds=20))
        self.bucket = self.cluster.bucket(BUCKET)
        report = self.bucket.ping()
        check(len(report.endpoints) > 0, "the bucket answers a ping")
        self.collection = self.bucket.default_collection()
        return f"{len(report.endpoints)} services answered"

    def crud(self):
        first = self.collection.insert("crud", {"name": "Ada", "born": 1815})
        got = self.collection.get("crud")
        equal(got.content_as[dict], {"name": "Ada", "born": 1815})
        equal(got.cas, first.cas)
        second = self.collection.upsert("crud", {"name": "Grace"})
        differ(second.cas, first.cas)
        third = self.collection.replace("crud", ["a", 1, None, "é"], ReplaceOptions(cas=second.cas))
        got = self.collection.get("crud")
        equal(got.content_as[list], ["a", 1, None, "é"])
        equal(got.cas, third.cas)
        self.collection.remove("crud", RemoveOptions(cas=third.cas))
        raises(DocumentNotFoundException, lambda: self.collection.get("crud"))

    def not_found(self):
        for call in (self.collection.get, self.collection.remove,
                     lambda key: self.collection.replace(key, {}),
                     lambda key: self.collection.touch(key, timedelta(seconds=10)),
                     lambda key: self.collection.get_and_touch(key, timedelta(seconds=10)),
                     # A counter without an initial value is created at 0, unless the initial value is negative.
                     lambda key: self.collection.binary().increment(key, IncrementOptions(initial=SignedInt64(-1)))):
            raises(DocumentNotFoundException, lambda: call("never-written"))

    def exists(self):
        equal(self.collection.exists("exists").exists, False)
        stored = self.collection.insert("exists", 1)
        found = self.collection.exists("exists")
        equal((found.exists, found.cas), (True, stored.cas))
        raises(DocumentExistsException, lambda: self.collection.insert("exists", 2))
        self.collection.remove("exists")
        equal(self.collection.exists("exists").exists, False)

    def cas_mismatch(self):
        old = self.collection.upsert("cas", 1).cas
        new = self.collection.upsert("cas", 2).cas
        raises(CasMismatchException, lambda: self.collection.replace("cas", 3, ReplaceOptions(cas=old)))
        raises(CasMismatchException, lambda: self.collection.remove("cas", RemoveOptions(cas=old)))
        equal(self.collection.get("cas").content_as[int], 2)
        self.collection.replace("cas", 4, ReplaceOptions(cas=new))

    def counters(self):
        binary = self.collection.binary()

        def up(delta, initial):
            options = IncrementOptions(delta=DeltaValue(delta), initial=SignedInt64(initial))
            return binary.increment("counter", options).content

        def down(delta, initial):
            options = DecrementOptions(delta=DeltaValue(delta), initial=SignedInt64(initial))
            return binary.decrement("counter", options).content

        equal(up(5, 10), 10)
        equal(up(5, 10), 15)
        equal(down(4, 10), 11)
        equal(down(100, 10), 0)
        equal(self.collection.get("counter").content_as[int], 0)
        self.collection.upsert("not-a-counter", "text")
        raises(DeltaInvalidException, lambda: binary.increment("not-a-counter"))

    def append_prepend(self):
        binary = self.collection.binary()
        self.collection.upsert("concat", b"middle", UpsertOptions(transcoder=BINARY))
        binary.append("concat", b"-end\x00")
        binary.prepend("concat", b"\xffbegin-")
        equal(self.collection.get("concat", GetOptions(transcoder=BINARY)).value, b"\xffbegin-middle-end\x00")

    def expiry(self):
        self.collection.insert("expiry", {}, InsertOptions(expiry=timedelta(seconds=2)))
        self.collection.get("expiry")
        self.until_not_found("expiry")
        self.collection.insert("expiry", {})

    def touch(self):
        self.collection.upsert("touch", {})
        self.collection.touch("touch", timedelta(seconds=2))
        got = self.collection.get("touch", GetOptions(with_expiry=False))
        equal(got.content_as[dict], {})
        self.until_not_found("touch")

    def get_and_touch(self):
        self.collection.upsert("gat", {"n": 1})
        equal(self.collection.get_and_touch("gat", timedelta(seconds=2)).content_as[dict], {"n": 1})
        self.until_not_found("gat")

    def until_not_found(self, key):
        deadline = time.monotonic() + 20
        while self.collection.exists(key).exists:
            check(time.monotonic() < deadline, f"{key} expires")
            time.sleep(0.1)
        raises(DocumentNotFoundException, lambda: self.collection.get(key))

    def durability(self):
        levels = (DurabilityLevel.MAJORITY, DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
                  DurabilityLevel.PERSIST_TO_MAJORITY)
        for level in levels:
            durability = ServerDurability(level)
            key = f"durable-{level.name}"
            self.collection.insert(key, 1, InsertOptions(durability=durability))
            self.collection.replace(key, 2, ReplaceOptions(durability=durability))
            attribute = [SD.upsert("user", level.name, xattr=True)]
            self.collection.mutate_in(key, attribute, MutateInOptions(durability=durability))
            found = self.collection.lookup_in(key, [SD.get("user", xattr=True)])
            equal(found.content_as[str](0), level.name)
            stored = self.collection.upsert(key, 3, UpsertOptions(durability=durability))
            got = self.collection.get(key)
            equal((got.content_as[int], got.cas), (3, stored.cas))
            self.collection.remove(key, RemoveOptions(durability=durability))
            raises(DocumentNotFoundException, lambda: self.collection.get(key))

    def change_nodes(self, step):
        self.nodes.change(self.collection, step)

    def new_client(self):
        """A client that begins while a node is away finds the others, and every document."""
        cluster = self.open(self.password)
        # Without wait_until_ready: the SDK's ping waits for ever for a killed node that the map still names.
        self.nodes.compare(cluster.bucket(BUCKET).default_collection())
        cluster.close()

    def with_collection(self, step):
        return step(self.collection)

    def compression(self):
        without = self.open(self.password, enable_compression=False)
        compression.compression(self.collection, without.bucket(BUCKET).default_collection())
        without.close()

    def rights(self):
        limited = self.open(self.password, user=os.environ["ORIBI_LIMITED_USER"])
        rights.rights(self.bucket, limited.bucket(BUCKET))
        limited.close()

    def mutation_tokens(self):
        results = [self.collection.upsert("token", number) for number in range(2)]
        first, second = (result.mutation_token() for result in results)
        # What queries are told to wait for.
        check(MutationState().add_results(*results), "a state of two mutations")
        equal(first.bucket_name, BUCKET)
        equal((first.partition_id, first.partition_uuid), (second.partition_id, second.partition_uuid))
        differ(first.partition_uuid, 0)
        check(second.sequence_number > first.sequence_number, "seqnos grow")
        check(self.collection.remove("token").mutation_token().sequence_number > second.sequence_number,
              "a removal has a token")

    def collections(self):
        manager = self.bucket.collections()
        manager.create_scope("python")
        raises(ScopeAlreadyExistsException, lambda: manager.create_scope("python"))
        manager.create_collection("python", "things")
        raises(CollectionAlreadyExistsException, lambda: manager.create_collection("python", "things"))
        raises(ScopeNotFoundException, lambda: manager.create_collection("nowhere", "things"))
        check("things" in self.scopes().get("python", []), "the collection is listed")
        things = self.bucket.scope("python").collection("things")
        eventually(lambda: things.upsert("same-key", "in things"), NOT_THERE_YET)
        self.collection.upsert("same-key", "in default")
        equal(things.get("same-key").content_as[str], "in things")
        equal(self.collection.get("same-key").content_as[str], "in default")
        manager.drop_collection("python", "things")
        raises(CollectionNotFoundException, lambda: manager.drop_collection("python", "things"))
        check("things" not in self.scopes().get("python", []), "the collection is gone")
        # A client cannot know that the collection will not come back, so it retries until its timeout.
        raises(NOT_THERE_YET, lambda: things.get("same-key", GetOptions(timeout=timedelta(seconds=2))))
        manager.drop_scope("python")
        raises(ScopeNotFoundException, lambda: manager.drop_scope("python"))
        check("python" not in self.scopes(), "the scope is gone")
        equal(self.collection.get("same-key").content_as[str], "in default")

    def scopes(self):
        scopes = self.bucket.collections().get_all_scopes()
        return {scope.name: [collection.name for collection in scope.collections] for scope in scopes}

    def document_20_mib(self):
        value = bytes(range(256)) * (VALUE_BYTES_MAX // 256)
        patient = timedelta(seconds=30)
        self.collection.upsert("large", value, UpsertOptions(transcoder=BINARY, timeout=patient))
        got = self.collection.get("large", GetOptions(transcoder=BINARY, timeout=patient)).value
        check(got == value, "20 MiB come back unchanged")
        self.collection.remove("large")

    def too_large(self):
        value = bytes(VALUE_BYTES_MAX + 1)
        options = UpsertOptions(transcoder=BINARY, timeout=timedelta(seconds=30))
        error = raises(CouchbaseException, lambda: self.collection.upsert("too-large", value, options))
        equal(error.error_code, VALUE_TOO_LARGE)
        equal(self.collection.exists("too-large").exists, False)
        return type(error).__name__

    def wrong_password(self):
        started = time.monotonic()
        raises(AuthenticationException, lambda: self.open("not the password"))
        check(time.monotonic() - started < 20, "the refusal is prompt")

    def parallel_50000(self):
        """A multi-operation has all its requests in flight at once."""
        batches = [range(start, start + IN_FLIGHT_MAX) for start in range(0, DOCUMENTS, IN_FLIGHT_MAX)]
        started = time.monotonic()
        for batch in batches:
            stored = self.collection.upsert_multi({f"parallel-{n}": document(n) for n in batch})
            check(stored.all_ok, f"{IN_FLIGHT_MAX} writes, got {stored.exceptions}")
            check(all(result.mutation_token() for result in stored.results.values()), "tokens")
        written = time.monotonic()
        for batch in batches:
            found = self.collection.get_multi([f"parallel-{n}" for n in batch])
            check(found.all_ok, f"{IN_FLIGHT_MAX} reads, got {found.exceptions}")
            for n in batch:
                equal(found.results[f"parallel-{n}"].content_as[dict], document(n))
        ended = time.monotonic()
        return f"{DOCUMENTS / (written - started):.0f} writes/s, {DOCUMENTS / (ended - written):.0f} reads/s"

    def with_cluster(self, step):
        return step(self.cluster, self.bucket)

    def with_places(self, step):
        """A step of transactions over the default collection and two others."""
        left, right = (transactions.made(self.bucket, name, NOT_THERE_YET) for name in ("left", "right"))
        return step(self.cluster, self.collection, left, right)

    def transfers_killed(self):
        records = transactions.made(self.bucket, "records", NOT_THERE_YET)
        return transfers.killed(functools.partial(self.open, self.password), records, (*TIMEOUTS, RequestCanceledException))

    def kill_restart(self):
        """Whatever was acknowledged as persisted must survive, also what was acknowledged last."""
        durability = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)
        acknowledged, enough, stop = {}, threading.Event(), threading.Event()

        def write(writer):
            number = 0
            while not stop.is_set():
                key, number = f"crash-{writer}-{number}", number + 1
                try:
                    result = self.collection.insert(key, {"key": key}, InsertOptions(durability=durability))
                    acknowledged[key] = result.cas
                    if len(acknowledged) >= 1_000:
                        enough.set()
                except CouchbaseException:
                    # Not acknowledged, so nothing is promised about this one.
                    pass

        with ThreadPoolExecutor(16) as pool:
            writers = [pool.submit(write, writer) for writer in range(16)]
            try:
                check(enough.wait(60), "1,000 durable writes")
                request = urllib.request.Request(os.environ["ORIBI_CONTROL"] + "/kill-restart", method="POST")
                urllib.request.urlopen(request, timeout=230).read()
            finally:
                stop.set()
        for writer in writers:
            writer.result()
        restarted = time.monotonic()
        eventually(lambda: self.collection.get(next(iter(acknowledged))), (*TIMEOUTS, RequestCanceledException))
        reconnected = time.monotonic() - restarted
        for key, cas in acknowledged.items():
            got = self.collection.get(key)
            equal((got.content_as[dict], got.cas), ({"key": key}, cas))
        newer = self.collection.upsert(key, {"key": "newer"})
        check(newer.cas > cas, "CAS values grow across a crash")
        return f"{len(acknowledged)} survived, reconnected after {reconnected:.2f} s"


def document(number):
    return {"number": number, "text": "x" * 100}


def main():
    program = Program()
    steps = {
        "connect": program.connect,
        "crud": program.crud,
        "not-found": program.not_found,
        "exists": program.exists,
        "cas-mismatch": program.cas_mismatch,
        "counters": program.counters,
        "append-prepend": program.append_prepend,
        "expiry": program.expiry,
        "touch": program.touch,
        "get-and-touch": program.get_and_touch,
        "durability": program.durability,
        "observed-durability": functools.partial(program.with_collection, replicas.observed_durability),
        "mutation-tokens": program.mutation_tokens,
        **{name: functools.partial(program.with_collection, step) for name, step in sub_documents.STEPS.items()},
        "replicas": functools.partial(program.with_collection, replicas.replicas),
        "locks": functools.partial(program.with_collection, locks.locks),
        "compression": program.compression,
        "rights": program.rights,
        "scans": functools.partial(program.with_collection, scans.scans),
        "collections": program.collections,
        "users": lambda: managers.users(program.cluster, program.open),
        "buckets": lambda: managers.buckets(program.cluster),
        "document-20-mib": program.document_20_mib,
        "too-large": program.too_large,
        "wrong-password": program.wrong_password,
        "parallel-50000": program.parallel_50000,
        "kill-restart": program.kill_restart,
        **{step: functools.partial(program.change_nodes, step) for step in nodes.BEFORE_NEW_CLIENT},
        "new-client": program.new_client,
        **{step: functools.partial(program.change_nodes, step) for step in nodes.AFTER_NEW_CLIENT},
    }
    steps |= {
        "commit": functools.partial(program.with_places, transactions.commit),
        "roll-back": functools.partial(program.with_places, transactions.roll_back),
        "conflicts": lambda: transactions.conflicts(program.cluster, program.collection),
        "staged-reads": lambda: transactions.staged_reads(program.cluster, program.collection),
        "binary": lambda: transactions.binary(program.cluster, program.collection),
        "transfers-none": lambda: transfers.transfers(program.cluster, program.collection, DurabilityLevel.NONE),
        "transfers-majority": lambda: transfers.transfers(program.cluster, program.collection, DurabilityLevel.MAJORITY),
        "transfers-persist": lambda: transfers.transfers(program.cluster, program.collection, DurabilityLevel.PERSIST_TO_MAJORITY),
        "transfers-killed": program.transfers_killed,
        "transfers-lost": lambda: transfers.lost(functools.partial(program.open, program.password)),
    }
    steps |= {name: functools.partial(program.with_cluster, step) for name, step in queries.STEPS.items()}
    steps["whole-answers"] = functools.partial(program.with_cluster, replicas.whole_answers)
    wanted = os.environ["ORIBI_STEPS"].split(",")
    for name, step in steps.items():
        if name not in wanted:
            continue
        print(f"BEGIN {name}", flush=True)
        try:
            detail = step() or ""
            print(f"PASS {name} {detail}", flush=True)
        except Exception as error:
            traceback.print_exc()
            print(f"FAIL {name} {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            if name == "connect":
                break
    if program.cluster:
        program.cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
