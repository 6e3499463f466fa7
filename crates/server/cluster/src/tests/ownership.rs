//! Each vbucket has one owner at a time: takeover, hand-over, failover, and the end of a lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_storage::SharedMemoryStore;
use oribi_testkit::{EtcdServer, PATIENCE, TcpProxy, poll_until};
use oribi_types::Vbid;

use super::{Node, bucket_config, vbuckets, wait_for_shares};
use crate::agreement::RecordChange;
use crate::agreement::memory::MemoryAgreement;
use crate::buckets::SharedBucket as _;
use crate::secret::ClusterSecret;

#[test]
fn nodes_share_vbuckets_and_hand_over_in_order() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let one = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&one, 16)]);
    for vbid in vbuckets() {
        one.write(vbid, "k", "1").unwrap();
    }
    let two = Node::start("two", etcd.port(), &medium);
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    for vbid in vbuckets() {
        let (here, there) = if one.serves(vbid) { (&one, &two) } else { (&two, &one) };
        // The writes did not ask for durability; an orderly hand-over keeps them all the same.
        assert_eq!(here.read(vbid, "k"), Some(Some("1".to_owned())), "{vbid}");
        assert_eq!(there.read(vbid, "k"), None, "{vbid}");
        here.write(vbid, "k", "2").unwrap();
    }
    let (map_of_one, map_of_two) = (one.topology(), two.topology());
    let (map_of_one, map_of_two) = (map_of_one.unwrap(), map_of_two.unwrap());
    assert_eq!((map_of_one.epoch, map_of_one.rev), (map_of_two.epoch, map_of_two.rev));
    assert_eq!(map_of_one.buckets, map_of_two.buckets);
    assert_eq!(map_of_one.nodes.len(), 2);

    one.cluster.leave();
    assert_eq!(one.served(), 0);
    wait_for_shares(&[(&two, 16)]);
    for vbid in vbuckets() {
        assert_eq!(two.read(vbid, "k"), Some(Some("2".to_owned())), "{vbid}");
    }
}

#[test]
fn a_failover_names_a_node_that_has_copies() {
    let agreement = MemoryAgreement::new(Box::new(|| Duration::ZERO));
    let store = Arc::new(SharedMemoryStore::on(Arc::default()));
    let secret = Some(ClusterSecret::of_test());
    let node =
        Node::start_with_secret(agreement.clone(), ("one", secret), (bucket_config(), store));
    let is_known = || node.in_etcd().contains_key("c/roster").then_some(());
    poll_until(PATIENCE, is_known).expect("the node has a number");
    let error = node.cluster.fail_over("two", false).unwrap_err().to_string();
    assert!(error.contains("\"two\"") && error.contains("there are one"), "{error}");
    // The node has no vbucket with copies, so there is nothing to do.
    node.cluster.fail_over("one", false).unwrap();
    assert!(!node.in_etcd().contains_key("c/failover"));
}

#[test]
fn a_node_cut_from_etcd_stops_before_the_takeover() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let proxy = TcpProxy::start(etcd.port()).unwrap();
    let cut_off = Node::start("cut-off", proxy.port(), &medium);
    let other = Node::start("other", etcd.port(), &medium);
    wait_for_shares(&[(&cut_off, 8), (&other, 8)]);
    let lost: Vec<Vbid> = vbuckets().filter(|vbid| cut_off.serves(*vbid)).collect();
    for vbid in &lost {
        cut_off.write(*vbid, "k", "persisted").unwrap();
    }
    cut_off.flushed();
    proxy.cut();
    let taken_over = poll_until(PATIENCE, || {
        for vbid in &lost {
            // The order matters: ownership moves one way only.
            let (new, old) = (other.serves(*vbid), cut_off.serves(*vbid));
            assert!(!(new && old), "{vbid} is served twice");
        }
        (other.served() == 16).then_some(())
    });
    assert!(taken_over.is_some(), "no node takes over");
    assert_eq!(cut_off.served(), 0);
    for vbid in &lost {
        assert_eq!(other.read(*vbid, "k"), Some(Some("persisted".to_owned())));
        other.write(*vbid, "k", "newer").unwrap();
    }
    proxy.mend();
    wait_for_shares(&[(&cut_off, 8), (&other, 8)]);
    for vbid in &lost {
        let here = if cut_off.serves(*vbid) { &cut_off } else { &other };
        assert_eq!(here.read(*vbid, "k"), Some(Some("newer".to_owned())));
    }
}

// Invariant: A node deletes the key of a vbucket that it neither serves nor takes over.
#[test]
fn a_node_releases_keys_that_it_does_not_serve() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let node = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&node, 16)]);
    let before = node.in_etcd();
    let held = |name: &str| name.starts_with("held/");
    assert_eq!(before.keys().filter(|name| held(name)).count(), 16);
    // As if it had given the vbucket up without reaching etcd.
    let (_, own) = before.iter().find(|(name, _)| held(name)).unwrap();
    let leftover = format!("/oribi/test/held/default/{}/0003", "1".repeat(32));
    let session = own.session.unwrap();
    node.change_etcd(&[RecordChange::put_in(session, leftover.clone(), own.value.clone())]);
    let is_gone = || (!node.in_etcd().values().any(|entry| entry.key == leftover)).then_some(());
    poll_until(PATIENCE, is_gone).expect("no other node could ever take it over");
    assert_eq!(node.served(), 16);
    // The same when a bucket is removed while it is served.
    node.cluster.withdraw(&*node.bucket()).unwrap();
    let is_free = || (!node.in_etcd().keys().any(|name| held(name))).then_some(());
    poll_until(PATIENCE, is_free).expect("nothing of a deleted bucket is held");
}

#[test]
fn an_unexpectedly_lost_vbucket_is_taken_over_again() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let node = Node::start("one", etcd.port(), &Arc::default());
    wait_for_shares(&[(&node, 16)]);
    // As the flusher does when the store reports another owner.
    node.bucket().bucket().deactivate(Vbid(3));
    wait_for_shares(&[(&node, 16)]);
    assert!(node.in_etcd().keys().any(|name| name.ends_with("/0003")));
}

// Invariant: A separate thread renews the lease, so that other work cannot delay it.
#[test]
fn a_node_without_store_gets_no_vbuckets() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let way = store.cut_off();
    let leader = Node::start_over("one", etcd.port(), (bucket_config(), Arc::clone(&store)));
    let is_leading = || leader.in_etcd().contains_key("c/map").then_some(());
    poll_until(PATIENCE, is_leading).expect("it leads");
    // It makes a map for the joining node, keeps its lease, and releases what it cannot take over.
    let other = Node::start("two", etcd.port(), &medium);
    wait_for_shares(&[(&leader, 0), (&other, 16)]);
    for vbid in vbuckets() {
        other.write(vbid, "k", "1").unwrap();
    }
    let sessions = leader.cluster.lease.session();
    assert!(leader.cluster.lease.is_held());
    drop(way);
    wait_for_shares(&[(&leader, 8), (&other, 8)]);
    assert_eq!(leader.cluster.lease.session(), sessions);
    for vbid in vbuckets().filter(|vbid| leader.serves(*vbid)) {
        assert_eq!(leader.read(vbid, "k"), Some(Some("1".to_owned())), "{vbid}");
    }
}

#[test]
fn a_node_waiting_for_its_store_leaves_on_request() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let one = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&one, 16)]);
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let _way = store.cut_off();
    let two = Node::start_over("two", etcd.port(), (bucket_config(), Arc::clone(&store)));
    wait_for_shares(&[(&one, 8)]);
    let begun = Instant::now();
    two.cluster.leave();
    assert!(begun.elapsed() < Duration::from_secs(30), "it waits for the store");
    wait_for_shares(&[(&one, 16)]);
    two.cluster.stop();
}

#[test]
fn unflushed_items_are_flushed_when_the_lease_ends() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let proxy = TcpProxy::start(etcd.port()).unwrap();
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let node = Node::start_over("one", proxy.port(), (bucket_config(), Arc::clone(&store)));
    wait_for_shares(&[(&node, 16)]);
    node.flushed();
    // One write blocks the flusher, so that the others are still queued when the lease ends.
    let way = store.cut_off();
    node.write(Vbid(0), "first", "1").unwrap();
    let is_held_up = || (store.waiting() > 0).then_some(());
    poll_until(PATIENCE, is_held_up).expect("the flusher waits for the store");
    for vbid in vbuckets() {
        node.write(vbid, "k", "only in memory").unwrap();
    }
    proxy.cut();
    wait_for_shares(&[(&node, 0)]);
    drop(way);
    node.flushed();
    proxy.mend();
    wait_for_shares(&[(&node, 16)]);
    for vbid in vbuckets() {
        assert_eq!(node.read(vbid, "k"), Some(Some("only in memory".to_owned())), "{vbid}");
    }
}
