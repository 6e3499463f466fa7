//! Nodes put the same settings of a bucket in force.

use std::sync::Arc;
use std::time::Duration;

use oribi_storage::{SharedMedium, SharedMemoryStore};
use oribi_testkit::{PATIENCE, poll_until};
use serde_json::{Value, json};

use super::{Node, bucket_config, wait_for_shares};
use crate::agreement::RecordChange;
use crate::agreement::memory::MemoryAgreement;
use crate::bucket_settings::BucketSettingsError;

fn agreement() -> Arc<MemoryAgreement> {
    MemoryAgreement::new(Box::new(|| Duration::ZERO))
}

fn start(agreement: &Arc<MemoryAgreement>, name: &str, medium: &Arc<SharedMedium>) -> Node {
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(medium)));
    Node::start_by(agreement.clone(), name, (bucket_config(), store))
}

fn two_nodes(agreement: &Arc<MemoryAgreement>) -> (Node, Node) {
    let medium = Arc::default();
    let nodes = (start(agreement, "one", &medium), start(agreement, "two", &medium));
    wait_for_shares(&[(&nodes.0, 8), (&nodes.1, 8)]);
    nodes
}

/// Adds a setting by a node.
fn set(node: &Node, setting: &str, value: u32) -> Result<(), BucketSettingsError<String>> {
    node.cluster.change_bucket(&*node.bucket(), &mut |before| {
        let mut settings: Value =
            serde_json::from_slice(before).map_err(|error| error.to_string())?;
        settings[setting] = json!(value);
        Ok(settings.to_string().into_bytes())
    })
}

fn has(node: &Node, setting: &str, value: u32) -> bool {
    let settings: Value = serde_json::from_str(&node.buckets.settings()).unwrap();
    settings[setting] == json!(value)
}

#[test]
fn an_answered_change_is_in_force_on_every_node() {
    let agreement = agreement();
    let (one, two) = two_nodes(&agreement);
    for number in 0..20 {
        let node = if number % 2 == 0 { &one } else { &two };
        set(node, "quota", number).unwrap();
        assert!(has(&one, "quota", number) && has(&two, "quota", number), "{number}");
    }
    std::thread::scope(|scope| {
        for (node, setting) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
            scope.spawn(move || (0..5).for_each(|value| set(node, setting, value).unwrap()));
        }
    });
    for node in [&one, &two] {
        for setting in ["a", "b", "c", "d"] {
            assert!(has(node, setting, 4), "{setting}: {}", node.buckets.settings());
        }
    }
    assert_eq!(one.cluster.status().unwrap().settings, []);
}

#[test]
fn a_change_waits_for_every_live_node() {
    let agreement = agreement();
    let (one, two) = two_nodes(&agreement);
    let uuid = bucket_config().uuid;
    let report = json!({ "buckets": { uuid: { "revision": 1 } } }).to_string();
    let place = br#"{"host":"h","kv":1,"mgmt":2,"leaving":true}"#.to_vec();
    one.change_etcd(&[
        RecordChange::put("/oribi/test/c/nodes/slow", place),
        RecordChange::put("/oribi/test/c/settings/slow", report),
    ]);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| set(&one, "quota", 7));
        // The others have it in force before they report it.
        let is_slow_alone = || {
            let late = one.cluster.status().unwrap().settings;
            let is_here = has(&one, "quota", 7) && has(&two, "quota", 7);
            (is_here && late.len() == 1 && late[0].node == "slow").then_some(())
        };
        poll_until(PATIENCE, is_slow_alone).expect("one node is late");
        assert!(!change.is_finished());
        one.change_etcd(&[RecordChange::delete("/oribi/test/c/nodes/slow")]);
        change.join().unwrap().unwrap();
    });
}

#[test]
fn settings_that_a_node_cannot_have_are_named() {
    let agreement = agreement();
    let (one, two) = two_nodes(&agreement);
    *two.buckets.impossible.lock() = Some("tier");
    let error = set(&one, "tier", 1).unwrap_err();
    assert!(matches!(error, BucketSettingsError::Partial(_)), "{error}");
    assert!(error.to_string().contains("two: no node of this test"), "{error}");
    assert!(has(&one, "tier", 1) && !has(&two, "tier", 1));
    let troubles = one.cluster.status().unwrap().settings;
    assert_eq!((troubles.len(), troubles[0].node.as_str()), (1, "two"));
    // Another change that it can have ends that.
    *two.buckets.impossible.lock() = None;
    set(&two, "tier", 2).unwrap();
    assert_eq!(one.cluster.status().unwrap().settings, []);
}

#[test]
fn a_node_that_was_away_has_changes_before_it_serves() {
    let agreement = agreement();
    let (one, two) = two_nodes(&agreement);
    two.cluster.stop();
    drop(two);
    wait_for_shares(&[(&one, 16)]);
    set(&one, "quota", 9).unwrap();
    let again = start(&agreement, "two", &Arc::default());
    let serves = || (again.served() > 0).then(|| has(&again, "quota", 9));
    assert_eq!(poll_until(PATIENCE, serves), Some(true), "{}", again.buckets.settings());
}

#[test]
fn a_change_is_rejected_while_the_agreement_is_away() {
    let agreement = agreement();
    let (one, _two) = two_nodes(&agreement);
    agreement.set_away(true);
    assert!(matches!(set(&one, "quota", 3), Err(BucketSettingsError::Agreement(_))));
    agreement.set_away(false);
    let rejected = one.cluster.change_bucket(&*one.bucket(), &mut |_| Err("no"));
    assert!(matches!(rejected, Err(BucketSettingsError::Rejected("no"))));
}
