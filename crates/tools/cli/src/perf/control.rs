//! The state that workers and the main thread share during a run, and how signals end a run.
//!
//! No operation touches it: a worker checks the stop flag and publishes its numbers once per batch,
//! on its own cache line. The first SIGINT, SIGTERM or SIGHUP lets workers finish their current
//! batch, a second ends the operations in flight, a third ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::Context;
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

use super::latencies::Latencies;
use crate::target::INTERRUPTED;

/// The stop state of a run, and its progress.
#[derive(Debug)]
pub struct Control {
    interrupted: AtomicBool,
    stop: AtomicBool,
    cancel: watch::Sender<bool>,
    /// Published state of each worker.
    pub live: Vec<Live>,
}

impl Control {
    /// A run with this many workers.
    pub fn new(workers: usize) -> Control {
        Control {
            interrupted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            cancel: watch::Sender::new(false),
            live: (0..workers).map(|_| Live::new()).collect(),
        }
    }

    /// The same, with signal handling.
    pub fn watching_signals(workers: usize) -> anyhow::Result<Arc<Control>> {
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot register for signals")?;
        let control = Arc::new(Control::new(workers));
        let told = control.clone();
        std::thread::spawn(move || {
            let mut signals = signals.forever();
            signals.next();
            told.interrupt();
            signals.next();
            told.cancel();
            signals.next();
            eprintln!(
                "oribi: ended by a third signal; a table that was created for the run may be left behind"
            );
            std::process::exit(i32::from(INTERRUPTED));
        });
        Ok(control)
    }

    /// Lets workers finish their current batch.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// The same, on the user's interrupt.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Relaxed);
        self.stop();
    }

    /// True once workers must stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// True after a signal.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Ends batches that are in flight.
    pub fn cancel(&self) {
        self.stop();
        self.cancel.send_replace(true);
    }

    /// Waits until batches in flight must end.
    pub async fn cancelled(&self) {
        let mut receiver = self.cancel.subscribe();
        // The sender lives as long as any waiter, so the channel does not close.
        let _ = receiver.wait_for(|cancelled| *cancelled).await;
    }

    /// The progress of all workers together.
    pub fn progress(&self) -> LoadProgress {
        self.live.iter().map(Live::progress).fold(LoadProgress::default(), |sum, one| {
            LoadProgress {
                operations: sum.operations + one.operations,
                problems: sum.problems + one.problems,
                parts: sum.parts + one.parts,
            }
        })
    }
}

/// A worker's numbers so far, for the live line.
#[derive(Debug)]
#[repr(align(128))]
pub struct Live {
    operations: AtomicU64,
    problems: AtomicU64,
    parts: AtomicU64,
    asked: AtomicBool,
    recent: Mutex<Latencies>,
}

/// A snapshot of [`Live`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadProgress {
    /// Operations answered in this phase.
    pub operations: u64,
    /// Of these, misses, wrong values and refusals.
    pub problems: u64,
    /// Parts of the work that are finished, where it has parts.
    pub parts: u64,
}

impl Live {
    fn new() -> Live {
        Live {
            operations: AtomicU64::new(0),
            problems: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            recent: Mutex::new(Latencies::new()),
        }
    }

    /// Publishes the worker's progress.
    pub fn publish(&self, progress: LoadProgress) {
        self.operations.store(progress.operations, Relaxed);
        self.problems.store(progress.problems, Relaxed);
        self.parts.store(progress.parts, Relaxed);
    }

    /// Adds operations that were answered.
    pub fn add_operations(&self, operations: u64) {
        self.operations.fetch_add(operations, Relaxed);
    }

    /// Calls `hand_over` if recent latencies were asked for.
    pub fn answer(&self, hand_over: impl FnOnce(&mut Latencies)) {
        if self.asked.load(Relaxed) && self.asked.swap(false, Relaxed) {
            hand_over(&mut self.recent.lock());
        }
    }

    /// How far the worker is.
    pub fn progress(&self) -> LoadProgress {
        LoadProgress {
            operations: self.operations.load(Relaxed),
            problems: self.problems.load(Relaxed),
            parts: self.parts.load(Relaxed),
        }
    }

    /// Adds the latencies of the last request to `sum`, and requests the next.
    pub fn collect(&self, sum: &mut Latencies) {
        let mut recent = self.recent.lock();
        sum.add(&recent);
        recent.clear();
        self.asked.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! Numbers are handed over when asked for, once; those of all workers add up.

    use super::*;

    #[test]
    fn latencies_are_handed_over_once_when_asked_for() {
        let live = Live::new();
        let mut handed_over = 0;
        let mut answer = || {
            live.answer(|recent| {
                recent.read.record(5).unwrap();
                handed_over += 1;
            });
        };
        answer();
        let mut sum = Latencies::new();
        live.collect(&mut sum);
        answer();
        answer();
        assert_eq!((sum.read.len(), handed_over), (0, 1));
        live.collect(&mut sum);
        live.collect(&mut sum);
        assert_eq!(sum.read.len(), 1);
    }

    #[test]
    fn progress_is_that_of_all_workers() {
        let control = Control::new(2);
        control.live[0].publish(LoadProgress { operations: 4000, problems: 1, parts: 2 });
        control.live[1].add_operations(1000);
        assert_eq!(control.progress(), LoadProgress { operations: 5000, problems: 1, parts: 2 });
    }

    #[tokio::test]
    async fn cancelling_ends_waits_before_and_after() {
        let control = Control::new(0);
        assert!(!control.is_stopped());
        tokio::join!(control.cancelled(), async { control.cancel() });
        control.cancelled().await;
        assert!(control.is_stopped() && !control.is_interrupted());
        control.interrupt();
        assert!(control.is_interrupted());
    }
}
