//! Nodes of one cluster, and what they say of it.

use std::path::PathBuf;

use bytes::Bytes;
use oribi_client::{Client, ConnectOptions, WriteOptions};
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{EtcdServer, KuduCluster, PATIENCE, RawConnection, ServerProcess, poll_until};
use oribi_types::DurabilityLevel;
use tempfile::TempDir;

use crate::{KUDU, LEASE_S, server};

/// What nodes may log at level WARN while others come and go.
const ALLOWED_WARNINGS: [&str; 8] = [
    "DEVELOPMENT MODE",
    "waiting for Kudu",
    "Kudu answers again",
    "the lease is over",
    "the cluster's state cannot be reached",
    "another node owns vbuckets",
    "vbuckets could not be taken over yet",
    "what another node owns was not written",
];

/// What the nodes of one test share.
pub struct Cluster {
    pub etcd: EtcdServer,
    kudu: &'static KuduCluster,
    database: &'static str,
    directory: TempDir,
}

impl Cluster {
    /// `None` when Kudu or etcd are missing.
    pub fn start(database: &'static str) -> Option<Cluster> {
        let etcd = EtcdServer::start_for_test()?;
        let kudu = KUDU.get()?;
        Some(Cluster { etcd, kudu, database, directory: tempfile::tempdir().unwrap() })
    }

    /// Starts a node that finds etcd at this port.
    pub fn node_at(&self, name: &str, etcd_port: u16, flush_interval_ms: u64) -> ServerProcess {
        let masters = self.kudu.master_addresses();
        let url = format!("kudu://{masters}/{}?tablets=2&replicas=1", self.database);
        let place: PathBuf = self.directory.path().join(name);
        let options = server(&place)
            .setting("storage", url)
            .setting("cluster-etcd", format!("http://127.0.0.1:{etcd_port}"))
            .setting("cluster-lease-s", LEASE_S)
            .setting("node-name", name)
            .setting("memory-quota-mib", 256)
            .setting("flush-interval-ms", flush_interval_ms);
        ServerProcess::start(options).unwrap()
    }

    /// Starts a node.
    pub fn node(&self, name: &str) -> ServerProcess {
        self.node_at(name, self.etcd.port(), 20)
    }
}

/// Waits until a node shows a map with so many vbuckets for each node, in order of their names.
#[track_caller]
pub fn wait_for_shares(node: &ServerProcess, expected: &[usize]) {
    let http =
        HttpClient::new(node.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let shown = || {
        let map = http.get("/pools/default/b/default").ok()?.json().ok()?;
        let nodes = map["nodesExt"].as_array()?.len();
        let owners = map["vBucketServerMap"]["vBucketMap"].as_array()?;
        let count = |node| owners.iter().filter(|chain| chain[0] == node).count();
        // A node that is alone and knows no cluster yet names no host.
        map["nodesExt"][0].get("hostname")?;
        Some((0..nodes).map(count).collect::<Vec<usize>>())
    };
    let is_so = || shown().filter(|shares| shares == expected);
    if poll_until(PATIENCE, is_so).is_none() {
        panic!("the map shows {:?} instead of {expected:?}:\n{}", shown(), node.output());
    }
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
    let seeds = nodes.iter().map(|node| ("127.0.0.1".to_owned(), node.port())).collect();
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    let port = nodes[0].port();
    let options = ConnectOptions { port, seeds, operation_timeout: PATIENCE, ..options };
    Client::connect(options).await.expect("a node answers")
}

/// Writes `count` documents `PREFIX-NUMBER`.
pub async fn write(client: &Client, prefix: &str, count: usize, value: &str, is_durable: bool) {
    let durability =
        if is_durable { DurabilityLevel::PersistToMajority } else { DurabilityLevel::None };
    let options = WriteOptions { durability, ..WriteOptions::default() };
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
