//! Fetches: keys to read from the store, and the waiters for each.
//!
//! Owns: the order of the keys, the waiters of each, the bound on both, and which fetchers sleep.
//! Several operations that wait for one document share one read, also when they come while it is
//! under way: the version that it installs is no older than the one that they missed, or they fetch
//! again. The engine does not depend on the waiter's type: it calls a [`FetchSink`] with the
//! caller's own token.
//!
//! Invariants: a key that has waiters is queued, or some fetcher reads it and will [`finish`] it; a
//! waiter is notified once. A key may be in a queue after its waiters were notified; the fetcher
//! skips it.
//!
//! [`finish`]: FetchQueue::finish

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use oribi_types::{CollectionId, DocKey, Vbid};
use parking_lot::Mutex;

use crate::memory::MemoryStats;

/// Keys of one batch at most: enough for the store to read in order of position.
const BATCH_KEYS: usize = 256;
/// Keys that a fetcher takes although others could read them concurrently: fewer keys do not
/// justify waking another one.
const BATCH_KEYS_MIN: usize = 8;
/// Bytes of values with which a batch ends. How many keys it takes is checked by the batch before.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Operations that may wait at one time.
const WAITING_MAX: usize = 1 << 16;
const _: () = assert!(BATCH_KEYS_MIN <= BATCH_KEYS && BATCH_KEYS <= WAITING_MAX);

/// How a fetch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchOutcome {
    /// The operation can be tried again. It may need another fetch if it is overtaken.
    Ready,
    /// The store could not be read, or too many wait for it.
    Failed,
}

/// Receives the end of a fetch. Called from a fetcher's thread; must not block.
pub trait FetchSink: Send + Sync {
    /// The fetch asked for with `token` is over.
    fn fetched(&self, token: u64, outcome: FetchOutcome);
}

/// An operation that waits.
pub(super) struct FetchWaiter {
    sink: Arc<dyn FetchSink>,
    token: u64,
}

impl FetchWaiter {
    pub(super) fn new(sink: &Arc<dyn FetchSink>, token: u64) -> FetchWaiter {
        FetchWaiter { sink: Arc::clone(sink), token }
    }

    fn tell(self, outcome: FetchOutcome) {
        self.sink.fetched(self.token, outcome);
    }
}

/// The document to read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct FetchKey {
    pub(super) vbid: Vbid,
    collection: CollectionId,
    key: Box<[u8]>,
}

impl FetchKey {
    pub(super) fn new(vbid: Vbid, key: DocKey<'_>) -> FetchKey {
        FetchKey { vbid, collection: key.collection, key: key.key.into() }
    }

    pub(super) fn key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }
}

/// Keys that a fetcher reads in one step.
#[derive(Default)]
pub(super) struct FetchBatch {
    pub(super) wanted: Vec<FetchKey>,
    /// It is one document that is large, and the process may read no other until then.
    pub(super) is_large: bool,
}

/// A fetcher's result for a key of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyOutcome {
    /// Its waiters can be notified.
    Over(FetchOutcome),
    /// It is large, so it is read by itself.
    Large,
    /// The batch was full before it.
    Unread,
}

/// The waiters of a key.
struct Entry {
    waiters: Vec<FetchWaiter>,
    /// No fetcher reads it yet.
    is_queued: bool,
}

struct State {
    /// In order of the first request for each.
    order: VecDeque<FetchKey>,
    /// Keys of large documents.
    large: VecDeque<FetchKey>,
    /// A fetcher reads a large document.
    is_reading_large: bool,
    entries: HashMap<FetchKey, Entry>,
    waiting: usize,
    /// Waiters that came when too many waited already.
    turned_away: Vec<FetchWaiter>,
    /// Keys of the next batch at most.
    batch_keys: usize,
    /// How many fetchers there are.
    fetchers: usize,
    asleep: Vec<Thread>,
    /// The bucket is closing: every new waiter is notified at once.
    is_closed: bool,
    /// Counts since the bucket was opened.
    asked: u64,
    joined: u64,
    failed: u64,
}

impl State {
    /// True when there is nothing that another fetcher could do.
    fn is_idle(&self) -> bool {
        let has_large = !self.large.is_empty() && !self.is_reading_large;
        self.order.is_empty() && !has_large && self.turned_away.is_empty()
    }

    fn add(&mut self, wanted: FetchKey, waiter: FetchWaiter) {
        if self.waiting >= WAITING_MAX {
            return self.turned_away.push(waiter);
        }
        self.waiting += 1;
        debug_assert!(self.waiting <= WAITING_MAX, "the number of waiters is bounded");
        if let Some(entry) = self.entries.get_mut(&wanted) {
            self.joined += 1;
            entry.waiters.push(waiter);
            return;
        }
        debug_assert!(!self.is_closed, "a queue that is closed takes no waiter");
        self.entries.insert(wanted.clone(), Entry { waiters: vec![waiter], is_queued: true });
        self.order.push_back(wanted);
    }

    /// The next key of `order` or `large` that has waiters and that no fetcher reads.
    fn next(&mut self, is_large: bool) -> Option<FetchKey> {
        let queue = if is_large { &mut self.large } else { &mut self.order };
        while let Some(wanted) = queue.pop_front() {
            if let Some(entry) = self.entries.get_mut(&wanted)
                && std::mem::take(&mut entry.is_queued)
            {
                debug_assert!(!entry.waiters.is_empty(), "a key is queued for its waiters");
                return Some(wanted);
            }
        }
        None
    }

    /// Keys that one fetcher takes.
    fn batch_len(&self) -> usize {
        let part = self.order.len().div_ceil(self.fetchers).max(BATCH_KEYS_MIN);
        debug_assert!((1..=BATCH_KEYS).contains(&self.batch_keys), "a batch has a key");
        self.batch_keys.min(part)
    }

    /// Waiters of a key that has been read. Later waiters may be registered when those of the read
    /// were notified before its end; they wait for the next read.
    fn take_waiters(&mut self, wanted: &FetchKey) -> Vec<FetchWaiter> {
        if self.entries.get(wanted).is_none_or(|entry| entry.is_queued) {
            return Vec::new();
        }
        let waiters = self.entries.remove(wanted).map(|entry| entry.waiters).unwrap_or_default();
        assert!(self.waiting >= waiters.len(), "waiters are counted");
        self.waiting -= waiters.len();
        waiters
    }

    /// A key that was not read is to be read by itself, or before all others.
    fn put_back(&mut self, wanted: FetchKey, is_large: bool) {
        let Some(entry) = self.entries.get_mut(&wanted).filter(|entry| !entry.is_queued) else {
            return;
        };
        debug_assert!(!entry.waiters.is_empty(), "a key is queued for its waiters");
        entry.is_queued = true;
        match is_large {
            true => self.large.push_back(wanted),
            false => self.order.push_front(wanted),
        }
    }

    /// A fetcher to wake, when there is something to do for one that sleeps.
    fn take_sleeper(&mut self) -> Option<Thread> {
        if self.is_idle() { None } else { self.asleep.pop() }
    }
}

/// See the module text.
pub(super) struct FetchQueue {
    state: Mutex<State>,
}

impl Default for FetchQueue {
    fn default() -> FetchQueue {
        let state = State {
            order: VecDeque::new(),
            large: VecDeque::new(),
            is_reading_large: false,
            entries: HashMap::new(),
            waiting: 0,
            turned_away: Vec::new(),
            batch_keys: BATCH_KEYS,
            fetchers: 1,
            asleep: Vec::new(),
            is_closed: false,
            asked: 0,
            joined: 0,
            failed: 0,
        };
        FetchQueue { state: Mutex::new(state) }
    }
}

impl FetchQueue {
    /// Sets the number of threads that take batches.
    pub(super) fn share_among(&self, fetchers: usize) {
        self.state.lock().fetchers = fetchers.max(1);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// Sleeps until there is something to read, or another thread wakes this one.
    /// The thread that sets `stop` wakes it after that.
    pub(super) fn sleep(&self, stop: &AtomicBool) {
        let own = std::thread::current();
        {
            // Whoever adds a key does it under the lock: before this, and it is seen, or after it,
            // and this thread is seen.
            let mut state = self.state.lock();
            if !state.is_idle() {
                return;
            }
            state.asleep.push(own.clone());
        }
        // Looked at last: an earlier wake-up may have ended a wait of the store's.
        if !stop.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.state.lock().asleep.retain(|thread| thread.id() != own.id());
    }

    /// Adds a waiter; after [`FetchQueue::close`] it fails at once.
    pub(super) fn ask(&self, wanted: FetchKey, waiter: FetchWaiter) {
        let mut state = self.state.lock();
        state.asked += 1;
        if state.is_closed {
            drop(state);
            return waiter.tell(FetchOutcome::Failed);
        }
        let was_idle = state.is_idle();
        state.add(wanted, waiter);
        // Others are woken by the fetchers that find more than their part.
        let woken = if was_idle { state.take_sleeper() } else { None };
        drop(state);
        woken.iter().for_each(Thread::unpark);
    }

    /// Fails all waiters because the bucket closes, and from now on every new one.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.give_up();
    }

    /// Fails all waiters, also of keys that are being read; their number.
    pub(super) fn give_up(&self) -> usize {
        let waiters = {
            let mut state = self.state.lock();
            state.order.clear();
            state.large.clear();
            debug_assert_eq!(
                state.entries.values().map(|entry| entry.waiters.len()).sum::<usize>(),
                state.waiting,
                "waiters are counted"
            );
            state.waiting = 0;
            let mut waiters = std::mem::take(&mut state.turned_away);
            waiters.extend(state.entries.drain().flat_map(|(_, entry)| entry.waiters));
            state.failed += waiters.len() as u64;
            waiters
        };
        let count = waiters.len();
        waiters.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
        count
    }

    /// Takes the next batch, and wakes another fetcher for the rest. Each batch has to be finished.
    /// Notifies the waiters that it rejects and returns their number.
    pub(super) fn take(&self) -> (FetchBatch, usize) {
        let mut state = self.state.lock();
        let turned_away = std::mem::take(&mut state.turned_away);
        state.failed += turned_away.len() as u64;
        let mut batch = FetchBatch::default();
        if !state.is_reading_large
            && let Some(wanted) = state.next(true)
        {
            state.is_reading_large = true;
            (batch.wanted, batch.is_large) = (vec![wanted], true);
        } else {
            let count = state.batch_len();
            batch.wanted.reserve(count.min(state.order.len()));
            while batch.wanted.len() < count
                && let Some(wanted) = state.next(false)
            {
                batch.wanted.push(wanted);
            }
        }
        let woken = state.take_sleeper();
        debug_assert!(batch.wanted.len() <= BATCH_KEYS, "a batch is bounded");
        drop(state);
        woken.iter().for_each(Thread::unpark);
        let told = turned_away.len();
        turned_away.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
        (batch, told)
    }

    /// Notifies the waiters of a batch of each key's outcome; returns their number.
    pub(super) fn finish(&self, batch: FetchBatch, findings: &[KeyOutcome]) -> usize {
        let FetchBatch { wanted, is_large } = batch;
        assert_eq!(wanted.len(), findings.len(), "a finding for each key");
        let mut told: Vec<(Vec<FetchWaiter>, FetchOutcome)> = Vec::with_capacity(wanted.len());
        let woken = {
            let mut state = self.state.lock();
            let mut unread = Vec::new();
            for (wanted, finding) in wanted.into_iter().zip(findings) {
                match finding {
                    KeyOutcome::Over(outcome) => told.push((state.take_waiters(&wanted), *outcome)),
                    KeyOutcome::Large => state.put_back(wanted, true),
                    KeyOutcome::Unread => unread.push(wanted),
                }
            }
            unread.into_iter().rev().for_each(|wanted| state.put_back(wanted, false));
            if is_large {
                assert!(state.is_reading_large, "one large document is read at a time");
                state.is_reading_large = false;
            }
            let failed = told.iter().filter(|(_, outcome)| *outcome == FetchOutcome::Failed);
            state.failed += failed.map(|(waiters, _)| waiters.len() as u64).sum::<u64>();
            state.take_sleeper()
        };
        woken.iter().for_each(Thread::unpark);
        let count = told.iter().map(|(waiters, _)| waiters.len()).sum();
        for (waiters, outcome) in told {
            waiters.into_iter().for_each(|waiter| waiter.tell(outcome));
        }
        count
    }

    /// Sizes the next batches by the documents of this one.
    pub(super) fn adapt(&self, keys: usize, bytes: usize) {
        let per_key = (bytes / keys.max(1)).max(1);
        debug_assert!(keys <= BATCH_KEYS, "a batch is bounded");
        self.state.lock().batch_keys = (BATCH_BYTES / per_key).clamp(1, BATCH_KEYS);
    }

    /// Fills in the figures of fetches.
    pub(super) fn add_stats(&self, stats: &mut MemoryStats) {
        let state = self.state.lock();
        stats.fetches = state.asked;
        stats.fetches_joined = state.joined;
        stats.fetch_failures = state.failed;
        stats.fetch_queue = (state.order.len() + state.large.len()) as u64;
    }
}
