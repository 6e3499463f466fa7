//! The checkpoint queue under its lock, as all its users see it at the same time.
//!
//! The queue is the real one; the lock is the checker's, in the place of the vbucket's. Two writers
//! overwrite each other's key, a flusher reads, fails once and tries again, a thread expels and
//! settles, and a second cursor comes, reads and goes. What everybody saw is compared when all are
//! done.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno, Timestamp};

use crate::checkpoint::{
    CheckpointManager, CursorBatch, CursorId, ReadLimits, StreamSink, StreamWaker,
};
use crate::item::{ItemFields, ItemRef, NewItem};

const LIMITS: ReadLimits =
    ReadLimits { items_max: 2, bytes_max: usize::MAX, checkpoints_max: usize::MAX };

/// Newest seqno by key: what a store has that was given some batches.
type Store = BTreeMap<u8, Seqno>;

/// The vbucket's state under its locks.
struct SharedQueue {
    manager: CheckpointManager,
    table: BTreeMap<u8, ItemRef>,
    /// Keys by seqno, from 1.
    history: Vec<u8>,
}

type LockedQueue = Arc<Mutex<SharedQueue>>;

fn with_cursor() -> (LockedQueue, CursorId) {
    let mut manager = CheckpointManager::new(Seqno(0), Cas(0));
    let cursor = manager.register_cursor("persistence", Seqno(0)).id;
    let shared = SharedQueue { manager, table: BTreeMap::new(), history: Vec::new() };
    (Arc::new(Mutex::new(shared)), cursor)
}

fn locked<R>(shared: &LockedQueue, run: impl FnOnce(&mut SharedQueue) -> R) -> R {
    run(&mut shared.lock().expect("no assertion fails"))
}

fn write(shared: &LockedQueue, key: u8) {
    let name = [key];
    let doc = DocKey { collection: CollectionId::DEFAULT, key: &name };
    let new = NewItem::new(doc, ItemFields::default(), &[b"value"]);
    let displaced = locked(shared, |shared| {
        let before = shared.table.get(&key);
        let done = shared.manager.enqueue(new, before, RevSeqno(1), Timestamp::default());
        shared.history.push(key);
        assert_eq!(done.item.seqno(), Seqno(shared.history.len() as u64));
        (shared.table.insert(key, done.item), done.displaced)
    });
    drop(displaced);
}

/// Applies a batch as a store does. It is read without the lock, while others write and expel.
fn apply(store: &mut Store, batch: &CursorBatch, shared: &LockedQueue) {
    for run in batch.runs(usize::MAX, usize::MAX) {
        let items = run.newest_items().into_iter();
        store.extend(items.map(|item| (item.key().key[0], item.seqno())));
        let expected = locked(shared, |shared| state_at(&shared.history, run.end()));
        assert_eq!(*store, expected, "the end of a run is consistent");
    }
}

fn state_at(history: &[u8], end: Seqno) -> Store {
    let known = &history[..end.0 as usize];
    known.iter().copied().zip((1..).map(Seqno)).collect()
}

fn expel(shared: &LockedQueue) {
    let gone = locked(shared, |shared| shared.manager.expel());
    let freed = gone.free();
    locked(shared, |shared| shared.manager.settle(freed));
}

/// A commit that fails, and another one that does not.
fn flush(shared: &LockedQueue, cursor: CursorId, store: &mut Store) {
    let failed = locked(shared, |shared| shared.manager.read(cursor, LIMITS));
    let end = failed.expect("it is never dropped").end;
    locked(shared, |shared| shared.manager.rewind(cursor));
    let again = locked(shared, |shared| shared.manager.read(cursor, LIMITS));
    let again = again.expect("it is never dropped");
    assert!(again.end >= end, "nothing is lost by going back");
    apply(store, &again, shared);
    locked(shared, |shared| shared.manager.advance(cursor));
}

/// A stream that no client waits for.
struct SilentSink;

impl StreamSink for SilentSink {
    fn ready(&self, _: u64) {}
}

fn stream(shared: &LockedQueue) {
    let (id, mut store) = locked(shared, |shared| {
        let from = Seqno(shared.history.len() as u64 / 2);
        let waker = StreamWaker::new(Arc::new(SilentSink), 0);
        let registered = shared.manager.register_stream("stream", from, waker);
        assert!(registered.needs_backfill || registered.first.0 == from.0 + 1);
        // What is missing in memory is read from the store first.
        (registered.id, state_at(&shared.history, Seqno(registered.first.0 - 1)))
    });
    for _ in 0..2 {
        let batch = locked(shared, |shared| shared.manager.read_stream(id, usize::MAX));
        let batch = batch.expect("no thread drops it");
        let held = batch.hold().expect("the queue keeps it");
        for item in held.items_after(batch.from()) {
            store.insert(item.key().key[0], item.seqno());
        }
        let expected = locked(shared, |shared| state_at(&shared.history, batch.end()));
        assert_eq!(store, expected, "the end of a snapshot is consistent");
    }
    locked(shared, |shared| shared.manager.drop_cursor(id));
}

/// Drains the queue and compares what there is with what there has to be.
fn finish(shared: &LockedQueue, cursor: CursorId, mut store: Store) {
    loop {
        let batch = locked(shared, |shared| shared.manager.read(cursor, LIMITS));
        let batch = batch.expect("it is never dropped");
        if batch.is_empty() {
            break;
        }
        apply(&mut store, &batch, shared);
        locked(shared, |shared| shared.manager.advance(cursor));
    }
    expel(shared);
    locked(shared, |shared| {
        let newest: Store = shared.table.iter().map(|(key, item)| (*key, item.seqno())).collect();
        assert_eq!(store, newest);
        let stats = shared.manager.stats();
        assert_eq!((stats.items, stats.own_bytes, stats.checkpoints.len()), (0, 0, 1));
        assert_eq!(shared.manager.lowest_needed(), Seqno(shared.history.len() as u64 + 1));
    });
}

/// Runs in every order in which a thread is interrupted at most this often: enough for every pair
/// of operations to meet in each order.
fn explore(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

fn spawn(shared: &LockedQueue, run: impl FnOnce(&LockedQueue) + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || run(&shared))
}

/// Flushes while the other threads run, then checks that nothing is lost.
fn flush_beside<const N: usize>(
    others: [thread::JoinHandle<()>; N],
    shared: &LockedQueue,
    cursor: CursorId,
) {
    let mut store = Store::new();
    flush(shared, cursor, &mut store);
    for other in others {
        other.join().expect("no assertion fails");
    }
    finish(shared, cursor, store);
}

#[test]
fn writers_a_flusher_an_expeller_and_a_second_cursor() {
    explore(2, || {
        let (shared, cursor) = with_cursor();
        let others = [
            spawn(&shared, |shared| [1, 2, 1].into_iter().for_each(|key| write(shared, key))),
            spawn(&shared, |shared| [2, 1].into_iter().for_each(|key| write(shared, key))),
            spawn(&shared, expel),
            spawn(&shared, stream),
        ];
        flush_beside(others, &shared, cursor);
    });
}

/// Fewer threads, every order.
#[test]
fn a_writer_and_an_expeller_while_a_flush_fails() {
    explore(4, || {
        let (shared, cursor) = with_cursor();
        write(&shared, 1);
        let others = [
            spawn(&shared, |shared| [1, 1].into_iter().for_each(|key| write(shared, key))),
            spawn(&shared, expel),
        ];
        flush_beside(others, &shared, cursor);
    });
}

/// Mutant: a flusher that keeps what it read before it went back would have the newest version
/// of a key and miss others. The comparison at a run's end has to find it.
#[test]
#[should_panic(expected = "the end of a run is consistent")]
fn a_batch_that_is_skipped_is_found() {
    explore(2, || {
        let (shared, cursor) = with_cursor();
        write(&shared, 1);
        let writer = spawn(&shared, |shared| write(shared, 2));
        let skipped = locked(&shared, |shared| shared.manager.read(cursor, LIMITS));
        drop(skipped);
        locked(&shared, |shared| shared.manager.advance(cursor));
        writer.join().expect("no assertion fails");
        finish(&shared, cursor, Store::new());
    });
}
