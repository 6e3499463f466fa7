"""Money that many threads move between accounts, each time in a transaction with a receipt.

Accounts are in groups, and nothing leaves its group. A transaction that reads a group and writes its balances back
cannot commit unless it saw the group at one moment, so it has to see the group's sum.
No account is written twice alike: Java's SDK takes a document with an equal checksum for an unchanged one, although it may
have changed and changed back.
"""

import os
import random
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (DocumentNotFoundException, PathNotFoundException, TransactionCommitAmbiguous,
                                  TransactionExpired, TransactionFailed, TransactionOperationFailed)
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import ScanOptions, TransactionConfig, TransactionOptions
from couchbase.transactions import TransactionKeyspace

from checks import check, equal, eventually
from transactions import run

GROUPS, ACCOUNTS_OF_GROUP, BALANCE = 6, 3, 100
WORKERS, ROUNDS = 4, 2
TRANSFERS_MIN = 10
# What a killed client leaves can be told from what this one has in progress by the time that it asked for.
TIMEOUT, TIMEOUT_OF_LOST = timedelta(seconds=4), timedelta(seconds=10)
CLEANUP_WINDOW = timedelta(seconds=1)
ENOUGH_SECONDS_MAX = 60
SECOND_SECONDS_MAX = 120
CLEANED_UP_SECONDS_MAX = 60
PERSIST = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)
# The last one is what undoing ended with: its answer was lost with the server, or a cleanup came first.
UNDONE = (TransactionFailed, TransactionExpired, TransactionOperationFailed)


def run_once(cluster, body, options):
    """For transfers that may fail."""
    cluster.transactions.run(body, options)


class Bank:
    """`committed`, `undone` and `unknown` have the keys of receipts."""

    def __init__(self, cluster, collection, name, options=None):
        self.cluster, self.collection, self.name, self.options = cluster, collection, name, options
        self.committed, self.undone, self.unknown = [], [], []
        self.audits = 0
        self.enough = threading.Event()

    def account(self, group, number):
        return f"{self.name}-account-{group}-{number}"

    def open(self):
        for group in range(GROUPS):
            for number in range(ACCOUNTS_OF_GROUP):
                self.collection.upsert(self.account(group, number), {"balance": BALANCE}, durability=PERSIST)

    def transfer(self, receipt, run=run, staged=lambda: None):
        """`staged` runs before the commit."""
        # Always in the order of accounts: two transactions that wait for each other would cost a second.
        group, amount = random.randrange(GROUPS), random.randint(-5, 5)
        source, target = (self.account(group, number) for number in sorted(random.sample(range(ACCOUNTS_OF_GROUP), 2)))

        def move(attempt):
            for key, change in ((source, -amount), (target, amount)):
                got = attempt.get(self.collection, key)
                attempt.replace(got, {"balance": got.content_as[dict]["balance"] + change, "by": receipt})
            attempt.insert(self.collection, receipt, {"source": source, "target": target, "amount": amount})
            staged()

        outcome = self.undone
        try:
            run(self.cluster, move, self.options)
            outcome = self.committed
        except TransactionCommitAmbiguous:
            outcome = self.unknown
        except UNDONE:
            pass
        outcome.append(receipt)

    def work_until(self, pool, stopping, who):
        """Makes transfers, which may fail, until it is told to stop."""
        def work(worker):
            number = 0
            while not stopping():
                self.transfer(f"{self.name}-receipt-{who}-{worker}-{number}", run_once)
                number += 1
                if len(self.committed) >= TRANSFERS_MIN:
                    self.enough.set()

        return [pool.submit(work, worker) for worker in range(WORKERS)]

    def tell(self, what):
        """The two programs tell each other by documents when it is time to hold a transfer, and that it is held."""
        self.collection.upsert(f"{self.name}-{what}", {})

    def hear(self, what):
        deadline = time.monotonic() + ENOUGH_SECONDS_MAX
        while not self.collection.exists(f"{self.name}-{what}").exists:
            check(time.monotonic() < deadline, f"the other program says {what}")
            time.sleep(0.01)

    def wait_for_enough(self):
        """Waits for the first transfers."""
        check(self.enough.wait(ENOUGH_SECONDS_MAX), f"{TRANSFERS_MIN} transfers")

    def audit(self, group):
        balances = []

        def look(attempt):
            balances.clear()
            for number in range(ACCOUNTS_OF_GROUP):
                got = attempt.get(self.collection, self.account(group, number))
                balances.append(got.content_as[dict]["balance"])
                attempt.replace(got, {"balance": balances[-1], "by": str(random.random())})

        run(self.cluster, look, self.options)
        equal(sum(balances), ACCOUNTS_OF_GROUP * BALANCE)
        self.audits += 1

    def compare(self, receipts):
        """Every balance is what the receipts say."""
        balances = {self.account(group, number): BALANCE for group in range(GROUPS) for number in range(ACCOUNTS_OF_GROUP)}
        for receipt in receipts:
            balances[receipt["source"]] -= receipt["amount"]
            balances[receipt["target"]] += receipt["amount"]
        equal({key: self.collection.get(key).content_as[dict]["balance"] for key in balances}, balances)


def transfers(cluster, collection, level):
    """Transfers and audits by many threads; all commit in the end."""
    options = TransactionOptions(durability=ServerDurability(level), timeout=timedelta(seconds=60))
    bank = Bank(cluster, collection, f"bank-{level.name.lower()}", options)
    bank.open()

    def work(worker):
        for number in range(ROUNDS):
            for each in range(3):
                bank.transfer(f"{bank.name}-receipt-{worker}-{3 * number + each}")
            bank.audit(random.randrange(GROUPS))

    started = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, worker) for worker in range(WORKERS)]:
            done.result()
    seconds = time.monotonic() - started
    equal((len(bank.committed), bank.undone, bank.unknown, bank.audits),
          (3 * WORKERS * ROUNDS, [], [], WORKERS * ROUNDS))
    bank.compare([collection.get(key).content_as[dict] for key in bank.committed])
    return f"{(len(bank.committed) + bank.audits) / seconds:.0f} transactions/s"


def config(keyspace, timeout, cleans_up):
    return TransactionConfig(durability=PERSIST, timeout=timeout, cleanup_window=CLEANUP_WINDOW, metadata_collection=keyspace,
                             cleanup_lost_attempts=cleans_up, cleanup_client_attempts=cleans_up)


def keyspace_of_records():
    return TransactionKeyspace(bucket="default", scope="transactions", collection="records")


def lost(open_cluster):
    """Transfers until this process is killed, at the latest when it has staged one that it never commits; nothing cleans
    up after them but the other program's SDK."""
    cluster = open_cluster(transaction_config=config(keyspace_of_records(), TIMEOUT_OF_LOST, False))
    bank = Bank(cluster, cluster.bucket("default").default_collection(), "bank-killed")
    deadline = time.monotonic() + SECOND_SECONDS_MAX
    with ThreadPoolExecutor(WORKERS) as pool:
        bank.work_until(pool, lambda: time.monotonic() > deadline, "second")
        bank.wait_for_enough()
        print("READY", flush=True)
        bank.hear("hold")

        def hold():
            bank.tell("held")
            pool.shutdown()

        bank.transfer("bank-killed-receipt-held", staged=hold)


def killed(open_cluster, records, transient):
    """Another client and the server are killed in the middle of transfers, and only the server is started again."""
    cluster = open_cluster(transaction_config=config(keyspace_of_records(), TIMEOUT, True))
    bank = Bank(cluster, cluster.bucket("default").default_collection(), "bank-killed")
    bank.open()
    control("start-second")
    stop = threading.Event()
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            workers = bank.work_until(pool, stop.is_set, "first")
            bank.wait_for_enough()
            bank.tell("hold")
            bank.hear("held")
            control("kill-restart")
            left = eventually(lambda: entries(records), transient)
        finally:
            stop.set()
        for worker in workers:
            worker.result()
    check(all(entry["d"] == "pm" for entry in left), f"transactions that persist to the majority, got {left}")
    left_over = [entry for entry in left if entry["exp"] > TIMEOUT.total_seconds() * 1000]
    check(left_over, "attempts that their client cannot end")

    started = time.monotonic()
    while open_entries := eventually(lambda: entries(records), transient):
        check(time.monotonic() - started < CLEANED_UP_SECONDS_MAX, f"no entry remains, got {open_entries}")
        time.sleep(0.1)
    cleaned_up = time.monotonic() - started
    receipts = {found.id: found.content_as[dict] for found in bank.collection.scan(PrefixScan("bank-killed-receipt-"))}
    check(not set(bank.committed) - receipts.keys(), "whatever was committed is there")
    check(not receipts.keys() & set(bank.undone), "whatever was undone is not there")
    check(any("-second-" in key for key in receipts), "transfers of the other client")
    bank.compare(receipts.values())
    # What is still staged somewhere blocks no transaction.
    for group in range(GROUPS):
        bank.audit(group)
    cluster.close()
    return f"{len(receipts)} transfers, {len(left_over)} attempts lost, cleaned up after {cleaned_up:.1f} s"


def entries(records):
    """The entries of all active transaction records."""
    found = []
    for record in records.scan(PrefixScan("_txn:atr-"), ScanOptions(ids_only=True)):
        try:
            attempts = records.lookup_in(record.id, [SD.get("attempts", xattr=True)]).content_as[dict](0)
            found += attempts.values()
        except (DocumentNotFoundException, PathNotFoundException):
            pass
    return found


def control(action):
    request = urllib.request.Request(f"{os.environ['ORIBI_CONTROL']}/{action}", method="POST")
    urllib.request.urlopen(request, timeout=120).read()
