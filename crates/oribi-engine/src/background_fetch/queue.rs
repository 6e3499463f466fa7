//! Fetches: keys to read from the store, and the waiters for each.
//!
//! Owns: the order of the keys, the waiters of each, and the bound on both. Several operations that
//! wait for one document share one read. The engine does not know what is behind a waiter: it calls
//! a [`FetchSink`] with the caller's own token. Operations ask; the fetcher takes batches and
//! tells.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use oribi_types::{CollectionId, DocKey, Vbid};
use parking_lot::Mutex;

use crate::memory::MemoryStats;

/// Keys of one batch at most: enough for the store to read in order of position.
const BATCH_KEYS: usize = 256;
/// Bytes of values with which a batch ends. How many keys it takes is judged by the batch before.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// Operations that may wait at one time.
const WAITING_MAX: usize = 1 << 16;

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

/// An operation that waits.
pub(super) struct Waiter {
    sink: Arc<dyn FetchSink>,
    token: u64,
}

impl Waiter {
    pub(super) fn new(sink: &Arc<dyn FetchSink>, token: u64) -> Waiter {
        Waiter { sink: Arc::clone(sink), token }
    }

    pub(super) fn tell(self, outcome: FetchOutcome) {
        self.sink.fetched(self.token, outcome);
    }
}

/// The document to read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) vbid: Vbid,
    collection: CollectionId,
    key: Box<[u8]>,
}

impl Wanted {
    pub(super) fn new(vbid: Vbid, key: DocKey<'_>) -> Wanted {
        Wanted { vbid, collection: key.collection, key: key.key.into() }
    }

    pub(super) fn key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }
}

/// The keys that a step reads, and the waiters that it turns away.
pub(super) struct Batch {
    pub(super) wanted: Vec<(Wanted, Vec<Waiter>)>,
    pub(super) turned_away: Vec<Waiter>,
}

struct State {
    /// In order of the first request for each.
    order: VecDeque<Wanted>,
    waiters: HashMap<Wanted, Vec<Waiter>>,
    waiting: usize,
    /// Waiters that came when too many waited already.
    turned_away: Vec<Waiter>,
    /// Keys of the next batch.
    batch_keys: usize,
    /// The bucket is closing: every new waiter is told at once.
    is_closed: bool,
    /// Counts since the bucket was opened.
    asked: u64,
    joined: u64,
    failed: u64,
}

impl State {
    fn is_idle(&self) -> bool {
        self.order.is_empty() && self.turned_away.is_empty()
    }

    fn add(&mut self, wanted: Wanted, waiter: Waiter) {
        if self.waiting >= WAITING_MAX {
            return self.turned_away.push(waiter);
        }
        self.waiting += 1;
        if let Some(waiters) = self.waiters.get_mut(&wanted) {
            self.joined += 1;
            return waiters.push(waiter);
        }
        self.waiters.insert(wanted.clone(), vec![waiter]);
        self.order.push_back(wanted);
    }
}

/// See the module text.
pub(super) struct FetchQueue {
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
            asked: 0,
            joined: 0,
            failed: 0,
        };
        FetchQueue { state: Mutex::new(state), thread: OnceLock::new() }
    }
}

impl FetchQueue {
    /// From now on `thread` is woken when there is something to read.
    pub(super) fn attach(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// Adds a waiter; after [`FetchQueue::close`] it fails at once.
    pub(super) fn ask(&self, wanted: Wanted, waiter: Waiter) {
        let mut state = self.state.lock();
        state.asked += 1;
        if state.is_closed {
            drop(state);
            return waiter.tell(FetchOutcome::Failed);
        }
        let was_idle = state.is_idle();
        state.add(wanted, waiter);
        drop(state);
        if was_idle && let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Fails all waiters because the bucket closes, and from now on every new one.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.give_up();
    }

    /// Fails all waiters; their number.
    pub(super) fn give_up(&self) -> usize {
        let waiters = {
            let mut state = self.state.lock();
            state.order.clear();
            state.waiting = 0;
            let mut waiters = std::mem::take(&mut state.turned_away);
            waiters.extend(state.waiters.drain().flat_map(|(_, waiters)| waiters));
            waiters
        };
        let count = waiters.len();
        waiters.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
        count
    }

    /// Takes the next batch.
    pub(super) fn take(&self) -> Batch {
        let mut state = self.state.lock();
        let count = state.batch_keys.min(state.order.len());
        let keys: Vec<Wanted> = state.order.drain(..count).collect();
        let mut wanted = Vec::with_capacity(count);
        for key in keys {
            let waiters = state.waiters.remove(&key).unwrap_or_default();
            debug_assert!(!waiters.is_empty(), "each key in the queue has a waiter");
            state.waiting -= waiters.len();
            wanted.push((key, waiters));
        }
        Batch { wanted, turned_away: std::mem::take(&mut state.turned_away) }
    }

    /// Puts keys of a batch back in front, for the next one.
    pub(super) fn put_back(&self, unread: Vec<(Wanted, Vec<Waiter>)>) {
        let mut state = self.state.lock();
        for (key, mut waiters) in unread.into_iter().rev() {
            state.waiting += waiters.len();
            match state.waiters.get_mut(&key) {
                Some(known) => known.append(&mut waiters),
                None => {
                    state.waiters.insert(key.clone(), waiters);
                    state.order.push_front(key);
                }
            }
        }
        let is_closed = state.is_closed;
        drop(state);
        if is_closed {
            self.give_up();
        }
    }

    /// Sizes the next batch by the documents of this one.
    pub(super) fn adapt(&self, keys: usize, bytes: usize) {
        let per_key = (bytes / keys.max(1)).max(1);
        self.state.lock().batch_keys = (BATCH_BYTES / per_key).clamp(1, BATCH_KEYS);
    }

    /// Counts waiters whose fetch failed.
    pub(super) fn count_failed(&self, waiters: usize) {
        self.state.lock().failed += waiters as u64;
    }

    /// Fills in the figures of fetches.
    pub(super) fn add_stats(&self, stats: &mut MemoryStats) {
        let state = self.state.lock();
        stats.fetches = state.asked;
        stats.fetches_joined = state.joined;
        stats.fetch_failures = state.failed;
        stats.fetch_queue = state.order.len() as u64;
    }
}
