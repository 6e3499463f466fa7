// npm install @testcontainers/couchbase testcontainers couchbase
const { BucketDefinition, CouchbaseContainer, CouchbaseService } = require('@testcontainers/couchbase')
const { Wait } = require('testcontainers')
const { connect } = require('couchbase')

async function main() {
  const oribi = await new CouchbaseContainer('oribi:latest')
    .withEnvironment({ ORIBI_ADMIN_USER: 'ci', ORIBI_ADMIN_PASSWORD: 'secret-ci' })
    // This module waits for a line in the log that Couchbase's image writes.
    .withWaitStrategy(Wait.forHttp('/healthz', 8091))
    .withCredentials('ci', 'secret-ci')
    .withEnabledServices(CouchbaseService.KV, CouchbaseService.QUERY, CouchbaseService.INDEX)
    .withBucket(new BucketDefinition('shop'))
    .start()
  const cluster = await connect(oribi.getConnectionString(), { username: 'ci', password: 'secret-ci' })
  await cluster.bucket('shop').defaultCollection().upsert('order-1', { total: 12 })
  const { rows } = await cluster.query('SELECT RAW total FROM shop USE KEYS $1', { parameters: ['order-1'] })
  console.log('order-1:', rows[0])
  await cluster.close()
  await oribi.stop()
}

main()
