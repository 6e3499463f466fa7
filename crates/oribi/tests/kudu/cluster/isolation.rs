//! Nodes on their own hosts, whose cables are pulled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_testkit::{
    Host, Network, PATIENCE, Random, ServerProcess, inside_own_network, poll_until, seed,
};

use crate::cluster::chaos::Chaos;
use crate::cluster::nodes::{self, Cluster, check, shares, wait_for_shares, write};
use crate::cluster::writer::Writer;

const SEED: u64 = 1;
const DOCUMENTS: usize = 128;
/// Long enough for a hand-over, short enough for a write that no client will answer.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(6);

/// A node that is cut off answers no request and hears of nothing. When its cable is back, what it
/// and others have sent concurrently still arrives: writes to the store, too, which come too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_node_does_no_harm_on_return() {
    if !inside_own_network("cluster::isolation::a_partitioned_node_does_no_harm_on_return") {
        return;
    }
    let network = Network::set_up().unwrap();
    let (host_of_one, host_of_two) = (network.host(11).unwrap(), network.host(12).unwrap());
    let Some(cluster) = Cluster::start_isolated("isolated") else { return };
    let one = cluster.node_on(&host_of_one, "one", 20);
    let two = cluster.node_on(&host_of_two, "two", 20);
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = Arc::new(nodes::client_with(&[&one, &two], OPERATION_TIMEOUT).await);
    write(&client, "k", DOCUMENTS, "old", true).await;
    let writer = Writer::start(Arc::clone(&client)).await;
    host_of_two.cut_off().unwrap();
    wait_for_shares(&one, &[64]);
    let beside = nodes::client(&[&one]).await;
    write(&beside, "k", DOCUMENTS, "new", true).await;
    check(&beside, "k", DOCUMENTS, "new").await;
    host_of_two.connect().unwrap();
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let both = nodes::client(&[&one, &two]).await;
    check(&both, "k", DOCUMENTS, "new").await;
    writer.stop().await.check(&both).await;
    check(&both, "k", DOCUMENTS, "new").await;
    nodes::assert_quiet(&[&one, &two]);
}

/// A temporary fault of a node.
#[derive(Clone, Copy, Debug)]
enum ProxyFault {
    Killed,
    Paused,
    CutOff,
    /// It cannot send to etcd, which hears nothing of it. Clients and the store do.
    WithoutRegistry,
    /// It cannot send to Kudu. For etcd and clients it is there, so no node takes its place.
    WithoutStore,
}

impl ProxyFault {
    fn strike(self, node: &mut ServerProcess, host: &Host) {
        match self {
            ProxyFault::Killed => node.kill().unwrap(),
            ProxyFault::Paused => node.pause().unwrap(),
            ProxyFault::CutOff => host.cut_off().unwrap(),
            ProxyFault::WithoutRegistry => host.lose(Network::REGISTRY).unwrap(),
            ProxyFault::WithoutStore => host.lose(Network::STORE).unwrap(),
        }
    }

    fn end(self, node: &mut ServerProcess, host: &Host) {
        match self {
            ProxyFault::Killed => node.restart().unwrap(),
            ProxyFault::Paused => node.resume().unwrap(),
            ProxyFault::CutOff => host.connect().unwrap(),
            ProxyFault::WithoutRegistry => host.find(Network::REGISTRY).unwrap(),
            ProxyFault::WithoutStore => host.find(Network::STORE).unwrap(),
        }
    }

    /// How many of three nodes the map has at a time, and how many writes are waited for: where
    /// the store is missing every durable one waits for its timeout.
    fn meanwhile(self) -> (usize, u64) {
        match self {
            ProxyFault::Killed
            | ProxyFault::Paused
            | ProxyFault::CutOff
            | ProxyFault::WithoutRegistry => (2, 200),
            ProxyFault::WithoutStore => (3, 20),
        }
    }
}

/// Waits until a node shows a map of so many nodes.
#[track_caller]
fn wait_for_nodes(node: &ServerProcess, count: usize) {
    let is_so = || shares(node).filter(|shares| shares.len() == count && !shares.contains(&0));
    poll_until(PATIENCE, is_so).unwrap_or_else(|| {
        panic!("the map shows {:?} instead of {count} nodes:\n{}", shares(node), node.output())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn node_faults_lose_no_acknowledged_write() {
    if !inside_own_network("cluster::isolation::node_faults_lose_no_acknowledged_write") {
        return;
    }
    let network = Network::set_up().unwrap();
    let hosts: Vec<Host> = (11..14).map(|number| network.host(number).unwrap()).collect();
    let Some(cluster) = Cluster::start_isolated("chaos") else { return };
    let names = ["one", "two", "three"];
    // They flush so seldom that plain writes are lost.
    let start = |(host, name)| cluster.node_on(host, name, 300);
    let mut nodes: Vec<ServerProcess> = hosts.iter().zip(names).map(start).collect();
    nodes.iter().for_each(|node| wait_for_nodes(node, 3));
    let (seed, rounds) = (seed(SEED), std::env::var("ORIBI_CHAOS_ROUNDS").ok());
    let rounds: usize = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let all: Vec<&ServerProcess> = nodes.iter().collect();
    let client = Arc::new(nodes::client_with(&all, OPERATION_TIMEOUT).await);
    let mut chaos = Chaos::new(seed, &all);
    let mut random = Random::new(seed);
    let faults = [
        ProxyFault::CutOff,
        ProxyFault::Paused,
        ProxyFault::Killed,
        ProxyFault::WithoutRegistry,
        ProxyFault::WithoutStore,
    ];
    for round in 0..rounds {
        let (fault, struck) = (faults[round % faults.len()], random.below(3) as usize);
        let begun = Instant::now();
        let load = chaos.start(&client);
        load.wait_for(200).await;
        fault.strike(&mut nodes[struck], &hosts[struck]);
        let (nodes_left, writes) = fault.meanwhile();
        wait_for_nodes(&nodes[(struck + 1) % 3], nodes_left);
        load.wait_for(writes).await;
        fault.end(&mut nodes[struck], &hosts[struck]);
        nodes.iter().for_each(|node| wait_for_nodes(node, 3));
        load.wait_for(50).await;
        load.stop().await;
        let all: Vec<&ServerProcess> = nodes.iter().collect();
        let reader = nodes::client(&all).await;
        chaos.judge(&all, &reader).await;
        let (name, took) = (names[struck], begun.elapsed());
        println!("seed {seed}, round {round}: {fault:?} at {name}, {took:?}");
    }
    let tally = chaos.tally();
    println!("{tally:?}");
    assert!(tally.persisted > 0 && tally.read > 0, "{tally:?}");
    nodes::assert_quiet(&nodes.iter().collect::<Vec<_>>());
}
