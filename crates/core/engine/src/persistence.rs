//! Waiters for durability.
//!
//! Owns: the list of waiters of one vbucket. A waiter is registered with the seqno of its write and
//! is notified exactly once: when the persisted seqno has reached it, or when a commit failed. The
//! engine does not depend on the waiters' type: it calls a [`PersistenceSink`] with the caller's
//! own token.

use std::sync::Arc;

use oribi_types::Seqno;
use parking_lot::Mutex;

/// How a wait for a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersistOutcome {
    Persisted,
    /// A prepare was committed, as a version of this seqno.
    Committed(Seqno),
    /// The store failed. The write is in memory and may or may not be on disk.
    Failed,
}

/// Receives the end of a wait. Called from the flusher's thread; must not block.
pub trait PersistenceSink: Send + Sync {
    /// The wait registered with `token` is over.
    fn persisted(&self, token: u64, outcome: PersistOutcome);
}

struct Waiter {
    seqno: Seqno,
    sink: Arc<dyn PersistenceSink>,
    token: u64,
}

/// Waiters of one vbucket.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Waiter>>);

impl Waiters {
    /// Registers a waiter unless `standing` says that its wait is over already, and returns what it
    /// says. The caller's closure is asked under the lock that [`Waiters::persisted`] and
    /// [`Waiters::fail_all`] take, so no wait is missed: the callers of both make their news
    /// visible to the closure first.
    pub(crate) fn register(
        &self,
        seqno: Seqno,
        sink: &Arc<dyn PersistenceSink>,
        token: u64,
        standing: impl FnOnce() -> Option<PersistOutcome>,
    ) -> Option<PersistOutcome> {
        let mut waiters = self.0.lock();
        debug_assert!(seqno > Seqno(0), "a write has a seqno");
        let outcome = standing();
        if outcome.is_none() {
            waiters.push(Waiter { seqno, sink: Arc::clone(sink), token });
        }
        outcome
    }

    /// Notifies every waiter for `end` or less.
    pub(crate) fn persisted(&self, end: Seqno) {
        self.finish(|waiter| waiter.seqno <= end, PersistOutcome::Persisted);
    }

    /// Notifies every waiter that the store failed.
    pub(crate) fn fail_all(&self) {
        self.finish(|_| true, PersistOutcome::Failed);
    }

    /// Notifies the waiters for exactly these ascending seqnos of each outcome.
    pub(crate) fn decided(&self, outcomes: &[(Seqno, PersistOutcome)]) {
        debug_assert!(
            outcomes.is_sorted_by_key(|(at, _)| *at),
            "outcomes have the order of seqnos"
        );
        let of = |waiter: &Waiter| outcomes.binary_search_by_key(&waiter.seqno, |(at, _)| *at);
        let mut waiters = self.0.lock();
        if waiters.is_empty() {
            return;
        }
        let over: Vec<Waiter> = waiters.extract_if(.., |waiter| of(waiter).is_ok()).collect();
        drop(waiters);
        for waiter in over {
            if let Some((_, outcome)) = of(&waiter).ok().and_then(|at| outcomes.get(at)) {
                waiter.sink.persisted(waiter.token, *outcome);
            }
        }
    }

    fn finish(&self, done: impl Fn(&Waiter) -> bool, outcome: PersistOutcome) {
        let mut waiters = self.0.lock();
        if waiters.is_empty() {
            return;
        }
        let over: Vec<Waiter> = waiters.extract_if(.., |waiter| done(waiter)).collect();
        drop(waiters);
        debug_assert!(over.iter().all(done), "a wait ends when it is over");
        for waiter in over {
            waiter.sink.persisted(waiter.token, outcome);
        }
    }
}
