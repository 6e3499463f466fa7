//! What begins and ends a copy's following.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use oribi_engine::BucketConfig;
use oribi_storage::MemoryStore;
use oribi_types::{CopiesEpoch, CopyId, Seqno, Vbid};
use parking_lot::Mutex;

use super::{LinkSubmission, LinkWorker, ReplicationLinks, Resolver};
use crate::buckets::{BucketHandle, Buckets};
use crate::buckets::{CopyLinks as _, ReplicaSource};
use crate::replication::ReplicaPhase;
use crate::replication::followed_copy::FollowedCopy;
use crate::replication::message::{LinkId, LinkMessage};
use crate::replication::work::{CopyWork, LinkWork};

fn bucket() -> Arc<BucketHandle> {
    let store = Arc::new(MemoryStore::new());
    Buckets::in_memory().open_over(BucketConfig::default(), store, true, false).unwrap()
}

fn source(epoch: u64) -> ReplicaSource {
    let (epoch, copy) = (CopiesEpoch(epoch), CopyId { node: 2, copy: 1 });
    let (node, host) = ("one".to_owned(), "127.0.0.1".to_owned());
    ReplicaSource { node, host, port: 11210, epoch, copy }
}

#[test]
fn a_repeated_follow_changes_nothing() {
    let (links, bucket) = (ReplicationLinks::default(), bucket());
    links.follow(bucket.clone(), Vbid(3), source(1));
    let key = (bucket.bucket().config().uuid.clone(), Vbid(3));
    let first = Arc::clone(&links.copies.lock()[&key]);
    links.follow(bucket.clone(), Vbid(3), source(1));
    assert!(Arc::ptr_eq(&first, &links.copies.lock()[&key]));
    links.follow(bucket.clone(), Vbid(3), source(2));
    assert!(first.is_stopped() && first.enter().is_none(), "another epoch replaces it");
    assert_eq!(links.status(&key.0)[0].source.epoch, CopiesEpoch(2));
}

#[test]
fn no_change_enters_a_copy_after_stop() {
    let (links, bucket) = (ReplicationLinks::default(), bucket());
    let uuid = bucket.bucket().config().uuid.clone();
    for vbid in [1, 2, 5] {
        links.follow(bucket.clone(), Vbid(vbid), source(1));
    }
    let copies: Vec<_> = links.copies.lock().values().cloned().collect();
    assert!(copies.iter().all(|copy| copy.enter().is_some()));
    links.stop(&uuid, Vbid(2));
    links.stop(&uuid, Vbid(2));
    let entered: Vec<bool> = copies.iter().map(|copy| copy.enter().is_some()).collect();
    assert_eq!(entered, [true, false, true]);
    let status = links.status(&uuid);
    assert_eq!(status.iter().map(|one| one.vbid).collect::<Vec<_>>(), [Vbid(1), Vbid(5)]);
    assert_eq!((status[0].phase, status[0].active_seqno), (ReplicaPhase::Waiting, Seqno(0)));
    links.stop_bucket("another");
    assert_eq!(links.status(&uuid).len(), 2);
    links.stop_bucket(&uuid);
    assert!(copies.iter().all(|copy| copy.enter().is_none()));
    assert!(links.status(&uuid).is_empty());
}

/// A worker that takes the results of work.
struct Results(Mutex<Sender<LinkMessage>>);

impl LinkWorker for Results {
    fn post_link(&self, message: LinkMessage) {
        self.0.lock().send(message).expect("the test waits");
    }
}

// A name server that was silent delayed the copies of all nodes.
#[test]
fn names_and_copies_do_not_wait_for_each_other() {
    let (links, bucket) = (ReplicationLinks::default(), bucket());
    let (sender, results) = channel();
    let worker: Arc<dyn LinkWorker> = Arc::new(Results(Mutex::new(sender)));
    let submit = |attempt, work| {
        let (link, reply_to) = (LinkId { slot: 1, attempt }, Arc::clone(&worker));
        links.submit(LinkSubmission { work, link, reply_to });
    };
    let copy = Arc::new(FollowedCopy::new(bucket, Vbid(3), source(1)));
    let held = copy.enter().expect("it follows");
    submit(1, LinkWork::Copy { copy: Arc::clone(&copy), work: CopyWork::FollowEvents(vec![]) });
    submit(2, LinkWork::Resolve { host: "127.0.0.1".to_owned(), port: 1 });
    let attempt = |message| match message {
        LinkMessage::WorkDone { link, .. } => link.attempt,
        _ => panic!("only results of work come"),
    };
    let limit = Duration::from_secs(20);
    assert_eq!(attempt(results.recv_timeout(limit).expect("the name is resolved")), 2);
    drop(held);
    assert_eq!(attempt(results.recv_timeout(limit).expect("the copy is free")), 1);
    links.shut_down();
}

// One name that hung delayed all others: what had waited for long was dropped, and asked again.
#[test]
fn a_name_that_hangs_delays_no_other() {
    let (gate, open) = channel::<()>();
    let open = Mutex::new(open);
    let resolver = Resolver::with(Arc::new(move |host: &str, _| {
        if host == "hangs" {
            let _ = open.lock().recv();
        }
        Ok(Vec::new())
    }));
    let links = ReplicationLinks { resolver, ..ReplicationLinks::default() };
    let (sender, results) = channel();
    let worker: Arc<dyn LinkWorker> = Arc::new(Results(Mutex::new(sender)));
    let ask = |attempt, slot, host: &str| {
        let (link, reply_to) = (LinkId { slot, attempt }, Arc::clone(&worker));
        let work = LinkWork::Resolve { host: host.to_owned(), port: 1 };
        links.submit(LinkSubmission { work, link, reply_to });
    };
    let limit = Duration::from_secs(20);
    let attempt = || match results.recv_timeout(limit).expect("a result") {
        LinkMessage::WorkDone { link, .. } => link.attempt,
        _ => panic!("only results of work come"),
    };
    ask(1, 1, "hangs");
    ask(2, 2, "answers");
    assert_eq!(attempt(), 2);
    // The link gave up and asks again, and so does another one; one look-up serves both.
    ask(3, 1, "hangs");
    ask(4, 3, "hangs");
    gate.send(()).expect("the look-up waits");
    assert_eq!((attempt(), attempt()), (3, 4));
    assert!(results.try_recv().is_err(), "the first question is withdrawn");
    links.shut_down();
}
