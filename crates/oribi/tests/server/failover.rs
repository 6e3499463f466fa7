//! Failover without a lease: nodes suspect each other by their beacons. The lease is longer than
//! any wait here, so only grants let another copy serve. Times are printed. Without etcd these
//! tests are skipped, and say so.

use std::time::{Duration, Instant};

use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::{RawConnection, Request};
use oribi_types::Vbid;

use crate::copies::{Cluster, ClusterTimes, VBUCKETS};
use crate::durable_copies::{connection, key_of};

const LEASE_S: u64 = 600;
const NAMES: [&str; 3] = ["one", "two", "three"];

fn start(failover_ms: u64, replicas: usize) -> Option<Cluster> {
    let cluster = Cluster::start_timed(&NAMES, ClusterTimes { lease_s: LEASE_S, failover_ms })?;
    cluster.create(replicas);
    cluster.wait_for_copies(replicas);
    cluster.wait_for_reports();
    Some(cluster)
}

/// One key of each vbucket.
fn keys() -> Vec<(String, Vbid)> {
    let of = |vbid: u16| {
        let keys = (0..).map(|number: u32| format!("key-{number}"));
        let is_of = |key: &String| vbucket_of(key.as_bytes(), VBUCKETS as u16) == Vbid(vbid);
        (keys.into_iter().find(is_of).expect("some key is of it"), Vbid(vbid))
    };
    (0..VBUCKETS as u16).map(of).collect()
}

/// Writes a key on whichever of these nodes takes it.
fn write(nodes: &mut [RawConnection], (key, vbid): &(String, Vbid), value: &str) -> Option<()> {
    let request = Request::set(key, value).vbucket(*vbid);
    let takes = |node: &mut RawConnection| node.call(&request).unwrap().status() == Status::Success;
    nodes.iter_mut().any(takes).then_some(())
}

/// Kills a node; returns after how long the others took writes of every vbucket.
fn fail_over(cluster: &mut Cluster, victim: usize) -> Duration {
    let others = (0..NAMES.len()).filter(|at| *at != victim);
    let mut others: Vec<RawConnection> = others.map(|at| connection(cluster, at)).collect();
    let begun = Instant::now();
    cluster.nodes[victim].kill().unwrap();
    for key in keys() {
        cluster.wait("the others serve the vbucket", || write(&mut others, &key, "after"));
    }
    begun.elapsed()
}

/// The first node leads: it started before the others.
fn survive(failover_ms: u64, replicas: usize, victim: usize) {
    let Some(mut cluster) = start(failover_ms, replicas) else { return };
    let mut all: Vec<RawConnection> = (0..NAMES.len()).map(|at| connection(&cluster, at)).collect();
    for key in keys() {
        cluster.wait("a vbucket is served", || write(&mut all, &key, "before"));
    }
    cluster.wait_for_copies(replicas);
    let took = fail_over(&mut cluster, victim);
    let who = if victim == 0 { "the leader" } else { "another node" };
    println!(
        "failover of {who} after kill -9: {} ms (suspicion {failover_ms} ms, {replicas} replicas)",
        took.as_millis()
    );
}

#[test]
fn a_killed_leader_is_failed_over_within_its_lease() {
    survive(500, 1, 0);
}

#[test]
fn a_killed_node_is_failed_over_within_its_lease() {
    survive(500, 1, 2);
}

#[test]
fn two_replicas_elect_the_next_active_copy() {
    survive(500, 2, 0);
}

#[test]
fn the_default_suspicion_fails_over_within_a_lease() {
    survive(2000, 1, 0);
}

// The requests of clients were in its sockets while it was stopped, and others served since.
#[test]
fn a_paused_node_answers_nothing_stale() {
    let Some(cluster) = start(500, 1) else { return };
    let place = key_of(&cluster, 0, 1);
    let (key, vbid) = &place;
    let mut own: Vec<RawConnection> = (0..4).map(|_| connection(&cluster, 0)).collect();
    let mut other = vec![connection(&cluster, 1)];
    cluster.wait("the first write is done", || write(&mut own[..1], &place, "old"));
    cluster.wait_for_copies(1);
    cluster.nodes[0].pause().unwrap();
    let paused = Instant::now();
    cluster.wait("the replica is promoted", || write(&mut other, &place, "new"));
    println!("failover of a paused node: {} ms (suspicion 500 ms)", paused.elapsed().as_millis());
    for connection in &mut own {
        connection.send(&Request::get(key).vbucket(*vbid)).unwrap();
    }
    cluster.nodes[0].resume().unwrap();
    for connection in &mut own {
        // The node may close the connection instead.
        if let Ok(answer) = connection.receive() {
            assert_eq!(answer.status(), Status::NotMyVbucket, "{}", answer.text());
        }
    }
    let got = other[0].call(&Request::get(key).vbucket(*vbid)).unwrap();
    assert_eq!((got.status(), got.text()), (Status::Success, "new".to_owned()));
}

#[test]
fn the_death_of_a_replica_stalls_nothing_for_long() {
    for failover_ms in [500, 2000] {
        let Some(mut cluster) = start(failover_ms, 1) else { return };
        let place = key_of(&cluster, 0, 2);
        let mut own = vec![connection(&cluster, 0)];
        cluster.wait("the first write is done", || write(&mut own, &place, "0"));
        let mut longest = Duration::ZERO;
        cluster.nodes[2].kill().unwrap();
        let begun = Instant::now();
        // Longer than any grant that the replica's node gave.
        while begun.elapsed() < Duration::from_millis(failover_ms * 2) {
            let before = Instant::now();
            cluster.wait("the active copy serves", || write(&mut own, &place, "1"));
            longest = longest.max(before.elapsed());
        }
        let longest = longest.as_millis();
        println!(
            "longest write after a replica's death: {longest} ms (suspicion {failover_ms} ms)"
        );
    }
}

/// What a node logs when copies replace those of a node that lives, or are left out.
const FALSE_ALARMS: [&str; 2] = ["nodes are not heard", "nodes grant nothing"];

/// Writes on all nodes until the time is over; other nodes' vbuckets are refused by each.
fn load(mut connection: RawConnection, until: Instant) -> u64 {
    let (keys, value) = (keys(), "x".repeat(512));
    let mut written = 0;
    while Instant::now() < until {
        for (key, vbid) in &keys {
            let answer = connection.call(&Request::set(key, &value).vbucket(*vbid)).unwrap();
            written += u64::from(answer.status() == Status::Success);
        }
    }
    written
}

// `cargo xtask soak failover --seconds N`: clients and idle work keep every processor busy.
#[test]
fn no_failover_under_full_load() {
    let seconds = std::env::var("ORIBI_FAILOVER_SECONDS").ok().and_then(|text| text.parse().ok());
    let Some(seconds) = seconds else {
        println!("SKIPPED: it takes as long as ORIBI_FAILOVER_SECONDS says");
        return;
    };
    let Some(cluster) = start(2000, 1) else { return };
    let until = Instant::now() + Duration::from_secs(seconds);
    let processors = std::thread::available_parallelism().unwrap().get();
    let spinning: Vec<_> = (0..processors)
        .map(|_| std::thread::spawn(move || while Instant::now() < until {}))
        .collect();
    let clients = (0..NAMES.len() * 4).map(|number| connection(&cluster, number % NAMES.len()));
    let clients: Vec<_> =
        clients.map(|client| std::thread::spawn(move || load(client, until))).collect();
    let written: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    spinning.into_iter().for_each(|thread| thread.join().unwrap());
    println!("{written} writes in {seconds} s");
    assert!(written > 0);
    let outputs = cluster.outputs();
    let alarm = FALSE_ALARMS.iter().find(|alarm| outputs.contains(**alarm));
    assert_eq!(alarm, None, "{outputs}");
    cluster.wait_for_copies(1);
}
