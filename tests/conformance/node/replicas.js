'use strict'

// Copies of a document: reads that any copy answers, and writes that wait for copies as the SDK observes them.
//
// ORIBI_REPLICAS is how many replicas the bucket has; without replicas the only copy answers for all.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const { LookupInSpec } = couchbase
const REPLICAS = Number(process.env.ORIBI_REPLICAS ?? 0)
const ALL_COPIES = [false, ...Array(REPLICAS).fill(true)]

// Some copy has not followed yet.
class CopiesDifferError extends Error {}

// What was written is read from every copy, once all have it, and from any.
async function replicas(collection, eventually) {
  const stored = await collection.upsert('replicas', { n: 1 })
  await eventually(() => sameEverywhere(collection, 'replicas', { n: 1 }, stored.cas), [CopiesDifferError])
  const got = await collection.getAnyReplica('replicas')
  assert.deepEqual([got.content, got.cas.toString()], [{ n: 1 }, stored.cas.toString()])
  const specs = [LookupInSpec.get('n'), LookupInSpec.exists('z')]
  const looks = await collection.lookupInAllReplicas('replicas', specs)
  assert.deepEqual(looks.map((each) => each.isReplica).sort(), ALL_COPIES)
  for (const found of [await collection.lookupInAnyReplica('replicas', specs), ...looks]) {
    assert.deepEqual([found.content[0].value, found.content[1].value], [1, false])
  }
  const missing = collection.lookupInAnyReplica('never-written', specs)
  await assert.rejects(missing, couchbase.DocumentUnretrievableError)
  await assert.rejects(collection.getAnyReplica('never-written'), couchbase.DocumentUnretrievableError)
}

// Throws unless each copy, of which one is no replica, has this version of a document.
async function sameEverywhere(collection, key, value, cas) {
  const found = await collection.getAllReplicas(key)
  const isWhole = found.length === REPLICAS + 1 && found.every((each) => each.cas.toString() === cas.toString())
  if (!isWhole) throw new CopiesDifferError(`${found.map((each) => each.cas)} instead of CAS ${cas}`)
  assert.deepEqual(found.map((each) => each.isReplica).sort(), ALL_COPIES)
  for (const each of found) assert.deepEqual(each.content, value)
}

// Writes that wait until the SDK has observed them in the memory, and then on the disk, of all copies.
async function observedDurability(collection) {
  for (const persists of [false, true]) {
    const waits = { durabilityReplicateTo: REPLICAS, durabilityPersistTo: persists ? REPLICAS + 1 : 0 }
    const key = `observed-${persists}`
    // Each of them is in all copies when it is acknowledged.
    const writes = [
      () => collection.insert(key, 0, waits),
      () => collection.replace(key, 1, waits),
      () => collection.upsert(key, 2, waits),
    ]
    for (const [number, write] of writes.entries()) {
      await sameEverywhere(collection, key, number, (await write()).cas)
    }
    await collection.remove(key, waits)
    await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.getAnyReplica(key), couchbase.DocumentUnretrievableError)
  }
}

module.exports = { replicas, observedDurability, REPLICAS }
