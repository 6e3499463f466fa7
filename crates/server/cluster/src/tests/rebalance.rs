//! Requests for a rebalance, and what nodes see of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use oribi_storage::SharedMemoryStore;
use oribi_testkit::{PATIENCE, poll_until};

use super::{Node, bucket_config, wait_for_shares};
use crate::RebalanceError;
use crate::agreement::memory::MemoryAgreement;
use crate::copies::moves::RebalanceState;
use crate::nodes::{NodeMembership, NodeState};

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn wait_for_end(node: &Node) {
    let is_done = || {
        let nodes = node.cluster.nodes();
        (nodes.rebalance.as_ref()?.state == RebalanceState::Done).then_some(())
    };
    poll_until(PATIENCE, is_done).expect("the rebalance ends");
}

#[test]
fn a_removed_node_gets_vbuckets_back_on_request() {
    let agreement = MemoryAgreement::new(Box::new(|| Duration::ZERO));
    let medium = Arc::default();
    let start = |name| {
        let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
        Node::start_by(Arc::clone(&agreement) as _, name, (bucket_config(), store))
    };
    let (one, two) = (start("one"), start("two"));
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    let ask =
        |known: &[&str], ejected: &[&str]| one.cluster.rebalance(&names(known), &names(ejected));
    assert!(matches!(ask(&[], &[]), Err(RebalanceError::NoKnownNodes)));
    let refused = ask(&["one"], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "the cluster has these nodes: one, two");
    let both = ["one", "two"];
    assert!(matches!(ask(&both, &["three"]), Err(RebalanceError::UnknownNode(_))));
    assert!(matches!(ask(&both, &both), Err(RebalanceError::NoNodeLeft)));
    assert!(one.cluster.nodes().rebalance.is_none());
    let id = ask(&both, &["two"]).unwrap();
    wait_for_shares(&[(&one, 16), (&two, 0)]);
    wait_for_end(&one);
    assert_eq!(one.cluster.status().unwrap().nodes.rebalance.unwrap().id, id);
    let nodes = one.cluster.nodes();
    let two_seen = nodes.nodes.iter().find(|node| node.name == "two").unwrap();
    assert_eq!(
        (two_seen.state, two_seen.membership),
        (NodeState::Healthy, NodeMembership::InactiveAdded)
    );
    one.cluster.stop_rebalance().unwrap();
    assert_eq!(one.cluster.nodes().rebalance, nodes.rebalance, "it has ended already");
    ask(&both, &[]).unwrap();
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    wait_for_end(&two);
}
