//! How far the indexes of a bucket are, for statements that wait for them.
//!
//! Owns: the seqno of each vbucket up to which all online indexes have its changes, and whether
//! they have all documents. Invariants:
//! - [`FeedProgress::is_complete`] is true only while every served vbucket was fed with its present
//!   history: a change of ownership ends that before the vbucket serves;
//! - a seqno belongs to the history that its vbucket had when [`FeedProgress`] was complete, so
//!   [`FeedProgress::has_all`] compares seqnos only then;
//! - a waiting statement wakes the feed, so it never waits for the feed's sleep to end.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use oribi_engine::Bucket;
use oribi_types::{Seqno, Vbid};
use parking_lot::{Condvar, Mutex};

/// No number of ownership changes.
const NOT_COMPLETE: u64 = u64::MAX;

/// Changes whenever statements may use another set of indexes than before.
static TRANSITIONS: AtomicU64 = AtomicU64::new(0);

/// The number of transitions of all indexes.
pub(crate) fn transitions() -> u64 {
    TRANSITIONS.load(Ordering::Relaxed)
}

/// Plans that were made before are made anew.
pub(super) fn note_transition() {
    TRANSITIONS.fetch_add(1, Ordering::Relaxed);
}

/// See the module text.
pub(super) struct FeedProgress {
    bucket: Arc<Bucket>,
    seqnos: Box<[AtomicU64]>,
    /// The number of ownership changes at which all served vbuckets were fed.
    complete_at: AtomicU64,
    pub waker: FeedWaker,
    waiting: AtomicUsize,
    turns: Mutex<u64>,
    news: Condvar,
    /// Changes applied, and documents of them that had entries to insert.
    pub mutations: AtomicU64,
}

impl FeedProgress {
    pub fn new(bucket: Arc<Bucket>) -> FeedProgress {
        let seqnos = bucket.vbuckets().iter().map(|_| AtomicU64::new(0)).collect();
        FeedProgress {
            bucket,
            seqnos,
            complete_at: AtomicU64::new(NOT_COMPLETE),
            waker: FeedWaker::default(),
            waiting: AtomicUsize::new(0),
            turns: Mutex::default(),
            news: Condvar::new(),
            mutations: AtomicU64::new(0),
        }
    }

    /// Whether indexes that are online have all documents.
    pub fn is_complete(&self) -> bool {
        self.complete_changes().is_some()
    }

    /// The number of ownership changes, while indexes that are online have all documents.
    fn complete_changes(&self) -> Option<u64> {
        let changes = self.bucket.ownership_changes();
        (self.complete_at.load(Ordering::SeqCst) == changes).then_some(changes)
    }

    /// Whether indexes that are online have all documents and the changes up to these seqnos.
    pub fn has_all(&self, wanted: &[(Vbid, Seqno)]) -> bool {
        let before = self.complete_changes();
        before.is_some()
            && wanted.iter().all(|(vbid, seqno)| self.seqno(*vbid) >= *seqno)
            && self.complete_changes() == before
    }

    pub(super) fn set_complete(&self, ownership_changes: Option<u64>) {
        let next = ownership_changes.unwrap_or(NOT_COMPLETE);
        debug_assert_ne!(ownership_changes, Some(NOT_COMPLETE), "a count of changes is a number");
        if self.complete_at.swap(next, Ordering::SeqCst) != next {
            note_transition();
        }
    }

    pub(super) fn set_seqno(&self, vbid: Vbid, seqno: Seqno) {
        debug_assert!(usize::from(vbid.0) < self.seqnos.len(), "a vbucket is of the bucket");
        if let Some(known) = self.seqnos.get(usize::from(vbid.0)) {
            debug_assert!(seqno.0 < NOT_COMPLETE, "a seqno is of a change");
            known.store(seqno.0, Ordering::Release);
        }
    }

    /// The changes of a vbucket up to here are in the indexes.
    pub fn seqno(&self, vbid: Vbid) -> Seqno {
        let known = self.seqnos.get(usize::from(vbid.0));
        Seqno(known.map_or(0, |known| known.load(Ordering::Acquire)))
    }

    /// Changes that the indexes do not have yet.
    pub fn lag(&self) -> u64 {
        let vbuckets = self.bucket.vbuckets().iter();
        let behind = |vbucket: &oribi_engine::VBucket| {
            vbucket.high_seqno().0.saturating_sub(self.seqno(vbucket.id()).0)
        };
        vbuckets.map(behind).sum()
    }

    /// Wakes the feed and waits for the end of its next turn, `timeout` at most.
    pub fn wait_for_turn(&self, timeout: Duration) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        {
            let mut turns = self.turns.lock();
            self.waker.wake();
            self.news.wait_for(&mut turns, timeout);
        }
        let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(waiting > 0, "a wait that ends was counted");
    }

    /// A turn of the feed has ended.
    pub(super) fn end_turn(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.turns.lock() += 1;
            self.news.notify_all();
        }
    }
}

/// Wakes the thread of a feed. A thread that sleeps briefly is not woken by changes, so workers pay
/// for a wake-up only after a pause.
#[derive(Default)]
pub(super) struct FeedWaker {
    thread: OnceLock<Mutex<Option<Thread>>>,
    sleeps_long: AtomicBool,
    is_woken: AtomicBool,
}

impl FeedWaker {
    /// The thread that is woken from now on.
    pub fn attach(&self, thread: Option<Thread>) {
        *self.thread.get_or_init(Mutex::default).lock() = thread;
    }

    /// Wakes the thread from any sleep.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get().and_then(|thread| thread.lock().clone()) {
            thread.unpark();
        }
    }

    /// Wakes the thread from a long sleep.
    pub fn note_change(&self) {
        if self.sleeps_long.load(Ordering::SeqCst) && self.sleeps_long.swap(false, Ordering::SeqCst)
        {
            self.wake();
        }
    }

    /// Sleeps on the attached thread. With `is_long` a change wakes it; `has_work` is asked after
    /// that is in force.
    pub fn sleep(&self, timeout: Duration, is_long: bool, has_work: impl FnOnce() -> bool) {
        self.sleeps_long.store(is_long, Ordering::SeqCst);
        if !self.is_woken.swap(false, Ordering::SeqCst) && !has_work() {
            std::thread::park_timeout(timeout);
        }
        self.is_woken.store(false, Ordering::SeqCst);
        self.sleeps_long.store(false, Ordering::SeqCst);
    }
}
