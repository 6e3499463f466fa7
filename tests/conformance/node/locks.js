'use strict'

// Locks on documents: who has the lock's CAS may write, everybody may read.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const LOCK_SECONDS = 30
// In milliseconds. The SDK waits for a lock to go, until its timeout.
const soon = { timeout: 300 }
const LOCKED = [couchbase.DocumentLockedError, couchbase.AmbiguousTimeoutError, couchbase.UnambiguousTimeoutError]

function isLocked(error) {
  return LOCKED.some((each) => error instanceof each)
}

async function locks(collection) {
  const stored = await collection.upsert('locked', { n: 1 })
  let locked = await collection.getAndLock('locked', LOCK_SECONDS)
  assert.deepEqual(locked.content, { n: 1 })
  assert.notEqual(locked.cas.toString(), stored.cas.toString())
  const seen = await collection.get('locked')
  assert.deepEqual(seen.content, { n: 1 })
  assert.notEqual(seen.cas.toString(), locked.cas.toString())
  await assert.rejects(collection.upsert('locked', { n: 2 }, soon), isLocked)
  await assert.rejects(collection.remove('locked', soon), isLocked)
  await assert.rejects(collection.getAndLock('locked', LOCK_SECONDS, soon), isLocked)
  await assert.rejects(collection.unlock('locked', stored.cas), couchbase.CasMismatchError)
  // The holder's write takes the lock away.
  const written = await collection.replace('locked', { n: 3 }, { cas: locked.cas })
  assert.equal((await collection.get('locked')).cas.toString(), written.cas.toString())
  await assert.rejects(collection.unlock('locked', written.cas), couchbase.DocumentNotLockedError)
  locked = await collection.getAndLock('locked', LOCK_SECONDS)
  await collection.unlock('locked', locked.cas)
  await collection.upsert('locked', { n: 4 })
  // A lock that ends by itself is waited for by the SDK.
  await collection.getAndLock('locked', 1)
  await collection.upsert('locked', { n: 5 }, { timeout: 20_000 })
  assert.deepEqual((await collection.get('locked')).content, { n: 5 })
  await assert.rejects(collection.getAndLock('never-written', LOCK_SECONDS), couchbase.DocumentNotFoundError)
  await assert.rejects(collection.unlock('never-written', written.cas), couchbase.DocumentNotFoundError)
}

module.exports = { locks }
