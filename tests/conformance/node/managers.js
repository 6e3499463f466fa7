'use strict'

// Users and buckets, managed as an application's set-up manages them.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const [USER, FIRST_PASSWORD, SECOND_PASSWORD] = ['ada', 'first password', 'second password']
const BUCKET = 'made-by-node'

// `openAs` connects with a name and a password.
async function users(cluster, openAs) {
  const manager = cluster.users()
  await assert.rejects(manager.getUser(USER), couchbase.UserNotFoundError)
  // A role in the whole bucket is listed with the scope and collection `*`.
  const reader = { name: 'data_reader', bucket: 'default', scope: '*', collection: '*' }
  const writer = { name: 'data_writer', bucket: 'default', scope: '_default', collection: '_default' }
  await manager.upsertUser({ username: USER, displayName: 'Ada L', roles: [reader, writer], password: FIRST_PASSWORD })
  const found = await manager.getUser(USER)
  assert.deepEqual([found.displayName, shown(found.roles)], ['Ada L', shown([reader, writer])])
  const names = (await manager.getAllUsers()).map((each) => each.username)
  assert.ok(names.includes(USER) && names.includes('Administrator'), `both users, got ${names}`)
  await withLogin(openAs, FIRST_PASSWORD, (collection) => collection.upsert('by-ada', 1))

  await manager.upsertUser({ username: USER, displayName: 'Ada', roles: [reader] })
  assert.deepEqual(shown((await manager.getUser(USER)).roles), shown([reader]))
  const readOnly = async (collection) => {
    assert.equal((await collection.get('by-ada')).content, 1)
    await assert.rejects(collection.upsert('by-ada', 2), couchbase.AuthenticationFailureError)
  }
  await withLogin(openAs, FIRST_PASSWORD, readOnly)
  const ada = await openAs(USER, FIRST_PASSWORD)
  await ada.users().changePassword(SECOND_PASSWORD)
  await ada.close()
  await withLogin(openAs, SECOND_PASSWORD, readOnly)
  await assert.rejects(openAs(USER, FIRST_PASSWORD), couchbase.AuthenticationFailureError)

  // What there is not is refused, and changes nothing. This SDK passes on no words of the server.
  const roles = (await manager.getRoles()).map((each) => each.name)
  for (const name of ['admin', 'data_reader', 'data_writer', 'bucket_full_access']) assert.ok(roles.includes(name), name)
  await assert.rejects(manager.upsertUser({ username: USER, roles: [{ name: 'ro_admin' }] }), couchbase.CouchbaseError)
  await assert.rejects(manager.upsertUser({ username: USER, roles: [reader], groups: ['staff'] }), couchbase.CouchbaseError)
  assert.deepEqual(await manager.getAllGroups(), [])
  await assert.rejects(manager.getGroup('staff'), couchbase.GroupNotFoundError)
  await assert.rejects(manager.upsertGroup({ name: 'staff', roles: [reader] }), couchbase.CouchbaseError)
  assert.deepEqual(shown((await manager.getUser(USER)).roles), shown([reader]))

  await manager.dropUser(USER)
  await assert.rejects(manager.dropUser(USER), couchbase.UserNotFoundError)
  await assert.rejects(openAs(USER, SECOND_PASSWORD), couchbase.AuthenticationFailureError)
}

// Roles as sorted texts.
function shown(roles) {
  return roles.map(({ name, bucket, scope, collection }) => [name, bucket, scope, collection].join(':')).sort()
}

async function withLogin(openAs, password, use) {
  const cluster = await openAs(USER, password)
  await use(cluster.bucket('default').defaultCollection())
  await cluster.close()
}

async function buckets(cluster, eventually) {
  const manager = cluster.buckets()
  const named = async () => (await manager.getAllBuckets()).map((each) => each.name)
  await assert.rejects(manager.getBucket(BUCKET), couchbase.BucketNotFoundError)
  const { BucketType, CompressionMode, EvictionPolicy } = couchbase
  const first = { name: BUCKET, bucketType: BucketType.Ephemeral, ramQuotaMB: 100, flushEnabled: false }
  await manager.createBucket(first)
  await assert.rejects(manager.createBucket(first), couchbase.BucketExistsError)
  const made = await manager.getBucket(BUCKET)
  assert.deepEqual([made.bucketType, made.ramQuotaMB, made.flushEnabled, made.evictionPolicy],
    [BucketType.Ephemeral, 100, false, EvictionPolicy.NoEviction])
  assert.ok((await named()).includes(BUCKET) && (await named()).includes('default'))
  const collection = cluster.bucket(BUCKET).defaultCollection()
  await eventually(() => collection.upsert('d', 1))
  await assert.rejects(manager.flushBucket(BUCKET), couchbase.BucketNotFlushableError)
  assert.equal((await collection.get('d')).content, 1)

  await manager.updateBucket({ ...made, ramQuotaMB: 128, flushEnabled: true, compressionMode: CompressionMode.Active })
  const changed = await manager.getBucket(BUCKET)
  assert.deepEqual([changed.ramQuotaMB, changed.flushEnabled, changed.compressionMode], [128, true, CompressionMode.Active])
  await manager.flushBucket(BUCKET)
  await assert.rejects(collection.get('d'), couchbase.DocumentNotFoundError)
  await manager.createBucket({ name: 'other', ramQuotaMB: 100, maxExpiry: 60 })
  assert.equal((await manager.getBucket('other')).maxExpiry, 60)
  await manager.dropBucket('other')
  await manager.dropBucket(BUCKET)
  await assert.rejects(manager.dropBucket(BUCKET), couchbase.BucketNotFoundError)
  assert.ok(!(await named()).includes(BUCKET), 'the bucket is gone')
}

module.exports = { users, buckets }
