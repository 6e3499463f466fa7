// npm install testcontainers couchbase
const { GenericContainer, Wait } = require('testcontainers')
const { connect } = require('couchbase')

async function main() {
  const oribi = await new GenericContainer('oribi:latest')
    .withEnvironment({ ORIBI_ADMIN_USER: 'ci', ORIBI_ADMIN_PASSWORD: 'secret-ci', ORIBI_INIT: '/init.toml' })
    .withCopyFilesToContainer([{ source: 'init.toml', target: '/init.toml' }])
    .withExposedPorts(11210, 8091)
    .withWaitStrategy(Wait.forHttp('/healthz', 8091))
    .start()
  const [host, kv, mgmt] = [oribi.getHost(), oribi.getMappedPort(11210), oribi.getMappedPort(8091)]
  await fetch(`http://${host}:${mgmt}/node/controller/setupAlternateAddresses/external`, {
    method: 'PUT',
    headers: { Authorization: `Basic ${btoa('ci:secret-ci')}` },
    body: new URLSearchParams({ hostname: host, kv, mgmt }),
  })
  const cluster = await connect(`couchbase://${host}:${kv}`, { username: 'app', password: 'secret-app' })
  const orders = cluster.bucket('shop').scope('eu').collection('orders')
  console.log('order-1:', (await orders.get('order-1')).content.total)
  await cluster.close()
  await oribi.stop()
}

main()
