//! Change streams of a bucket, over a store and in memory only. `simulation/streams.rs` has the
//! random lives.

mod cut_short;
mod dense_values;
mod flushes;
mod large_records;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_engine::dcp::{
    SnapshotSource, StreamChange, StreamEndReason, StreamFilter, StreamOpenError, StreamOptions,
    StreamPhase, StreamRequest, StreamSink, StreamStep, VbucketDcpStream,
};
use oribi_engine::{
    BackfillPause, Bucket, BucketConfig, BucketThreads, EvictionPolicy, Storage, Upkeep, WarmupStep,
};
use oribi_storage::{FaultPlan, FaultStore, MemoryMedium, MemoryStore, StoreMaintenance};
use oribi_types::{Cas, CollectionId, Seqno, Timestamp, VbUuid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};

#[derive(Default)]
struct WakeCount(AtomicU64);

impl StreamSink for WakeCount {
    fn ready(&self, _token: u64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn over_a_store() -> Arc<Bucket> {
    open(Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default()))))
}

fn in_memory() -> Arc<Bucket> {
    let config =
        BucketConfig { storage: Storage::Memory, eviction: EvictionPolicy::None, ..config() };
    let store = MemoryStore::on(Arc::new(MemoryMedium::default()));
    Bucket::open(config, Arc::new(store), entropy(), true).expect("the bucket opens")
}

fn from(start: u64, uuid: VbUuid, filter: StreamFilter) -> StreamRequest {
    StreamRequest {
        vbid: VB,
        start: Seqno(start),
        end: Seqno(u64::MAX),
        uuid,
        snapshot: (Seqno(start), Seqno(start)),
        client_purge_seqno: None,
        flags: StreamOptions::default(),
        filter,
    }
}

/// Changes that a reader has received.
#[derive(Default)]
struct StreamContents {
    table: BTreeMap<Vec<u8>, Vec<u8>>,
    seqno: u64,
    /// First and last seqno of each snapshot.
    snapshots: Vec<(Seqno, Seqno)>,
    sources: Vec<SnapshotSource>,
    end: Option<StreamEndReason>,
}

impl StreamContents {
    /// Reads until nothing is left for now.
    fn read(&mut self, stream: &mut VbucketDcpStream) {
        loop {
            match stream.next() {
                StreamStep::Idle => return,
                StreamStep::Snapshot(marker) => {
                    self.snapshots.push((marker.start, marker.end));
                    self.sources.push(marker.source);
                }
                StreamStep::SeqnoAdvanced(seqno) => self.seqno = seqno.0,
                StreamStep::Change(StreamChange::Event(event)) => self.seqno = event.seqno.0,
                StreamStep::Change(StreamChange::Document(found)) => {
                    let (record, key) = (found.record, found.record.key.key.to_vec());
                    assert!(record.seqno.0 > self.seqno, "seqnos ascend");
                    self.seqno = record.seqno.0;
                    match record.deleted {
                        true => _ = self.table.remove(&key),
                        false => _ = self.table.insert(key, record.value.to_vec()),
                    }
                }
                StreamStep::End(reason) => {
                    assert_eq!(self.end.replace(reason), None, "a stream ends once");
                }
            }
        }
    }
}

fn backfill(bucket: &Bucket) {
    let clock = || NOW;
    bucket.backfill_step(&|_| false, &clock).expect("the store is sound");
}

fn write(bucket: &Bucket, names: std::ops::Range<u32>, value: &str) {
    for name in names {
        done(bucket.store(VB, key(&format!("k{name}")), &set(value), NOW));
    }
}

// Compat (Change streams): Snapshot markers
// Invariant: A stream passes from a backfill to memory without a gap, and streams of one vbucket
// share one scan.
#[test]
fn a_stream_moves_from_backfill_to_memory_gaplessly() {
    for bucket in [over_a_store(), in_memory()] {
        write(&bucket, 0..50, "old");
        done(bucket.delete(VB, key("k7"), Cas(0), NOW));
        bucket.flush_step().expect("the store is sound");
        let sink = Arc::new(WakeCount::default());
        let request = from(0, VbUuid(0), StreamFilter::All);
        let mut stream = bucket.open_stream(&request, sink.clone(), 1).expect("it opens");
        let mut heard = StreamContents::default();
        heard.read(&mut stream);
        assert_eq!((heard.table.len(), stream.stats().phase), (0, StreamPhase::Backfilling));
        write(&bucket, 40..60, "new");
        backfill(&bucket);
        assert!(sink.0.load(Ordering::SeqCst) > 0, "the backfill wakes the stream");
        heard.read(&mut stream);
        let woken = sink.0.load(Ordering::SeqCst);
        write(&bucket, 60..61, "newest");
        assert_eq!(sink.0.load(Ordering::SeqCst), woken + 1, "a write wakes an idle stream once");
        heard.read(&mut stream);
        assert_eq!(heard.table.len(), 60);
        assert_eq!(heard.table[&b"k60"[..]], b"newest");
        assert_eq!(heard.table[&b"k45"[..]], b"new");
        assert_eq!(heard.table[&b"k1"[..]], b"old");
        assert_eq!(heard.sources[0], SnapshotSource::Disk);
        assert_eq!(heard.sources.last(), Some(&SnapshotSource::Memory));
        // A reader that goes back to the start of its snapshot lacks nothing of the one before.
        assert!(heard.snapshots.len() >= 2, "{:?}", heard.snapshots);
        for pair in heard.snapshots.windows(2) {
            assert_eq!(pair[1].0, pair[0].1, "{:?}", heard.snapshots);
        }
        let high = bucket.vbucket(VB).unwrap().stats().high_seqno;
        assert_eq!((Seqno(heard.seqno), stream.stats().items_remaining), (high, 0));
    }
}

/// The seqnos of the next run, which is taken.
fn take_run(stream: &mut VbucketDcpStream) -> Vec<u64> {
    take_run_of(stream, usize::MAX)
}

fn take_run_of(stream: &mut VbucketDcpStream, changes_max: usize) -> Vec<u64> {
    let run = stream.next_run(changes_max).expect("a marker was taken before");
    let seqnos: Vec<Seqno> = run.documents().map(|document| document.record.seqno).collect();
    stream.pass_run(seqnos.len(), *seqnos.last().expect("a run is not empty"));
    seqnos.iter().map(|seqno| seqno.0).collect()
}

#[test]
fn a_busy_stream_needs_no_wake_and_misses_nothing() {
    let bucket = in_memory();
    let woken = Arc::new(WakeCount::default());
    let request = from(0, VbUuid(0), StreamFilter::All);
    let mut stream = bucket.open_stream(&request, Arc::clone(&woken) as _, 0).expect("it opens");
    assert!(!stream.has_caught_up(), "it has not looked");
    let mut expected = 0;
    for round in 0..3 {
        write(&bucket, 0..3, &format!("{round}"));
        assert!(matches!(stream.next(), StreamStep::Snapshot(_)));
        assert!(!stream.has_caught_up(), "the snapshot is not sent");
        let run = take_run(&mut stream);
        assert_eq!(run, [expected + 1, expected + 2, expected + 3]);
        expected += 3;
        assert!(stream.has_caught_up());
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 0, "it was never idle");
    assert!(matches!(stream.next(), StreamStep::Idle));
    write(&bucket, 0..1, "last");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}

// Invariant: A stream passes from a backfill to memory without a gap, and streams of one vbucket
// share one scan.
#[test]
fn streams_that_wait_for_a_vbucket_share_one_scan() {
    let bucket = over_a_store();
    write(&bucket, 0..100, "value");
    bucket.flush_step().expect("the store is sound");
    let request = from(0, VbUuid(0), StreamFilter::Default);
    let mut streams: Vec<VbucketDcpStream> = (0..10)
        .map(|token| bucket.open_stream(&request, Arc::<WakeCount>::default(), token))
        .map(|opened| opened.expect("it opens"))
        .collect();
    backfill(&bucket);
    let stats = bucket.backfill_stats();
    assert_eq!((stats.scans, stats.streams, stats.records), (1, 10, 100));
    assert!(bucket.stats().memory.streams_bytes > 0, "what streams hold is counted");
    for stream in &mut streams {
        let mut heard = StreamContents::default();
        heard.read(stream);
        assert_eq!((heard.table.len(), heard.seqno), (100, 100));
    }
    assert_eq!(bucket.stats().memory.streams_bytes, 0, "and freed when it is read");
}

#[test]
fn a_stream_ends_on_flush_and_at_its_end_seqno() {
    let bucket = over_a_store();
    write(&bucket, 0..10, "value");
    let to_latest = StreamOptions { to_latest: true, ..StreamOptions::default() };
    for flags in [to_latest, StreamOptions::default()] {
        let uuid = bucket.vbucket(VB).unwrap().uuid();
        let request = StreamRequest { flags, ..from(0, uuid, StreamFilter::All) };
        let sink = Arc::new(WakeCount::default());
        let mut stream = bucket.open_stream(&request, sink.clone(), 1).expect("it opens");
        let mut heard = StreamContents::default();
        heard.read(&mut stream);
        assert_eq!(heard.table.len(), 10, "the queue has all of it");
        match flags.to_latest {
            true => assert_eq!(heard.end, Some(StreamEndReason::Ok)),
            false => {
                assert_eq!(heard.end, None);
                bucket.flush_all().expect("the bucket may be emptied");
                assert!(sink.0.load(Ordering::SeqCst) > 0, "the owner is told");
                heard.read(&mut stream);
                assert_eq!(heard.end, Some(StreamEndReason::StateChanged));
                let again = StreamRequest { start: Seqno(10), ..request };
                let again = StreamRequest { snapshot: (Seqno(10), Seqno(10)), ..again };
                let refused = bucket.open_stream(&again, sink, 2).err();
                assert_eq!(refused, Some(StreamOpenError::Rollback(Seqno(0))));
            }
        }
    }
}

// Compat (Change streams): Buckets in memory
#[test]
fn a_memory_reader_missing_deletions_rolls_back_to_0() {
    let bucket = in_memory();
    write(&bucket, 0..10, "value");
    let uuid = bucket.vbucket(VB).unwrap().uuid();
    done(bucket.delete(VB, key("k3"), Cas(0), NOW));
    let request = from(10, uuid, StreamFilter::All);
    let refused = bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).err();
    assert_eq!(refused, Some(StreamOpenError::Rollback(Seqno(0))));
}

/// The snapshot left out a version that a later one in it had replaced. A checkpoint that ends
/// between the two has neither.
#[test]
fn resuming_in_mid_snapshot_gets_the_rest_as_one() {
    let bucket = over_a_store();
    write(&bucket, 0..1, "old");
    let uuid = bucket.vbucket(VB).unwrap().uuid();
    let all = |start, uuid| from(start, uuid, StreamFilter::All);
    let open = |request: &StreamRequest| {
        bucket.open_stream(request, Arc::<WakeCount>::default(), 1).expect("it opens")
    };
    // One keeps the queue in memory, the other one has it closed, because it is long.
    let _slow = open(&all(0, VbUuid(0)));
    let mut live = open(&all(0, VbUuid(0)));
    write(&bucket, 1..400, "filler");
    StreamContents::default().read(&mut live);
    write(&bucket, 0..1, "new");
    while bucket.flush_step().expect("the store is sound").more {}
    let flags = StreamOptions { disk_only: true, ..StreamOptions::default() };
    let mut stream = open(&StreamRequest { flags, ..all(0, VbUuid(0)) });
    backfill(&bucket);
    let step = stream.next();
    let StreamStep::Snapshot(marker) = step else { panic!("no marker: {step:?}") };
    assert!(matches!(stream.next(), StreamStep::Change(_)));
    let start = stream.stats().last_sent_seqno;
    assert_eq!((start, marker.end), (Seqno(2), Seqno(401)), "the old version is left out");
    let snapshot = (marker.start, marker.end);
    let mut stream = open(&StreamRequest { snapshot, ..all(start.0, uuid) });
    backfill(&bucket);
    let mut heard = StreamContents { seqno: start.0, ..StreamContents::default() };
    heard.read(&mut stream);
    assert_eq!(heard.snapshots[0], snapshot);
    assert_eq!(heard.table[&b"k0"[..]], b"new");
}

/// The newest version of its collection was the tombstone, of which a restart leaves no trace but
/// the purge seqno. A purge while documents are loaded may take it before it is seen.
#[test]
fn missing_a_purged_deletion_rolls_back_after_restart() {
    for purges_while_loading in [false, true] {
        let upkeep = Upkeep { tombstone_purge_age_s: 1000, ..Upkeep::default() };
        let disk = Arc::new(MemoryMedium::default());
        let open = |is_loaded| {
            let config = BucketConfig { upkeep, ..config() };
            let store = MemoryStore::on(Arc::clone(&disk));
            Bucket::open(config, Arc::new(store), entropy(), is_loaded).expect("the bucket opens")
        };
        let purge = |bucket: &Bucket| {
            for age_s in [0, 10_000] {
                let now = Timestamp::from_unix_s(NOW.unix_s() + age_s);
                while bucket.purge_tombstones_step(&|| now).expect("the store is sound").more {}
            }
        };
        let bucket = open(true);
        write(&bucket, 0..10, "value");
        let uuid = bucket.vbucket(VB).unwrap().uuid();
        done(bucket.delete(VB, key("k3"), Cas(0), NOW));
        bucket.flush_step().expect("the store is sound");
        let refused = |bucket: &Arc<Bucket>| {
            let filter = StreamFilter::Collections(vec![CollectionId::DEFAULT]);
            let purged = bucket.vbucket(VB).unwrap().stats().purge_seqno;
            let opened =
                bucket.open_stream(&from(10, uuid, filter), Arc::<WakeCount>::default(), 1);
            (purged, opened.err())
        };
        let wanted = (Seqno(11), Some(StreamOpenError::Rollback(Seqno(0))));
        if !purges_while_loading {
            purge(&bucket);
            bucket.flush_step().expect("the store is sound");
            assert_eq!(refused(&bucket), wanted);
        }
        drop(bucket);
        let bucket = open(false);
        if purges_while_loading {
            purge(&bucket);
        }
        while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
        assert_eq!(refused(&bucket), wanted);
    }
}

/// A purge while documents are loaded fails after it has removed some: Kudu removes in parts.
#[test]
fn missing_a_failed_purges_deletion_rolls_back() {
    use oribi_engine::collections::ManifestChange;
    use oribi_types::DocKey;

    let upkeep = Upkeep { tombstone_purge_age_s: 1000, ..Upkeep::default() };
    let disk = Arc::new(MemoryMedium::default());
    let plan = Arc::new(FaultPlan::default());
    let open = |is_loaded| {
        let config = BucketConfig { upkeep, ..config() };
        let store = FaultStore::new(MemoryStore::on(Arc::clone(&disk)), Arc::clone(&plan));
        Bucket::open(config, Arc::new(store), entropy(), is_loaded).expect("the bucket opens")
    };
    let later = Timestamp::from_unix_s(NOW.unix_s() + 10_000);
    let bucket = open(true);
    let create = ManifestChange::CreateCollection {
        scope: "_default".to_owned(),
        name: "c".to_owned(),
        max_ttl_s: None,
    };
    let manifest = bucket.update_manifest(&create).expect("a new collection");
    let other = manifest.collection_id("_default", "c").expect("it was created");
    write(&bucket, 0..10, "value");
    let (start, uuid) = {
        let vbucket = bucket.vbucket(VB).unwrap();
        (vbucket.stats().high_seqno.0, vbucket.uuid())
    };
    done(bucket.delete(VB, key("k3"), Cas(0), NOW));
    while bucket.flush_step().expect("the store is sound").more {}
    drop(bucket);

    let bucket = open(false);
    // The removal is durable, but the engine hears of an error.
    let removed = MemoryStore::on(Arc::clone(&disk)).compact(VB, later.unix_s() - 1000);
    assert_eq!(removed.unwrap(), Some(Seqno(start + 1)));
    plan.fail_other_writes(true);
    bucket.compact();
    while bucket.purge_tombstones_step(&|| later).map_or(true, |report| report.more) {}
    plan.fail_other_writes(false);
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}

    // The next purge, of a tombstone of another collection, succeeds.
    let theirs = DocKey { collection: other, key: b"theirs" };
    done(bucket.store(VB, theirs, &set("value"), NOW));
    done(bucket.delete(VB, theirs, Cas(0), NOW));
    while bucket.flush_step().expect("the store is sound").more {}
    bucket.compact();
    while bucket.purge_tombstones_step(&|| later).expect("the store is sound").more {}
    assert_eq!(bucket.vbucket(VB).unwrap().stats().purge_seqno, Seqno(start + 3));

    let filter = StreamFilter::Collections(vec![CollectionId::DEFAULT]);
    let opened = bucket.open_stream(&from(start, uuid, filter), Arc::<WakeCount>::default(), 1);
    if let Ok(mut stream) = opened {
        backfill(&bucket);
        let mut heard = StreamContents { seqno: start, ..StreamContents::default() };
        heard.read(&mut stream);
        panic!("let on, and hears {:?}", heard.table);
    }
}

/// A purge was durable, but the engine heard of an error, and nothing is left for the next one.
#[test]
fn a_reader_rolls_back_after_a_purge_that_failed_late() {
    let upkeep = Upkeep { tombstone_purge_age_s: 1000, ..Upkeep::default() };
    let disk = Arc::new(MemoryMedium::default());
    let plan = Arc::new(FaultPlan::default());
    let store = FaultStore::new(MemoryStore::on(Arc::clone(&disk)), Arc::clone(&plan));
    let config = BucketConfig { upkeep, ..config() };
    let bucket = Bucket::open(config, Arc::new(store), entropy(), true).expect("it opens");
    let later = Timestamp::from_unix_s(NOW.unix_s() + 10_000);
    write(&bucket, 0..10, "value");
    let uuid = bucket.vbucket(VB).unwrap().uuid();
    done(bucket.delete(VB, key("k3"), Cas(0), NOW));
    while bucket.flush_step().expect("the store is sound").more {}
    let removed = MemoryStore::on(Arc::clone(&disk)).compact(VB, later.unix_s() - 1000);
    assert_eq!(removed.unwrap(), Some(Seqno(11)));
    plan.fail_other_writes(true);
    bucket.compact();
    while bucket.purge_tombstones_step(&|| later).map_or(true, |report| report.more) {}
    plan.fail_other_writes(false);
    bucket.compact();
    while bucket.purge_tombstones_step(&|| later).expect("the store is sound").more {}
    let mut ends = Vec::new();
    for _ in 0..3 {
        let request = from(10, uuid, StreamFilter::All);
        match bucket.open_stream(&request, Arc::<WakeCount>::default(), 1) {
            Ok(mut stream) => {
                backfill(&bucket);
                ends.push(format!("{:?}", stream.next()));
            }
            Err(refused) => return assert_eq!(refused, StreamOpenError::Rollback(Seqno(0))),
        }
    }
    panic!("never sent back: {ends:?}");
}

#[test]
fn a_vbucket_that_loads_opens_no_stream_yet() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    write(&bucket, 0..10, "value");
    bucket.flush_step().expect("the store is sound");
    drop(bucket);
    let store = Arc::new(MemoryStore::on(disk));
    let bucket = Bucket::open(config(), store, entropy(), false).expect("the bucket opens");
    let request = from(0, VbUuid(0), StreamFilter::All);
    let open_stream = || bucket.open_stream(&request, Arc::<WakeCount>::default(), 1);
    assert_eq!(open_stream().err(), Some(StreamOpenError::TryLater));
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    let mut stream = open_stream().expect("it opens");
    let mut heard = StreamContents::default();
    heard.read(&mut stream);
    backfill(&bucket);
    heard.read(&mut stream);
    assert_eq!(heard.table.len(), 10);
}

/// A scan is left for others who wait, but not for other streams of the reader that holds it up.
#[test]
fn a_scan_hurries_only_for_streams_of_other_readers() {
    let bucket = over_a_store();
    write(&bucket, 0..3000, &"x".repeat(1000));
    bucket.flush_step().expect("the store is sound");
    let request = from(0, VbUuid(0), StreamFilter::All);
    let (slow, other) = (Arc::<WakeCount>::default(), Arc::<WakeCount>::default());
    let open = |sink: &Arc<WakeCount>, token| {
        let mut stream = bucket.open_stream(&request, sink.clone(), token).expect("it opens");
        assert!(matches!(stream.next(), StreamStep::Idle), "it asks for a scan");
        stream
    };
    let first = open(&slow, 1);
    let (waiting, said) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let pace = |pause: BackfillPause| {
        said.borrow_mut().push(pause.has_waiters);
        let sink = match said.borrow().len() {
            1 => return true,
            2 => &slow,
            3 => &other,
            _ => return false,
        };
        waiting.borrow_mut().push(open(sink, 2));
        true
    };
    bucket.backfill_step(&pace, &|| NOW).expect("the store is sound");
    assert_eq!(*said.borrow(), [false, false, false, true], "nobody, nobody, itself, another");
    assert_eq!(bucket.backfill_stats().left_behind, 1);
    drop(first);
}

// Invariant: A stalled reader holds no scan and at most one chunk of 64 KiB; writers never wait for
// a reader.
/// Between two steps of a scan whose reader takes one chunk and then nothing.
#[test]
fn a_stalled_reader_blocks_neither_scan_nor_writer() {
    const CHUNK_BYTES: u64 = 64 << 10;
    let bucket = over_a_store();
    // Several times what an inbox takes.
    let value = "x".repeat(1000);
    write(&bucket, 0..3000, &value);
    bucket.flush_step().expect("the store is sound");
    let request = from(0, VbUuid(0), StreamFilter::All);
    let sink = Arc::<WakeCount>::default();
    let stream = RefCell::new(bucket.open_stream(&request, sink, 1).expect("it opens"));
    let held = || bucket.stats().memory.streams_bytes;
    // It asks for the scan.
    assert!(matches!(stream.borrow_mut().next(), StreamStep::Idle));
    let writes = Cell::new(0);
    let pace = |_| {
        if writes.get() == 0 {
            let mut stream = stream.borrow_mut();
            while !matches!(stream.next(), StreamStep::Change(StreamChange::Document(_))) {}
        }
        assert!(held() > CHUNK_BYTES, "the scan is ahead of its reader");
        // A write waits neither for the scan nor for its reader.
        let name = format!("written {}", writes.replace(writes.get() + 1));
        done(bucket.store(VB, key(&name), &set("new"), NOW));
        writes.get() < 5
    };
    bucket.backfill_step(&pace, &|| NOW).expect("the store is sound");
    let stats = bucket.backfill_stats();
    assert_eq!((stats.running, stats.scans, stats.left_behind), (0, 1, 1));
    // Records carry more than their values.
    assert!((1..2 * CHUNK_BYTES).contains(&held()), "{}", held());
    // It comes back, keeps up, and gets all.
    let heard = RefCell::new(StreamContents::default());
    let read = || heard.borrow_mut().read(&mut stream.borrow_mut());
    let keep_up = |_| {
        read();
        true
    };
    bucket.flush_step().expect("the store is sound");
    read();
    bucket.backfill_step(&keep_up, &|| NOW).expect("the store is sound");
    read();
    // The first document was read while the scan continued.
    assert_eq!(heard.borrow().table.len(), 3000 - 1 + writes.get());
    assert_eq!(held(), 0);
}

#[test]
fn the_threads_of_a_bucket_serve_streams() {
    let bucket = over_a_store();
    write(&bucket, 0..2000, "value");
    bucket.flush_step().expect("the store is sound");
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let request = from(0, VbUuid(0), StreamFilter::All);
    let mut stream =
        bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).expect("it opens");
    let mut heard = StreamContents::default();
    let begun = std::time::Instant::now();
    while heard.seqno < 2000 {
        assert!(begun.elapsed().as_secs() < 60, "a stream waits for ever: {:?}", stream.stats());
        heard.read(&mut stream);
        std::thread::yield_now();
    }
    assert_eq!(heard.table.len(), 2000);
    drop(stream);
    threads.stop().expect("the store is sound");
}

/// Drives a stream over a store that fails, until it has nothing more to ask for.
fn read_over_failures(bucket: &Bucket, stream: &mut VbucketDcpStream, heard: &mut StreamContents) {
    for _ in 0..20 {
        heard.read(stream);
        let _ = bucket.backfill_step(&|_| false, &|| NOW);
    }
    heard.read(stream);
}

#[test]
fn a_stream_survives_transient_store_failures_only() {
    let plan = FaultPlan::none();
    let bucket = open(Arc::new(FaultStore::new(MemoryStore::new(), Arc::clone(&plan))));
    write(&bucket, 0..200, &"x".repeat(2048));
    bucket.flush_step().expect("the store is sound");
    let request = from(0, VbUuid(0), StreamFilter::All);
    for records in [0, 150] {
        plan.fail_scans_after(Some(records));
        let sink = Arc::<WakeCount>::default();
        let mut stream = bucket.open_stream(&request, sink, 1).expect("it opens");
        let mut heard = StreamContents::default();
        heard.read(&mut stream);
        bucket.backfill_step(&|_| false, &|| NOW).expect_err("the store fails");
        heard.read(&mut stream);
        assert_eq!(heard.table.is_empty(), records == 0, "what was read is right");
        plan.fail_scans_after(None);
        read_over_failures(&bucket, &mut stream, &mut heard);
        assert_eq!((heard.table.len(), heard.end), (200, None));
    }
    plan.fail_scans_after(Some(0));
    let mut stream =
        bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).expect("it opens");
    let mut heard = StreamContents::default();
    read_over_failures(&bucket, &mut stream, &mut heard);
    assert_eq!(heard.end, Some(StreamEndReason::BackfillFailed));
}
