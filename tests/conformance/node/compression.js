'use strict'

// Documents that one client compresses and another, which did not negotiate it, reads and changes.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const { LookupInSpec, MutateInSpec } = couchbase
const text = 'compressible '.repeat(400)
const transcoder = new couchbase.RawBinaryTranscoder()

// What the server keeps the document as.
async function datatype(collection, key) {
  const found = await collection.lookupIn(key, [LookupInSpec.get('$document.datatype', { xattr: true })])
  return found.content[0].value.sort()
}

async function compression(collection, without) {
  const readers = [collection, without]
  await collection.upsert('compressed', { n: 1, text })
  assert.deepEqual(await datatype(without, 'compressed'), ['json', 'snappy'])
  for (const reader of readers) {
    assert.deepEqual((await reader.get('compressed')).content, { n: 1, text })
    assert.equal((await reader.lookupIn('compressed', [LookupInSpec.get('text')])).content[0].value, text)
  }
  const changes = [MutateInSpec.increment('n', 1), MutateInSpec.upsert('user', 1, { xattr: true })]
  await without.mutateIn('compressed', changes)
  for (const reader of readers) assert.deepEqual((await reader.get('compressed')).content, { n: 2, text })
  await without.upsert('plain', { n: 1, text })
  assert.deepEqual(await datatype(collection, 'plain'), ['json'])
  assert.deepEqual((await collection.get('plain')).content, { n: 1, text })
  await collection.upsert('bytes', Buffer.from(text), { transcoder })
  await without.binary().append('bytes', Buffer.from('-end'))
  await collection.binary().prepend('bytes', Buffer.from(text))
  for (const reader of readers) {
    assert.equal((await reader.get('bytes', { transcoder })).content.toString(), `${text}${text}-end`)
  }
}

module.exports = { compression }
