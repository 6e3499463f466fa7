//! Reads of evicted documents that operations wait for, in batches and off the workers.
//!
//! Owns: the queue of keys to read and who waits for each. The engine does not know what is behind a
//! waiter: it calls a [`FetchSink`] with the caller's own token. A fetch answers nothing itself; it makes
//! memory such that the operation, tried again, finds what it needs. Several who wait for one document are
//! one read. What has come into memory meanwhile is not read at all.
//!
//! A step takes as many keys as their values are expected to fill [`BATCH_BYTES`], so that what is read and not
//! yet counted stays small, and evicts first when memory is above the quota. The queue is bounded by the number
//! of operations that can wait; beyond [`WAITING_MAX`] the step answers the rest with a failure, which tells
//! clients to come again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use oribi_storage::Record;
use oribi_types::{CollectionId, DocKey, Vbid};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::tasks::{StepClock, Task, elapsed_us, no_clock};
use crate::vbucket::{FetchBegun, Installed};

/// Keys of one batch at most: enough for the store to read in order of position.
const BATCH_KEYS: usize = 256;
/// Bytes of values that a batch is meant to read, judged by the batch before.
const BATCH_BYTES: usize = 4 << 20;
/// Operations that may wait at one time.
const WAITING_MAX: usize = 1 << 16;
/// Times that an overtaken record is read within a step.
const TRIES: usize = 4;
/// Pager steps that a step takes before it reads while memory is above the quota.
const PAGER_STEPS_MAX: usize = 16;

/// What became of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchOutcome {
    /// The operation can be tried again. It may need another fetch if it is overtaken.
    Ready,
    /// The store could not be read, or too many wait for it.
    Failed,
}

/// Receives the end of a fetch. Called from the fetcher's thread; must not block.
pub trait FetchSink: Send + Sync {
    /// The fetch asked for with `token` is over.
    fn fetched(&self, token: u64, outcome: FetchOutcome);
}

/// Who waits.
struct Waiter {
    sink: Arc<dyn FetchSink>,
    token: u64,
}

impl Waiter {
    fn tell(self, outcome: FetchOutcome) {
        self.sink.fetched(self.token, outcome);
    }
}

/// The document that is waited for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    vbid: Vbid,
    collection: CollectionId,
    key: Box<[u8]>,
}

impl Wanted {
    fn key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }
}

struct State {
    /// In order of the first request for each.
    order: VecDeque<Wanted>,
    waiters: HashMap<Wanted, Vec<Waiter>>,
    waiting: usize,
    /// Who came when too many waited already.
    turned_away: Vec<Waiter>,
    /// Keys of the next batch.
    batch_keys: usize,
    /// The bucket is being closed: whoever comes is turned away.
    is_closed: bool,
}

/// Keys that wait to be read.
pub(crate) struct FetchQueue {
    state: Mutex<State>,
    thread: OnceLock<Thread>,
}

impl Default for FetchQueue {
    fn default() -> FetchQueue {
        let state = State {
            order: VecDeque::new(),
            waiters: HashMap::new(),
            waiting: 0,
            turned_away: Vec::new(),
            batch_keys: BATCH_KEYS,
            is_closed: false,
        };
        FetchQueue { state: Mutex::new(state), thread: OnceLock::new() }
    }
}

impl FetchQueue {
    /// From now on `thread` is woken when there is something to read.
    pub(crate) fn attach(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.order.is_empty() && state.turned_away.is_empty()
    }

    /// Documents that wait to be read.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Tells all who wait that the bucket is being closed, and from now on everyone who comes.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.order.clear();
            state.waiting = 0;
            let mut waiters = std::mem::take(&mut state.turned_away);
            waiters.extend(state.waiters.drain().flat_map(|(_, waiters)| waiters));
            waiters
        };
        waiters.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
    }

    /// The next keys to read, and who was turned away.
    fn take(&self) -> (Vec<(Wanted, Vec<Waiter>)>, Vec<Waiter>) {
        let mut state = self.state.lock();
        let count = state.batch_keys.min(state.order.len());
        let wanted: Vec<Wanted> = state.order.drain(..count).collect();
        let mut batch = Vec::with_capacity(count);
        for wanted in wanted {
            let waiters = state.waiters.remove(&wanted).unwrap_or_default();
            state.waiting -= waiters.len();
            batch.push((wanted, waiters));
        }
        (batch, std::mem::take(&mut state.turned_away))
    }

    /// Takes note of how large documents are.
    fn adapt(&self, keys: usize, bytes: usize) {
        let per_key = (bytes / keys.max(1)).max(1);
        self.state.lock().batch_keys = (BATCH_BYTES / per_key).clamp(1, BATCH_KEYS);
    }
}

/// A key of a batch that has to be read, and what was read.
struct Reading {
    /// Index in the batch.
    at: usize,
    begun: FetchBegun,
    /// Outer `None`: not read yet.
    read: Option<Option<ItemRef>>,
}

impl Bucket {
    /// Asks for what is in the store under `key` to be brought into memory. `sink` is told once with
    /// `token`, from another thread, possibly before this returns.
    pub fn fetch(&self, vbid: Vbid, key: DocKey<'_>, sink: &Arc<dyn FetchSink>, token: u64) {
        let counters = &self.memory.counters;
        counters.fetches.fetch_add(1, Ordering::Relaxed);
        let wanted = Wanted { vbid, collection: key.collection, key: key.key.into() };
        let waiter = Waiter { sink: Arc::clone(sink), token };
        let is_first = {
            let mut state = self.fetches.state.lock();
            let was_idle = state.order.is_empty() && state.turned_away.is_empty();
            if state.is_closed || state.waiting >= WAITING_MAX {
                if state.is_closed {
                    drop(state);
                    return waiter.tell(FetchOutcome::Failed);
                }
                state.turned_away.push(waiter);
            } else {
                state.waiting += 1;
                if let Some(waiters) = state.waiters.get_mut(&wanted) {
                    waiters.push(waiter);
                    counters.fetches_joined.fetch_add(1, Ordering::Relaxed);
                } else {
                    state.waiters.insert(wanted.clone(), vec![waiter]);
                    state.order.push_back(wanted);
                }
            }
            was_idle
        };
        if is_first && let Some(thread) = self.fetches.thread.get() {
            thread.unpark();
        }
    }

    /// True when a read of the document would need a fetch first. Only a hint, for asking ahead.
    pub fn needs_fetch(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let context = self.context(oribi_types::Timestamp::default());
        self.vbucket(vbid).is_some_and(|vbucket| vbucket.needs_fetch(&context, key))
    }

    /// [`Bucket::fetch_step_timed`] by a clock that stands still.
    pub fn fetch_step(&self) -> usize {
        self.fetch_step_timed(&no_clock)
    }

    /// Reads a batch of what was asked for and tells who waits. Returns how many were told.
    pub fn fetch_step_timed(&self, clock: StepClock<'_>) -> usize {
        if self.fetches.is_empty() {
            return 0;
        }
        self.tasks.run(Task::Fetcher, clock, || self.fetch_batch(clock))
    }

    fn fetch_batch(&self, clock: StepClock<'_>) -> usize {
        self.make_room(clock);
        let (batch, turned_away) = self.fetches.take();
        let begun = clock();
        let wanted: Vec<&Wanted> = batch.iter().map(|(wanted, _)| wanted).collect();
        let outcomes = self.bring_in(&wanted);
        self.timings.lock().fetched(batch.len(), elapsed_us(begun, clock()));
        let mut told = turned_away.len();
        let mut failed = turned_away.len();
        turned_away.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
        for ((_, waiters), outcome) in batch.into_iter().zip(outcomes) {
            told += waiters.len();
            failed += if outcome == FetchOutcome::Failed { waiters.len() } else { 0 };
            waiters.into_iter().for_each(|waiter| waiter.tell(outcome));
        }
        self.memory.counters.fetch_failures.fetch_add(failed as u64, Ordering::Relaxed);
        told
    }

    /// What is read will be added to what is there, so above the quota something has to go first.
    fn make_room(&self, clock: StepClock<'_>) {
        for _ in 0..PAGER_STEPS_MAX {
            if self.memory.used_bytes() <= self.memory.quota_bytes() {
                return;
            }
            let report = self.page_items_step(clock);
            if !report.more || report.is_stuck {
                return;
            }
        }
    }

    /// Reads and installs until nothing was overtaken.
    fn bring_in(&self, batch: &[&Wanted]) -> Vec<FetchOutcome> {
        let mut outcomes = vec![FetchOutcome::Ready; batch.len()];
        let mut left: Vec<usize> = (0..batch.len()).collect();
        for _ in 0..TRIES {
            let context = self.context(oribi_types::Timestamp::default());
            let mut readings: Vec<Reading> = Vec::with_capacity(left.len());
            for at in left.drain(..) {
                let Some(vbucket) = self.vbucket(batch[at].vbid) else { continue };
                if let Some(begun) = vbucket.begin_fetch(&context, batch[at].key()) {
                    readings.push(Reading { at, begun, read: None });
                }
            }
            if readings.is_empty() {
                return outcomes;
            }
            self.read(batch, &mut readings);
            for Reading { at, begun, read } in readings {
                let (Some(vbucket), Some(read)) = (self.vbucket(batch[at].vbid), read) else {
                    outcomes[at] = FetchOutcome::Failed;
                    continue;
                };
                match vbucket.install(&context, batch[at].key(), begun, read) {
                    Installed::Done => {}
                    Installed::Overtaken => left.push(at),
                    Installed::Differs => {
                        let (bucket, vbid) = (&self.config().name, batch[at].vbid);
                        tracing::error!(bucket, %vbid, "the store does not have what was evicted");
                        outcomes[at] = FetchOutcome::Failed;
                    }
                }
            }
        }
        // What is overtaken again and again may be in memory by now; the operation asks once more if not.
        outcomes
    }

    /// Reads what memory lacks. What the store fails to give stays unread.
    fn read(&self, batch: &[&Wanted], readings: &mut [Reading]) {
        let keys: Vec<(Vbid, DocKey<'_>)> = readings
            .iter()
            .map(|reading| (batch[reading.at].vbid, batch[reading.at].key()))
            .collect();
        let mut bytes = 0;
        let result = self.store.get_many(&keys, &mut |index, record| {
            bytes += record.map_or(0, |record| record.value.len());
            readings[index].read = Some(record.map(|record| stored_item(&record)));
        });
        if let Err(error) = result {
            tracing::error!(bucket = self.config().name, %error, "documents could not be read; asking for them one by one");
            for (index, (vbid, key)) in keys.iter().enumerate() {
                if readings[index].read.is_some() {
                    continue;
                }
                let mut found = None;
                let visit = &mut |record: Record<'_>| found = Some(stored_item(&record));
                if self.store.get(*vbid, *key, visit).is_ok() {
                    readings[index].read = Some(found);
                }
            }
        }
        self.fetches.adapt(keys.len(), bytes);
    }
}

/// A version as the store has it.
fn stored_item(record: &Record<'_>) -> ItemRef {
    let fields = ItemFields {
        flags: record.flags,
        expiry: record.expiry,
        datatype: record.datatype,
        deleted: record.deleted,
        ..ItemFields::default()
    };
    let mut new = NewItem::new(record.key, fields, &[record.value]);
    new.set_version(record.cas, record.seqno, record.rev_seqno);
    new.publish()
}
