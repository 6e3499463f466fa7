//! The signals by which writers wake the flushers.
//!
//! Owns: for each flusher two marks, "there is something to flush" and "an operation waits for it",
//! and the thread that they wake; and which vbucket is whose. Setting a mark that is set already
//! costs one load, so that a busy vbucket does not pay for it with every write. Invariant: a
//! vbucket that becomes dirty after [`FlusherSignal::reset`] sets the mark again, or its flusher
//! sees it dirty.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

use oribi_types::Vbid;

/// The signals of a bucket's flushers, one for each of the store's groups of vbuckets
/// ([`StoreProperties::commit_groups`](oribi_storage::StoreProperties::commit_groups)).
pub(crate) struct FlusherSignals(Box<[FlusherSignal]>);

impl FlusherSignals {
    pub(crate) fn new(groups: usize) -> FlusherSignals {
        debug_assert!(
            groups <= usize::from(crate::limits::VBUCKETS_MAX),
            "a flusher has a vbucket"
        );
        FlusherSignals((0..groups.max(1)).map(|_| FlusherSignal::default()).collect())
    }

    pub(crate) fn all(&self) -> &[FlusherSignal] {
        &self.0
    }

    /// Of the flusher that flushes the vbucket.
    pub(crate) fn of(&self, vbid: Vbid) -> &FlusherSignal {
        debug_assert!(!self.0.is_empty(), "a bucket has a flusher");
        &self.0[usize::from(vbid.0) % self.0.len()]
    }

    /// Of the flusher that also cares for what belongs to no vbucket.
    pub(crate) fn first(&self) -> &FlusherSignal {
        &self.0[0]
    }
}

/// Wakes a flusher's thread.
#[derive(Default)]
pub(crate) struct FlusherSignal {
    work: AtomicBool,
    urgent: AtomicBool,
    thread: OnceLock<Thread>,
}

impl FlusherSignal {
    /// There is something to flush, soon.
    pub(crate) fn notify(&self) {
        // Between the caller's mark on a vbucket and the look at the signal, as in `reset` between
        // the two the other way round: either this sees the signal taken away, or the flusher sees
        // the mark.
        fence(Ordering::SeqCst);
        if !self.work.load(Ordering::Relaxed) && !self.work.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// An operation waits for the flush.
    pub(crate) fn hurry(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// `thread` is the one to wake. Called before anybody can write.
    pub(crate) fn attach(&self, thread: Thread) {
        // A second driver of the same bucket would be a bug, and harmless: steps exclude each
        // other.
        let _ = self.thread.set(thread);
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
    }

    /// The flusher begins a pass: whatever is queued from here on sets the signal again.
    pub(crate) fn reset(&self) {
        self.urgent.store(false, Ordering::Release);
        self.work.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
