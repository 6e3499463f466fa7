'use strict'

// Transactions: several documents change together or not at all.
//
// Functions that take an `attempt` run inside a transaction, possibly more than once.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const WAIT_MS_MAX = 20_000
const RUN_MS_MAX = 60_000
const transcoder = new couchbase.RawBinaryTranscoder()
const bytes = { decode: (value) => value, encode: (value) => [value, 0] }

// What the program itself throws inside a transaction.
class ApplicationError extends Error {}

// Runs a transaction until it succeeds or fails for good. This SDK ends a transaction in which another one is in the
// way, or which read what has changed since, where others begin it anew by themselves.
async function run(cluster, body, options) {
  const deadline = performance.now() + RUN_MS_MAX
  for (;;) {
    try {
      return await cluster.transactions().run(body, options)
    } catch (error) {
      const isForGood = !(error instanceof couchbase.TransactionFailedError) || error.cause?.constructor !== Error
      if (isForGood || performance.now() > deadline) throw error
    }
  }
}

// Runs a transaction that has to fail for this reason.
async function failed(reason, running) {
  const error = await running.then(() => assert.fail('it has to fail'), (failure) => failure)
  assert.ok(error instanceof couchbase.TransactionFailedError, `a failed transaction, got ${error}`)
  assert.ok(error.cause instanceof reason, `${reason.name}, got ${error.cause}`)
}

// A collection of the scope `transactions`, which exists afterwards.
async function made(bucket, name, eventually) {
  const manager = bucket.collections()
  for (const create of [() => manager.createScope('transactions'), () => manager.createCollection(name, 'transactions')]) {
    await create().catch((error) => {
      const isThere = error instanceof couchbase.ScopeExistsError || error instanceof couchbase.CollectionExistsError
      if (!isThere) throw error
    })
  }
  const collection = bucket.scope('transactions').collection(name)
  await eventually(() => collection.upsert('first', 1))
  return collection
}

async function orNull(reading) {
  try {
    return (await reading).content
  } catch (error) {
    if (error instanceof couchbase.DocumentNotFoundError) return null
    throw error
  }
}

// A document in one of several collections.
class Place {
  constructor(collection, key) {
    this.collection = collection
    this.key = key
  }

  // What a client without a transaction reads; null when there is no document.
  plain() {
    return orNull(this.collection.get(this.key))
  }

  // The same inside a transaction.
  read(attempt) {
    return orNull(attempt.get(this.collection, this.key))
  }

  upsert(n) {
    return this.collection.upsert(this.key, { n })
  }

  insert(attempt, n) {
    return attempt.insert(this.collection, this.key, { n })
  }

  async replace(attempt, n) {
    return attempt.replace(await attempt.get(this.collection, this.key), { n })
  }

  async add(attempt, n) {
    const got = await attempt.get(this.collection, this.key)
    await attempt.replace(got, { n: got.content.n + n })
  }

  async remove(attempt) {
    await attempt.remove(await attempt.get(this.collection, this.key))
  }
}

async function plains(...places) {
  const values = []
  for (const each of places) values.push((await each.plain())?.n ?? null)
  return values
}

async function reads(attempt, ...places) {
  const values = []
  for (const each of places) values.push((await each.read(attempt))?.n ?? null)
  return values
}

// No transaction has left anything, be the documents alive or deleted.
async function nothingStaged(...places) {
  const staged = [couchbase.LookupInSpec.exists('txn', { xattr: true })]
  for (const { collection, key } of places) {
    try {
      const found = await collection.lookupIn(key, staged, { accessDeleted: true })
      assert.equal(found.content[0].value, false, `nothing is staged in ${key}`)
    } catch (error) {
      if (!(error instanceof couchbase.DocumentNotFoundError)) throw error
    }
  }
}

// An insert, a replacement, a removal and reads, in three collections.
async function commit(cluster, standard, left, right) {
  const [inserted, replaced, removed] = [new Place(right, 'inserted'), new Place(left, 'replaced'), new Place(standard, 'removed')]
  const [seen, fleeting] = [new Place(right, 'read'), new Place(left, 'fleeting')]
  await replaced.upsert(1)
  await removed.upsert(1)
  await seen.upsert(7)
  const result = await run(cluster, async (attempt) => {
    assert.deepEqual(await seen.read(attempt), { n: 7 })
    const first = await inserted.insert(attempt, 2)
    const second = await replaced.replace(attempt, 3)
    await removed.remove(attempt)
    // It sees its own writes, and no other client does.
    assert.deepEqual(await reads(attempt, inserted, replaced, removed), [2, 3, null])
    assert.deepEqual(await plains(inserted, replaced, removed), [null, 1, 1])
    await attempt.replace(first, { n: 4 })
    await attempt.replace(second, { n: 5 })
    await attempt.remove(await fleeting.insert(attempt, 1))
  })
  assert.ok(result.unstagingComplete, 'everything is in its place')
  assert.deepEqual(await plains(inserted, replaced, removed, fleeting), [4, 5, null, null])
  // Where a document was deleted, one can be inserted again.
  await run(cluster, (attempt) => removed.insert(attempt, 6))
  assert.deepEqual(await plains(removed), [6])
  await nothingStaged(inserted, replaced, removed, fleeting, seen)
}

// An error of the application undoes everything.
async function rollBack(cluster, standard, left, right) {
  const inserted = new Place(right, 'not-inserted')
  const [replaced, removed] = [new Place(left, 'kept'), new Place(standard, 'not-removed')]
  await replaced.upsert(1)
  await removed.upsert(1)
  await failed(ApplicationError, run(cluster, async (attempt) => {
    await inserted.insert(attempt, 2)
    await replaced.replace(attempt, 3)
    await removed.remove(attempt)
    throw new ApplicationError('no')
  }))
  assert.deepEqual(await plains(inserted, replaced, removed), [null, 1, 1])
  await nothingStaged(inserted, replaced, removed)
  await run(cluster, (attempt) => inserted.insert(attempt, 4))
  assert.deepEqual(await plains(inserted), [4])
  // A write without a transaction, which came in between, stays; this SDK throws what undoing ended with.
  await assert.rejects(run(cluster, async (attempt) => {
    await replaced.replace(attempt, 5)
    await replaced.upsert(6)
    throw new ApplicationError('no')
  }), couchbase.TransactionOperationFailedError)
  assert.deepEqual(await plains(replaced), [6])
}

// A promise that other code fulfils, before a deadline.
function signal(what) {
  let give
  const given = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`expected: ${what}`)), WAIT_MS_MAX)
    give = () => {
      clearTimeout(timer)
      resolve()
    }
  })
  return { give, given }
}

// Two transactions at once: the first one holds what it has staged until the second one has collided with it.
async function meet(cluster, first, second) {
  const staged = signal('the first transaction stages its change')
  const collided = signal('the other transaction begins anew')
  const leading = run(cluster, async (attempt) => {
    await first(attempt)
    staged.give()
    await collided.given
  })
  leading.catch(staged.give)
  await staged.given
  let attempts = 0
  try {
    await run(cluster, async (attempt) => {
      attempts += 1
      if (attempts === 2) collided.give()
      await second(attempt)
    })
  } finally {
    collided.give()
    await leading
  }
  assert.ok(attempts >= 2, 'a second attempt')
}

async function conflicts(cluster, collection) {
  const at = (key) => new Place(collection, key)

  // Two that change the same document: both do.
  const contended = at('contended')
  await contended.upsert(0)
  await meet(cluster, (attempt) => contended.add(attempt, 1), (attempt) => contended.add(attempt, 10))
  assert.deepEqual(await plains(contended), [11])

  // Two that insert the same document: one does, and what else the other one did is undone.
  const [twice, beside] = [at('inserted-twice'), at('beside')]
  await failed(couchbase.DocumentExistsError, meet(cluster, (attempt) => twice.insert(attempt, 1), async (attempt) => {
    await beside.insert(attempt, 2)
    await twice.insert(attempt, 2)
  }))
  assert.deepEqual(await plains(twice, beside), [1, null])

  // A document that is there cannot be inserted.
  await failed(couchbase.DocumentExistsError, run(cluster, (attempt) => contended.insert(attempt, 1)))

  // One that has gone since it was read cannot be replaced.
  const gone = at('gone')
  await gone.upsert(1)
  await failed(couchbase.DocumentNotFoundError, run(cluster, async (attempt) => {
    const got = await attempt.get(collection, gone.key)
    await collection.remove(gone.key)
    await attempt.replace(got, { n: 2 })
  }))
  assert.deepEqual(await plains(gone), [null])

  // A change without a transaction, after the read: the transaction sees it in its next attempt.
  const changed = at('changed')
  let attempts = 0
  await changed.upsert(0)
  await run(cluster, async (attempt) => {
    const got = await attempt.get(collection, changed.key)
    attempts += 1
    if (attempts === 1) await changed.upsert(100)
    await attempt.replace(got, { n: got.content.n + 1 })
  })
  assert.deepEqual([await plains(changed), attempts], [[101], 2])
  await nothingStaged(contended, twice, beside, gone, changed)
}

// What one transaction has staged, others do not see before it is committed.
async function stagedReads(cluster, collection) {
  const places = ['staged-replace', 'staged-remove', 'staged-insert'].map((key) => new Place(collection, key))
  const [replaced, removed, inserted] = places
  const beside = new Place(collection, 'beside-staged')
  await replaced.upsert(1)
  await removed.upsert(1)
  await beside.upsert(5)
  const see = (expected) => run(cluster, async (attempt) => {
    assert.deepEqual(await reads(attempt, ...places), expected)
    const specs = [replaced, beside].map((each) => new couchbase.TransactionGetMultiSpec(collection, each.key))
    const many = await attempt.getMulti(specs)
    assert.deepEqual([many.contentAt(0), many.contentAt(1)], [{ n: expected[0] }, { n: 5 }])
  })
  const [before, after] = [[1, 1, null], [2, null, 3]]
  await run(cluster, async (attempt) => {
    await replaced.replace(attempt, 2)
    await removed.remove(attempt)
    await inserted.insert(attempt, 3)
    assert.deepEqual(await plains(...places), before)
    await see(before)
  })
  assert.deepEqual(await plains(...places), after)
  await see(after)
}

// Documents that are no JSON become others, and become JSON and back.
async function binary(cluster, collection) {
  const [first, second] = [Buffer.from([0x00, 0xff, 0xfe, 0x31]), Buffer.from([0x80, 0x32, 0x00])]
  const places = ['inserted', 'replaced', 'from-json', 'to-json'].map((name) => new Place(collection, `binary-${name}`))
  const [inserted, replaced, fromJson, toJson] = places
  const store = async () => {
    for (const { key } of [replaced, toJson]) await collection.upsert(key, first, { transcoder })
  }
  await store()
  await fromJson.upsert(1)
  const change = async (attempt) => {
    await attempt.insert(collection, inserted.key, first, { transcoder })
    await attempt.replace(await attempt.get(collection, replaced.key, { transcoder }), second, { transcoder })
    await attempt.replace(await attempt.get(collection, fromJson.key), second, { transcoder })
    await attempt.replace(await attempt.get(collection, toJson.key, { transcoder }), { n: 2 })
    assert.deepEqual((await attempt.get(collection, inserted.key, { transcoder })).content, first)
  }
  const stored = async ({ key }) => (await collection.get(key, { transcoder })).content
  await failed(ApplicationError, run(cluster, async (attempt) => {
    await change(attempt)
    throw new ApplicationError('no')
  }))
  assert.equal((await collection.exists(inserted.key)).exists, false)
  // This SDK stages a change with flags of 0, which stay when it is undone.
  for (const { key } of [replaced, toJson]) assert.deepEqual((await collection.get(key, { transcoder: bytes })).content, first)
  assert.deepEqual(await plains(fromJson), [1])
  await store()
  await run(cluster, change)
  assert.deepEqual([await stored(inserted), await stored(replaced), await stored(fromJson)], [first, second, second])
  assert.deepEqual(await plains(toJson), [2])
  await nothingStaged(...places)
}

module.exports = { run, made, commit, rollBack, conflicts, stagedReads, binary }
