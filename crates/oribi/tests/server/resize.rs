//! Another number of replicas for a bucket in use, on three nodes that agree through a real etcd.
//! Without etcd these tests are skipped, and say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use oribi_client::{Client, WriteOptions};
use oribi_types::DurabilityLevel;
use serde_json::Value;

use crate::copies::{BUCKET, Cluster, VBUCKETS};
use crate::durable_copies::check;

const WRITERS: usize = 3;
/// Writes between two events of a test.
const WRITES: usize = 60;

/// Clients that write at majority until they are stopped.
struct Load {
    stops: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    writers: Vec<tokio::task::JoinHandle<WriteReport>>,
}

#[derive(Default)]
struct WriteReport {
    keys: Vec<String>,
    failures: Vec<String>,
}

async fn write(
    client: Arc<Client>,
    prefix: String,
    (stops, done): (Arc<AtomicBool>, Arc<AtomicUsize>),
) -> WriteReport {
    let options = WriteOptions::new().durability(DurabilityLevel::Majority);
    let mut written = WriteReport::default();
    for number in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let (key, collection) = (format!("{prefix}-{number}"), client.default_collection());
        let value = Bytes::from(key.clone().into_bytes());
        match client.upsert(collection, key.as_bytes(), value, &options).await {
            Ok(_) => written.keys.push(key),
            Err(error) => written.failures.push(format!("{key}: {error}")),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    written
}

impl Load {
    fn start(client: &Arc<Client>, name: &str) -> Load {
        let (stops, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let writer = |number| {
            let shared = (Arc::clone(&stops), Arc::clone(&done));
            tokio::spawn(write(Arc::clone(client), format!("{name}-{number}"), shared))
        };
        let writers = (0..WRITERS).map(writer).collect();
        Load { stops, done, writers }
    }

    fn wait_for_writes(&self, cluster: &Cluster) {
        let enough = self.done.load(Ordering::Relaxed) + WRITES;
        let has_written = || (self.done.load(Ordering::Relaxed) >= enough).then_some(());
        cluster.wait("clients write", has_written);
    }

    async fn stop(self) -> WriteReport {
        self.stops.store(true, Ordering::Relaxed);
        let mut all = WriteReport::default();
        for writer in self.writers {
            let WriteReport { keys, failures } = writer.await.unwrap();
            all.keys.extend(keys);
            all.failures.extend(failures);
        }
        all
    }
}

fn resize(cluster: &Cluster, at: usize, replicas: usize) {
    let path = format!("/pools/default/buckets/{BUCKET}");
    let form = [("replicaNumber", replicas.to_string())];
    let form = form.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer = cluster.http(at).post_form(&path, &form).unwrap();
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), cluster.outputs());
    for at in 0..cluster.nodes.len() {
        let shown: Value = cluster.http(at).get(&path).unwrap().json().unwrap();
        assert_eq!(shown["replicaNumber"], replicas, "on {at}");
    }
}

/// Waits until all nodes together have exactly these copies, and all of them are up to date.
fn wait_for_size(cluster: &Cluster, replicas: usize) {
    cluster.wait(&format!("all vbuckets have {replicas} replicas"), || {
        let status: Value = cluster.http(0).get("/node/cluster").ok()?.json().ok()?;
        let nodes = status["nodes"].as_array()?.iter();
        let copies = nodes.map(|node| Some(node["active"].as_u64()? + node["replicas"].as_u64()?));
        let copies = copies.sum::<Option<u64>>()?;
        let bucket = status["buckets"].as_array()?.first()?;
        let has_all_copies = bucket["missing"] == 0 && bucket["behind"] == 0;
        (has_all_copies && copies == (VBUCKETS * (replicas + 1)) as u64).then_some(())
    });
    cluster.wait("clients see them", || cluster.chains(0)).iter().for_each(|chain| {
        assert_eq!(chain.len(), replicas + 1, "{chain:?}");
    });
}

/// Changes the number under writes at majority, of which none fails.
async fn resize_under_load(
    cluster: &Cluster,
    (client, all): (&Arc<Client>, &mut Vec<String>),
    (at, replicas): (usize, usize),
) {
    let load = Load::start(client, &format!("to-{replicas}-{}", all.len()));
    tokio::task::block_in_place(|| {
        load.wait_for_writes(cluster);
        resize(cluster, at, replicas);
        wait_for_size(cluster, replicas);
        load.wait_for_writes(cluster);
    });
    let written = load.stop().await;
    assert!(written.failures.is_empty(), "{:?}\n{}", written.failures, cluster.outputs());
    all.extend(written.keys);
    check(cluster, client, all).await;
}

// The number stayed: another bucket had to be made, and the documents copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_replicas_changes_under_writes() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(0);
    wait_for_size(&cluster, 0);
    let client = Arc::new(cluster.client(&[0, 1]).await);
    let mut all = Vec::new();
    resize_under_load(&cluster, (&client, &mut all), (1, 1)).await;

    // A node is killed while the third copies are filled.
    let load = Load::start(&client, "killed");
    tokio::task::block_in_place(|| {
        load.wait_for_writes(&cluster);
        resize(&cluster, 0, 2);
        cluster.nodes[2].kill().unwrap();
        load.wait_for_writes(&cluster);
    });
    all.extend(load.stop().await.keys);
    check(&cluster, &client, &all).await;
    cluster.nodes[2].restart().unwrap();
    wait_for_size(&cluster, 2);
    check(&cluster, &client, &all).await;

    resize_under_load(&cluster, (&client, &mut all), (2, 0)).await;
    cluster.wait_for_copies(0);
    check(&cluster, &client, &all).await;
}

// Compat (Buckets over HTTP): `replicaNumber`
#[test]
fn numbers_that_are_not_possible_are_named() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(1);
    wait_for_size(&cluster, 1);
    // One more than the nodes can hold: three of four copies are a majority.
    resize(&cluster, 0, 3);
    cluster.wait("each vbucket has a copy on every node", || {
        let status: Value = cluster.http(0).get("/node/cluster").ok()?.json().ok()?;
        let bucket = status["buckets"].as_array()?.first()?;
        (bucket["missing"] == VBUCKETS && bucket["behind"] == 0).then_some(())
    });
    let memory = [("name", "memory"), ("ramQuotaMB", "100"), ("bucketType", "ephemeral")];
    let made = cluster.http(0).post_form("/pools/default/buckets", &memory).unwrap();
    assert_eq!(made.status, 202, "{}", made.text());
    for (bucket, replicas, says) in
        [(BUCKET, "4", "between 0 and 3"), ("memory", "1", "in memory has no replicas")]
    {
        let path = format!("/pools/default/buckets/{bucket}");
        let refused = cluster.http(0).post_form(&path, &[("replicaNumber", replicas)]).unwrap();
        let message = refused.json().unwrap()["errors"]["replicaNumber"].clone();
        assert_eq!(refused.status, 400, "{message}");
        assert!(message.as_str().unwrap().contains(says), "{message}");
    }
    // Client libraries send the present number with every change.
    let path = "/pools/default/buckets/memory";
    let same = cluster.http(0).post_form(path, &[("replicaNumber", "0")]).unwrap();
    assert_eq!(same.status, 200, "{}", same.text());
}
