'use strict'

// Money that many workers move between accounts, each time in a transaction with a receipt.
//
// Accounts are in groups, and nothing leaves its group. A transaction that reads a group and writes its balances back
// cannot commit unless it saw the group at one moment, so it has to see the group's sum.
// No account is written twice alike: Java's SDK takes a document with an equal checksum for an unchanged one, although it
// may have changed and changed back.

const assert = require('node:assert/strict')
const { setTimeout: sleep } = require('node:timers/promises')
const couchbase = require('couchbase')
const { run } = require('./transactions.js')

const [GROUPS, ACCOUNTS_OF_GROUP, BALANCE] = [6, 3, 100]
const [WORKERS, ROUNDS] = [4, 2]
const TRANSFERS_MIN = 10
// What a killed client leaves can be told from what this one has in progress by the time that it asked for.
const [TIMEOUT_MS, TIMEOUT_OF_LOST_MS] = [4_000, 10_000]
const CLEANUP_WINDOW_MS = 1_000
const ENOUGH_MS_MAX = 60_000
const SECOND_MS_MAX = 120_000
const CLEANED_UP_MS_MAX = 60_000
const { PersistToMajority } = couchbase.DurabilityLevel

// The last one is what undoing ended with.
const UNDONE = [couchbase.TransactionFailedError, couchbase.TransactionExpiredError, couchbase.TransactionOperationFailedError]

class Bank {
  // The keys of receipts.
  committed = []
  undone = []
  unknown = []
  audits = 0

  constructor(cluster, collection, name, options) {
    Object.assign(this, { cluster, collection, name, options })
  }

  account(group, number) {
    return `${this.name}-account-${group}-${number}`
  }

  accounts() {
    const keys = []
    for (let group = 0; group < GROUPS; group++) {
      for (let number = 0; number < ACCOUNTS_OF_GROUP; number++) keys.push(this.account(group, number))
    }
    return keys
  }

  async open() {
    for (const key of this.accounts()) {
      await this.collection.upsert(key, { balance: BALANCE }, { durabilityLevel: PersistToMajority })
    }
  }

  // Changes a balance and returns what it was.
  async add(attempt, key, amount, by) {
    const got = await attempt.get(this.collection, key)
    await attempt.replace(got, { balance: got.content.balance + amount, by })
    return got.content.balance
  }

  // `staged` runs before the commit.
  async transfer(key, again = run, staged = async () => {}) {
    const [group, amount] = [random(GROUPS), random(11) - 5]
    const numbers = Array.from({ length: ACCOUNTS_OF_GROUP }, (_, number) => number)
    // Always in the order of accounts: two transactions that wait for each other would cost a second.
    numbers.splice(random(ACCOUNTS_OF_GROUP), ACCOUNTS_OF_GROUP - 2)
    const [source, target] = numbers.map((number) => this.account(group, number))
    const body = async (attempt) => {
      await this.add(attempt, source, -amount, key)
      await this.add(attempt, target, amount, key)
      await attempt.insert(this.collection, key, { source, target, amount })
      await staged()
    }
    try {
      await again(this.cluster, body, this.options)
      this.committed.push(key)
    } catch (error) {
      if (error instanceof couchbase.TransactionCommitAmbiguousError) this.unknown.push(key)
      else if (UNDONE.some((each) => error instanceof each)) this.undone.push(key)
      else throw error
    }
  }

  async audit(group) {
    let sum
    await run(this.cluster, async (attempt) => {
      sum = 0
      for (let number = 0; number < ACCOUNTS_OF_GROUP; number++) {
        sum += await this.add(attempt, this.account(group, number), 0, `${Math.random()}`)
      }
    }, this.options)
    assert.equal(sum, ACCOUNTS_OF_GROUP * BALANCE)
    this.audits += 1
  }

  // Every balance is what the receipts say.
  async compare(receipts) {
    const expected = Object.fromEntries(this.accounts().map((key) => [key, BALANCE]))
    for (const { source, target, amount } of receipts) {
      expected[source] -= amount
      expected[target] += amount
    }
    const found = {}
    for (const key of this.accounts()) found[key] = (await this.collection.get(key)).content.balance
    assert.deepEqual(found, expected)
  }

  // Makes transfers, which may fail, until it is told to stop.
  async workUntil(stopping, who) {
    const once = (cluster, body, options) => cluster.transactions().run(body, options)
    await inParallel(async (worker) => {
      for (let number = 0; !stopping(); number++) await this.transfer(`${this.name}-receipt-${who}-${worker}-${number}`, once)
    })
  }

  // The two programs tell each other by documents when it is time to hold a transfer, and that it is held.
  async tell(what) {
    await this.collection.upsert(`${this.name}-${what}`, {})
  }

  async hear(what) {
    const deadline = performance.now() + ENOUGH_MS_MAX
    while (!(await this.collection.exists(`${this.name}-${what}`)).exists) {
      assert.ok(performance.now() < deadline, `the other program says ${what}`)
      await sleep(10)
    }
  }

  // Waits for the first transfers.
  async enough() {
    const deadline = performance.now() + ENOUGH_MS_MAX
    while (this.committed.length < TRANSFERS_MIN && performance.now() < deadline) await sleep(10)
    assert.ok(this.committed.length >= TRANSFERS_MIN, `${TRANSFERS_MIN} transfers`)
  }
}

function random(below) {
  return Math.floor(Math.random() * below)
}

function inParallel(work) {
  return Promise.all(Array.from({ length: WORKERS }, (_, worker) => work(worker)))
}

// Transfers and audits by many workers; all commit in the end.
async function transfers(cluster, collection, durabilityLevel) {
  const bank = new Bank(cluster, collection, `bank-${durabilityLevel}`, { durabilityLevel, timeout: 60_000 })
  await bank.open()
  const started = performance.now()
  await inParallel(async (worker) => {
    for (let round = 0; round < ROUNDS; round++) {
      for (let each = 0; each < 3; each++) await bank.transfer(`${bank.name}-receipt-${worker}-${3 * round + each}`)
      await bank.audit(random(GROUPS))
    }
  })
  const seconds = (performance.now() - started) / 1000
  const counts = [bank.committed.length, bank.undone.length, bank.unknown.length, bank.audits]
  assert.deepEqual(counts, [3 * WORKERS * ROUNDS, 0, 0, WORKERS * ROUNDS])
  const receipts = []
  for (const key of bank.committed) receipts.push((await collection.get(key)).content)
  await bank.compare(receipts)
  return `${((bank.committed.length + bank.audits) / seconds).toFixed(0)} transactions/s`
}

// A bank whose transactions are persisted, and whose records have a collection of their own.
async function openBank(open, timeout, cleansUp) {
  const cluster = await open({
    transactions: {
      durabilityLevel: PersistToMajority,
      timeout,
      metadataCollection: { bucket: 'default', scope: 'transactions', collection: 'records' },
      cleanupConfig: {
        cleanupWindow: CLEANUP_WINDOW_MS,
        disableLostAttemptCleanup: !cleansUp,
        disableClientAttemptCleanup: !cleansUp,
      },
    },
  })
  // This SDK forgets the level that it was configured with, unless each transaction names it again.
  const options = { durabilityLevel: PersistToMajority, timeout }
  return new Bank(cluster, cluster.bucket('default').defaultCollection(), 'bank-killed', options)
}

// Transfers until this process is killed, at the latest when it has staged one that it never commits; nothing cleans up
// after them but the other program's SDK.
async function lost(open) {
  const bank = await openBank(open, TIMEOUT_OF_LOST_MS, false)
  const deadline = performance.now() + SECOND_MS_MAX
  const working = bank.workUntil(() => performance.now() > deadline, 'second')
  await bank.enough()
  console.log('READY')
  await bank.hear('hold')
  await bank.transfer('bank-killed-receipt-held', run, async () => {
    await bank.tell('held')
    await working
  })
}

// Another client and the server are killed in the middle of transfers, and only the server is started again.
async function killed(open, records, control, eventually) {
  const bank = await openBank(open, TIMEOUT_MS, true)
  await bank.open()
  await control('start-second')
  let stopping = false
  const working = bank.workUntil(() => stopping, 'first')
  working.catch(() => {})
  let left
  try {
    await bank.enough()
    await bank.tell('hold')
    await bank.hear('held')
    await control('kill-restart')
    left = await eventually(() => entries(records))
  } finally {
    stopping = true
    await working
  }
  assert.ok(left.every((entry) => entry.d === 'pm'), 'transactions that persist to the majority')
  const attempts = left.filter((entry) => entry.exp > TIMEOUT_MS).length
  assert.ok(attempts > 0, 'attempts that their client cannot end')

  const started = performance.now()
  for (;;) {
    left = await eventually(() => entries(records))
    if (left.length === 0) break
    assert.ok(performance.now() - started < CLEANED_UP_MS_MAX, `no entry remains, got ${JSON.stringify(left)}`)
    await sleep(100)
  }
  const cleanedUp = (performance.now() - started) / 1000
  const found = await bank.collection.scan(new couchbase.PrefixScan('bank-killed-receipt-'))
  const receipts = new Map(found.map((each) => [each.id, each.content]))
  assert.deepEqual(bank.committed.filter((key) => !receipts.has(key)), [], 'whatever was committed is there')
  assert.deepEqual(bank.undone.filter((key) => receipts.has(key)), [], 'whatever was undone is not there')
  const ofSecond = [...receipts.keys()].filter((key) => key.includes('-second-')).length
  assert.ok(ofSecond >= TRANSFERS_MIN, 'transfers of the other client')
  await bank.compare(receipts.values())
  // What is still staged somewhere blocks no transaction.
  for (let group = 0; group < GROUPS; group++) await bank.audit(group)
  await bank.cluster.close()
  return `${receipts.size} transfers, ${attempts} attempts lost, cleaned up after ${cleanedUp.toFixed(1)} s`
}

// The entries of all active transaction records.
async function entries(records) {
  const found = []
  const attempts = [couchbase.LookupInSpec.get('attempts', { xattr: true })]
  for (const { id } of await records.scan(new couchbase.PrefixScan('_txn:atr-'), { idsOnly: true })) {
    try {
      const { content } = await records.lookupIn(id, attempts)
      if (!content[0].error) found.push(...Object.values(content[0].value))
      else if (!(content[0].error instanceof couchbase.PathNotFoundError)) throw content[0].error
    } catch (error) {
      if (!(error instanceof couchbase.DocumentNotFoundError)) throw error
    }
  }
  return found
}

module.exports = { transfers, lost, killed }
