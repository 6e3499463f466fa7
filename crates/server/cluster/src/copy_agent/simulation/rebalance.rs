//! Rebalances: shares, nodes that are removed, and failures on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oribi_types::Vbid;

use super::disk::{SimDisk, vbids};
use super::node::{SimNode, UUID};
use super::{CLOCK_IS_USED, LIMIT, World};
use crate::agreement::{Agreement as _, RecordChange};
use crate::copies::moves::{CopyMove, MOVES_PER_NODE, RebalanceRecord, RebalanceState};

impl World {
    fn rebalance(&self) -> Option<RebalanceRecord> {
        let key = self.keys.rebalance();
        let found = self.runtime.block_on(self.agreement.get(&key, LIMIT)).unwrap()?;
        Some(RebalanceRecord::decode(&found.value).unwrap())
    }

    fn put_rebalance(&self, record: &RebalanceRecord) {
        let put = [RecordChange::put(self.keys.rebalance(), record.encode())];
        // Its answer may be lost.
        let _ = self.runtime.block_on(self.agreement.transact(&[], &put, LIMIT));
    }

    fn request_rebalance(&self, ejected: &[&str]) {
        let ejected = ejected.iter().map(|name| (*name).to_owned()).collect();
        self.put_rebalance(&RebalanceRecord::new("id".to_owned(), ejected));
    }

    fn is_done(&self) -> bool {
        self.rebalance().is_some_and(|record| record.state == RebalanceState::Done)
    }

    fn add_node(&mut self, name: &str) {
        let disk = SimDisk::new(&format!("disk of {name}"));
        let clock = self.clock();
        self.nodes.push(SimNode::start(name, disk, &self.agreement, clock));
    }

    /// Copies and active copies of each node, by name.
    fn shares(&self) -> BTreeMap<String, (usize, usize)> {
        let roster = self.roster();
        let mut shares: BTreeMap<String, (usize, usize)> =
            self.nodes.iter().map(|node| (node.name.clone(), (0, 0))).collect();
        for record in self.records().values() {
            for copy in &record.members {
                let share = shares.get_mut(roster.name(copy.node).unwrap()).unwrap();
                share.0 += 1;
                share.1 += usize::from(*copy == record.active);
            }
        }
        shares
    }

    fn assert_even(&self, without: &[&str]) {
        let shares = self.shares();
        let used: Vec<&(usize, usize)> = shares
            .iter()
            .filter(|(name, _)| !without.contains(&name.as_str()))
            .map(|(_, share)| share)
            .collect();
        let spread = |of: fn(&(usize, usize)) -> usize| {
            let counts = used.iter().map(|share| of(share));
            counts.clone().max().unwrap() - counts.min().unwrap()
        };
        assert!(spread(|share| share.0) <= 1 && spread(|share| share.1) <= 1, "{shares:?}");
        for name in without {
            assert_eq!(shares[*name], (0, 0), "{shares:?}");
        }
    }

    /// Lets every node work until no copy is missing.
    fn wait_for_copies(&mut self) {
        for _ in 0..60 {
            if self.has_all_copies() {
                break;
            }
            self.pass(Duration::from_secs(1));
            self.rounds(10);
        }
        self.rounds(10);
    }

    /// Writes, and lets every node work; no vbucket is without a node for long.
    fn rebalance_under_load(&mut self) {
        let mut unserved: BTreeMap<Vbid, usize> = BTreeMap::new();
        let copies = usize::from(self.replicas) + 1;
        for _ in 0..200 {
            if self.is_done() {
                return;
            }
            vbids().for_each(|vbid| self.write(vbid));
            self.rounds(1);
            for (vbid, record) in self.records() {
                assert!(record.members.len() >= copies, "{vbid} has fewer copies: {record:?}");
            }
            for vbid in vbids() {
                let is_served = self.nodes.iter().any(|node| node.serves(vbid).is_some());
                let count = unserved.entry(vbid).or_default();
                *count = if is_served { 0 } else { *count + 1 };
                assert!(*count <= 5, "{vbid} waits: {:?}", self.records()[&vbid]);
            }
        }
        panic!("the rebalance does not end: {:?}", self.rebalance());
    }
}

#[test]
fn a_node_that_joins_gets_its_share() {
    let _clock = CLOCK_IS_USED.lock();
    for (nodes, replicas) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
        let mut world = World::new(1, nodes, replicas);
        world.rounds(30);
        let new = format!("n{nodes}");
        world.add_node(&new);
        world.rounds(10);
        assert_eq!(world.shares()[&new], (0, 0), "nothing moves without a request");
        vbids().for_each(|vbid| world.write(vbid));
        world.request_rebalance(&[]);
        world.rebalance_under_load();
        world.rounds(10);
        world.assert_converged();
        world.assert_even(&[]);
        let done = world.rebalance().unwrap();
        assert_eq!(done.counts.left, 0);
        assert!(done.counts.total > 0 && done.nodes.contains_key(&new), "{done:?}");
    }
}

#[test]
fn a_node_that_is_removed_keeps_nothing() {
    let _clock = CLOCK_IS_USED.lock();
    for replicas in [0, 1] {
        let mut world = World::new(1, 3, replicas);
        world.rounds(30);
        vbids().for_each(|vbid| world.write(vbid));
        world.request_rebalance(&["n1"]);
        world.rebalance_under_load();
        world.rounds(10);
        world.assert_even(&["n1"]);
        assert!(vbids().all(|vbid| world.nodes[1].disk.log(vbid).is_none()), "its disk is empty");
        // It gets no copies, until it is taken in again.
        world.nodes[2].is_paused = true;
        world.pass(Duration::from_secs(60));
        world.rounds(30);
        assert_eq!(world.shares()["n1"], (0, 0));
        world.nodes[2].is_paused = false;
        world.wait_for_copies();
        world.request_rebalance(&[]);
        world.rebalance_under_load();
        world.rounds(10);
        world.assert_converged();
        world.assert_even(&[]);
    }
}

// Service stopped for an heir that was far behind, until its copy had everything.
#[test]
fn a_role_moves_to_an_heir_that_is_near() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 2, 1);
    world.rounds(30);
    let (vbid, roster) = (Vbid(0), world.roster());
    let record = world.records()[&vbid].clone();
    let heir = record.members.iter().find(|copy| **copy != record.active).unwrap().node;
    let names = [record.active.node, heir].map(|node| roster.name(node).unwrap().to_owned());
    let [active, _] = names.clone();
    let at = world.nodes.iter().position(|node| node.name == active).unwrap();
    let link = (active, names[1].clone());
    world.cut.insert(link.clone());
    (0..2000).for_each(|write| world.nodes[at].disk.append(vbid, 1_000_000 + write));
    world.rounds(1);
    let mut moving = RebalanceRecord::new("id".to_owned(), BTreeSet::new());
    let bucket = UUID.to_owned();
    let moved = CopyMove { bucket, vbucket: vbid.0, add: None, remove: None, active: heir };
    moving.moves.push(moved);
    world.put_rebalance(&moving);
    for _ in 0..10 {
        world.rounds(1);
        assert!(world.nodes[at].serves(vbid).is_some(), "the heir lacks everything since the cut");
    }
    world.cut.remove(&link);
    // The plan moves the role back afterwards, because the nodes were even before.
    let has_moved = (0..20).any(|_| {
        world.rounds(1);
        world.nodes[1 - at].serves(vbid).is_some()
    });
    assert!(has_moved, "{:?}", world.records()[&vbid]);
}

#[test]
fn a_stopped_rebalance_leaves_whole_vbuckets() {
    let _clock = CLOCK_IS_USED.lock();
    for rounds in 1..8 {
        let mut world = World::new(1, 2, 1);
        world.rounds(30);
        world.add_node("n2");
        world.rounds(3);
        world.request_rebalance(&[]);
        world.rounds(rounds);
        let record = world.rebalance().unwrap();
        if record.is_running() {
            world.put_rebalance(&record.ended(RebalanceState::Stopped));
        }
        world.rounds(40);
        world.assert_converged();
    }
}

// The leader ends in disorder after any number of rounds; another one, or the same, continues.
#[test]
fn another_leader_continues() {
    let _clock = CLOCK_IS_USED.lock();
    for rounds in 1..10 {
        for is_clean in [true, false] {
            let mut world = World::new(1, 2, 1);
            world.rounds(30);
            world.add_node("n2");
            world.rounds(3);
            vbids().for_each(|vbid| world.write(vbid));
            world.request_rebalance(&[]);
            world.rounds(rounds);
            world.restart(0, is_clean);
            for _ in 0..120 {
                world.rounds(1);
            }
            assert!(world.is_done(), "{rounds}: {:?}", world.rebalance());
            world.wait_for_copies();
            // A failover after the last move may have taken roles away.
            world.request_rebalance(&[]);
            world.rebalance_under_load();
            world.rounds(10);
            world.assert_converged();
            world.assert_even(&[]);
        }
    }
}

/// Faults, requests, and stops at random; healed, a last rebalance makes everything even.
fn run(seed: u64) -> usize {
    let (nodes, replicas) = (2 + seed as usize % 3, (seed % 3) as u8);
    let mut world = World::new(seed, nodes, replicas);
    world.rounds(12);
    world.add_node(&format!("n{nodes}"));
    let mut moves = 0;
    for _ in 0..300 {
        match world.random.below(30) {
            0 => {
                let at = world.random.below(world.nodes.len() as u64 * 2) as usize;
                let ejected = world.nodes.get(at).map(|node| node.name.clone());
                let ejected: Vec<&str> = ejected.iter().map(String::as_str).collect();
                if world.rebalance().is_none_or(|record| !record.is_running()) {
                    world.request_rebalance(&ejected);
                }
            }
            1 => {
                if let Some(record) = world.rebalance().filter(RebalanceRecord::is_running) {
                    world.put_rebalance(&record.ended(RebalanceState::Stopped));
                }
            }
            _ => world.step(),
        }
        if let Some(record) = world.rebalance() {
            let places: BTreeSet<u16> = record.moves.iter().map(|it| it.vbucket).collect();
            assert_eq!(places.len(), record.moves.len(), "a vbucket has one move");
            assert!(record.moves.len() <= MOVES_PER_NODE * world.nodes.len());
            moves += record.moves.len();
        }
    }
    world.heal();
    world.request_rebalance(&[]);
    for _ in 0..60 {
        if world.is_done() && world.has_all_copies() {
            break;
        }
        world.pass(Duration::from_secs(1));
        world.rounds(10);
    }
    assert!(world.is_done(), "{:?}", world.rebalance());
    world.rounds(30);
    world.assert_converged();
    world.assert_even(&[]);
    moves
}

#[test]
fn faults_during_rebalances_lose_nothing() {
    let _clock = CLOCK_IS_USED.lock();
    let seeds: Vec<u64> = match std::env::var("ORIBI_REBALANCE_SEEDS") {
        Ok(text) => {
            let (from, count) = text.split_once(':').expect("FROM:COUNT");
            let from: u64 = from.parse().unwrap();
            (from..from + count.parse::<u64>().unwrap()).collect()
        }
        Err(_) => (1..=12).collect(),
    };
    let mut moves = 0;
    for seed in &seeds {
        println!("seed {seed}");
        moves += run(*seed);
    }
    assert!(moves >= seeds.len(), "few moves were under way: {moves}");
}
