//! Durable writes over two or three copies: who sees a prepare, when it is committed, and what a
//! restart, a backfill and a promotion make of it.

use std::ops::Bound;
use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::dcp::{StreamChange, StreamFilter, StreamRequest, StreamStep};
use oribi_engine::{
    AppliedMutation, GetOutcome, ListError, ListRequest, MutationOutcome, OperationRejection,
    PersistOutcome, PersistenceSink, WriteVisibility,
};
use oribi_storage::{MemoryStore, StoreMaintenance as _};
use oribi_types::{Cas, CollectionId, CopiesEpoch, DocKey, DurabilityLevel, Seqno};
use parking_lot::Mutex;

use super::node::{EPOCH, MAJORITY, Node, PERSIST, feed, trio};
use super::world::{Link, NoSink, replica_request};
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key, set};

/// What a client's stream shows from the beginning.
fn shown(node: &Node) -> Vec<(u64, String)> {
    let request = StreamRequest {
        filter: StreamFilter::All,
        start: Seqno(0),
        snapshot: (Seqno(0), Seqno(0)),
        ..replica_request(&node.bucket)
    };
    let mut stream = node.bucket.open_stream(&request, Arc::new(NoSink), 9).expect("it opens");
    let mut changes = Vec::new();
    loop {
        node.bucket.backfill_step(&|_| false, &|| NOW).expect("the store is sound");
        match stream.next() {
            StreamStep::Idle => return changes,
            StreamStep::Change(StreamChange::Document(found)) => {
                assert_ne!(found.record.key.collection, CollectionId::PREPARES);
                let value = String::from_utf8_lossy(found.record.value).into_owned();
                changes.push((found.record.seqno.0, value));
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Outcomes(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for Outcomes {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

fn everything() -> ListRequest {
    ListRequest {
        collection: CollectionId::DEFAULT,
        from: Bound::Included(Vec::new()),
        until: Bound::Unbounded,
        rows_max: 9,
        now: NOW,
    }
}

fn wait(node: &Node, write: AppliedMutation) -> (Arc<Outcomes>, Option<Seqno>) {
    let outcomes = Arc::new(Outcomes::default());
    let sink: Arc<dyn PersistenceSink> = outcomes.clone();
    let asked = ((write.seqno, Some(write.vb_uuid)), false);
    let commit = node.bucket.when_committed(VB, asked, &sink, 5);
    (outcomes, commit)
}

#[test]
fn a_prepare_is_seen_once_a_majority_has_it() {
    let (active, second, third) = trio();
    done(active.bucket.store(VB, key("a"), &set("0"), NOW));
    let write = active.write("a", "1", MAJORITY);
    let (outcomes, commit) = wait(&active, write);
    let mut links = [feed(&active, &second), feed(&active, &third)];
    for node in [&active, &second, &third] {
        assert_eq!(node.value("a").as_deref(), Some("0"));
    }
    let refused = active.try_write("a", "2", DurabilityLevel::Majority);
    let is_refused =
        matches!(refused, MutationOutcome::Refused(OperationRejection::DurableWriteInProgress));
    assert!(is_refused && commit.is_none() && outcomes.0.lock().is_empty(), "{refused:?}");
    assert_eq!(shown(&active), [(1, "0".into())]);
    second.acknowledge(&active, CopiesEpoch(0));
    assert_eq!(active.value("a").as_deref(), Some("0"), "an earlier epoch counts nothing");
    second.acknowledge(&active, EPOCH);
    assert_eq!(active.value("a").as_deref(), Some("1"));
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Committed(Seqno(3)))]);
    let GetOutcome::Hit(item) = active.bucket.get(VB, key("a"), NOW) else { panic!("a hit") };
    assert_eq!((item.cas(), item.seqno()), (write.cas, Seqno(write.seqno.0 + 1)));
    assert_eq!(shown(&active), [(3, "1".into())]);
    assert_eq!(third.value("a").as_deref(), Some("0"), "the commit has not come yet");
    links[0].run(&active.bucket, &second.bucket);
    links[1].run(&active.bucket, &third.bucket);
    for node in [&second, &third] {
        assert_eq!(node.value("a").as_deref(), Some("1"));
        node.flush();
    }
    let (outcomes, commit) = wait(&active, write);
    assert_eq!(commit, Some(Seqno(3)), "it is committed already");
    assert!(outcomes.0.lock().is_empty());
    active.flush();
}

#[test]
fn outcomes_have_the_order_of_prepares() {
    let (active, second, third) = trio();
    let persisted = active.write("a", "1", PERSIST);
    active.write("b", "1", MAJORITY);
    let (_second, _third) = (feed(&active, &second), feed(&active, &third));
    third.acknowledge(&active, EPOCH);
    assert_eq!((active.value("a"), active.value("b")), (None, None), "no replica has stored a");
    second.flush();
    assert_eq!(second.vbucket().acknowledgeable_seqno(), (Seqno(2), None));
    assert_eq!(third.vbucket().acknowledgeable_seqno(), (Seqno(0), Some(Seqno(1))));
    second.acknowledge(&active, EPOCH);
    assert_eq!(active.value("b"), None, "the active has not stored a");
    active.flush();
    assert_eq!((active.value("a"), active.value("b")), (Some("1".into()), Some("1".into())));
    assert_eq!(persisted.seqno, Seqno(1));
}

// The copies change between a durable write and its client's wait.
#[test]
fn a_wait_continues_in_another_epoch() {
    let (active, second, _third) = trio();
    let write = active.write("a", "1", MAJORITY);
    let epoch = CopiesEpoch(2);
    active.bucket.continue_in_epoch(VB, epoch).expect("it is active");
    active.begin(2, &[1, 2, 3]);
    let (outcomes, commit) = wait(&active, write);
    assert_eq!((commit, outcomes.0.lock().len()), (None, 0), "no outcome is known yet");
    feed(&active, &second);
    second.acknowledge(&active, epoch);
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Committed(Seqno(2)))]);
    // A write of a history that was cut before it has no outcome here.
    active.bucket.step_down(VB);
    active.bucket.promote(VB, CopiesEpoch(3)).expect("a replica");
    let other = AppliedMutation { seqno: Seqno(9), ..write };
    assert_eq!(*wait(&active, other).0.0.lock(), [(5, PersistOutcome::Failed)]);
}

/// Waits until a node that hands over appends nothing any more.
fn final_seqno(node: &Node) -> Arc<Outcomes> {
    let outcomes = Arc::new(Outcomes::default());
    let sink: Arc<dyn PersistenceSink> = Arc::clone(&outcomes) as _;
    node.bucket.when_final(VB, &sink, 1);
    outcomes
}

// A node hands over while a client waits: the client gets its answer first.
#[test]
fn a_hand_over_ends_after_its_durable_writes() {
    let (active, second, _third) = trio();
    let write = active.write("a", "1", MAJORITY);
    let (outcomes, _) = wait(&active, write);
    assert!(active.bucket.begin_hand_over(VB));
    assert!(active.vbucket().is_handing_over() && !active.vbucket().has_final_seqno());
    let finals = final_seqno(&active);
    assert!(finals.0.lock().is_empty(), "a durable write is open");
    let refused = active.try_write("b", "1", MAJORITY);
    let is_refused = matches!(refused, MutationOutcome::Refused(OperationRejection::NotMyVbucket));
    assert!(is_refused, "{refused:?}");
    let mut link = feed(&active, &second);
    second.acknowledge(&active, EPOCH);
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Committed(Seqno(2)))]);
    assert!(active.vbucket().has_final_seqno());
    assert_eq!(finals.0.lock().len(), 1);
    assert_eq!(final_seqno(&active).0.lock().len(), 1, "nothing is open");
    link.run(&active.bucket, &second.bucket);
    assert_eq!(second.value("a").as_deref(), Some("1"));
    // One that no copy acknowledges is aborted with its client's time.
    let (active, _, _) = trio();
    let write = active.write("a", "1", MAJORITY);
    assert!(active.bucket.begin_hand_over(VB));
    active.vbucket().expire_prepare(&active.bucket.context(NOW), write.seqno);
    assert!(active.vbucket().has_final_seqno());
    assert_eq!(active.vbucket().copy_standing().complete_end, Seqno(2));
}

// The copies, and then the store, are faster than the thread of the client.
#[test]
fn a_wait_for_a_stored_commit_succeeds() {
    let (active, second, _third) = trio();
    let write = active.write("a", "1", MAJORITY);
    feed(&active, &second);
    second.acknowledge(&active, EPOCH);
    active.flush();
    let (outcomes, commit) = wait(&active, write);
    assert_eq!((commit, outcomes.0.lock().len()), (Some(Seqno(2)), 0));
}

// A node hands over, and then it does not: who waits still gets an answer.
#[test]
fn a_withdrawn_hand_over_fails_no_wait() {
    let (active, second, _third) = trio();
    let write = active.write("a", "1", MAJORITY);
    let (outcomes, _) = wait(&active, write);
    assert!(active.bucket.begin_hand_over(VB));
    active.bucket.continue_in_epoch(VB, CopiesEpoch(2)).expect("it is active still");
    active.begin(2, &[1, 2, 3]);
    active.vbucket().withdraw_hand_over();
    active.write("b", "1", MAJORITY);
    feed(&active, &second);
    second.acknowledge(&active, CopiesEpoch(2));
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Committed(Seqno(3)))]);
}

#[test]
fn an_abandoned_write_is_aborted_and_never_shown() {
    let (active, second, third) = trio();
    done(active.bucket.store(VB, key("a"), &set("0"), NOW));
    let first = active.write("b", "1", MAJORITY);
    let write = active.write("a", "1", MAJORITY);
    let (outcomes, _) = wait(&active, write);
    let mut link = feed(&active, &second);
    active.vbucket().expire_prepare(&active.bucket.context(NOW), write.seqno);
    assert!(outcomes.0.lock().is_empty(), "an older prepare has no outcome yet");
    active.vbucket().expire_prepare(&active.bucket.context(NOW), first.seqno);
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Failed)]);
    let (outcomes, commit) = wait(&active, write);
    assert_eq!(commit, None, "an aborted write is not committed");
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Failed)]);
    second.acknowledge(&active, EPOCH);
    link.run(&active.bucket, &second.bucket);
    let _third = feed(&active, &third);
    for node in [&active, &second, &third] {
        assert_eq!((node.value("a").as_deref(), node.value("b")), (Some("0"), None));
        node.flush();
        assert_eq!(node.vbucket().stats().pending_writes, 0);
    }
    done(active.bucket.store(VB, key("a"), &set("2"), NOW));
    assert_eq!(shown(&active), [(1, "0".into()), (6, "2".into())]);
}

// The other copies were left out while a durable write was open: one copy is no majority of three.
#[test]
fn a_lone_active_commits_no_open_write() {
    let (active, second, _) = trio();
    let write = active.write("a", "1", MAJORITY);
    let (outcomes, _) = wait(&active, write);
    active.bucket.continue_in_epoch(VB, CopiesEpoch(2)).expect("it is active");
    active.begin(2, &[1]);
    assert!(outcomes.0.lock().is_empty() && active.value("a").is_none(), "it has one copy");
    active.bucket.continue_in_epoch(VB, CopiesEpoch(3)).expect("it is active");
    active.begin(3, &[1, 2]);
    feed(&active, &second);
    second.acknowledge(&active, CopiesEpoch(3));
    assert_eq!(*outcomes.0.lock(), [(5, PersistOutcome::Committed(Seqno(2)))]);
}

#[test]
fn a_durable_deletion_takes_effect_at_its_commit() {
    let (active, second, _) = trio();
    done(active.bucket.store(VB, key("a"), &set("0"), NOW));
    active.delete("a");
    let mut link = feed(&active, &second);
    assert_eq!((active.value("a"), second.value("a")), (Some("0".into()), Some("0".into())));
    second.acknowledge(&active, EPOCH);
    link.run(&active.bucket, &second.bucket);
    assert_eq!((active.value("a"), second.value("a")), (None, None));
}

// A promoted copy showed a prepare, or lost one that its predecessor had committed.
// A touch that changed nothing was answered as ambiguous: no prepare had its seqno.
#[test]
fn a_durable_touch_without_effect_is_committed() {
    let (active, second, _third) = trio();
    let mut link = feed(&active, &second);
    active.write("a", "1", MAJORITY);
    let mut acknowledged = || {
        link.run(&active.bucket, &second.bucket);
        second.acknowledge(&active, EPOCH);
    };
    acknowledged();
    let context = active.bucket.context(NOW).visible(WriteVisibility::WhenCommitted(MAJORITY));
    let touched = done(active.vbucket().touch(&context, key("a"), 0));
    let (outcomes, commit) = wait(&active, touched);
    assert_eq!(commit, None);
    acknowledged();
    assert!(matches!(outcomes.0.lock()[..], [(5, PersistOutcome::Committed(_))]));
    let found = active.vbucket().get_and_touch(&context, key("a"), 0);
    let GetOutcome::Hit(item) = found else { panic!("{found:?}") };
    assert!(item.seqno() > touched.seqno, "it waits for its copies too");
}

#[test]
fn a_promoted_copy_commits_first_and_answers_then() {
    let (active, second, third) = trio();
    active.write("a", "1", MAJORITY);
    let (_second, _third) = (feed(&active, &second), feed(&active, &third));
    second.acknowledge(&active, EPOCH);
    assert_eq!(active.value("a").as_deref(), Some("1"));
    second.promote(2, &[1, 2, 3]);
    let GetOutcome::Refused(refused) = second.bucket.get(VB, key("a"), NOW) else { panic!("no") };
    assert_eq!(refused, OperationRejection::Recommitting);
    let refused = second.bucket.store(VB, key("b"), &set("1"), NOW);
    assert!(matches!(refused, MutationOutcome::Refused(OperationRejection::Recommitting)));
    // Scans are refused, too, while streams to other nodes continue.
    assert!(second.vbucket().is_serving() && second.bucket.serving_vbucket(VB).is_ok());
    let refused = second.bucket.scannable_vbucket(VB).err();
    assert_eq!(refused, Some(OperationRejection::Recommitting));
    let listed = second.bucket.list_documents(&everything(), &mut || true);
    assert!(matches!(listed, Err(ListError::Recommitting)), "{listed:?}");
    second.vbucket().expire_prepare(&second.bucket.context(NOW), Seqno(1));
    let mut link = feed(&second, &third);
    third.acknowledge(&second, EPOCH);
    let is_waiting = matches!(second.bucket.get(VB, key("a"), NOW), GetOutcome::Refused(_));
    assert!(is_waiting, "an acknowledgement of an earlier epoch counts nothing");
    third.acknowledge(&second, CopiesEpoch(2));
    assert_eq!(second.value("a").as_deref(), Some("1"));
    assert!(second.bucket.scannable_vbucket(VB).is_ok());
    assert_eq!(second.bucket.list_documents(&everything(), &mut || true).expect("a list").len(), 1);
    link.run(&second.bucket, &third.bucket);
    assert_eq!(third.value("a").as_deref(), Some("1"));
}

#[test]
fn a_lone_survivor_commits_what_it_inherits() {
    let (active, second, _) = trio();
    active.write("a", "1", MAJORITY);
    let _link = feed(&active, &second);
    second.promote(2, &[2]);
    assert_eq!(second.vbucket().stats().pending_writes, 1, "its memory is the only one");
    second.flush();
    assert_eq!(second.value("a").as_deref(), Some("1"));
    assert!(!second.vbucket().is_durability_possible());
}

// A copy that was killed after it had acknowledged a persisted write came back without it.
#[test]
fn stored_prepares_are_open_after_a_restart() {
    let (active, mut second, third) = trio();
    active.write("a", "1", PERSIST);
    let link = feed(&active, &second);
    second.flush();
    assert_eq!(second.vbucket().acknowledgeable_seqno(), (Seqno(1), None));
    drop(link);
    second.restart();
    assert_eq!((second.value("a"), second.vbucket().stats().pending_writes), (None, 1));
    second.promote(2, &[1, 2, 3]);
    let _link = feed(&second, &third);
    third.flush();
    third.acknowledge(&second, CopiesEpoch(2));
    assert_eq!(second.value("a").as_deref(), Some("1"));
    second.flush();
    second.restart();
    assert_eq!(
        (second.value("a").as_deref(), second.vbucket().stats().pending_writes),
        (Some("1"), 0)
    );
}

// The store kept the document of a durable write twice, until the next durable write of its key.
#[test]
fn a_completed_prepare_leaves_the_store() {
    let (active, second, _third) = trio();
    let mut link = feed(&active, &second);
    let value = "v".repeat(1000);
    active.write("a", &value, PERSIST);
    let bytes = |node: &Node| MemoryStore::on(Arc::clone(&node.disk)).stats().disk_bytes;
    let purge = |node: &Node| {
        node.bucket.compact();
        while node.bucket.purge_tombstones_step(&|| NOW).expect("the store is sound").more {}
    };
    for node in [&active, &second] {
        if !node.vbucket().is_replica() {
            link.run(&active.bucket, &second.bucket);
        }
        node.flush();
        purge(node);
        assert!((1000..1900).contains(&bytes(node)), "the prepare is open: {}", bytes(node));
    }
    second.acknowledge(&active, EPOCH);
    link.run(&active.bucket, &second.bucket);
    for node in [&active, &second] {
        node.flush();
        assert!(bytes(node) > 2000, "prepare and document: {}", bytes(node));
        purge(node);
        assert!((1000..1900).contains(&bytes(node)), "the document: {}", bytes(node));
        assert_eq!(node.value("a").as_deref(), Some(&value[..]));
    }
}

// A completed prepare in the store was taken for an open one.
#[test]
fn completed_prepares_in_the_store_are_over() {
    let (active, mut second, third) = trio();
    let rounds = ["1", "2", "3"];
    for value in rounds {
        let write = active.write("a", value, MAJORITY);
        active.flush();
        let _link = feed(&active, &second);
        second.flush();
        if value == "2" {
            active.vbucket().expire_prepare(&active.bucket.context(NOW), write.seqno);
        } else {
            second.acknowledge(&active, EPOCH);
        }
        active.flush();
        let _link = feed(&active, &second);
        second.flush();
    }
    done(active.bucket.delete(VB, key("a"), Cas(0), NOW));
    active.flush();
    let _link = feed(&active, &second);
    second.flush();
    let _third = feed(&active, &third);
    second.restart();
    for node in [&active, &second, &third] {
        assert_eq!((node.value("a"), node.vbucket().stats().pending_writes), (None, 0));
    }
}

#[test]
fn an_open_prepare_comes_with_a_backfill() {
    let (active, second, third) = trio();
    done(active.bucket.store(VB, key("b"), &set("1"), NOW));
    active.write("a", "1", MAJORITY);
    active.flush();
    let _link = feed(&active, &second);
    assert_eq!(second.vbucket().stats().pending_writes, 1);
    assert_eq!(shown(&active), [(1, "1".into())]);
    second.acknowledge(&active, EPOCH);
    let _link = feed(&active, &third);
    assert_eq!((active.value("a"), third.value("a")), (Some("1".into()), Some("1".into())));
    done(active.bucket.store(VB, key("a"), &set("2"), NOW));
}

// A backfill completed a prepare while an older one was open. It was open again after a restart,
// and a promotion committed it over newer data.
#[test]
fn a_prepare_with_a_newer_version_is_not_open() {
    let (active, mut second, _) = trio();
    active.write("a", "1", MAJORITY);
    active.write("b", "1", MAJORITY);
    drop(feed(&active, &second));
    second.flush();
    second.acknowledge(&active, EPOCH);
    done(active.bucket.store(VB, key("b"), &set("2"), NOW));
    done(active.bucket.store(VB, key("a"), &set("2"), NOW));
    active.flush();
    let mut link = Link::open(&active.bucket, &second.bucket).expect("a stream");
    while link.change_count() == 0 {
        active.bucket.backfill_step(&|_| false, &|| NOW).expect("the store is sound");
        link.receive(1);
    }
    link.apply_part(&second.bucket);
    drop(link);
    second.flush();
    second.restart();
    assert_eq!(second.vbucket().stats().pending_writes, 1, "the older one is open");
    drop(feed(&active, &second));
    assert_eq!(second.vbucket().stats().pending_writes, 0);
    second.promote(2, &[2]);
    assert_eq!(
        (second.value("a").as_deref(), second.value("b").as_deref()),
        (Some("2"), Some("2"))
    );
}

// A prepare of a collection that was dropped was open again after a restart.
#[test]
fn a_prepare_of_a_dropped_collection_is_not_open() {
    let (active, mut second, _) = trio();
    let (scope, name) = ("_default".to_owned(), "c".to_owned());
    let change = |change: &ManifestChange| {
        active.bucket.update_manifest(change).expect("the change fits");
        let manifest = active.bucket.manifest();
        second.bucket.install_manifest(&manifest.to_stored_json()).expect("it is a manifest");
        second.bucket.store_manifest().expect("the store is sound");
        let all = manifest.scopes().iter().flat_map(|scope| &scope.collections);
        all.map(|collection| collection.id).max().expect("there is a default collection")
    };
    let create = ManifestChange::CreateCollection {
        scope: scope.clone(),
        name: name.clone(),
        max_ttl_s: None,
    };
    let collection = change(&create);
    let context = active.bucket.context(NOW).visible(WriteVisibility::WhenCommitted(MAJORITY));
    done(active.vbucket().store(&context, DocKey { collection, key: b"a" }, &set("1")));
    drop(feed(&active, &second));
    second.flush();
    assert_eq!(second.vbucket().stats().pending_writes, 1);
    change(&ManifestChange::DropCollection { scope, name });
    second.restart();
    assert_eq!(second.vbucket().stats().pending_writes, 0);
}
