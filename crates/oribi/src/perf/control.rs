//! What workers and the main thread tell each other while operations run.
//!
//! Nothing here is touched per operation: a worker looks at the stop flag and publishes its numbers
//! once per batch, on a cache line of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::tally::Latencies;

/// How a run is ended.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    cancel: watch::Sender<bool>,
}

impl Control {
    /// A run that goes on.
    pub fn new() -> Control {
        Control { stop: AtomicBool::new(false), cancel: watch::Sender::new(false) }
    }

    /// Lets workers finish the batch that they are at.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// True once workers shall stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Ends batches that are in flight.
    pub fn cancel(&self) {
        self.stop();
        self.cancel.send_replace(true);
    }

    /// Waits until batches in flight shall end.
    pub async fn cancelled(&self) {
        let mut receiver = self.cancel.subscribe();
        // The sender is here as long as anybody can wait, so it does not close.
        let _ = receiver.wait_for(|cancelled| *cancelled).await;
    }
}

/// A worker's numbers so far, for the live line.
#[derive(Debug)]
#[repr(align(128))]
pub struct Live {
    operations: AtomicU64,
    problems: AtomicU64,
    asked: AtomicBool,
    recent: Mutex<Latencies>,
}

/// What [`Live`] says at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Operations answered in this phase.
    pub operations: u64,
    /// Of these, misses, wrong values and refusals.
    pub problems: u64,
}

impl Live {
    /// Nothing yet.
    pub fn new() -> Live {
        Live {
            operations: AtomicU64::new(0),
            problems: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            recent: Mutex::new(Latencies::new()),
        }
    }

    /// Says how far the worker is.
    pub fn publish(&self, progress: Progress) {
        self.operations.store(progress.operations, Relaxed);
        self.problems.store(progress.problems, Relaxed);
    }

    /// Calls `hand_over` if recent latencies were asked for.
    pub fn answer(&self, hand_over: impl FnOnce(&mut Latencies)) {
        if self.asked.load(Relaxed) && self.asked.swap(false, Relaxed) {
            hand_over(&mut self.recent.lock());
        }
    }

    /// How far the worker is.
    pub fn progress(&self) -> Progress {
        Progress {
            operations: self.operations.load(Relaxed),
            problems: self.problems.load(Relaxed),
        }
    }

    /// Adds the latencies that were asked for the last time to `sum`, and asks again.
    pub fn collect(&self, sum: &mut Latencies) {
        let mut recent = self.recent.lock();
        sum.add(&recent);
        recent.clear();
        self.asked.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! Numbers are handed over when asked for, once.

    use super::*;

    #[test]
    fn latencies_are_handed_over_once_when_asked_for() {
        let live = Live::new();
        let mut handed_over = 0;
        let mut answer = || {
            live.answer(|recent| {
                recent.get.record(5).unwrap();
                handed_over += 1;
            });
        };
        answer();
        let mut sum = Latencies::new();
        live.collect(&mut sum);
        answer();
        answer();
        assert_eq!((sum.get.len(), handed_over), (0, 1));
        live.collect(&mut sum);
        live.collect(&mut sum);
        assert_eq!(sum.get.len(), 1);
    }

    #[tokio::test]
    async fn cancelling_ends_waits_before_and_after() {
        let control = Control::new();
        assert!(!control.is_stopped());
        tokio::join!(control.cancelled(), async { control.cancel() });
        control.cancelled().await;
        assert!(control.is_stopped());
    }
}
