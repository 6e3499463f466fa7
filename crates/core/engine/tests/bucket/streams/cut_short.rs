//! Streams whose cursor memory recovery takes away in the middle of a snapshot.

use std::cell::RefCell;
use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::dcp::{
    StreamEndReason, StreamFilter, StreamRequest, StreamStep, VbucketDcpStream,
};
use oribi_engine::{BackfillPause, Bucket, BucketConfig};
use oribi_storage::MemoryStore;
use oribi_types::{Seqno, VbUuid};

use super::super::{NOW, config, entropy};
use super::{StreamContents, WakeCount, backfill, from, take_run_of, write};

/// The filter has taken note of the end when the snapshot is announced, so the event must come.
#[test]
fn a_stream_ends_with_its_last_collection() {
    for is_short in [false, true] {
        let config = BucketConfig { memory_quota_bytes: 4 << 20, ..config() };
        let store = Arc::new(MemoryStore::new());
        let bucket = Bucket::open(config, store, entropy(), true).expect("the bucket opens");
        let (scope, name) = ("_default".to_owned(), "c".to_owned());
        let create = ManifestChange::CreateCollection {
            scope: scope.clone(),
            name: name.clone(),
            max_ttl_s: None,
        };
        bucket.update_manifest(&create).expect("a new collection");
        let id = bucket.manifest().scopes()[0].collections[1].id;
        let request = from(0, VbUuid(0), StreamFilter::Collections(vec![id]));
        let sink = Arc::<WakeCount>::default();
        let mut stream = bucket.open_stream(&request, sink, 1).expect("it opens");
        let mut heard = StreamContents::default();
        heard.read(&mut stream);
        backfill(&bucket);
        heard.read(&mut stream);
        bucket.update_manifest(&ManifestChange::DropCollection { scope, name }).expect("it is");
        assert!(matches!(stream.next(), StreamStep::Snapshot(_)));
        if is_short {
            write(&bucket, 0..700, &"x".repeat(1000));
            bucket.flush_step().expect("the store is sound");
            assert_eq!(bucket.recover_checkpoints_step().cursors_dropped, 1);
        }
        let before = heard.seqno;
        heard.read(&mut stream);
        assert!(heard.seqno > before, "the event comes");
        assert_eq!(heard.end, Some(StreamEndReason::FilterEmpty), "cursor dropped: {is_short}");
    }
}

/// A stream that has heard of five documents, and of a snapshot of 700 more that begins behind
/// them. The queue has no memory for more.
fn in_a_long_snapshot() -> (Arc<Bucket>, VbucketDcpStream, StreamContents) {
    let config = BucketConfig { memory_quota_bytes: 4 << 20, ..config() };
    let store = Arc::new(MemoryStore::new());
    let bucket = Bucket::open(config, store, entropy(), true).expect("the bucket opens");
    write(&bucket, 0..5, "old");
    let request = from(0, VbUuid(0), StreamFilter::All);
    let mut stream =
        bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).expect("it opens");
    let mut heard = StreamContents::default();
    heard.read(&mut stream);
    assert_eq!(heard.snapshots, [(Seqno(0), Seqno(5))]);
    write(&bucket, 0..700, &"x".repeat(1000));
    assert!(matches!(stream.next(), StreamStep::Snapshot(long) if long.start == Seqno(5)));
    (bucket, stream, heard)
}

#[test]
fn a_sent_snapshot_is_whole_after_memory_recovery() {
    let (bucket, mut stream, mut heard) = in_a_long_snapshot();
    for _ in 0..700 {
        assert!(matches!(stream.next(), StreamStep::Change(_)));
    }
    bucket.flush_step().expect("the store is sound");
    assert_eq!(bucket.recover_checkpoints_step().cursors_dropped, 1);
    write(&bucket, 2..4, "new");
    heard.read(&mut stream);
    assert_eq!(heard.snapshots[1..], [(Seqno(705), Seqno(707))]);
}

// Compat (Change streams): Slow readers
// Invariant: The memory of unsent changes is counted, and the queue frees it when memory is short.
/// The rest of a snapshot left the queue. What the reader has of it is no state that it could go
/// back to, so the next snapshot begins where the lost one did.
#[test]
fn a_snapshot_cut_by_memory_recovery_is_sent_again() {
    let (bucket, mut stream, mut heard) = in_a_long_snapshot();
    let sent = take_run_of(&mut stream, 3);
    assert_eq!(sent, [6, 7, 8]);
    bucket.flush_step().expect("the store is sound");
    assert_eq!(bucket.recover_checkpoints_step().cursors_dropped, 1);
    write(&bucket, 2..4, "new");
    heard.read(&mut stream);
    let (stream, heard) = (RefCell::new(stream), RefCell::new(heard));
    let keep_up = |_| {
        heard.borrow_mut().read(&mut stream.borrow_mut());
        true
    };
    bucket.backfill_step(&keep_up, &|| NOW).expect("the store is sound");
    keep_up(BackfillPause { idle: 0, has_waiters: false });
    assert_eq!(stream.borrow().stats().cursors_dropped, 1);
    let heard = heard.into_inner();
    let again = [(Seqno(5), Seqno(705)), (Seqno(705), Seqno(707))];
    assert_eq!(heard.snapshots[1..], again);
    assert_eq!((heard.table.len(), &heard.table[&b"k3"[..]][..]), (700, &b"new"[..]));
    assert_eq!(heard.table[&b"k0"[..]], b"old", "what was sent is not sent again");
}

// The stream ended with success where its reader had a part of a snapshot.
#[test]
fn a_stream_that_is_cut_at_its_end_sends_the_rest() {
    let config = BucketConfig { memory_quota_bytes: 4 << 20, ..config() };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true);
    let bucket = bucket.expect("the bucket opens");
    write(&bucket, 0..700, &"x".repeat(1000));
    let request = StreamRequest { end: Seqno(3), ..from(0, VbUuid(0), StreamFilter::All) };
    let mut stream =
        bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).expect("it opens");
    assert!(matches!(stream.next(), StreamStep::Snapshot(long) if long.end == Seqno(700)));
    assert_eq!(take_run_of(&mut stream, 3), [1, 2, 3]);
    bucket.flush_step().expect("the store is sound");
    assert_eq!(bucket.recover_checkpoints_step().cursors_dropped, 1);
    let heard = StreamContents { seqno: 3, ..StreamContents::default() };
    let (stream, heard) = (RefCell::new(stream), RefCell::new(heard));
    let keep_up = |_| {
        heard.borrow_mut().read(&mut stream.borrow_mut());
        true
    };
    keep_up(BackfillPause { idle: 0, has_waiters: false });
    bucket.backfill_step(&keep_up, &|| NOW).expect("the store is sound");
    keep_up(BackfillPause { idle: 0, has_waiters: false });
    let heard = heard.into_inner();
    assert_eq!((heard.end, heard.seqno), (Some(StreamEndReason::Ok), 700));
    assert_eq!(heard.snapshots, [(Seqno(0), Seqno(700))]);
}
