//! Servers that die, fall silent and come back while rows are written, tokens that expire, requests
//! that are too large: against a real Kudu with three tablet servers and three replicas.
//!
//! Rows are inserted, not upserted, so that a write that is applied twice shows as a failed row.
//! What the C++ tool scans afterwards has to be exactly what was acknowledged.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use oribi_kudu::{
    Client, ClientBuilder, ColumnSchema, DataType, Error, HashPartition, RowError, Schema, Session,
    SessionError, SessionOptions, Table, TableCreator,
};
use oribi_testkit::{KuduCluster, KuduOptions, KuduServer};

/// Long enough for an election on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Rows between two flushes, each of which acknowledges all rows before it.
const ROWS_PER_FLUSH: i64 = 500;

fn schema() -> Schema {
    Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("value", DataType::Binary).nullable(true))
        .build()
        .unwrap()
}

async fn connect(cluster: &KuduCluster) -> Client {
    ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap().build().await.unwrap()
}

async fn create(client: &Client, name: &str, replicas: u32) -> Table {
    let creator = TableCreator::new(name, schema())
        .hash_partition(HashPartition::new(["key"], 4))
        .num_replicas(replicas);
    client.create_table(creator).await.unwrap()
}

/// The keys that the C++ tool finds in a table; a key that is there twice fails the test.
fn scan(cluster: &KuduCluster, table: &str) -> BTreeSet<i64> {
    let output = cluster
        .tool_stdout(&["table", "scan", &cluster.master_addresses(), table, "-columns=key"])
        .unwrap();
    let mut keys = BTreeSet::new();
    for line in output.lines().filter(|line| line.starts_with('(')) {
        let key = line.trim_end_matches(')').rsplit('=').next().unwrap().parse().unwrap();
        assert!(keys.insert(key), "key {key} is there twice");
    }
    keys
}

/// A writer that inserts the keys 0, 1, 2, ... until it is told to stop.
struct Load {
    acknowledged: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    writer: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(table: &Table) -> Load {
        let (acknowledged, stop) = (Arc::<AtomicI64>::default(), Arc::<AtomicBool>::default());
        let options = SessionOptions::new().timeout(PATIENCE);
        let mut session = Session::new(table, options);
        let (counter, flag) = (acknowledged.clone(), stop.clone());
        let writer = tokio::spawn(async move {
            let mut key = 0;
            while !flag.load(Ordering::Relaxed) {
                for _ in 0..ROWS_PER_FLUSH {
                    let mut row = session.insert();
                    row.set_i64(0, key).unwrap().set_binary(1, &key.to_be_bytes()).unwrap();
                    row.apply().await.unwrap();
                    key += 1;
                }
                if let Err(error) = session.flush().await {
                    panic!("{error}: {:?}", session.take_errors());
                }
                counter.store(key, Ordering::Release);
            }
        });
        Load { acknowledged, stop, writer }
    }

    /// Waits until as many flushes more are acknowledged.
    async fn progress(&self, flushes: i64) {
        let wanted = self.acknowledged.load(Ordering::Acquire) + flushes * ROWS_PER_FLUSH;
        let begin = Instant::now();
        while self.acknowledged.load(Ordering::Acquire) < wanted {
            assert!(begin.elapsed() < PATIENCE, "no progress");
            assert!(!self.writer.is_finished(), "the writer has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops the writer; returns the number of rows that were acknowledged.
    async fn finish(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.await.unwrap();
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_rows_survive_tablet_server_faults() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 3)) else { return };
    let client = connect(&cluster).await;
    let table = create(&client, "survivor", 3).await;
    let load = Load::start(&table);
    load.progress(5).await;
    for position in 0..2 {
        let server = KuduServer::TabletServer(position);
        cluster.kill(server).unwrap();
        load.progress(20).await;
        cluster.restart(server).unwrap();
        load.progress(5).await;
    }
    cluster.wait_healthy().unwrap();
    for position in [2, 0] {
        let server = KuduServer::TabletServer(position);
        cluster.pause(server).unwrap();
        load.progress(20).await;
        cluster.resume(server).unwrap();
        load.progress(5).await;
    }
    let acknowledged = load.finish().await;
    cluster.wait_healthy().unwrap();
    assert_eq!(scan(&cluster, "survivor"), (0..acknowledged).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_follows_the_leading_master() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(3, 1)) else { return };
    let client = connect(&cluster).await;
    for position in 0..3 {
        let master = KuduServer::Master(position);
        cluster.kill(master).unwrap();
        let name = format!("without_{position}");
        create(&client, &name, 1).await;
        assert!(client.table_exists(&name).await.unwrap());
        cluster.restart(master).unwrap();
        cluster.wait_healthy().unwrap();
    }
    for position in 0..3 {
        let master = KuduServer::Master(position);
        cluster.pause(master).unwrap();
        assert!(client.table_exists("without_0").await.unwrap());
        cluster.resume(master).unwrap();
        cluster.wait_healthy().unwrap();
    }
    assert_eq!(client.list_tables("without_").await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authz_tokens_are_renewed_during_writes() {
    let options = KuduOptions::new(1, 1)
        .master_flag("--authz_token_validity_seconds=1")
        .tablet_server_flag("--tserver_enforce_access_control=true");
    let Some(cluster) = KuduCluster::start_or_skip(options) else { return };
    let client = connect(&cluster).await;
    let table = create(&client, "guarded", 1).await;
    let load = Load::start(&table);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        load.progress(1).await;
    }
    let acknowledged = load.finish().await;
    assert_eq!(scan(&cluster, "guarded"), (0..acknowledged).collect());
}

// Compat (Apache Kudu): authentication: SASL PLAIN, tokens
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_tokens_are_renewed_for_new_connections() {
    let options = KuduOptions::new(1, 1)
        .flag("--rpc_encryption=required")
        .tablet_server_flag("--rpc_trace_negotiation=true")
        .flag("--rpc_authentication=optional")
        .master_flag("--authn_token_validity_seconds=2");
    let Some(cluster) = KuduCluster::start_or_skip(options) else { return };
    // A connection that is idle for a moment is closed, so that the next call needs a new one.
    let builder = ClientBuilder::from_addresses(&cluster.master_addresses())
        .unwrap()
        .keep_alive(Duration::from_millis(300));
    let client = builder.build().await.unwrap();
    let table = create(&client, "authenticated", 1).await;
    let mut session = Session::new(&table, SessionOptions::default());
    let mut interval = tokio::time::interval(Duration::from_millis(1500));
    for key in 0..4 {
        // Time has to pass, and the connections have to be idle that long: nothing to poll for.
        interval.tick().await;
        let mut row = session.insert();
        row.set_i64(0, key).unwrap();
        row.apply().await.unwrap();
        session.flush().await.unwrap();
    }
    // A cluster that let the client in by its name only would have tested nothing.
    let log = cluster.log(KuduServer::TabletServer(0));
    assert!(log.matches("Negotiated authn=TOKEN").count() >= 4, "{log}");
    assert_eq!(scan(&cluster, "authenticated"), (0..4).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_rows_fail_and_the_session_continues() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let client = connect(&cluster).await;
    let creator = TableCreator::new("large", schema()).num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let options =
        SessionOptions::new().buffer_bytes_max(80 << 20).flush_watermark(1.0).timeout(PATIENCE);
    let mut session = Session::new(&table, options.clone());
    // A cell that the client knows to be too large.
    let oversize = vec![7; (64 << 10) + 1];
    let error = session.insert().set_i64(0, -1).unwrap().set_binary(1, &oversize).err().unwrap();
    assert!(matches!(error, RowError::CellTooLarge { .. }), "{error}");
    // 51 MiB for one tablet, which no single request can carry.
    let rows = 51 * 16 + 1;
    for key in 0..rows {
        let mut row = session.insert();
        row.set_i64(0, key).unwrap().set_binary(1, &oversize[..64 << 10]).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    // A cell that only the server knows to be too large.
    let mut bold = Session::new(&table, options.cell_bytes_max(1 << 20));
    for (key, bytes) in [(rows, 10), (rows + 1, (64 << 10) + 1), (rows + 2, 10)] {
        let mut row = bold.insert();
        row.set_i64(0, key).unwrap().set_binary(1, &oversize[..bytes]).unwrap();
        row.apply().await.unwrap();
    }
    assert!(matches!(bold.flush().await, Err(SessionError::RowsFailed { failed_rows: 1, .. })));
    let errors = bold.take_errors();
    assert_eq!(errors.iter().next().unwrap().cell(0), Some(oribi_kudu::Value::Int64(rows + 1)));
    let mut row = bold.insert();
    row.set_i64(0, rows + 3).unwrap();
    row.apply().await.unwrap();
    bold.flush().await.unwrap();
    let expected: BTreeSet<i64> = (0..rows + 4).filter(|key| *key != rows + 1).collect();
    assert_eq!(scan(&cluster, "large"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_tablet_servers_times_out() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let client = connect(&cluster).await;
    let table = create(&client, "lost", 1).await;
    cluster.kill(KuduServer::TabletServer(0)).unwrap();
    let options = SessionOptions::new().timeout(Duration::from_millis(500));
    let mut session = Session::new(&table, options);
    let mut row = session.insert();
    row.set_i64(0, 1).unwrap();
    row.apply().await.unwrap();
    let begin = Instant::now();
    assert!(matches!(session.flush().await, Err(SessionError::RowsFailed { failed_rows: 1, .. })));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    cluster.kill(KuduServer::Master(0)).unwrap();
    let client = ClientBuilder::from_addresses(&cluster.master_addresses())
        .unwrap()
        .admin_timeout(Duration::from_millis(300))
        .build()
        .await;
    assert!(matches!(client, Err(Error::NoLeaderMaster { .. })));
}
