//! Buckets with replicas on three nodes, which agree through a real etcd: nodes are killed, stopped
//! in order and come back. Without etcd these tests are skipped, and say so.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use oribi_client::{Client, ConnectOptions, KvNode, WriteOptions};
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{
    EtcdServer, PATIENCE, RawConnection, ServerOptions, ServerProcess, TcpProxy, poll_until,
};
use oribi_types::DurabilityLevel;
use serde_json::Value;
use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");
pub(crate) const BUCKET: &str = "copied";
pub(crate) const VBUCKETS: usize = 16;
/// Little, and enough for a machine that is busy.
const TIMES: ClusterTimes = ClusterTimes { lease_s: 4, failover_ms: 2000 };

/// Settings of a cluster's nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterTimes {
    pub(crate) lease_s: u64,
    pub(crate) failover_ms: u64,
}

pub(crate) struct Cluster {
    times: ClusterTimes,
    etcd: EtcdServer,
    /// What the nodes reach etcd through, if a test cuts it.
    pub(crate) etcd_link: Option<TcpProxy>,
    directory: TempDir,
    pub(crate) nodes: Vec<ServerProcess>,
}

impl Cluster {
    pub(crate) fn start() -> Option<Cluster> {
        Cluster::start_with(&["one", "two", "three"])
    }

    pub(crate) fn start_with(names: &[&str]) -> Option<Cluster> {
        Cluster::start_timed(names, TIMES)
    }

    pub(crate) fn start_timed(names: &[&str], times: ClusterTimes) -> Option<Cluster> {
        let etcd = EtcdServer::start_for_test()?;
        let directory = tempfile::tempdir().unwrap();
        let mut secret = std::fs::OpenOptions::new();
        let secret = secret.write(true).create_new(true).mode(0o600);
        let mut secret = secret.open(directory.path().join("secret")).unwrap();
        std::io::Write::write_all(&mut secret, &[b'x'; 40]).unwrap();
        let mut cluster = Cluster { times, etcd, etcd_link: None, directory, nodes: Vec::new() };
        names.iter().for_each(|name| cluster.add(name));
        Some(cluster)
    }

    /// A cluster without nodes, whose etcd can be cut off.
    pub(crate) fn start_linked() -> Option<Cluster> {
        let mut cluster = Cluster::start_with(&[])?;
        cluster.etcd_link = Some(TcpProxy::start(cluster.etcd.port()).unwrap());
        Some(cluster)
    }

    /// The data directory of a node.
    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.directory.path().join(name).join("data")
    }

    /// Starts another node of this name, and waits until it listens.
    pub(crate) fn add(&mut self, name: &str) {
        let node = ServerProcess::start(self.options(name)).unwrap();
        self.nodes.push(node);
    }

    fn options(&self, name: &str) -> ServerOptions {
        let etcd = match &self.etcd_link {
            Some(link) => format!("http://127.0.0.1:{}", link.port()),
            None => self.etcd.url(),
        };
        ServerOptions::new(ORIBI, self.data_dir(name))
            .setting("cluster-etcd", etcd)
            .setting("cluster-lease-s", self.times.lease_s)
            .setting("cluster-failover-ms", self.times.failover_ms)
            .setting("cluster-secret-file", self.directory.path().join("secret").display())
            .setting("node-name", name)
            .setting("memory-quota-mib", 256)
    }

    pub(crate) fn http(&self, at: usize) -> HttpClient {
        HttpClient::new(self.nodes[at].admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
    }

    /// Waits until all nodes form a cluster.
    #[track_caller]
    pub(crate) fn wait_for_nodes(&self) {
        let is_formed = || {
            let services = self.http(0).get("/pools/default/nodeServices").ok()?.json().ok()?;
            (services["nodesExt"].as_array()?.len() == self.nodes.len()).then_some(())
        };
        self.wait("all nodes form a cluster", is_formed);
    }

    /// Creates the bucket on the first node, once all form a cluster.
    pub(crate) fn create(&self, replicas: usize) {
        self.wait_for_nodes();
        let (vbuckets, replicas) = (VBUCKETS.to_string(), replicas.to_string());
        let form = [
            ("name", BUCKET),
            ("ramQuotaMB", "128"),
            ("numVBuckets", &vbuckets),
            ("replicaNumber", &replicas),
        ];
        let answer = self.http(0).post_form("/pools/default/buckets", &form).unwrap();
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        match poll_until(PATIENCE, condition) {
            Some(done) => done,
            None => panic!("no end of the wait: {what}\n{}", self.outputs()),
        }
    }

    pub(crate) fn outputs(&self) -> String {
        let outputs: Vec<String> = self.nodes.iter().map(ServerProcess::output).collect();
        outputs.join("\n---\n")
    }

    /// Ports of each vbucket's copies as a node shows them, if each has an active one and all of
    /// its replicas.
    pub(crate) fn chains(&self, at: usize) -> Option<Vec<Vec<u16>>> {
        let map = self.map(at)?;
        let ports: Vec<u16> = map["serverList"]
            .as_array()?
            .iter()
            .map(|server| server.as_str()?.rsplit(':').next()?.parse().ok())
            .collect::<Option<_>>()?;
        let chain = |chain: &Value| -> Option<Vec<u16>> {
            let places = chain.as_array()?.iter();
            places.map(|at| ports.get(usize::try_from(at.as_i64()?).ok()?).copied()).collect()
        };
        map["vBucketMap"].as_array()?.iter().map(chain).collect()
    }

    fn map(&self, at: usize) -> Option<Value> {
        let path = format!("/pools/default/buckets/{BUCKET}");
        let bucket = self.http(at).get(&path).ok()?.json().ok()?;
        Some(bucket["vBucketServerMap"].clone())
    }

    /// Waits until every vbucket has its copies and all are equal.
    #[track_caller]
    pub(crate) fn wait_for_copies(&self, replicas: usize) {
        self.wait("all copies are equal", || {
            let chains = self.chains(0)?;
            let seqnos: BTreeMap<u16, BTreeMap<String, String>> = self
                .nodes
                .iter()
                .map(|node| Some((node.port(), seqnos(node)?)))
                .collect::<Option<_>>()?;
            let is_equal = |(vbucket, chain): (usize, &Vec<u16>)| {
                let high = |port: &u16| seqnos.get(port)?.get(&format!("vb_{vbucket}:high_seqno"));
                let active = high(&chain[0]);
                let is_whole = chain.len() == replicas + 1 && active.is_some();
                is_whole && chain.iter().all(|port| high(port) == active)
            };
            let is_done = chains.len() == VBUCKETS && chains.iter().enumerate().all(is_equal);
            is_done.then_some(())
        });
    }

    /// Waits until the cluster knows that every copy is there and up to date: only such a copy is
    /// promoted by itself.
    #[track_caller]
    pub(crate) fn wait_for_reports(&self) {
        self.wait("all copies have reported", || {
            let status = self.http(0).get("/node/cluster").ok()?.json().ok()?;
            let bucket = status["buckets"].as_array()?.first()?;
            (bucket["missing"] == 0 && bucket["behind"] == 0).then_some(())
        });
    }

    /// In planned changes no copy has what its active copy has not.
    #[track_caller]
    pub(crate) fn assert_nothing_copied_afresh(&self) {
        let outputs = self.outputs();
        assert!(!outputs.contains("copied afresh"), "{outputs}");
    }

    pub(crate) async fn client(&self, at: &[usize]) -> Client {
        let place = |at: &usize| KvNode::new("127.0.0.1".to_owned(), self.nodes[*at].port());
        let mut options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, BUCKET)
            .node(&place(&at[0]))
            .operation_timeout(PATIENCE);
        options.seeds = at.iter().map(place).collect();
        Client::connect(options).await.expect("a node answers")
    }
}

/// Figures of a node's vbuckets.
fn seqnos(node: &ServerProcess) -> Option<BTreeMap<String, String>> {
    let mut connection = RawConnection::connect(node.port()).ok()?;
    connection.hello(&[oribi_protocol::feature::Feature::SelectBucket]).ok()?;
    connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).ok()?;
    let selected = connection.select_bucket(BUCKET).ok()?;
    let stats = connection.stat("vbucket-seqno").ok().filter(|_| selected == Status::Success)?;
    Some(stats.into_iter().collect())
}

async fn write(client: &Client, prefix: &str, count: usize) {
    write_with(client, prefix, count, &WriteOptions::new()).await;
}

async fn write_with(client: &Client, prefix: &str, count: usize, options: &WriteOptions) {
    for number in 0..count {
        let (key, value) = (format!("{prefix}-{number}"), Bytes::from(number.to_string()));
        let collection = client.default_collection();
        client.upsert(collection, key.as_bytes(), value, options).await.unwrap();
    }
}

async fn check(client: &Client, prefix: &str, count: usize) {
    for number in 0..count {
        let key = format!("{prefix}-{number}");
        let found = client.get(client.default_collection(), key.as_bytes()).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{key} is gone"));
        assert_eq!(found.value, number.to_string(), "{key}");
    }
}

async fn survive_a_killed_node(replicas: usize) {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(replicas);
    cluster.wait_for_copies(replicas);
    let client = cluster.client(&[0, 1, 2]).await;
    write(&client, "before", 200).await;
    cluster.wait_for_copies(replicas);

    cluster.nodes[2].kill().unwrap();
    check(&client, "before", 200).await;
    write(&client, "during", 200).await;
    check(&client, "during", 200).await;

    cluster.nodes[2].restart().unwrap();
    cluster.wait_for_copies(replicas);
    check(&client, "before", 200).await;
    check(&client, "during", 200).await;
}

#[tokio::test]
async fn one_replica_survives_a_killed_node() {
    survive_a_killed_node(1).await;
}

#[tokio::test]
async fn two_replicas_survive_a_killed_node() {
    survive_a_killed_node(2).await;
}

#[tokio::test]
async fn a_node_that_stops_in_order_hands_over() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let client = cluster.client(&[0, 1, 2]).await;
    write(&client, "before", 200).await;
    assert!(cluster.nodes[1].terminate().unwrap().success(), "{}", cluster.nodes[1].output());
    check(&client, "before", 200).await;
    write(&client, "during", 200).await;
    cluster.nodes[1].restart().unwrap();
    cluster.wait_for_copies(1);
    check(&client, "before", 200).await;
    check(&client, "during", 200).await;
}

/// Writes until it is stopped. A write under way when its node stops may fail.
async fn keep_writing(client: Arc<Client>, name: usize, stops: Arc<AtomicBool>) -> usize {
    let mut count = 0;
    while !stops.load(Ordering::Relaxed) {
        let (key, value) = (format!("load-{name}-{}", count % 1000), Bytes::from(vec![b'x'; 400]));
        let collection = client.default_collection();
        let options = WriteOptions::new();
        let _ = client.upsert(collection, key.as_bytes(), value, &options).await;
        count += 1;
    }
    count
}

// Every change of the copies began another history, of which copies had a part by the stream of the
// one before: they were copied afresh, and durable writes were impossible until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_under_load_copies_nothing_afresh() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(2);
    cluster.wait_for_copies(2);
    let client = Arc::new(cluster.client(&[0, 1, 2]).await);
    write(&client, "before", 200).await;
    let stops = Arc::<AtomicBool>::default();
    let writer = |name| tokio::spawn(keep_writing(Arc::clone(&client), name, Arc::clone(&stops)));
    let writers: Vec<_> = (0..8).map(writer).collect();
    let stopped = tokio::task::block_in_place(|| cluster.nodes[2].terminate().unwrap());
    assert!(stopped.success(), "{}", cluster.nodes[2].output());
    // The leader leaves the copies of the node out, and takes them in again.
    tokio::task::block_in_place(|| {
        cluster.wait("copies are left out", || {
            let status = cluster.http(0).get("/node/cluster").ok()?.json().ok()?;
            let mut nodes = status["nodes"].as_array()?.iter();
            let gone = nodes.find(|node| node["name"] == "three")?;
            (gone["active"] == 0 && gone["replicas"] == 0).then_some(())
        });
        cluster.nodes[2].restart().unwrap();
        cluster.wait_for_reports();
    });
    stops.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 0);
    }
    cluster.wait_for_copies(2);
    check(&client, "before", 200).await;
    cluster.assert_nothing_copied_afresh();
}

// A collection manager asks the nodes in turn.
#[test]
fn a_new_scope_is_listed_on_every_node() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let path = format!("/pools/default/buckets/{BUCKET}/scopes");
    for number in 0..12 {
        let name = format!("scope-{number}");
        let made = cluster.http(number % 3).post_form(&path, &[("name", name.as_str())]).unwrap();
        assert_eq!(made.status, 200, "{}", made.text());
        for at in 0..3 {
            let listed = cluster.http(at).get(&path).unwrap().text();
            assert!(listed.contains(&format!("\"{name}\"")), "{name} at {at}: {listed}");
        }
    }
}

#[tokio::test]
async fn a_bucket_dropped_during_absence_goes_later() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    cluster.nodes[2].kill().unwrap();
    let answer = cluster.http(0).delete(&format!("/pools/default/buckets/{BUCKET}")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    cluster.nodes[2].restart().unwrap();
    for at in 0..3 {
        let directory = cluster.nodes[at].data_dir().join("buckets").join(BUCKET);
        cluster.wait("the bucket is gone", || (!directory.exists()).then_some(()));
    }
}

/// How many vbuckets have their active copy on each node, by its port, as this one shows it.
fn shares(cluster: &Cluster, at: usize) -> BTreeMap<u16, usize> {
    let mut shares = BTreeMap::new();
    for chain in cluster.chains(at).expect("each vbucket has its copies") {
        *shares.entry(chain[0]).or_default() += 1;
    }
    shares
}

// Without replicas a bucket was the node's that was asked: clients of the others did not find it.
#[tokio::test]
async fn a_bucket_without_replicas_is_on_every_node() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(0);
    for at in 0..3 {
        let shares = shares(&cluster, at);
        assert_eq!(shares.values().sum::<usize>(), VBUCKETS, "{shares:?}");
        assert!(shares.len() == 3 && shares.values().all(|count| *count >= 5), "{shares:?}");
    }
    let client = cluster.client(&[1, 2]).await;
    let persisted = WriteOptions::new().durability(DurabilityLevel::PersistToMajority);
    write_with(&client, "before", 100, &persisted).await;

    // What a node has waits for it, and no failover is tried.
    cluster.nodes[0].kill().unwrap();
    cluster.wait("the cluster notices it", || {
        let status = cluster.http(1).get("/node/cluster").ok()?.json().ok()?;
        let bucket = &status["buckets"].as_array()?[0];
        let is_gone = bucket["served"].as_u64()? < VBUCKETS as u64;
        (is_gone && bucket["missing"].as_u64()? >= 5).then_some(())
    });
    cluster.nodes[0].restart().unwrap();
    check(&client, "before", 100).await;
    assert!(cluster.nodes[1].terminate().unwrap().success(), "{}", cluster.nodes[1].output());
    cluster.nodes[1].restart().unwrap();
    check(&client, "before", 100).await;
    write(&client, "after", 100).await;
    check(&client, "after", 100).await;
    let outputs = cluster.outputs();
    let waits = outputs.matches("they wait for its return").count();
    assert!(!outputs.contains("vbuckets wait\n") && waits <= 4, "{outputs}");
}

// The others opened a bucket, and put new collections in force, after the answer.
#[test]
fn an_answered_creation_is_on_every_node() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.wait_for_nodes();
    for number in 0..9 {
        let name = format!("bucket-{number}");
        let replicas = (number % 3).to_string();
        let form = [
            ("name", name.as_str()),
            ("ramQuotaMB", "100"),
            ("numVBuckets", "16"),
            ("replicaNumber", &replicas),
        ];
        let made = cluster.http(number % 3).post_form("/pools/default/buckets", &form).unwrap();
        assert_eq!(made.status, 202, "{}", made.text());
        let path = format!("/pools/default/buckets/{name}");
        let scope = [("name", "new")];
        let made = cluster.http(0).post_form(&format!("{path}/scopes"), &scope).unwrap();
        assert_eq!(made.status, 200, "{}", made.text());
        for at in 0..3 {
            let shown = cluster.http(at).get(&path).unwrap();
            assert_eq!(shown.status, 200, "{name} at {at}: {}", shown.text());
            assert_eq!(shown.json().unwrap()["collectionsManifestUid"], "1", "{name} at {at}");
        }
        // SDKs want this reason, whoever has the parts of the bucket.
        let flush = cluster.http(0).post_form(&format!("{path}/controller/doFlush"), &[]).unwrap();
        assert!(flush.text().contains("Flush is disabled"), "{}", flush.text());
        let gone = cluster.http(0).delete(&path).unwrap();
        assert_eq!(gone.status, 200, "{}", gone.text());
    }
}
