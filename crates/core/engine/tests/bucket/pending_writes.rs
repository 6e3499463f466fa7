//! Durable writes that wait for the store: what other requests see until then.

use std::sync::Arc;

use oribi_engine::dcp::{StreamEndReason, StreamFilter, StreamOptions, StreamRequest, StreamStep};
use oribi_engine::{
    Bucket, LockOutcome, MutationOutcome, OperationRejection, StoreRequest, WriteVisibility,
};
use oribi_storage::MemoryStore;
use oribi_types::{Cas, DocKey, Seqno, VbUuid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key, open, set};

fn durable(bucket: &Bucket, name: DocKey<'_>, request: &StoreRequest<'_>) -> MutationOutcome {
    let vbucket = bucket.vbucket(VB).expect("it exists");
    vbucket.store(&bucket.context(NOW).visible(WriteVisibility::WhenStored), name, request)
}

fn lock(bucket: &Bucket, name: DocKey<'_>) -> LockOutcome {
    bucket.vbucket(VB).expect("it exists").get_and_lock(&bucket.context(NOW), name, 15)
}

// A lock was given out whose holder then lost the document to the durable write.
#[test]
fn no_lock_is_given_out_during_a_durable_write() {
    let bucket = open(Arc::new(MemoryStore::new()));
    done(bucket.store(VB, key("a"), &set("old"), NOW));
    done(durable(&bucket, key("a"), &set("new")));
    let refused = lock(&bucket, key("a"));
    let is_refused =
        matches!(refused, LockOutcome::Refused(OperationRejection::DurableWriteInProgress));
    assert!(is_refused, "{refused:?}");
    bucket.flush_step().expect("the store is sound");
    let LockOutcome::Done { item, cas } = lock(&bucket, key("a")) else { panic!("it is free") };
    assert_eq!(item.value(), b"new");
    let locked = durable(&bucket, key("a"), &set("newer"));
    assert!(matches!(locked, MutationOutcome::Refused(OperationRejection::Locked)), "{locked:?}");
    let request = StoreRequest { cas, ..set("newest") };
    done(durable(&bucket, key("a"), &request));
    bucket.flush_step().expect("the store is sound");
    assert!(
        matches!(lock(&bucket, key("a")), LockOutcome::Done { .. }),
        "the write ended the lock"
    );
    assert_ne!(cas, Cas(0));
}

// A reader that asked for everything up to now waited for a write that was not visible yet.
#[test]
fn the_visible_seqno_is_before_a_pending_write() {
    let bucket = open(Arc::new(MemoryStore::new()));
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    done(durable(&bucket, key("b"), &set("2")));
    let stats = || bucket.vbucket(VB).expect("it exists").stats();
    let seqnos = |stats: oribi_engine::VbucketStats| (stats.visible_seqno, stats.high_seqno);
    assert_eq!(seqnos(stats()), (Seqno(1), Seqno(2)));
    let request = StreamRequest {
        vbid: VB,
        start: Seqno(0),
        end: Seqno(u64::MAX),
        uuid: VbUuid(0),
        snapshot: (Seqno(0), Seqno(0)),
        client_purge_seqno: None,
        flags: StreamOptions { to_latest: true, ..StreamOptions::default() },
        filter: StreamFilter::All,
    };
    let sink = Arc::new(crate::replicas::NoSink);
    let mut stream = bucket.open_stream(&request, sink, 1).expect("it opens");
    assert!(matches!(stream.next(), StreamStep::Snapshot(marker) if marker.end == Seqno(1)));
    assert!(matches!(stream.next(), StreamStep::Change(_)));
    assert!(matches!(stream.next(), StreamStep::End(StreamEndReason::Ok)));
    bucket.flush_step().expect("the store is sound");
    assert_eq!(seqnos(stats()), (Seqno(2), Seqno(2)));
}
