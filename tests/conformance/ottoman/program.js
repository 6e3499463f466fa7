// Models of ottoman against a server.
//
// Reads ORIBI_CONNSTR, ORIBI_USER and ORIBI_PASSWORD, and writes BEGIN, PASS and FAIL lines; see harness/steps.py.
'use strict'

const assert = require('node:assert')
const { Ottoman, Schema, Query, SearchConsistency } = require('ottoman')

const CONSISTENT = { consistency: SearchConsistency.LOCAL }
const ottoman = new Ottoman({ collectionName: '_default', consistency: SearchConsistency.LOCAL })
let User, Post

function models() {
  const address = new Schema({ city: String, zip: Number })
  const user = new Schema({
    name: { type: String, required: true },
    email: String,
    age: { type: Number, min: 0 },
    active: { type: Boolean, default: true },
    tags: [String],
    address,
  }, { timestamps: true })
  user.index.findByEmail = { by: 'email', type: 'n1ql' }
  user.index.findByCityAndAge = { by: ['address.city', 'age'], type: 'n1ql' }
  user.index.findByName = { by: 'name', options: { limit: 5 }, type: 'n1ql' }
  user.methods.label = function () { return `${this.name} <${this.email}>` }
  User = ottoman.model('User', user)
  const post = new Schema({ title: String, author: { type: user, ref: 'User' }, likes: Number })
  Post = ottoman.model('Post', post)
}

const steps = {
  async connect() {
    await ottoman.connect({
      connectionString: process.env.ORIBI_CONNSTR,
      bucketName: 'default',
      username: process.env.ORIBI_USER,
      password: process.env.ORIBI_PASSWORD,
    })
    models()
  },

  // Creates the indexes deferred, builds them, and watches until they are online.
  async start() {
    await ottoman.start()
    const rows = (await ottoman.query("SELECT name, state FROM system:indexes WHERE keyspace_id = 'default' ORDER BY name")).rows
    assert.ok(rows.length >= 3, JSON.stringify(rows))
    assert.ok(rows.every((row) => row.state === 'online'), JSON.stringify(rows))
    // A second start finds what there is.
    await ottoman.ensureIndexes()
  },

  async documents() {
    const ada = await User.create({ name: 'Ada', email: 'ada@example.com', age: 36, tags: ['maths', 'poetry'], address: { city: 'London', zip: 1 } })
    assert.strictEqual(ada.label(), 'Ada <ada@example.com>')
    await User.createMany([
      { name: 'Grace', email: 'grace@example.com', age: 85, tags: ['navy'], address: { city: 'New York', zip: 2 } },
      { name: 'Alan', email: 'alan@example.com', age: 41, tags: ['maths'], address: { city: 'London', zip: 3 } },
      { name: 'Barbara', email: 'barbara@example.com', age: 80, active: false, address: { city: 'Boston', zip: 4 } },
    ])
    assert.strictEqual((await User.findById(ada.id)).name, 'Ada')
    await assert.rejects(User.create({ email: 'nameless@example.com' }), /required/)
  },

  async find() {
    const names = async (filter, options) => (await User.find(filter, { sort: { name: 'ASC' }, ...CONSISTENT, ...options })).rows.map((row) => row.name)
    assert.deepStrictEqual(await names({}), ['Ada', 'Alan', 'Barbara', 'Grace'])
    assert.deepStrictEqual(await names({ age: { $gt: 41 } }), ['Barbara', 'Grace'])
    assert.deepStrictEqual(await names({ $or: [{ 'address.city': 'Boston' }, { age: { $lte: 36 } }] }), ['Ada', 'Barbara'])
    assert.deepStrictEqual(await names({ $and: [{ 'address.city': 'London' }, { $not: [{ name: 'Ada' }] }] }), ['Alan'])
    assert.deepStrictEqual(await names({ name: { $like: '%a%' } }), ['Ada', 'Alan', 'Barbara', 'Grace'])
    assert.deepStrictEqual(await names({ name: { $in: ['Ada', 'Grace', 'x'] } }), ['Ada', 'Grace'])
    assert.deepStrictEqual(await names({ $any: { $expr: [{ t: { $in: 'tags' } }], $satisfies: { t: 'maths' } } }), ['Ada', 'Alan'])
    assert.deepStrictEqual(await names({ active: false }), ['Barbara'])
    assert.deepStrictEqual(await names({ tags: { $isMissing: true } }), ['Barbara'])
    assert.deepStrictEqual(await names({}, { limit: 2, skip: 1 }), ['Alan', 'Barbara'])
    assert.deepStrictEqual(await names({}, { sort: { age: 'DESC' } }), ['Grace', 'Barbara', 'Alan', 'Ada'])
    const lean = await User.find({ name: 'Ada' }, { select: 'name, age', lean: true, ...CONSISTENT })
    assert.deepStrictEqual(lean.rows.map(({ name, age }) => ({ name, age })), [{ name: 'Ada', age: 36 }])
    assert.strictEqual((await User.findOne({ name: 'Grace' }, CONSISTENT)).age, 85)
    assert.strictEqual(await User.count({ 'address.city': 'London' }), 2)
    await assert.rejects(User.findOne({ name: 'nobody' }, CONSISTENT))
  },

  async 'index-finders'() {
    assert.deepStrictEqual((await User.findByEmail('alan@example.com', CONSISTENT)).rows.map((row) => row.name), ['Alan'])
    assert.deepStrictEqual((await User.findByCityAndAge(['London', 36], CONSISTENT)).rows.map((row) => row.name), ['Ada'])
  },

  async references() {
    const ada = await User.findOne({ name: 'Ada' }, CONSISTENT)
    const post = await Post.create({ title: 'Notes', author: ada.id, likes: 3 })
    const plain = await Post.findById(post.id)
    assert.strictEqual(plain.author, ada.id)
    const populated = await Post.findById(post.id, { populate: 'author' })
    assert.strictEqual(populated.author.name, 'Ada')
    const found = await Post.find({ title: 'Notes' }, { populate: ['author'], ...CONSISTENT })
    assert.strictEqual(found.rows[0].author.email, 'ada@example.com')
  },

  async builder() {
    const statement = new Query({}, 'default')
      .select([{ $field: 'address.city' }, { $count: { $field: '*', as: 'amount' } }])
      .where({ _type: 'User' })
      .groupBy([{ expr: 'address.city', as: 'city' }])
      .having({ 'address.city': { $isNotNull: true } })
      .build()
    assert.ok(statement.startsWith('SELECT'), statement)
    const written = "SELECT city, COUNT(*) AS amount, MAX(age) AS oldest FROM `default` u LET city = u.address.city " +
      "WHERE u._type = 'User' GROUP BY city LETTING most = COUNT(*) HAVING most > 1 ORDER BY city"
    const rows = (await ottoman.query(written, { scanConsistency: 'request_plus' })).rows
    assert.deepStrictEqual(rows, [{ city: 'London', amount: 2, oldest: 41 }])
  },

  async 'many-changes'() {
    const updated = await User.updateMany({ 'address.city': 'London' }, { active: false }, CONSISTENT)
    assert.strictEqual(updated.message.success, 2)
    assert.strictEqual(await User.count({ active: false }), 3)
    const removed = await User.removeMany({ age: { $gte: 80 } }, CONSISTENT)
    assert.strictEqual(removed.message.success, 2)
    assert.strictEqual(await User.count({}), 2)
  },
}

async function main() {
  for (const [name, step] of Object.entries(steps)) {
    console.log(`BEGIN ${name}`)
    try {
      await step()
      console.log(`PASS ${name}`)
    } catch (failure) {
      console.error(failure)
      console.log(`FAIL ${name} ${String(failure).replace(/\s+/g, ' ').slice(0, 300)}`)
      if (name === 'connect') break
    }
  }
  await ottoman.close()
  process.exit(0)
}

main()
