// npm's memcached, which speaks the text protocol: memcached.js PORT
const { isDeepStrictEqual, promisify } = require('util')
const Memcached = require('memcached')

const cache = new Memcached(`127.0.0.1:${process.argv[2]}`, { timeout: 20000, retries: 0, maxValue: 64 << 20, maxKeySize: 250 })
const call = (name) => promisify(cache[name].bind(cache))
const [get, set, add, replace, append, prepend, del, gets, cas, incr, decr, touch, getMulti, version, stats] = ['get', 'set', 'add', 'replace',
  'append', 'prepend', 'del', 'gets', 'cas', 'incr', 'decr', 'touch', 'getMulti', 'version', 'stats'].map(call)
const pause = promisify(setTimeout)

function equal(found, expected) {
  if (!isDeepStrictEqual(found, expected)) {
    throw new Error(`${JSON.stringify(found).slice(0, 200)} instead of ${JSON.stringify(expected).slice(0, 200)}`)
  }
}

/** False instead of an error when a document is not stored. */
async function stored(promise) {
  return promise.catch((error) => { if (/not stored/i.test(error.message)) return false; throw error })
}

async function refused(promise) {
  const found = await promise.catch((error) => error)
  if (!(found instanceof Error)) throw new Error(`${found} instead of an error`)
}

async function gone(key) {
  const deadline = Date.now() + 30000
  while ((await get(key)) !== undefined) {
    if (Date.now() > deadline) throw new Error(`${key} does not expire`)
    await pause(50)
  }
}

const checks = {
  store: async () => {
    equal([await set('k', 'v', 0), await get('k'), await stored(add('k', 'w', 0)), await add('fresh', 'f', 0)], [true, 'v', false, true])
    equal([await stored(replace('none', 'w', 0)), await replace('k', 'b', 0), await append('k', 'c'), await prepend('k', 'a')], [false, true, true, true])
    equal([await get('k'), await get('none'), await del('k'), await del('k'), await get('k')], ['abc', undefined, true, false, undefined])
    await set('object', { n: [1, 2.5, null] }, 0)
    equal(await get('object'), { n: [1, 2.5, null] })
  },
  'multi-get': async () => {
    const keys = Array.from({ length: 300 }, (_, number) => `key-${number}`)
    await Promise.all(keys.map((key) => set(key, key, 0)))
    equal(await getMulti([...keys, 'none']), Object.fromEntries(keys.map((key) => [key, key])))
  },
  cas: async () => {
    await set('c', '1', 0)
    const found = await gets('c')
    equal([found.c, await cas('c', '2', found.cas, 0), await cas('c', '3', found.cas, 0), await get('c')], ['1', true, false, '2'])
  },
  counters: async () => {
    await set('n', 10, 0)
    equal([await incr('n', 5), await decr('n', 6), await decr('n', 100), await incr('none', 1)], [15, 9, 0, false])
  },
  expiry: async () => {
    await set('soon', 'v', 1)
    // A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    await set('touched', 'v', 1000)
    equal([await touch('touched', 1), await touch('none', 1)], [true, false])
    await gone('soon')
    await gone('touched')
  },
  large: async () => {
    const large = 'abcdefghi '.repeat(90000)
    equal([await set('large', large, 0), (await get('large')) === large], [true, true])
  },
  binary: async () => {
    // This client looks for the end of an answer line by line, so its values have no line ends here.
    const bytes = Buffer.from(Array.from({ length: 2048 }, (_, number) => number % 256).filter((byte) => byte !== 10 && byte !== 13))
    await set('binary', bytes, 0)
    equal((await get('binary')).equals(bytes), true)
    equal([await set('empty', '', 0), await get('empty')], [true, ''])
  },
  errors: async () => {
    await set('text', 'text', 0)
    await refused(incr('text', 1))
    equal([await set('k'.repeat(250), 'longest', 0), await get('text')], [true, 'text'])
    equal([(await version()).length, 'curr_items' in (await stats())[0]], [1, true])
  },
}

async function main() {
  let failed = false
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check()
      console.log('PASS', name)
    } catch (error) {
      failed = true
      console.log('FAIL', name, String(error.message || error).split('\n')[0])
    }
  }
  cache.end()
  process.exitCode = failed ? 1 : 0
}

main()
