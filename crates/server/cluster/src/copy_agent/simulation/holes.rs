//! Runs of one failure each: what it may lose, and that nothing waits for ever.

use std::sync::atomic::Ordering;
use std::time::Duration;

use oribi_replication::copies::CopyId;
use oribi_types::Vbid;

use super::disk::VBUCKETS;
use super::node::LEASE_S;
use super::{CLOCK_IS_USED, LIMIT, World};
use crate::agent::ClusterView;
use crate::agreement::{Agreement as _, RecordChange};
use crate::copies::record::FailoverRequest;
use crate::status::ClusterStatus;

fn vbids() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

impl World {
    /// A world whose copies are complete, with a write in each vbucket.
    fn complete(nodes: usize, replicas: u8) -> World {
        let mut world = World::new(1, nodes, replicas);
        world.rounds(30);
        vbids().for_each(|vbid| world.write(vbid));
        world.rounds(3);
        world.assert_converged();
        world
    }

    /// Rounds of half a lease each.
    fn wait(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.pass(Duration::from_secs(LEASE_S) / 4);
            self.rounds(1);
        }
    }

    fn fail_over_with_loss(&mut self, name: &str) {
        let request = FailoverRequest::new(name, true).encode();
        let put = [RecordChange::put(self.keys.failover(), request)];
        self.runtime.block_on(self.agreement.transact(&[], &put, LIMIT)).unwrap();
    }

    /// The vbuckets whose active copy a node has.
    fn active_on(&self, name: &str) -> Vec<Vbid> {
        let roster = self.roster();
        let records = self.records().into_iter();
        let of_node = records.filter(|(_, record)| roster.name(record.active.node) == Some(name));
        of_node.map(|(vbid, _)| vbid).collect()
    }

    /// Copies that are behind, as operators see it.
    fn behind(&self) -> usize {
        let list = self.runtime.block_on(self.agreement.list(self.keys.all(), LIMIT)).unwrap();
        let view = ClusterView::read(&self.keys, "n0", list.records);
        let status = ClusterStatus::of(&view);
        assert_eq!(status.buckets.len(), 1);
        status.buckets[0].behind
    }

    fn log_of(&self, vbid: Vbid) -> Option<Vec<u64>> {
        let node = self.nodes.iter().find(|node| node.serves(vbid).is_some())?;
        node.disk.served(vbid, node.serves(vbid)?)
    }
}

impl World {
    /// Writes to vbuckets whose active copies only the node at `active` has up to date. While it is
    /// paused no node serves them, and both writes are there when it is back.
    fn assert_newest_writes_wait_for(&mut self, active: usize, vbids: &[Vbid]) {
        vbids.iter().for_each(|vbid| self.write(*vbid));
        self.nodes[active].is_paused = true;
        self.wait(20);
        for vbid in vbids {
            let log = self.log_of(*vbid);
            assert!(log.is_none(), "{vbid} is served without its newest writes: {log:?}");
        }
        self.nodes[active].is_paused = false;
        self.cut.clear();
        self.wait(60);
        self.assert_converged();
        for vbid in vbids {
            assert_eq!(self.log_of(*vbid).unwrap().len(), 2, "{vbid}");
        }
    }
}

// The link of a replica fails, and writes continue; then the node with the active copy dies.
#[test]
fn a_copy_that_does_not_follow_is_not_promoted() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    let mine = world.active_on("n0");
    assert!(!mine.is_empty());
    world.cut_link(0, 1);
    world.wait(12);
    world.assert_newest_writes_wait_for(0, &mine);
}

// As above, but the copy has followed again and caught up.
#[test]
fn copies_of_a_killed_node_are_behind_until_filled() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    assert_eq!(world.behind(), 0);
    world.restart(1, false);
    // Its former lease ends, and it reports before it follows.
    world.pass(Duration::from_secs(LEASE_S * 2));
    for _ in 0..3 {
        world.tick(1);
    }
    assert_eq!(world.behind(), usize::from(VBUCKETS));
    world.rounds(60);
    world.assert_converged();
    assert_eq!(world.behind(), 0);
}

#[test]
fn a_copy_that_follows_again_is_a_member_again() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    world.cut_link(0, 1);
    world.wait(12);
    world.cut.clear();
    world.wait(40);
    world.assert_converged();
    let records = world.records();
    world.wait(20);
    assert_eq!(world.records(), records, "nothing changes any more");
}

// A node is away for long: the others neither wait for it nor count it.
#[test]
fn a_member_that_is_gone_is_left_out_until_it_returns() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    world.nodes[1].is_paused = true;
    world.wait(20);
    for record in world.records().values() {
        assert_eq!(record.members.len(), 1, "{record:?}");
    }
    vbids().for_each(|vbid| world.write(vbid));
    world.nodes[1].is_paused = false;
    world.wait(60);
    world.assert_converged();
}

// The leader has begun an epoch, and the active ends in disorder before it has.
#[test]
fn an_active_killed_before_its_epoch_recovers() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    let mine = world.active_on("n0");
    mine.iter().for_each(|vbid| world.write(*vbid));
    world.stream(1);
    let keys = world.keys.clone();
    for (vbid, record) in world.records() {
        if mine.contains(&vbid) {
            let key = keys.copies("default", super::node::UUID, vbid);
            let put = [RecordChange::put(key, super::record::encode(&record.renewed()))];
            world.runtime.block_on(world.agreement.transact(&[], &put, LIMIT)).unwrap();
        }
    }
    world.restart(0, false);
    world.wait(40);
    world.assert_converged();
    for vbid in &mine {
        assert_eq!(world.log_of(*vbid).unwrap().len(), 2, "{vbid} lost a write of two copies");
    }
}

// The operator names a node that has the only copy.
#[test]
fn the_loss_of_the_only_copy_is_refused_by_name() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 0);
    world.fail_over_with_loss("n0");
    world.wait(6);
    let refused = world.failover().and_then(|request| request.refused).expect("an answer");
    assert!(refused.contains("n0") && refused.contains("only copy"), "{refused}");
    world.clear_failover();
    world.wait(20);
    world.assert_converged();
}

// The directory of the bucket is removed under the node's identity.
fn lose_a_directory(nodes: usize, replicas: u8, at: usize) -> World {
    let mut world = World::complete(nodes, replicas);
    world.nodes[at].disk.wipe();
    world.restart(at, true);
    world.wait(60);
    world
}

#[test]
fn a_directory_that_was_removed_is_no_copy() {
    let _clock = CLOCK_IS_USED.lock();
    for at in [0, 1, 2] {
        let world = lose_a_directory(3, 1, at);
        world.assert_converged();
        for vbid in vbids() {
            assert_eq!(world.log_of(vbid).unwrap().len(), 1, "{vbid} of n{at}");
        }
    }
}

#[test]
fn the_only_copy_is_never_served_empty() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = lose_a_directory(2, 0, 0);
    let lost = world.active_on("n0");
    assert!(!lost.is_empty());
    for vbid in &lost {
        assert_eq!(world.log_of(*vbid), None, "{vbid} is served empty");
    }
    world.safe.clear();
    world.nodes[0].is_paused = true;
    world.fail_over_with_loss("n0");
    world.wait(20);
    world.nodes[0].is_paused = false;
    world.wait(20);
    world.assert_converged();
}

// Three copies; the active's node is gone, and one of the others cannot promise.
#[test]
fn enough_promises_decide_after_a_while() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(4, 3);
    world.nodes[2].disk.is_full.store(true, Ordering::SeqCst);
    world.nodes[0].is_paused = true;
    world.wait(30);
    for vbid in vbids() {
        assert!(world.log_of(vbid).is_some(), "{vbid} waits for one copy of four");
    }
}

// With one replica nothing else decides: the operator hears of it.
#[test]
fn a_replica_that_cannot_promise_is_named() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(2, 1);
    world.nodes[1].disk.is_full.store(true, Ordering::SeqCst);
    world.nodes[0].is_paused = true;
    world.request_failover("n0");
    world.wait(16);
    let refused = world.failover().and_then(|request| request.refused).expect("an answer");
    assert!(refused.contains("n1"), "{refused}");
    // Once it can, the failover happens by itself.
    world.nodes[1].disk.is_full.store(false, Ordering::SeqCst);
    world.clear_failover();
    world.wait(40);
    for vbid in vbids() {
        assert!(world.log_of(vbid).is_some(), "{vbid}");
    }
}

// The node with the active copies dies before any copy has followed it.
#[test]
fn a_new_vbucket_survives_its_first_active() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 2);
    (1..3).for_each(|follower| world.cut_link(0, follower));
    let is_served = |world: &World| vbids().all(|vbid| world.log_of(vbid).is_some());
    (0..16).for_each(|_| {
        if !is_served(&world) {
            world.rounds(1)
        }
    });
    let mine = world.active_on("n0");
    assert!(!mine.is_empty() && is_served(&world), "{:?}", world.records());
    assert!(world.records().values().all(|record| record.members.len() == 3));
    world.nodes[0].is_paused = true;
    world.wait(30);
    for vbid in mine {
        assert!(world.log_of(vbid).is_some(), "{vbid} waits for a copy that had nothing");
    }
}

// A copy is taken in while the link of a member fails: the member is left out, and A dies.
#[test]
fn a_member_that_is_replaced_is_not_promoted() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(3, 1);
    let mine = world.active_on("n0");
    assert!(!mine.is_empty());
    (1..3).for_each(|follower| world.cut_link(0, follower));
    let (keys, roster) = (world.keys.clone(), world.roster());
    let numbers: Vec<u16> =
        world.nodes.iter().map(|it| roster.number(&it.name, it.disk.id()).unwrap()).collect();
    for (vbid, record) in world.records().into_iter().filter(|(vbid, _)| mine.contains(vbid)) {
        let is_free = |node: &u16| record.members.iter().all(|copy| copy.node != *node);
        let node = numbers.iter().copied().find(is_free).unwrap();
        let joins = CopyId { node, copy: record.epoch.next().0 };
        let put = super::record::encode(&record.joint(vec![record.active, joins]));
        let put = [RecordChange::put(keys.copies("default", super::node::UUID, vbid), put)];
        world.runtime.block_on(world.agreement.transact(&[], &put, LIMIT)).unwrap();
    }
    world.wait(1);
    world.assert_newest_writes_wait_for(0, &mine);
}

// Two of three copies are lost: an acknowledged write may have been in these alone.
#[test]
fn most_copies_are_given_up_only_on_demand() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::complete(3, 2);
    let mine = world.active_on("n0");
    assert!(!mine.is_empty());
    for at in [0, 1] {
        world.nodes[at].disk.wipe();
        world.restart(at, true);
    }
    world.wait(40);
    for vbid in &mine {
        assert_eq!(world.log_of(*vbid), None, "{vbid} is served by one copy of three");
    }
    world.request_failover("n0");
    world.wait(16);
    let refused = world.failover().and_then(|request| request.refused).expect("an answer");
    assert!(refused.contains("allow the loss"), "{refused}");
    for name in ["n0", "n1"] {
        world.clear_failover();
        world.fail_over_with_loss(name);
        world.wait(16);
    }
    world.wait(60);
    world.assert_converged();
    for vbid in vbids() {
        assert_eq!(world.log_of(vbid).unwrap().len(), 1, "{vbid}");
    }
}

// The clock of a node that is paused is the slowest, and that of the node which suspects it the
// fastest.
#[test]
fn a_slow_clock_prolongs_no_grant() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 2, 1);
    for (node, rate_permille) in world.nodes.iter_mut().zip([900, 1100]) {
        node.clock.rate_permille = rate_permille;
    }
    world.rounds(30);
    world.assert_converged();
    let mine = world.active_on("n0");
    assert!(!mine.is_empty());
    world.nodes[0].is_paused = true;
    for _ in 0..200 {
        world.pass(Duration::from_millis(5));
        world.tick(1);
    }
    for vbid in &mine {
        assert!(world.nodes[1].serves(*vbid).is_some(), "{vbid} is failed over");
    }
}

// One of two replicas does not hear the active copy's node; the other one grants while an operator
// asks for the failover. The active copy, without agreement, knows nothing of it.
#[test]
fn a_promise_waits_for_the_grants_of_its_node() {
    let _clock = CLOCK_IS_USED.lock();
    promise_while_a_grant_runs(false);
}

// The same, and the node that grants is restarted.
#[test]
fn a_node_that_restarts_keeps_its_grants() {
    let _clock = CLOCK_IS_USED.lock();
    promise_while_a_grant_runs(true);
}

fn promise_while_a_grant_runs(restarts: bool) {
    let mut world = World::complete(3, 2);
    let mine = world.active_on("n0");
    assert!(!mine.is_empty());
    world.nodes[0].agreement.set_cut(true);
    world.cut_beacons.insert(("n0".to_owned(), "n2".to_owned()));
    for _ in 0..8 {
        world.pass(Duration::from_millis(100));
        world.tick(2);
    }
    world.request_failover("n0");
    if restarts {
        world.restart(1, true);
    }
    // Without a beacon since: its last grant runs.
    world.cut_beacons.insert(("n0".to_owned(), "n1".to_owned()));
    for _ in 0..6 {
        world.tick(1);
        world.tick(2);
    }
    let serves_still = mine.iter().all(|vbid| world.nodes[0].serves(*vbid).is_some());
    assert!(serves_still, "its grants run");
    for _ in 0..10 {
        world.pass(Duration::from_millis(100));
        world.tick(1);
        world.tick(2);
    }
    for vbid in &mine {
        assert!(world.nodes[0].serves(*vbid).is_none(), "{vbid}");
        assert!(world.log_of(*vbid).is_some(), "{vbid} has another active copy");
    }
}

// The documents of a node cannot be loaded: they stay on its disk, and have no vote.
#[test]
fn copies_that_cannot_be_loaded_stay_on_the_disk() {
    let _clock = CLOCK_IS_USED.lock();
    for nodes in [2, 3] {
        let mut world = World::complete(nodes, 1);
        world.nodes[0].disk.set_unreadable(true);
        let before = world.nodes[0].disk.describe();
        world.restart(0, true);
        world.wait(40);
        for vbid in vbids() {
            assert_eq!(world.log_of(vbid).unwrap().len(), 1, "{vbid}, served by another node");
        }
        let missing = world.records().into_values().filter(|record| record.members.len() < 2);
        assert_eq!(missing.count() > 0, nodes == 2, "no copy takes the place of another");
        assert_eq!(world.nodes[0].disk.describe(), before, "no document is removed");
        world.nodes[0].disk.set_unreadable(false);
        world.restart(0, true);
        world.wait(60);
        world.assert_converged();
    }
}
