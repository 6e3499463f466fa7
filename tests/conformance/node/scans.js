'use strict'

// Scans over keys: ranges, prefixes and samples, that wait for what was written before them.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const DOCUMENTS = 100

async function scans(collection) {
  const keys = Array.from({ length: DOCUMENTS }, (_, number) => `scan-${String(number).padStart(3, '0')}`)
  const results = await Promise.all(keys.map((key) => collection.upsert(key, { key })))
  const consistentWith = new couchbase.MutationState(...results.map((result) => result.token))
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
