//! Buckets without replicas: what a node has waits for its return.

use std::time::Duration;

use super::disk::{VBUCKETS, vbids};
use super::node::{LEASE_S, SimNode};
use super::{CLOCK_IS_USED, SEEDS, World, run};

// What an only copy has waits for its node, through the same faults.
#[test]
fn faults_lose_nothing_without_replicas() {
    let _clock = CLOCK_IS_USED.lock();
    for seed in 1..=SEEDS / 2 {
        println!("seed {seed}");
        assert_eq!(run(seed, 2 + seed as usize % 3, 0, 300), 0, "nothing can be promoted");
    }
}

#[test]
fn a_vbucket_without_replicas_waits_for_its_node() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 0);
    world.rounds(12);
    world.assert_converged();
    vbids().for_each(|vbid| world.write(vbid));
    let before = world.records();
    for is_clean in [false, true] {
        world.nodes[2].is_paused = true;
        for _ in 0..20 {
            world.pass(Duration::from_secs(LEASE_S / 2));
            world.rounds(1);
            assert_eq!(world.failover(), None, "no other copy can be promoted");
        }
        let of_others = |node: &&SimNode| node.name != "n2";
        let served = vbids().filter(|vbid| {
            world.nodes.iter().filter(of_others).any(|node| node.serves(*vbid).is_some())
        });
        assert!(served.count() < usize::from(VBUCKETS));
        world.nodes[2].is_paused = false;
        world.restart(2, is_clean);
        world.pass(Duration::from_secs(LEASE_S * 2));
        world.rounds(20);
        world.assert_converged();
        for (vbid, record) in world.records() {
            assert_eq!(record.active, before[&vbid].active, "{vbid} stays");
        }
    }
}
