'use strict'

// Nodes that come and go: what was acknowledged as persisted is read wherever its vbucket is now.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')
const { REPLICAS } = require('./replicas.js')

const DOCUMENTS = 64
const durably = { durabilityLevel: couchbase.DurabilityLevel.PersistToMajority }
const written = new Map()

// Writes, asks for the change by `control`, reads everything back and writes again. `eventually` repeats a call
// past transient errors, which a node's death may cause.
async function change(collection, step, control, eventually) {
  await write(collection, `before-${step}`, eventually)
  await control(step)
  await compare(collection, eventually)
  await write(collection, `after-${step}`, eventually)
}

// Reads everything that was written.
async function compare(collection, eventually) {
  for (const [key, value] of written) {
    assert.equal((await eventually(() => collection.get(key))).content, value)
  }
}

// Half of the documents are new ones, half those of other steps.
async function write(collection, value, eventually) {
  for (let number = 0; number < DOCUMENTS; number++) {
    const key = number % 2 ? `${value}-${number}` : `shared-${number}`
    await eventually(() => writeOnce(collection, key, value))
    written.set(key, value)
  }
}

// Writes durably; plainly while fewer copies than a majority follow: one of two is away, or the node is slow, too.
async function writeOnce(collection, key, value) {
  try {
    await collection.upsert(key, value, durably)
  } catch (error) {
    if (!(error instanceof couchbase.DurabilityImpossibleError) || REPLICAS === 0) throw error
    await collection.upsert(key, value)
  }
}

module.exports = {
  change,
  compare,
  BEFORE_NEW_CLIENT: ['join', 'kill'],
  AFTER_NEW_CLIENT: ['return', 'kill-again', 'return-again', 'leave'],
}
