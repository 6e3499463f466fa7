//! What operators see of nodes and copies.

use std::time::Duration;

use super::node::LEASE_S;
use super::{CLOCK_IS_USED, LIMIT, World};
use crate::agent::ClusterView;
use crate::agreement::Agreement as _;
use crate::nodes::{NodeMembership, NodeState};
use crate::status::{ClusterStatus, CopyTrouble};

impl World {
    fn status(&self) -> ClusterStatus {
        let list = self.runtime.block_on(self.agreement.list(self.keys.all(), LIMIT)).unwrap();
        ClusterStatus::of(&ClusterView::read(&self.keys, "", list.records))
    }

    fn troubles(&self) -> Vec<CopyTrouble> {
        self.status().buckets[0].troubles.clone()
    }

    fn seen(&self, name: &str) -> (NodeState, NodeMembership) {
        let status = self.status();
        let node = status.nodes.nodes.iter().find(|node| node.name == name).unwrap();
        (node.state, node.membership)
    }

    fn whole(nodes: usize, replicas: u8) -> World {
        let mut world = World::new(1, nodes, replicas);
        world.rounds(30);
        assert_eq!(world.troubles(), []);
        assert!(world.status().nodes.balanced);
        world
    }

    fn leases_end(&mut self) {
        for _ in 0..20 {
            self.pass(Duration::from_secs(LEASE_S / 2));
            self.rounds(1);
        }
    }
}

#[test]
fn a_copy_that_cannot_be_loaded_is_named() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::whole(2, 1);
    world.nodes[0].disk.set_unreadable(true);
    world.restart(0, true);
    world.leases_end();
    let reason = "the copy on node n0 cannot be loaded: its log says why".to_owned();
    assert_eq!(world.troubles(), [CopyTrouble { reason, vbuckets: 4, first: 0 }]);
    let status = world.status();
    assert_eq!((status.buckets[0].served, status.buckets[0].missing), (4, 4));
}

#[test]
fn a_loss_that_waits_for_an_operator_is_named() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::whole(3, 2);
    for at in [0, 1] {
        world.nodes[at].disk.wipe();
        world.restart(at, true);
    }
    world.leases_end();
    let troubles = world.troubles();
    let lost = troubles.iter().filter(|it| it.reason.contains("--allow-data-loss"));
    let waits: usize = lost.map(|trouble| trouble.vbuckets).sum();
    let status = world.status();
    assert!(waits > 0 && status.buckets[0].served + waits == 4, "{troubles:?}");
}

#[test]
fn a_node_that_is_gone_is_named_until_it_returns() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::whole(2, 0);
    world.nodes[0].is_paused = true;
    world.leases_end();
    assert_eq!(world.seen("n0"), (NodeState::Gone, NodeMembership::Active));
    let troubles = world.troubles();
    assert!(troubles.len() == 1 && troubles[0].reason.contains("without node n0"), "{troubles:?}");
    world.nodes[0].is_paused = false;
    world.leases_end();
    assert_eq!(world.seen("n0"), (NodeState::Healthy, NodeMembership::Active));
    assert_eq!(world.troubles(), []);
    // With a replica its active copies go to another node.
    let mut world = World::whole(2, 1);
    world.nodes[0].is_paused = true;
    world.leases_end();
    assert_eq!(world.seen("n0"), (NodeState::Gone, NodeMembership::InactiveFailed));
    assert_eq!((world.troubles().len(), world.status().buckets[0].missing), (0, 4));
}
