'use strict'

// Scans over keys: ranges, prefixes and samples, that wait for what was written before them.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const DOCUMENTS = 100

// The state that all of these writes are in. MutationState keeps the first token of a vbucket where
// it should keep the highest one (as of 4.7.0), so the highest ones come first.
function stateOf(results) {
  const seqno = (token) => BigInt(token.toJSON().sequence_number)
  const tokens = results.map((result) => result.token)
  tokens.sort((one, other) => Number(seqno(other) - seqno(one)))
  return new couchbase.MutationState(...tokens)
}

async function scans(collection) {
  const keys = Array.from({ length: DOCUMENTS }, (_, number) => `scan-${String(number).padStart(3, '0')}`)
  const results = await Promise.all(keys.map((key) => collection.upsert(key, { key })))
  const consistentWith = stateOf(results)
  const ids = (list) => list.map((each) => each.id).sort()

  const all = await collection.scan(new couchbase.PrefixScan('scan-'), { consistentWith, idsOnly: true })
  assert.deepEqual(ids(all), keys)
  const range = new couchbase.RangeScan(new couchbase.ScanTerm('scan-010'), new couchbase.ScanTerm('scan-020', true))
  const some = await collection.scan(range, { consistentWith })
  assert.deepEqual(ids(some), keys.slice(10, 20))
  for (const each of some) {
    assert.deepEqual(each.content, { key: each.id })
    assert.equal(each.cas.toString(), results[keys.indexOf(each.id)].cas.toString())
  }
  const sample = await collection.scan(new couchbase.SamplingScan(10, 1), { consistentWith, idsOnly: true })
  assert.equal(new Set(ids(sample)).size, 10)
  assert.deepEqual(await collection.scan(new couchbase.PrefixScan('no-such-prefix'), { consistentWith }), [])
}

module.exports = { scans }
