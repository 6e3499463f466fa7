// npm install couchbase
const couchbase = require('couchbase')

async function main() {
  const address = process.env.ORIBI_CONNSTR ?? 'couchbase://127.0.0.1'
  const cluster = await couchbase.connect(address, { username: 'Administrator', password: 'password' })
  const documents = cluster.bucket('default').defaultCollection()

  await documents.upsert('greeting', { text: 'Hello from Node.js' })
  console.log((await documents.get('greeting')).content.text)
  await cluster.close()
}

main()
