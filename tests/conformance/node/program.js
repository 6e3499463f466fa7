'use strict'

// The conformance steps with the Couchbase Node.js SDK.
//
// Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_CONTROL, ORIBI_STEPS,
// ORIBI_SUB_DOCUMENTS, ORIBI_BUCKET and ORIBI_REPLICAS, and writes BEGIN, PASS and FAIL lines; see
// harness/steps.py. It is a CommonJS program
// because the SDK is installed outside of the source tree and found through
// NODE_PATH, which ES modules ignore.

const assert = require('node:assert/strict')
const http = require('node:http')
const { setTimeout: sleep } = require('node:timers/promises')
const couchbase = require('couchbase')
const { compression } = require('./compression.js')
const { locks } = require('./locks.js')
const managers = require('./managers.js')
const nodes = require('./nodes.js')
const queries = require('./queries.js')
const replicas = require('./replicas.js')
const { rights } = require('./rights.js')
const { scans } = require('./scans.js')
const subDocuments = require('./sub_documents.js')
const transactions = require('./transactions.js')
const { transfers, lost, killed } = require('./transfers.js')

const VALUE_BYTES_MAX = 20 * 1024 * 1024
const DOCUMENTS = 50_000
const IN_FLIGHT_MAX = 1_000
const TIMEOUTS = [couchbase.AmbiguousTimeoutError, couchbase.UnambiguousTimeoutError, couchbase.RequestCanceledError]
const NOT_THERE_YET = [...TIMEOUTS, couchbase.CollectionNotFoundError, couchbase.ScopeNotFoundError]
const raw = new couchbase.RawBinaryTranscoder()

const connectionString = process.env.ORIBI_CONNSTR
const bucketName = process.env.ORIBI_BUCKET ?? 'default'
const credentials = { username: process.env.ORIBI_USER, password: process.env.ORIBI_PASSWORD }
// The authority that vouches for the server, where TLS is spoken.
if (process.env.ORIBI_CA) credentials.security = { trustStorePath: process.env.ORIBI_CA }
let cluster, bucket, collection

const steps = {
  connect: async () => {
    // This SDK has no wait-until-ready: connect and the first use of a bucket wait by themselves,
    // and a ping with default options asks every service that the configuration names.
    cluster = await couchbase.connect(connectionString, credentials)
    bucket = cluster.bucket(bucketName)
    collection = bucket.defaultCollection()
    // Connections to the nodes that the configuration names besides the first one may not be open yet.
    for (const pinged of [cluster, bucket]) await eventually(() => pingAll(pinged), [assert.AssertionError])
  },

  crud: async () => {
    const first = await collection.insert('crud', { name: 'Ada', born: 1815 })
    let got = await collection.get('crud')
    assert.deepEqual(got.content, { name: 'Ada', born: 1815 })
    sameCas(got, first)
    const second = await collection.upsert('crud', { name: 'Grace' })
    assert.notEqual(second.cas.toString(), first.cas.toString())
    const third = await collection.replace('crud', ['a', 1, null, 'é'], { cas: second.cas })
    got = await collection.get('crud')
    assert.deepEqual(got.content, ['a', 1, null, 'é'])
    sameCas(got, third)
    await collection.remove('crud', { cas: third.cas })
    await assert.rejects(collection.get('crud'), couchbase.DocumentNotFoundError)
  },

  'not-found': async () => {
    const key = 'never-written'
    await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.remove(key), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.replace(key, {}), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.touch(key, 10), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.getAndTouch(key, 10), couchbase.DocumentNotFoundError)
    await assert.rejects(collection.binary().increment(key, 1), couchbase.DocumentNotFoundError)
  },

  exists: async () => {
    assert.equal((await collection.exists('exists')).exists, false)
    const stored = await collection.insert('exists', 1)
    const found = await collection.exists('exists')
    assert.equal(found.exists, true)
    sameCas(found, stored)
    await assert.rejects(collection.insert('exists', 2), couchbase.DocumentExistsError)
    await collection.remove('exists')
    assert.equal((await collection.exists('exists')).exists, false)
  },

  'cas-mismatch': async () => {
    const old = await collection.upsert('cas', 1)
    const current = await collection.upsert('cas', 2)
    await assert.rejects(collection.replace('cas', 3, { cas: old.cas }), couchbase.CasMismatchError)
    await assert.rejects(collection.remove('cas', { cas: old.cas }), couchbase.CasMismatchError)
    assert.equal((await collection.get('cas')).content, 2)
    await collection.replace('cas', 4, { cas: current.cas })
  },

  counters: async () => {
    const up = async (delta) => (await collection.binary().increment('counter', delta, { initial: 10 })).value
    const down = async (delta) => (await collection.binary().decrement('counter', delta, { initial: 10 })).value
    assert.equal(await up(5), 10)
    assert.equal(await up(5), 15)
    assert.equal(await down(4), 11)
    assert.equal(await down(100), 0)
    assert.equal((await collection.get('counter')).content, 0)
    await collection.upsert('not-a-counter', 'text')
    const refusal = await collection.binary().increment('not-a-counter', 1).catch((error) => error)
    assert.ok(refusal instanceof couchbase.DeltaInvalidError)
    assert.ok(refusal.context.context, 'the server says why')
  },

  'append-prepend': async () => {
    await collection.upsert('concat', Buffer.from('middle'), { transcoder: raw })
    await collection.binary().append('concat', Buffer.from('-end\0'))
    await collection.binary().prepend('concat', Buffer.from([0xff, 0x2d]))
    const got = await collection.get('concat', { transcoder: raw })
    assert.deepEqual(got.content, Buffer.concat([Buffer.from([0xff, 0x2d]), Buffer.from('middle-end\0')]))
  },

  expiry: async () => {
    await collection.insert('expiry', {}, { expiry: 2 })
    await collection.get('expiry')
    await untilNotFound('expiry')
    await collection.insert('expiry', {})
  },

  touch: async () => {
    await collection.upsert('touch', {})
    await collection.touch('touch', 2)
    await collection.get('touch')
    await untilNotFound('touch')
  },

  'get-and-touch': async () => {
    await collection.upsert('gat', { n: 1 })
    assert.deepEqual((await collection.getAndTouch('gat', 2)).content, { n: 1 })
    await untilNotFound('gat')
  },

  durability: async () => {
    const { Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel
    for (const durabilityLevel of [Majority, MajorityAndPersistOnMaster, PersistToMajority]) {
      assert.ok(durabilityLevel)
      const key = `durable-${durabilityLevel}`
      await collection.insert(key, 1, { durabilityLevel })
      await collection.replace(key, 2, { durabilityLevel })
      const attribute = couchbase.MutateInSpec.upsert('user', key, { xattr: true })
      await collection.mutateIn(key, [attribute], { durabilityLevel })
      const found = await collection.lookupIn(key, [couchbase.LookupInSpec.get('user', { xattr: true })])
      assert.equal(found.content[0].value, key)
      const stored = await collection.upsert(key, 3, { durabilityLevel })
      const got = await collection.get(key)
      assert.equal(got.content, 3)
      sameCas(got, stored)
      await collection.remove(key, { durabilityLevel })
      await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
    }
  },

  'mutation-tokens': async () => {
    const first = (await collection.upsert('token', 1)).token.toJSON()
    const { token } = await collection.upsert('token', 2)
    const second = token.toJSON()
    // What queries are told to wait for.
    const state = new couchbase.MutationState(token).toJSON()
    assert.deepEqual(state[bucketName][second.partition_id].toJSON(), second)
    const removal = (await collection.remove('token')).token.toJSON()
    assert.equal(first.bucket_name, bucketName)
    assert.equal(first.partition_id, second.partition_id)
    assert.equal(first.partition_uuid, second.partition_uuid)
    assert.ok(BigInt(second.sequence_number) > BigInt(first.sequence_number), 'seqnos grow')
    assert.ok(BigInt(removal.sequence_number) > BigInt(second.sequence_number), 'a removal has a token')
  },

  'observed-durability': () => replicas.observedDurability(collection),
  ...onCollection(subDocuments),
  replicas: () => replicas.replicas(collection, eventually),
  ...onCollection({ locks }),

  compression: async () => {
    const without = await couchbase.connect(`${connectionString}?enable_compression=false`, credentials)
    await compression(collection, without.bucket(bucketName).defaultCollection())
    await without.close()
  },

  rights: async () => {
    const limited = await couchbase.connect(connectionString, { ...credentials, username: process.env.ORIBI_LIMITED_USER })
    await rights(bucket, limited.bucket(bucketName), eventually)
    await limited.close()
  },

  ...onCollection({ scans }),

  collections: async () => {
    const manager = bucket.collections()
    await manager.createScope('node')
    await assert.rejects(manager.createScope('node'), couchbase.ScopeExistsError)
    await manager.createCollection('things', 'node')
    await assert.rejects(manager.createCollection('things', 'node'), couchbase.CollectionExistsError)
    await assert.rejects(manager.createCollection('things', 'nowhere'), couchbase.ScopeNotFoundError)
    assert.ok((await scopes()).node.includes('things'))
    const things = bucket.scope('node').collection('things')
    await eventually(() => things.upsert('same-key', 'in things'), NOT_THERE_YET)
    await collection.upsert('same-key', 'in default')
    assert.equal((await things.get('same-key')).content, 'in things')
    assert.equal((await collection.get('same-key')).content, 'in default')
    await manager.dropCollection('things', 'node')
    await assert.rejects(manager.dropCollection('things', 'node'), couchbase.CollectionNotFoundError)
    assert.ok(!(await scopes()).node.includes('things'))
    // A client cannot know that the collection will not come back, so it retries until its timeout.
    await assert.rejects(things.get('same-key', { timeout: 2_000 }), oneOf(NOT_THERE_YET))
    await manager.dropScope('node')
    await assert.rejects(manager.dropScope('node'), couchbase.ScopeNotFoundError)
    assert.ok(!('node' in (await scopes())))
    assert.equal((await collection.get('same-key')).content, 'in default')
  },

  users: () => managers.users(cluster, (username, password) => openWith({ username, password })),
  buckets: () => managers.buckets(cluster, (call) => eventually(call, TIMEOUTS)),

  'document-20-mib': async () => {
    const value = Buffer.alloc(VALUE_BYTES_MAX)
    for (let i = 0; i < value.length; i++) value[i] = i % 251
    await collection.upsert('large', value, { transcoder: raw, timeout: 30_000 })
    const got = await collection.get('large', { transcoder: raw, timeout: 30_000 })
    assert.ok(value.equals(got.content))
    await collection.remove('large')
  },

  'too-large': async () => {
    const value = Buffer.alloc(VALUE_BYTES_MAX + 1)
    const write = collection.upsert('too-large', value, { transcoder: raw, timeout: 30_000 })
    await assert.rejects(write, couchbase.ValueTooLargeError)
    assert.equal((await collection.exists('too-large')).exists, false)
  },

  'wrong-password': async () => {
    const started = performance.now()
    const attempt = couchbase.connect(connectionString, { ...credentials, password: 'not the password' })
    await assert.rejects(attempt, couchbase.AuthenticationFailureError)
    assert.ok(performance.now() - started < 20_000, 'the refusal is prompt')
  },

  'parallel-50000': async () => {
    const text = 'x'.repeat(100)
    const started = performance.now()
    await inParallel(async (number) => {
      const result = await collection.upsert(`parallel-${number}`, { number, text })
      assert.ok(result.token)
    })
    const written = performance.now()
    await inParallel(async (number) => {
      assert.deepEqual((await collection.get(`parallel-${number}`)).content, { number, text })
    })
    const ended = performance.now()
    const rate = (milliseconds) => ((DOCUMENTS / milliseconds) * 1000).toFixed(0)
    return `${rate(written - started)} writes/s, ${rate(ended - written)} reads/s`
  },

  // Whatever was acknowledged as persisted must survive, also what was acknowledged last.
  'kill-restart': async () => {
    const durabilityLevel = couchbase.DurabilityLevel.PersistToMajority
    const acknowledged = new Map()
    let stopping = false
    const write = async (writer) => {
      for (let number = 0; !stopping; number++) {
        const key = `crash-${writer}-${number}`
        try {
          acknowledged.set(key, await collection.insert(key, { key }, { durabilityLevel }))
        } catch (error) {
          // Not acknowledged, so nothing is promised about this one.
          if (!(error instanceof couchbase.CouchbaseError)) throw error
        }
      }
    }
    const writers = Promise.all(Array.from({ length: 64 }, (_, writer) => write(writer)))
    const deadline = performance.now() + 60_000
    while (acknowledged.size < 1_000 && performance.now() < deadline) await sleep(10)
    assert.ok(acknowledged.size >= 1_000, '1,000 durable writes')
    await control('kill-restart')
    stopping = true
    await writers
    const restarted = performance.now()
    const [someKey] = acknowledged.keys()
    await eventually(() => collection.get(someKey), TIMEOUTS)
    const reconnected = performance.now() - restarted
    for (const [key, stored] of acknowledged) {
      const got = await collection.get(key)
      assert.deepEqual(got.content, { key })
      sameCas(got, stored)
    }
    const newer = await collection.upsert(someKey, { key: 'newer' })
    assert.notEqual(newer.cas.toString(), acknowledged.get(someKey).cas.toString())
    return `${acknowledged.size} survived, reconnected after ${(reconnected / 1000).toFixed(2)} s`
  },

  commit: () => withPlaces(transactions.commit),
  'roll-back': () => withPlaces(transactions.rollBack),
  conflicts: () => transactions.conflicts(cluster, collection),
  'staged-reads': () => transactions.stagedReads(cluster, collection),
  binary: () => transactions.binary(cluster, collection),
  'transfers-none': () => transfers(cluster, collection, couchbase.DurabilityLevel.None),
  'transfers-majority': () => transfers(cluster, collection, couchbase.DurabilityLevel.Majority),
  'transfers-persist': () => transfers(cluster, collection, couchbase.DurabilityLevel.PersistToMajority),
  'transfers-killed': async () => killed(openWith, await place('records'), control, (call) => eventually(call, TIMEOUTS)),
  'transfers-lost': () => lost(openWith),

  ...topologySteps(nodes.BEFORE_NEW_CLIENT),
  // A client that begins while a node is away finds the others, and every document.
  'new-client': async () => {
    const another = await openWith({})
    await nodes.compare(another.bucket(bucketName).defaultCollection(), pastDeaths)
    await another.close()
  },
  ...topologySteps(nodes.AFTER_NEW_CLIENT),
}

function topologySteps(names) {
  return Object.fromEntries(names.map((step) => [step, () => nodes.change(collection, step, control, pastDeaths)]))
}

async function pingAll(pinged) {
  const endpoints = Object.values((await pinged.ping()).services).flat()
  assert.ok(endpoints.length > 0)
  for (const endpoint of endpoints) assert.equal(endpoint.state, couchbase.PingState.Ok)
}

function openWith(more) {
  return couchbase.connect(connectionString, { ...credentials, ...more })
}

// A collection of transactions.
function place(name) {
  return transactions.made(bucket, name, (call) => eventually(call, NOT_THERE_YET))
}

// A step of transactions over the default collection and two others.
async function withPlaces(step) {
  await step(cluster, collection, await place('left'), await place('right'))
}

function sameCas(actual, expected) {
  assert.equal(actual.cas.toString(), expected.cas.toString())
}

function oneOf(classes) {
  return (error) => classes.some((each) => error instanceof each)
}

async function scopes() {
  const list = await bucket.collections().getAllScopes()
  return Object.fromEntries(list.map((scope) => [scope.name, scope.collections.map((each) => each.name)]))
}

async function untilNotFound(key) {
  const deadline = performance.now() + 20_000
  while ((await collection.exists(key)).exists) {
    assert.ok(performance.now() < deadline, `${key} expires`)
    await sleep(100)
  }
  await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
}

// As `eventually`, past what a node's death may cause.
function pastDeaths(call) {
  return eventually(call, [...TIMEOUTS, couchbase.DurabilityAmbiguousError])
}

// Repeats a call until it succeeds, for half a minute, past errors that time heals.
async function eventually(call, transient) {
  const deadline = performance.now() + 30_000
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!oneOf(transient)(error) || performance.now() > deadline) throw error
      await sleep(100)
    }
  }
}

async function inParallel(operation) {
  let next = 0
  const work = async () => {
    while (next < DOCUMENTS) await operation(next++)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT_MAX }, work))
}

// Asks for a crash, or another change of the servers, and waits until it is done.
function control(action) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${process.env.ORIBI_CONTROL}/${action}`, { method: 'POST' }, (response) => {
      response.resume()
      response.on('end', () => (response.statusCode === 200 ? resolve() : reject(new Error(`no ${action}`))))
    })
    request.on('error', reject)
    request.end()
  })
}

// Steps of another file, which do not know the collection before they run.
function onCollection(others) {
  return Object.fromEntries(Object.entries(others).map(([name, step]) => [name, () => step(collection)]))
}

// Steps of queries, which know neither the cluster nor the bucket before they run.
const retried = (call) => eventually(call, NOT_THERE_YET)
for (const [name, step] of Object.entries(queries.STEPS)) steps[name] = () => step(cluster, bucket, retried)

async function main() {
  const wanted = process.env.ORIBI_STEPS.split(',')
  for (const [name, step] of Object.entries(steps)) {
    if (!wanted.includes(name)) continue
    console.log(`BEGIN ${name}`)
    try {
      console.log(`PASS ${name} ${(await step()) ?? ''}`)
    } catch (error) {
      console.error(error)
      console.log(`FAIL ${name} ${error.name}: ${error.message.replace(/\s+/g, ' ').slice(0, 300)}`)
      if (name === 'connect') break
    }
  }
  await cluster?.close()
}

main()
