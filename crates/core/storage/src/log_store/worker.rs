//! The thread that compacts, and how it keeps out of the way of commits.
//!
//! Owns: the thread and its pace. It begins some way before garbage reaches its limit, works a
//! slice at a time, and rests as long as a slice took; the nearer the limit is, the less it rests.
//! When garbage is over the limit nevertheless, commits do slices themselves, as much as they
//! write, so the log stays bounded. Dropping the worker ends the thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::batches::Batches;
use super::compaction::{CompactionStep, EARLY_PERCENT, SLICE_BYTES};
use super::log::Log;

/// How far below its limit garbage is, in percent of the log, when compaction no longer rests.
const URGENT_PERCENT: u64 = 5;
/// Bytes that a commit over the limit reads for compaction, for each byte that it writes.
const HELP_FACTOR: u64 = 2;
/// Slices that one commit does at most.
const SLICES_PER_COMMIT: u64 = 16;
/// Pause after a step that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Longest rest, and how long a step waits for a reader.
const REST_MAX: Duration = Duration::from_millis(20);
const _: () = assert!(URGENT_PERCENT < EARLY_PERCENT);
const _: () = assert!(REST_MAX.as_millis() < RETRY.as_millis());
const _: () = assert!(SLICES_PER_COMMIT > 0 && HELP_FACTOR > 1, "help frees more than is written");

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
pub(super) struct LogStoreWorker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogStoreWorker {
    pub(super) fn start(log: Arc<Log>) -> LogStoreWorker {
        let shared = Arc::new(Shared { log, signal: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let spawned = oribi_supervisor::spawn("log-compaction", move || of_thread.run());
        if let Err(error) = &spawned {
            tracing::error!(%error, "no thread for compaction; commits do its work");
        }
        LogStoreWorker { shared, thread: Mutex::new(spawned.ok()) }
    }

    /// Ends the thread. Commits do its work from now on.
    pub(super) fn stop(&self) {
        self.shared.signal.lock().is_stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the compaction thread panicked");
        }
        debug_assert!(self.thread.lock().is_none(), "the thread has ended");
    }

    pub(super) fn call(&self) {
        let mut signal = self.shared.signal.lock();
        if !signal.is_called {
            signal.is_called = true;
            self.shared.changed.notify_one();
        }
    }

    /// Calls the thread when there is work, and helps when there is too much of it.
    pub(super) fn before_commit(&self, batches: Batches<'_, '_>) {
        debug_assert!(!batches.is_empty(), "a commit has a batch");
        let limit = self.shared.log.options.garbage_percent;
        let garbage = self.shared.log.garbage_percent();
        if garbage + EARLY_PERCENT < limit {
            return;
        }
        self.call();
        if garbage >= limit || self.thread.lock().is_none() {
            let records = batches.iter().flat_map(|batch| &batch.records);
            let bytes = records.map(|record| (record.key.key.len() + record.value.len()) as u64);
            let slices = bytes.sum::<u64>() * HELP_FACTOR / SLICE_BYTES + 1;
            debug_assert!(slices > 0, "a commit over the limit helps");
            let mut steps =
                (0..slices.min(SLICES_PER_COMMIT)).map(|_| self.shared.log.compaction_step());
            // An error is logged there, and tried again by the thread.
            while let Some(Ok(step)) = steps.next() {
                if !matches!(step, CompactionStep::Moved { .. } | CompactionStep::Removed { .. }) {
                    break;
                }
            }
        }
    }
}

impl Drop for LogStoreWorker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        let mut lacks_space = false;
        while self.wait_for_call() {
            self.work(&mut lacks_space);
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
    fn work(&self, lacks_space: &mut bool) {
        loop {
            oribi_supervisor::plant("compaction");
            let begun = Instant::now();
            let rest = match self.log.compaction_step() {
                Ok(CompactionStep::Idle) => return,
                Ok(CompactionStep::Waiting) => REST_MAX,
                // Every commit calls, so this is said once, until there is space again.
                Ok(CompactionStep::NoSpace) => {
                    if !std::mem::replace(lacks_space, true) {
                        tracing::warn!("too little space is left on the disk to compact the log");
                    }
                    return;
                }
                Ok(_) => {
                    if std::mem::take(lacks_space) {
                        tracing::info!("there is space to compact the log again");
                    }
                    self.rest_after(begun.elapsed())
                }
                Err(_) => RETRY,
            };
            let mut signal = self.signal.lock();
            let until = Instant::now() + rest;
            // Calls come with every commit and shorten no rest.
            while !signal.is_stopped && Instant::now() < until {
                self.changed.wait_until(&mut signal, until);
            }
            if signal.is_stopped {
                return;
            }
        }
    }

    fn rest_after(&self, slice: Duration) -> Duration {
        let below = self.log.options.garbage_percent.saturating_sub(self.log.garbage_percent());
        let share = below.saturating_sub(URGENT_PERCENT).min(EARLY_PERCENT - URGENT_PERCENT);
        (slice * share as u32 / (EARLY_PERCENT - URGENT_PERCENT) as u32).min(REST_MAX)
    }
}
