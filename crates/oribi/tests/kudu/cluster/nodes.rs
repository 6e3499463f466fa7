//! Nodes of one cluster, and what they say of it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use oribi_client::{Client, ConnectOptions, KvNode, WriteOptions};
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{
    EtcdServer, Host, KuduCluster, KuduOptions, Network, PATIENCE, RawConnection, ServerOptions,
    ServerProcess, poll_until,
};
use oribi_types::DurabilityLevel;
use tempfile::TempDir;

use crate::cluster::{KUDU, LEASE_S, ORIBI, server};

/// Log lines at level WARN that are allowed while nodes come and go.
const ALLOWED_WARNINGS: [&str; 9] = [
    "DEVELOPMENT MODE",
    "waiting for Kudu",
    "Kudu answers again",
    "the lease is over",
    "the cluster's state cannot be reached",
    "another node owns vbuckets",
    "vbuckets could not be taken over yet",
    "the store cannot be reached; other nodes may take over",
    "what another node owns was not written",
];

/// Resources that the nodes of one test share.
pub struct Cluster {
    pub etcd: EtcdServer,
    masters: String,
    /// When it is not the one that all tests share.
    _own_kudu: Option<KuduCluster>,
    database: &'static str,
    directory: TempDir,
}

impl Cluster {
    /// `None` when Kudu or etcd are missing.
    pub fn start(database: &'static str) -> Option<Cluster> {
        let etcd = EtcdServer::start_for_test()?;
        let masters = KUDU.get()?.master_addresses();
        let directory = tempfile::tempdir().unwrap();
        Some(Cluster { etcd, masters, _own_kudu: None, database, directory })
    }

    /// As `start`, with Kudu and etcd where hosts of the test's network reach them.
    pub fn start_isolated(database: &'static str) -> Option<Cluster> {
        let etcd = EtcdServer::start_for_test_at(Network::REGISTRY, None)?;
        let kudu = KuduCluster::start_or_skip(KuduOptions::new(1, 1).at(Network::STORE))?;
        let (masters, directory) = (kudu.master_addresses(), tempfile::tempdir().unwrap());
        Some(Cluster { etcd, masters, _own_kudu: Some(kudu), database, directory })
    }

    /// Starts a node on its own host.
    pub fn node_on(&self, host: &Host, name: &str, flush_interval_ms: u64) -> ServerProcess {
        let data_dir = self.directory.path().join(name).join("data");
        // Development mode is for the loopback interface.
        let added = Command::new(ORIBI)
            .args(["user", "add", DEVELOPMENT_USER, "--role", "admin", "--data-dir"])
            .arg(data_dir)
            .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
            .output()
            .unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        ServerProcess::start(self.options(name, &self.etcd.url(), flush_interval_ms).on_host(host))
            .unwrap()
    }

    /// Starts a node that finds etcd at this port.
    pub fn node_at(&self, name: &str, etcd_port: u16, flush_interval_ms: u64) -> ServerProcess {
        let etcd = format!("http://127.0.0.1:{etcd_port}");
        ServerProcess::start(self.options(name, &etcd, flush_interval_ms)).unwrap()
    }

    fn options(&self, name: &str, etcd: &str, flush_interval_ms: u64) -> ServerOptions {
        let url = format!("kudu://{}/{}?tablets=2&replicas=1", self.masters, self.database);
        let place: PathBuf = self.directory.path().join(name);
        server(&place)
            .setting("storage", url)
            .setting("cluster-etcd", etcd)
            .setting("cluster-lease-s", LEASE_S)
            .setting("node-name", name)
            .setting("memory-quota-mib", 256)
            .setting("flush-interval-ms", flush_interval_ms)
    }

    pub fn node(&self, name: &str) -> ServerProcess {
        self.node_at(name, self.etcd.port(), 20)
    }
}

/// Waits until a node shows a map with so many vbuckets for each node, in order of their names.
#[track_caller]
pub fn wait_for_shares(node: &ServerProcess, expected: &[usize]) {
    let is_so = || shares(node).filter(|shares| shares == expected);
    if poll_until(PATIENCE, is_so).is_none() {
        panic!("the map shows {:?} instead of {expected:?}:\n{}", shares(node), node.output());
    }
}

/// Numbers of vbuckets of each node in the map that a node shows.
pub fn shares(node: &ServerProcess) -> Option<Vec<usize>> {
    let http = HttpClient::new(node.admin_port())
        .at(node.host())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let map = http.get("/pools/default/b/default").ok()?.json().ok()?;
    let nodes = map["nodesExt"].as_array()?.len();
    let owners = map["vBucketServerMap"]["vBucketMap"].as_array()?;
    let count = |node| owners.iter().filter(|chain| chain[0] == node).count();
    // A node that is alone and knows no cluster yet names no host.
    map["nodesExt"][0].get("hostname")?;
    Some((0..nodes).map(count).collect())
}

/// Waits until a node has documents in memory, which only an owner has.
#[track_caller]
pub fn wait_for_items(node: &ServerProcess) -> u64 {
    let items = || {
        let stats = RawConnection::login(node.port()).ok()?.stat("").ok()?;
        let (_, items) = stats.into_iter().find(|(name, _)| name == "curr_items")?;
        items.parse().ok().filter(|items| *items > 0)
    };
    poll_until(PATIENCE, items).expect("the node has documents")
}

pub async fn client(nodes: &[&ServerProcess]) -> Client {
    client_with(nodes, PATIENCE).await
}

/// A client that gives each operation so much time.
pub async fn client_with(nodes: &[&ServerProcess], operation_timeout: Duration) -> Client {
    let place = |node: &&ServerProcess| KvNode::new(node.host().to_string(), node.port());
    let mut options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default")
        .node(&place(&nodes[0]))
        .operation_timeout(operation_timeout);
    options.seeds = nodes.iter().map(place).collect();
    Client::connect(options).await.expect("a node answers")
}

/// Writes `count` documents `PREFIX-NUMBER`.
pub async fn write(client: &Client, prefix: &str, count: usize, value: &str, is_durable: bool) {
    let durability =
        if is_durable { DurabilityLevel::PersistToMajority } else { DurabilityLevel::None };
    let options = WriteOptions::new().durability(durability);
    for number in 0..count {
        let key = format!("{prefix}-{number}");
        let value = Bytes::copy_from_slice(value.as_bytes());
        let collection = client.default_collection();
        client.upsert(collection, key.as_bytes(), value, &options).await.unwrap();
    }
}

/// Reads them all and compares.
pub async fn check(client: &Client, prefix: &str, count: usize, value: &str) {
    for number in 0..count {
        let key = format!("{prefix}-{number}");
        let found = client.get(client.default_collection(), key.as_bytes()).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{key} is gone"));
        assert_eq!(found.value, value, "{key}");
    }
}

#[track_caller]
pub fn assert_quiet(nodes: &[&ServerProcess]) {
    nodes.iter().for_each(|node| node.assert_no_unlisted_warnings(&ALLOWED_WARNINGS));
}
