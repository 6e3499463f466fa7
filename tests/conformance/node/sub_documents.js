'use strict'

// Parts of documents, and attributes beside them: the cases of sub_documents.json, and what a table cannot say.

const assert = require('node:assert/strict')
const fs = require('node:fs')
const couchbase = require('couchbase')

const { LookupInMacro, LookupInSpec, MutateInMacro, MutateInSpec, StoreSemantics } = couchbase
const ERRORS = {
  'document-exists': couchbase.DocumentExistsError,
  'document-not-found': couchbase.DocumentNotFoundError,
  'document-not-json': couchbase.DocumentNotJsonError,
  'invalid-argument': couchbase.InvalidArgumentError,
  'number-too-big': couchbase.NumberTooBigError,
  'path-exists': couchbase.PathExistsError,
  'path-invalid': couchbase.PathInvalidError,
  'path-mismatch': couchbase.PathMismatchError,
  'path-not-found': couchbase.PathNotFoundError,
  'path-too-big': couchbase.PathTooBigError,
  'value-invalid': couchbase.ValueInvalidError,
  // The SDK has no classes of its own for these, but it has names.
  'xattr-cannot-modify-virtual-attribute': /xattr_cannot_modify_virtual_attribute/,
  'xattr-unknown-virtual-attribute': /xattr_unknown_virtual_attribute/,
}
const SEMANTICS = { insert: StoreSemantics.Insert, upsert: StoreSemantics.Upsert, replace: StoreSemantics.Replace }
const SPECS_MAX = 16
const DAY_SECONDS = 24 * 60 * 60
// Of the document [7], as the server writes it.
const CRC_32C_OF_SEVEN = '0xd1f2ed59'
const raw = new couchbase.RawBinaryTranscoder()

// Runs the cases that change documents, or those that do not.
async function runCases(collection, areChanges) {
  const all = JSON.parse(fs.readFileSync(process.env.ORIBI_SUB_DOCUMENTS, 'utf-8')).cases
  const cases = all.filter((each) => 'change' in each === areChanges)
  for (const each of cases) {
    try {
      await runCase(collection, each)
    } catch (error) {
      throw new Error(`${each.name}: ${error.name}: ${error.message}`, { cause: error })
    }
  }
  return `${cases.length} cases`
}

async function runCase(collection, each) {
  const key = `case: ${each.name}`
  const before = await prepare(collection, key, each)
  if (each.change) {
    await change(collection, key, each, before)
  } else if (each.refused) {
    await assert.rejects(collection.lookupIn(key, each.look.map(lookUpSpec)), ERRORS[each.refused])
    return
  }
  if (each.look) {
    const found = await collection.lookupIn(key, each.look.map(lookUpSpec))
    assert.equal(found.content.length, each.finds.length)
    each.finds.forEach((expected, index) => compare(found.content[index], expected))
  }
}

// Stores what the case begins with; returns it, or undefined where there is nothing.
async function prepare(collection, key, each) {
  if ('raw' in each) await collection.upsert(key, Buffer.from(each.raw, 'latin1'), { transcoder: raw })
  else if ('document' in each) await collection.upsert(key, each.document)
  else return undefined
  for (const [name, value] of Object.entries(each.attributes ?? {})) {
    await collection.mutateIn(key, [MutateInSpec.upsert(name, value, { xattr: true })])
  }
  return collection.get(key, 'raw' in each ? { transcoder: raw } : {})
}

async function change(collection, key, each, before) {
  const options = { storeSemantics: SEMANTICS[each.semantics ?? 'replace'] }
  const specs = each.change.map(changeSpec)
  if (each.refused) {
    await assert.rejects(collection.mutateIn(key, specs, options), ERRORS[each.refused])
    if (before) {
      const got = await collection.get(key, 'raw' in each ? { transcoder: raw } : {})
      assert.deepEqual(got.content, before.content)
      sameCas(got, before)
    }
    return
  }
  const done = await collection.mutateIn(key, specs, options)
  for (const [index, expected] of Object.entries(each.returns ?? {})) {
    assert.equal(done.content[index].value, expected)
  }
  assert.ok(done.token)
  if (each.becomes === null) {
    await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
    return
  }
  const got = await collection.get(key)
  assert.deepEqual(got.content, each.becomes)
  sameCas(got, done)
}

function compare(entry, expected) {
  if (typeof expected === 'string' && expected.startsWith('!')) {
    assert.throws(() => { throw entry.error }, ERRORS[expected.slice(1)])
  } else {
    assert.equal(entry.error, null)
    assert.deepEqual(entry.value, expected)
  }
}

function lookUpSpec({ op, path, xattr = false }) {
  return LookupInSpec[op](path, { xattr })
}

function changeSpec({ op, path, value, values, delta, create: createPath = false, xattr = false }) {
  const several = { createPath, xattr, multi: true }
  switch (op) {
    case 'upsert':
      return MutateInSpec.upsert(path, value, { createPath, xattr })
    case 'insert':
      return MutateInSpec.insert(path, value, { createPath, xattr })
    case 'replace':
      return MutateInSpec.replace(path, value, { xattr })
    case 'remove':
      return MutateInSpec.remove(path, { xattr })
    case 'array-append':
      return MutateInSpec.arrayAppend(path, values, several)
    case 'array-prepend':
      return MutateInSpec.arrayPrepend(path, values, several)
    case 'array-insert':
      return MutateInSpec.arrayInsert(path, values, several)
    case 'array-add-unique':
      return MutateInSpec.arrayAddUnique(path, value, { createPath, xattr })
    case 'increment':
      return MutateInSpec.increment(path, delta, { createPath, xattr })
    case 'decrement':
      return MutateInSpec.decrement(path, delta, { createPath, xattr })
    default:
      throw new Error(`there is no ${op}`)
  }
}

function sameCas(actual, expected) {
  assert.equal(actual.cas.toString(), expected.cas.toString())
}

// The cases, and the limit of paths in a request.
async function lookUpIn(collection) {
  await collection.upsert('limit', { a: 1 })
  const found = await collection.lookupIn('limit', Array(SPECS_MAX).fill(LookupInSpec.get('a')))
  assert.deepEqual(found.content.map((entry) => entry.value), Array(SPECS_MAX).fill(1))
  const tooMany = collection.lookupIn('limit', Array(SPECS_MAX + 1).fill(LookupInSpec.get('a')))
  await assert.rejects(tooMany, couchbase.InvalidArgumentError)
  return runCases(collection, false)
}

// The cases, the limit of paths in a request, and CAS.
async function mutateIn(collection) {
  const { cas } = await collection.upsert('limit', { n: 0 })
  const specs = Array(SPECS_MAX + 1).fill(MutateInSpec.increment('n', 1))
  await assert.rejects(collection.mutateIn('limit', specs), couchbase.InvalidArgumentError)
  const done = await collection.mutateIn('limit', specs.slice(1), { cas })
  assert.notEqual(done.cas.toString(), cas.toString())
  assert.deepEqual((await collection.get('limit')).content, { n: SPECS_MAX })
  await assert.rejects(collection.mutateIn('limit', specs.slice(0, 1), { cas }), couchbase.CasMismatchError)
  sameCas(await collection.get('limit'), done)
  return runCases(collection, true)
}

// What the server fills in: written as an attribute, and read as a virtual one.
async function macros(collection) {
  await collection.upsert('macros', [7], { expiry: DAY_SECONDS })
  const xattr = true
  const done = await collection.mutateIn(
    'macros',
    [
      MutateInSpec.upsert('x.cas', MutateInMacro.Cas, { xattr, createPath: true }),
      MutateInSpec.upsert('x.seqno', MutateInMacro.SeqNo, { xattr }),
      MutateInSpec.upsert('x.crc', MutateInMacro.ValueCrc32c, { xattr }),
    ],
    { preserveExpiry: true },
  )
  const { Document, Cas, SeqNo, Expiry, IsDeleted, ValueSizeBytes, LastModified, RevId } = LookupInMacro
  const paths = ['x', Document, Cas, SeqNo, Expiry, IsDeleted, ValueSizeBytes, LastModified, RevId]
  const found = await collection.lookupIn('macros', paths.map((path) => LookupInSpec.get(path, { xattr })))
  for (const entry of found.content) assert.equal(entry.error, null)
  const [written, about, cas, seqno, expiry, deleted, size, modified, revision] = found.content.map(({ value }) => value)
  assert.equal(Buffer.from(written.cas.slice(2), 'hex').readBigUInt64LE().toString(), BigInt(done.cas).toString())
  assert.equal(BigInt(cas).toString(), BigInt(done.cas).toString())
  const seqnoMade = BigInt(done.token.toJSON().sequence_number)
  assert.deepEqual([BigInt(written.seqno), BigInt(seqno)], [seqnoMade, seqnoMade])
  assert.deepEqual([written.crc, about.value_crc32c], [CRC_32C_OF_SEVEN, CRC_32C_OF_SEVEN])
  assert.deepEqual([about.CAS, about.seqno, about.exptime, about.value_bytes], [cas, seqno, expiry, size])
  assert.deepEqual([deleted, size, revision], [false, '[7]'.length, about.revid])
  assert.ok(expiry > 0 && Number(modified) > 0 && Number(revision) > 1)
}

// Attributes that outlive their document. This SDK cannot make a document as a deleted one.
async function deletedDocuments(collection) {
  await collection.upsert('removed', { a: 1 })
  for (const name of ['_system', 'user']) {
    await collection.mutateIn('removed', [MutateInSpec.upsert(name, 1, { xattr: true })])
  }
  await collection.remove('removed')
  const get = (name) => LookupInSpec.get(name, { xattr: true })
  await assert.rejects(collection.lookupIn('removed', [get('_system')]), couchbase.DocumentNotFoundError)
  const kept = await collection.lookupIn('removed', [get('_system')], { accessDeleted: true })
  compare(kept.content[0], 1)
  const gone = await collection.lookupIn('removed', [get('user')], { accessDeleted: true })
  compare(gone.content[0], '!path-not-found')
}

async function projections(collection) {
  const many = Object.fromEntries(Array.from({ length: SPECS_MAX }, (_, number) => [`f${number}`, number]))
  const stored = await collection.upsert('projections', { n: 41, a: { b: [1, 2], c: 3 }, ...many }, { expiry: DAY_SECONDS })
  let got = await collection.get('projections', { project: ['n', 'a.b', 'nothing'] })
  assert.deepEqual(got.content, { n: 41, a: { b: [1, 2] } })
  sameCas(got, stored)
  // More fields than a request has paths: the SDK reads the whole document.
  got = await collection.get('projections', { project: [...Object.keys(many), 'n'] })
  assert.deepEqual(got.content, { ...many, n: 41 })
  got = await collection.get('projections', { project: ['n'], withExpiry: true })
  assert.deepEqual(got.content, { n: 41 })
  assert.ok(got.expiryTime > 0)
  await assert.rejects(collection.get('never-written', { project: ['n'] }), couchbase.DocumentNotFoundError)
}

async function preserveExpiry(collection) {
  const expiry = async () => (await collection.get('preserved', { withExpiry: true })).expiryTime
  await collection.upsert('preserved', { n: 1 }, { expiry: DAY_SECONDS })
  const first = await expiry()
  assert.ok(first > 0)
  await collection.upsert('preserved', { n: 2 }, { preserveExpiry: true })
  assert.equal(await expiry(), first)
  await collection.replace('preserved', { n: 3 }, { preserveExpiry: true })
  assert.equal(await expiry(), first)
  await collection.mutateIn('preserved', [MutateInSpec.upsert('n', 4)], { preserveExpiry: true })
  assert.equal(await expiry(), first)
  await collection.mutateIn('preserved', [MutateInSpec.upsert('n', 5)], { expiry: 2 * DAY_SECONDS })
  assert.ok((await expiry()) > first, 'a later expiry')
  await collection.upsert('preserved', { n: 6 })
  assert.ok(!(await expiry()), 'no expiry')
}

module.exports = {
  'look-up-in': lookUpIn,
  'mutate-in': mutateIn,
  macros,
  'deleted-documents': deletedDocuments,
  projections,
  'preserve-expiry': preserveExpiry,
}
