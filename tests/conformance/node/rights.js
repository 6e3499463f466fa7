'use strict'

// What a user with rights in some collections may do: write to `open`, read `shown`, and know nothing of `hidden`.

const assert = require('node:assert/strict')
const couchbase = require('couchbase')

const { LookupInSpec, MutateInSpec } = couchbase
const SCOPE = 'rights'
// A client cannot know that the collection will not come, so it retries until its timeout.
const UNKNOWN = [couchbase.AmbiguousTimeoutError, couchbase.UnambiguousTimeoutError, couchbase.CollectionNotFoundError]

// `eventually` repeats a call past transient errors.
async function rights(bucket, limited, eventually) {
  const manager = bucket.collections()
  await manager.createScope(SCOPE)
  for (const name of ['open', 'shown', 'hidden']) {
    await manager.createCollection(name, SCOPE)
    await eventually(() => bucket.scope(SCOPE).collection(name).upsert('d', { in: name }), UNKNOWN)
  }
  const [opened, shown, hidden] = ['open', 'shown', 'hidden'].map((name) => limited.scope(SCOPE).collection(name))
  // The first request waits for the bucket's log-in, which takes long on a busy machine.
  const first = await eventually(() => opened.get('d'), UNKNOWN)
  assert.deepEqual(first.content, { in: 'open' })
  await opened.upsert('d', { n: 1 })
  await opened.mutateIn('d', [MutateInSpec.increment('n', 1)])
  assert.equal((await opened.lookupIn('d', [LookupInSpec.get('n')])).content[0].value, 2)
  await opened.remove('d')
  assert.deepEqual((await shown.get('d')).content, { in: 'shown' })
  assert.equal((await shown.lookupIn('d', [LookupInSpec.get('in')])).content[0].value, 'shown')
  const refused = [
    () => shown.upsert('d', {}),
    () => shown.insert('new', {}),
    () => shown.remove('d'),
    () => shown.touch('d', 100),
    () => shown.mutateIn('d', [MutateInSpec.upsert('n', 1)]),
    () => shown.binary().append('d', Buffer.from('x')),
    () => shown.binary().increment('new', 1, { initial: 0 }),
  ]
  for (const call of refused) await assert.rejects(call, couchbase.AuthenticationFailureError)
  // The server's words and the reference of its log line reach whoever catches the error.
  const refusal = await shown.upsert('d', {}).catch((error) => error)
  assert.match(refusal.context.context, /needs the privilege Upsert/)
  assert.ok(refusal.context.ref)
  assert.deepEqual((await bucket.scope(SCOPE).collection('shown').get('d')).content, { in: 'shown' })
  await assert.rejects(hidden.get('d', { timeout: 1_000 }), (error) => UNKNOWN.some((each) => error instanceof each))
  await manager.dropScope(SCOPE)
}

module.exports = { rights }
