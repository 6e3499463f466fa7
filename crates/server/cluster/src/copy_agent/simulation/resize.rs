//! Another number of configured copies, with and without failures on the way.

use std::time::Duration;

use oribi_types::Vbid;

use super::disk::vbids;
use super::node::{LEASE_S, settings_text};
use super::{CLOCK_IS_USED, LIMIT, World};
use crate::agreement::{Agreement as _, RecordChange};

impl World {
    /// The bucket asks for another number of copies.
    fn set_replicas(&mut self, replicas: u8) {
        let bucket = self.keys.bucket("default");
        let put = [RecordChange::put(bucket, settings_text(replicas))];
        // Its answer may be lost.
        let written = self.runtime.block_on(self.agreement.transact(&[], &put, LIMIT));
        if written.is_ok() {
            self.replicas = replicas;
        }
    }

    /// Writes, and lets every node work, until every vbucket has its copies.
    fn resize_under_load(&mut self, replicas: u8) {
        self.set_replicas(replicas);
        for _ in 0..200 {
            vbids().for_each(|vbid| self.write(vbid));
            self.rounds(1);
            for vbid in vbids() {
                let is_served = self.nodes.iter().any(|node| node.serves(vbid).is_some());
                assert!(is_served, "{vbid} is not served: {:?}", self.records()[&vbid]);
            }
            if self.has_all_copies() {
                break;
            }
        }
        self.rounds(10);
        self.assert_converged();
    }
}

#[test]
fn the_number_of_copies_follows_the_bucket() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 4, 0);
    world.rounds(30);
    for replicas in [1, 2, 0, 3, 1, 2, 3, 0] {
        world.resize_under_load(replicas);
    }
    let copies =
        |world: &World| world.nodes.iter().filter(|node| node.disk.log(Vbid(0)).is_some()).count();
    assert_eq!(copies(&world), 1, "copies that are left out are removed");
}

// Durable writes answer "impossible" then, as to a bucket that begins with this number.
#[test]
fn more_copies_than_nodes_are_configured() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 1, 0);
    world.rounds(30);
    world.resize_under_load(1);
    assert!(world.records().values().all(|record| !record.is_durability_possible()));
    world.resize_under_load(0);
    assert!(world.records().values().all(|record| record.is_durability_possible()));
}

// A majority of one had acknowledged writes that the other copies did not need to have.
#[test]
fn a_number_grows_with_the_copies_that_joined() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 0);
    world.rounds(30);
    world.set_replicas(2);
    for _ in 0..400 {
        world.tick(0);
        for (vbid, record) in world.records() {
            assert!(record.is_durability_possible(), "{vbid}: {record:?}");
            let wanted = record.joining_configured.unwrap_or(record.configured);
            assert!(wanted <= record.members.len(), "{vbid} waits for new copies: {record:?}");
        }
        world.rounds(1);
        if world.has_all_copies() {
            return;
        }
    }
    panic!("no end of the change: {:?}", world.records());
}

/// A change of the number after which a node ends, at any moment of it.
#[test]
fn a_node_ends_during_a_change() {
    let _clock = CLOCK_IS_USED.lock();
    for (before, after) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
        for rounds in 0..5 {
            for at in 0..2 {
                println!("{before} to {after}, node {at} after {rounds} rounds");
                let mut world = World::new(1 + rounds as u64, 3, before);
                world.rounds(30);
                vbids().for_each(|vbid| world.write(vbid));
                world.rounds(3);
                world.set_replicas(after);
                world.rounds(rounds);
                vbids().for_each(|vbid| world.write(vbid));
                world.restart(at, false);
                world.pass(Duration::from_secs(LEASE_S));
                world.heal();
                world.rounds(10);
                world.assert_converged();
            }
        }
    }
}

/// Faults, rebalances and changes of the number at random.
fn run(seed: u64) {
    let (nodes, replicas) = (2 + seed as usize % 3, (seed % 3) as u8);
    let mut world = World::new(seed, nodes, replicas);
    world.rounds(12);
    for _ in 0..300 {
        match world.random.below(25) {
            0 => {
                let replicas = world.random.below(4) as u8;
                world.set_replicas(replicas);
            }
            _ => world.step(),
        }
    }
    let replicas = world.random.below(4) as u8;
    world.heal();
    world.set_replicas(replicas);
    world.heal();
    world.rounds(10);
    world.assert_converged();
}

#[test]
fn faults_during_changes_lose_nothing() {
    let _clock = CLOCK_IS_USED.lock();
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    let from = number("ORIBI_RESIZE_FROM").unwrap_or(1);
    for seed in from..from + number("ORIBI_RESIZE_SEEDS").unwrap_or(12) {
        println!("seed {seed}");
        run(seed);
    }
}
