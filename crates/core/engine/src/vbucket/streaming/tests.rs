//! Streams of a vbucket that lives in memory only, where the queue is all that a stream has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_storage::MemoryStore;
use oribi_types::policy::{EvictionPolicy, Storage};
use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno, Timestamp, Vbid};

use super::{StreamRead, StreamRegistration};
use crate::bucket::Bucket;
use crate::checkpoint::{StreamSink, StreamWaker};
use crate::collections::ManifestChange;
use crate::config::BucketConfig;
use crate::limits::STREAM_READ_ITEMS_MAX;
use crate::outcome::{MutationOutcome, StoreRequest};
use crate::vbucket::VBucket;

const VB: Vbid = Vbid(0);
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);

#[derive(Default)]
struct RecordingSink(AtomicU64);

impl StreamSink for RecordingSink {
    fn ready(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Fixture {
    bucket: Arc<Bucket>,
    told: Arc<RecordingSink>,
}

impl Fixture {
    fn new(storage: Storage) -> Fixture {
        let config = BucketConfig {
            vbuckets: 1,
            storage,
            eviction: EvictionPolicy::None,
            flush_enabled: true,
            ..BucketConfig::default()
        };
        let mut number = 0;
        let entropy = move || {
            number += 1;
            number
        };
        let store = Arc::new(MemoryStore::new());
        let bucket = Bucket::open(config, store, Box::new(entropy), false).expect("it opens");
        Fixture { bucket, told: Arc::default() }
    }

    fn vbucket(&self) -> &VBucket {
        self.bucket.vbucket(VB).expect("it is in the map")
    }

    fn register(&self, from: u64) -> StreamRegistration {
        let waker = StreamWaker::new(Arc::clone(&self.told) as _, 7);
        self.vbucket().register_stream("stream", Seqno(from), waker).expect("it serves")
    }

    fn set(&self, name: &str) {
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        let stored = self.vbucket().store(&self.bucket.context(NOW), key, &StoreRequest::set(b"v"));
        assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
    }

    fn delete(&self, name: &str) {
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        let deleted = self.vbucket().delete(&self.bucket.context(NOW), key, Cas(0));
        assert!(matches!(deleted, MutationOutcome::Done(_)), "{deleted:?}");
    }

    /// Seqnos, and whether each is a tombstone, up to where the stream idles.
    fn read(&self, stream: StreamRegistration) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        let context = self.bucket.core().context(NOW);
        loop {
            match self.vbucket().read_stream(&context, stream.cursor) {
                StreamRead::Batch(batch) => {
                    let held = batch.hold().expect("the queue keeps it");
                    let items = held.items_after(batch.from());
                    found.extend(items.map(|item| (item.seqno().0, item.is_deleted())));
                }
                StreamRead::Idle => return found,
                StreamRead::Dropped | StreamRead::Ended => panic!("the stream is there"),
            }
        }
    }

    fn drop_stream(&self, stream: StreamRegistration) {
        self.vbucket().drop_stream(&self.bucket.core().context(NOW), stream.cursor);
        self.vbucket().check_invariants();
    }

    fn purge_seqno(&self) -> Seqno {
        self.vbucket().stats().purge_seqno
    }
}

/// Regression: a look for outcomes of prepares that found none took idle streams for woken and did
/// not wake them. It came between a write and its notice to streams, and they stalled for good.
#[test]
fn a_look_for_outcomes_wakes_idle_streams() {
    let fixture = Fixture::new(Storage::Persistent);
    let stream = fixture.register(0);
    assert_eq!(fixture.read(stream), []);
    let vbucket = fixture.vbucket();
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"k" };
    let written = crate::prepare::abort_of(key, NOW.unix_s());
    let _ = vbucket.queue.lock().enqueue_alone(written, RevSeqno(1), NOW);
    vbucket.has_pending.store(true, Ordering::Release);
    vbucket.complete_prepares(&fixture.bucket.context(NOW));
    assert_eq!(fixture.told.0.load(Ordering::Relaxed), 1, "the stream was woken");
    assert_eq!(fixture.read(stream).len(), 1);
    fixture.drop_stream(stream);
}

// Invariant: In memory only, the purge seqno rises before a tombstone is removed.
#[test]
fn a_tombstone_is_purged_after_its_last_stream() {
    let fixture = Fixture::new(Storage::Memory);
    fixture.set("a");
    fixture.delete("a");
    assert_eq!(fixture.purge_seqno(), Seqno(2), "no stream saw it");
    let stream = fixture.register(2);
    assert!(!stream.needs_backfill && stream.high_seqno == Seqno(2));
    assert!(fixture.register(1).needs_backfill);
    fixture.set("b");
    fixture.delete("b");
    fixture.set("c");
    fixture.delete("c");
    fixture.set("c");
    assert_eq!(fixture.purge_seqno(), Seqno(2));
    assert_eq!(fixture.vbucket().stats().tombstones, 1);
    fixture.vbucket().check_invariants();
    assert_eq!(fixture.read(stream), [(4, true), (7, false)]);
    fixture.bucket.vbuckets().iter().for_each(|vbucket| vbucket.close_big_checkpoint(1));
    fixture.drop_stream(stream);
    assert_eq!(fixture.purge_seqno(), Seqno(2), "another stream has not read it");
    let high = fixture.vbucket().stats().high_seqno;
    assert_eq!(fixture.vbucket().drop_slow_cursors(), 1);
    fixture.vbucket().expel_checkpoints();
    assert_eq!((fixture.purge_seqno(), high), (Seqno(4), Seqno(7)), "c came back");
    assert_eq!(fixture.vbucket().stats().tombstones, 0);
    fixture.vbucket().check_invariants();
}

#[test]
fn items_passed_by_streams_go_without_a_flusher() {
    let fixture = Fixture::new(Storage::Memory);
    let stream = fixture.register(0);
    for number in 0..10 * STREAM_READ_ITEMS_MAX {
        fixture.set(&format!("k{number}"));
        if number % 8 == 0 {
            fixture.read(stream);
        }
        assert!(fixture.vbucket().checkpoint_stats().items <= 2 * STREAM_READ_ITEMS_MAX);
    }
    fixture.drop_stream(stream);
    assert_eq!(fixture.vbucket().checkpoint_stats().items, 0);
}

#[test]
fn an_idle_stream_is_told_once() {
    for storage in [Storage::Memory, Storage::Persistent] {
        let fixture = Fixture::new(storage);
        let stream = fixture.register(0);
        fixture.set("a");
        let told = || fixture.told.0.load(Ordering::Relaxed);
        assert_eq!(told(), 0, "it was not idle");
        assert_eq!(fixture.read(stream), [(1, false)]);
        (0..3).for_each(|_| fixture.set("a"));
        assert_eq!(told(), 1);
        assert_eq!(fixture.read(stream), [(4, false)]);
        let create = ManifestChange::CreateScope { name: "s".to_owned() };
        fixture.bucket.update_manifest(&create).expect("a change that is allowed");
        assert_eq!(told(), 2, "an event wakes like a document");
        assert_eq!(fixture.read(stream), [(5, false)]);
    }
}

#[test]
fn a_stream_ends_with_flush_and_lost_ownership() {
    let fixture = Fixture::new(Storage::Persistent);
    let context = fixture.bucket.core().context(NOW);
    let ends: [fn(&Fixture); 2] = [
        |fixture| fixture.bucket.flush_all().expect("the store is sound"),
        |fixture| fixture.bucket.stop_serving(VB),
    ];
    for (at, end) in (1..).zip(ends) {
        let stream = fixture.register(u64::MAX >> 1);
        assert!(fixture.read(stream).is_empty());
        end(&fixture);
        assert_eq!(fixture.told.0.load(Ordering::Relaxed), at);
        let read = fixture.vbucket().read_stream(&context, stream.cursor);
        assert!(matches!(read, StreamRead::Ended));
        fixture.drop_stream(stream);
    }
    let waker = StreamWaker::new(Arc::clone(&fixture.told) as _, 7);
    assert!(fixture.vbucket().register_stream("stream", Seqno(0), waker).is_none());
}
