//! A rebalance of real nodes under load: no request fails, no acknowledged write is lost, and every
//! node has its share. Without etcd these tests are skipped, and say so.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use oribi_client::{Client, WriteOptions};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_types::DurabilityLevel;
use serde_json::Value;

use crate::copies::{Cluster, VBUCKETS};
use crate::fixture::ORIBI;

/// Of each writer: plain, and each level.
const LEVELS: [DurabilityLevel; 4] = [
    DurabilityLevel::None,
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnMaster,
    DurabilityLevel::PersistToMajority,
];

/// Clients that write and read until they are stopped.
struct Load {
    stops: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    writers: Vec<tokio::task::JoinHandle<Result<usize, String>>>,
}

impl Load {
    fn start(client: &Arc<Client>) -> Load {
        let (stops, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let writer = |level: &DurabilityLevel| {
            let shared = (Arc::clone(&stops), Arc::clone(&written));
            tokio::spawn(write(Arc::clone(client), *level, shared))
        };
        let writers = LEVELS.iter().map(writer).collect();
        Load { stops, written, writers }
    }

    /// Stops the clients; how many keys each level has. A request that failed fails the test.
    async fn stop(self, cluster: &Cluster) -> Vec<usize> {
        self.stops.store(true, Ordering::Relaxed);
        let mut counts = Vec::new();
        for writer in self.writers {
            match writer.await.unwrap() {
                Ok(count) => counts.push(count),
                Err(error) => panic!("{error}\n{}", cluster.outputs()),
            }
        }
        counts
    }
}

fn key(level: DurabilityLevel, number: usize) -> String {
    format!("{level:?}-{number}")
}

async fn write(
    client: Arc<Client>,
    level: DurabilityLevel,
    (stops, written): (Arc<AtomicBool>, Arc<AtomicUsize>),
) -> Result<usize, String> {
    let mut options = WriteOptions::new();
    options.durability = level;
    let mut count = 0;
    while !stops.load(Ordering::Relaxed) {
        let (key, collection) = (key(level, count), client.default_collection());
        let value = Bytes::from(key.clone().into_bytes());
        let done = client.upsert(collection, key.as_bytes(), value, &options).await;
        done.map_err(|error| format!("write of {key}: {error}"))?;
        let found = client.get(client.default_collection(), key.as_bytes()).await;
        let found = found.map_err(|error| format!("read of {key}: {error}"))?;
        if found.is_none_or(|found| found.value != key.as_bytes()) {
            return Err(format!("{key} was written and is not there"));
        }
        count += 1;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(count)
}

async fn check(client: &Client, counts: &[usize]) {
    for (level, count) in LEVELS.iter().zip(counts) {
        for number in 0..*count {
            let key = key(*level, number);
            let found = client.get(client.default_collection(), key.as_bytes()).await.unwrap();
            let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is gone"));
            assert_eq!(found.value, key.as_bytes(), "{key}");
        }
    }
}

/// Runs `oribi cluster rebalance`; the cluster's state at its end.
fn rebalance(cluster: &Cluster, arguments: &[&str]) -> Value {
    let node = &cluster.nodes[0];
    let host = format!("127.0.0.1:{}", node.port());
    // It follows a rebalance for as long as that takes, so one that never ends would hang the test.
    let output = Command::new("timeout")
        .args(["240", ORIBI])
        .args(["cluster", "rebalance", "--json", "--host", &host, "--user", DEVELOPMENT_USER])
        .args(arguments)
        .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{}", cluster.outputs());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn json(cluster: &Cluster, path: &str) -> Value {
    cluster.http(0).get(path).unwrap().json().unwrap()
}

/// The same by the routes of Couchbase's tools, away from the node named `removed`.
fn rebalance_over_http(cluster: &Cluster, removed: &str) {
    let pool = json(cluster, "/pools/default");
    let names = pool["nodes"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|node| node["otpNode"].as_str().unwrap()).collect();
    let removed = names.iter().find(|name| name.ends_with(removed)).unwrap();
    let ask = |known: &str| {
        let form = [("knownNodes", known), ("ejectedNodes", removed)];
        cluster.http(0).post_form("/controller/rebalance", &form).unwrap()
    };
    let mismatch = ask(names[0]);
    let body = mismatch.json().unwrap();
    assert_eq!((mismatch.status, &body["mismatch"]), (400, &1.into()));
    assert_eq!(body["message"], "the cluster has these nodes: one, three, two");
    let begun = ask(&names.join(","));
    assert_eq!(begun.status, 200, "{}", begun.text());
    assert!(begun.json().unwrap()["rebalance_id"].is_string());
    let mut has_run = false;
    cluster.wait("the rebalance ends", || {
        let task = &json(cluster, "/pools/default/tasks")[0];
        let is_running = task["status"] == "running";
        if is_running {
            let progress = task["progress"].as_f64().unwrap();
            assert!((0.0..=100.0).contains(&progress), "{task}");
        }
        has_run |= is_running;
        (has_run && !is_running).then_some(())
    });
    assert_eq!(json(cluster, "/pools/default/rebalanceProgress")["status"], "none");
}

/// Copies and active copies by the port of their node.
fn shares(cluster: &Cluster) -> BTreeMap<u16, (usize, usize)> {
    let chains = cluster.wait("the map has all copies", || cluster.chains(0));
    let mut shares = BTreeMap::new();
    for chain in chains {
        for (rank, port) in chain.into_iter().enumerate() {
            let share: &mut (usize, usize) = shares.entry(port).or_default();
            share.0 += 1;
            share.1 += usize::from(rank == 0);
        }
    }
    shares
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_node_gets_its_share_under_load() {
    let Some(mut cluster) = Cluster::start_with(&["one", "two"]) else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let client = Arc::new(cluster.client(&[0, 1]).await);
    let load = Load::start(&client);
    cluster.wait("documents are written", || {
        (load.written.load(Ordering::Relaxed) >= 200).then_some(())
    });
    cluster.add("three");
    cluster.wait_for_nodes();
    let state = tokio::task::block_in_place(|| rebalance(&cluster, &[]));
    let counts = load.stop(&cluster).await;
    assert_eq!(state["rebalance"]["left"], 0, "{state}");
    assert_eq!(state["balanced"], true, "{state}");
    cluster.wait_for_copies(1);
    for (port, (copies, active)) in shares(&cluster) {
        let third = 2 * VBUCKETS / 3;
        assert!((third..=third + 1).contains(&copies), "{port}: {copies} copies");
        assert!((VBUCKETS / 3..=VBUCKETS / 3 + 1).contains(&active), "{port}: {active} active");
    }
    check(&client, &counts).await;
    cluster.assert_nothing_copied_afresh();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_removed_under_load() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let client = Arc::new(cluster.client(&[0, 1]).await);
    let load = Load::start(&client);
    cluster.wait("documents are written", || {
        (load.written.load(Ordering::Relaxed) >= 200).then_some(())
    });
    tokio::task::block_in_place(|| rebalance_over_http(&cluster, "three"));
    let state = json(&cluster, "/node/cluster");
    let third = state["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "three");
    let third = third.unwrap();
    assert_eq!((&third["active"], &third["replicas"]), (&0.into(), &0.into()), "{state}");
    assert_eq!(third["membership"], "inactiveAdded");
    let pool = json(&cluster, "/pools/default");
    assert_eq!((&pool["rebalanceStatus"], &pool["balanced"]), (&"none".into(), &true.into()));
    let memberships: Vec<&str> = pool["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["clusterMembership"].as_str().unwrap())
        .collect();
    assert_eq!(memberships.iter().filter(|it| **it == "inactiveAdded").count(), 1, "{pool}");
    let counts = load.stop(&cluster).await;
    let port = cluster.nodes[2].port();
    cluster.wait("clients see two nodes with copies", || {
        (!shares(&cluster).contains_key(&port)).then_some(())
    });
    assert!(cluster.nodes[2].terminate().unwrap().success(), "{}", cluster.nodes[2].output());
    check(&client, &counts).await;
    cluster.assert_nothing_copied_afresh();
}
