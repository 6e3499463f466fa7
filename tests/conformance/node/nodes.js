'use strict'

// Nodes that come and go: what was acknowledged as persisted is read wherever its vbucket is now.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const DOCUMENTS = 64
const durably = { durabilityLevel: couchbase.DurabilityLevel.PersistToMajority }
const written = new Map()

// Writes, asks for the change by `control`, reads everything back and writes again. `eventually` repeats a call
// past transient errors, which a node's death may cause.
async function change(collection, step, control, eventually) {
  await write(collection, `before-${step}`, eventually)
  await control(step)
  for (const [key, value] of written) {
    assert.equal((await eventually(() => collection.get(key))).content, value)
  }
  await write(collection, `after-${step}`, eventually)
}

// Half of the documents are new ones, half those of other steps.
async function write(collection, value, eventually) {
  for (let number = 0; number < DOCUMENTS; number++) {
    const key = number % 2 ? `${value}-${number}` : `shared-${number}`
    await eventually(() => collection.upsert(key, value, durably))
    written.set(key, value)
  }
}

module.exports = { change, STEPS: ['join', 'kill', 'return', 'leave'] }
