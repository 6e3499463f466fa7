//! The thread that compacts, and how it keeps out of the way of commits.
//!
//! Owns: the thread and its pace. It looks after commits whether there is enough garbage, works a
//! slice at a time, and rests as long as a slice took while garbage is near its limit; the further
//! it is above, the less it rests. When commits make garbage faster than that, they do slices
//! themselves, so the log stays bounded. Dropping the worker ends the thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::compaction::CompactionStep;
use super::log::Log;

/// How far above its limit garbage is, in percent of the log, when nothing rests any more.
const URGENT_PERCENT: u64 = 10;
/// How far above its limit garbage is when commits help.
const OVERFULL_PERCENT: u64 = 25;
/// Slices that one commit does at most.
const SLICES_PER_COMMIT: usize = 4;
/// Longest rest, and how long a step waits for a reader.
const REST_MAX: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Signal {
    is_stopped: bool,
    is_called: bool,
}

struct Shared {
    log: Arc<Log>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

/// A running compaction thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(log: Arc<Log>) -> Worker {
        let shared = Arc::new(Shared { log, signal: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let spawned = std::thread::Builder::new()
            .name("log-compaction".into())
            .spawn(move || of_thread.run());
        if let Err(error) = &spawned {
            tracing::error!(%error, "no thread for compaction; commits do its work");
        }
        Worker { shared, thread: spawned.ok() }
    }

    /// Calls the thread when there is work, and helps when there is too much of it.
    pub(super) fn before_commit(&self) {
        let limit = self.shared.log.options.garbage_percent;
        let garbage = self.shared.log.garbage_percent();
        if garbage < limit {
            return;
        }
        let mut signal = self.shared.signal.lock();
        if !signal.is_called {
            signal.is_called = true;
            self.shared.changed.notify_one();
        }
        drop(signal);
        if garbage >= limit + OVERFULL_PERCENT || self.thread.is_none() {
            let mut steps = (0..SLICES_PER_COMMIT).map(|_| self.shared.log.compaction_step());
            // An error of compaction is told by the thread, or by the commit that follows.
            while let Some(Ok(CompactionStep::Moved { .. })) = steps.next() {}
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.signal.lock().is_stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the compaction thread panicked");
        }
    }
}

impl Shared {
    fn run(&self) {
        while self.wait_for_call() {
            self.work();
        }
    }

    /// False when the store is closed.
    fn wait_for_call(&self) -> bool {
        let mut signal = self.signal.lock();
        while !signal.is_called && !signal.is_stopped {
            self.changed.wait(&mut signal);
        }
        signal.is_called = false;
        !signal.is_stopped
    }

    /// Works until there is nothing to do or the store is closed.
    fn work(&self) {
        loop {
            let begun = Instant::now();
            let rest = match self.log.compaction_step() {
                Ok(CompactionStep::Idle) => return,
                Ok(CompactionStep::Waiting) => REST_MAX,
                Ok(_) => self.rest_after(begun.elapsed()),
                Err(error) => {
                    tracing::error!(%error, "a segment could not be compacted");
                    return;
                }
            };
            let mut signal = self.signal.lock();
            if !signal.is_stopped && !rest.is_zero() {
                self.changed.wait_for(&mut signal, rest);
            }
            if signal.is_stopped {
                return;
            }
        }
    }

    fn rest_after(&self, slice: Duration) -> Duration {
        let above = self.log.garbage_percent().saturating_sub(self.log.options.garbage_percent);
        let share = URGENT_PERCENT.saturating_sub(above) as u32;
        (slice * share / URGENT_PERCENT as u32).min(REST_MAX)
    }
}
