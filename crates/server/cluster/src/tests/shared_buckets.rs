//! All nodes create, change and delete the same buckets and collections.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_testkit::{EtcdServer, PATIENCE, poll_until};

use super::{Node, wait_for_shares};
use crate::agreement::RecordChange;
use crate::buckets::SharedBucket as _;

#[test]
fn every_node_has_the_same_collections_and_deletions() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let (one, two) =
        (Node::start("one", etcd.port(), &medium), Node::start("two", etcd.port(), &medium));
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    let before = two.topology().unwrap().buckets["default"].rev;
    let create = |name: &str| ManifestChange::CreateCollection {
        scope: "_default".to_owned(),
        name: name.to_owned(),
        max_ttl_s: None,
    };
    one.cluster.update_manifest(&*one.bucket(), &create("a")).unwrap();
    two.cluster.update_manifest(&*two.bucket(), &create("b")).unwrap();
    for node in [&one, &two] {
        // Clients ask another node right after the answer.
        let manifest = node.bucket().bucket().manifest();
        let has = |name| manifest.collection_id("_default", name).is_ok();
        assert!(has("a") && has("b"), "both collections are everywhere");
        assert_eq!(manifest.uid().0, 2);
    }
    let is_newer = || (two.topology()?.buckets["default"].rev > before).then_some(());
    poll_until(PATIENCE, is_newer).expect("clients are shown a newer configuration");

    one.cluster.delete_bucket(&*one.bucket()).unwrap();
    for node in [&one, &two] {
        let is_gone = || node.buckets.get("default").is_none().then_some(());
        poll_until(PATIENCE, is_gone).expect("every node closes the bucket");
    }
}

#[test]
fn the_leader_removes_data_of_a_deleted_bucket() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let node = Node::start("one", etcd.port(), &Arc::default());
    wait_for_shares(&[(&node, 16)]);
    // As if the node that deleted it had died before removing it. This kind of storage has no
    // remains.
    let key = "c/deleted/other";
    let remains = br#"{"bucket":"b","storage":"log","id":"t"}"#.to_vec();
    node.change_etcd(&[RecordChange::put(format!("/oribi/test/{key}"), remains)]);
    let is_done = || node.in_etcd()[key].value.is_empty().then_some(());
    poll_until(PATIENCE, is_done).expect("the leader notes that the data is removed");
}
