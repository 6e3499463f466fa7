'use strict'

// Queries: rows, parameters, prepared statements, consistency, errors, index managers, long answers.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const ENDLESS = 'SELECT COUNT(*) FROM ARRAY_RANGE(0, 100000) a UNNEST ARRAY_RANGE(0, 100000) b WHERE a = -1 - b'
const ROWS = 100_000

async function rows(cluster, statement, options) {
  return (await cluster.query(statement, options)).rows
}

async function queryRows(cluster, bucket, eventually) {
  const collection = bucket.defaultCollection()
  for (let n = 0; n < 20; n++) await collection.upsert(`row-${n}`, { type: 'row', n })
  const statement = "SELECT n FROM `default` WHERE type = 'row' AND n >= 17 ORDER BY n DESC"
  const { rows: found, meta } = await cluster.query(statement, { metrics: true, clientContextId: 'mine' })
  assert.deepEqual(found, [{ n: 19 }, { n: 18 }, { n: 17 }])
  assert.deepEqual([meta.status, meta.clientContextId], [couchbase.QueryStatus.Success, 'mine'])
  assert.deepEqual([meta.metrics.resultCount, meta.metrics.errorCount], [3, 0])
  assert.deepEqual(await rows(cluster, "SELECT RAW COUNT(*) FROM `default` WHERE type = 'row'"), [20])
  await bucket.collections().createScope('queries')
  await bucket.collections().createCollection('lines', 'queries')
  const scope = bucket.scope('queries')
  await eventually(() => scope.collection('lines').upsert('a', { n: 1 }))
  assert.deepEqual((await scope.query('SELECT RAW n FROM lines')).rows, [1])
}

async function queryParameters(cluster) {
  assert.deepEqual(await rows(cluster, 'SELECT RAW $1 || $2', { parameters: ['a', 'b'] }), ['ab'])
  assert.deepEqual(await rows(cluster, 'SELECT RAW $one + $two', { parameters: { one: 1, two: 2 } }), [3])
  const document = { deep: [1, { x: null }], text: 'ü"\'`' }
  assert.deepEqual(await rows(cluster, 'SELECT RAW $1', { parameters: [document] }), [document])
}

async function queryPrepared(cluster) {
  const statement = 'SELECT RAW $1 * 2'
  for (let n = 0; n < 10; n++) {
    assert.deepEqual(await rows(cluster, statement, { adhoc: false, parameters: [n] }), [n * 2])
  }
  const names = await rows(cluster, 'SELECT RAW statement FROM system:prepareds')
  assert.ok(names.some((name) => name.includes(statement)), names.join())
}

async function queryConsistency(cluster, bucket) {
  const collection = bucket.defaultCollection()
  const statement = "SELECT RAW n FROM `default` WHERE type = 'fresh' ORDER BY n"
  const expected = []
  for (let n = 0; n < 20; n++) {
    const written = await collection.upsert(`fresh-${n}`, { type: 'fresh', n })
    expected.push(n)
    const consistentWith = new couchbase.MutationState(written.token)
    assert.deepEqual(await rows(cluster, statement, { consistentWith }), expected)
  }
  await collection.upsert('fresh-20', { type: 'fresh', n: 20 })
  const scanConsistency = couchbase.QueryScanConsistency.RequestPlus
  assert.deepEqual(await rows(cluster, statement, { scanConsistency }), [...expected, 20])
}

async function queryErrors(cluster, bucket) {
  await assert.rejects(rows(cluster, 'SELEC 1'), couchbase.ParsingFailureError)
  await assert.rejects(rows(cluster, 'SELECT * FROM `nowhere`'), couchbase.CouchbaseError)
  await assert.rejects(rows(cluster, 'DELETE FROM `default` WHERE false', { readOnly: true }), couchbase.CouchbaseError)
  await bucket.defaultCollection().upsert('there', {})
  // This SDK does not read the reason (as of 4.7.0), which says that the document exists.
  await assert.rejects(rows(cluster, "INSERT INTO `default` VALUES ('there', 1)"), couchbase.DmlFailureError)
  await assert.rejects(rows(cluster, ENDLESS, { timeout: 1000, readOnly: true }), couchbase.UnambiguousTimeoutError)
  assert.deepEqual(await rows(cluster, 'SELECT RAW 1'), [1])
}

async function queryIndexes(cluster, bucket) {
  const manager = cluster.queryIndexes()
  await manager.createPrimaryIndex('default')
  await assert.rejects(manager.createPrimaryIndex('default'), couchbase.IndexExistsError)
  await manager.createPrimaryIndex('default', { ignoreIfExists: true })
  await manager.createIndex('default', 'by_n', ['n', '`type`'])
  await manager.createIndex('default', 'later', ['half'], { deferred: true })
  const found = await manager.getAllIndexes('default')
  assert.deepEqual(found.map((index) => index.name).sort(), ['#primary', 'by_n', 'later'])
  assert.deepEqual(found.find((index) => index.name === 'by_n').indexKey, ['`n`', '`type`'])
  assert.equal(found.find((index) => index.name === 'later').state, 'deferred')
  await manager.buildDeferredIndexes('default')
  await manager.watchIndexes('default', ['by_n', 'later'], 10_000, { watchPrimary: true })
  await manager.dropIndex('default', 'by_n')
  await manager.dropIndex('default', 'later')
  await assert.rejects(manager.dropIndex('default', 'by_n'), couchbase.IndexNotFoundError)
  await manager.dropIndex('default', 'by_n', { ignoreIfNotExists: true })
  await manager.dropPrimaryIndex('default')
  assert.deepEqual(await manager.getAllIndexes('default'), [])

  const own = bucket.scope('queries').collection('lines').queryIndexes()
  await own.createPrimaryIndex()
  await own.createIndex('of_rows', ['n'])
  assert.deepEqual((await own.getAllIndexes()).map((index) => index.name).sort(), ['#primary', 'of_rows'])
  await own.dropIndex('of_rows')
  await own.dropPrimaryIndex()
}

async function queryStreaming(cluster) {
  const statement = `SELECT n, REPEAT('x', 100) AS filler FROM ARRAY_RANGE(0, ${ROWS}) AS n`
  let count = 0
  await new Promise((resolve, reject) => {
    const stream = cluster.query(statement, { timeout: 60_000 })
    stream.on('row', (row) => { if (row.n === count) count++ })
    stream.on('end', resolve)
    stream.on('error', reject)
  })
  assert.equal(count, ROWS)
  return `${count} rows`
}

const STEPS = {
  'query-rows': queryRows,
  'query-parameters': queryParameters,
  'query-prepared': queryPrepared,
  'query-consistency': queryConsistency,
  'query-errors': queryErrors,
  'query-indexes': queryIndexes,
  'query-streaming': queryStreaming,
}

module.exports = { STEPS }
