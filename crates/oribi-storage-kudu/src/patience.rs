//! Waiting while Kudu is away, and when to stop.
//!
//! Owns: the pauses between attempts, the log lines about an absence, and the mark that the store is being
//! closed. Invariants: there is at most one line in ten seconds about waiting and one when it is over; once the
//! store is being closed, nobody waits longer than a few seconds more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oribi_storage::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First pause before something is tried again, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);
/// Time between two lines about an absence.
const REPORT: Duration = Duration::from_secs(10);
/// How long something that is under way may take when the store is being closed.
const GRACE: Duration = Duration::from_secs(5);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    is_closing: AtomicBool,
    closing: Notify,
    /// When the last line was written, of this absence.
    reported: Mutex<Option<Instant>>,
    /// Attempts that had to be repeated, since the store was opened.
    retries: AtomicU64,
}

/// A wait of one caller.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failed: u32,
}

impl Patience {
    /// Nobody waits longer than the grace from now on.
    pub(crate) fn end(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.closing.notify_waiters();
    }

    /// Attempts that had to be repeated so far.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// An attempt failed in a way that passes: pauses, or gives up because the store is being closed.
    pub(crate) async fn pause(
        &self,
        attempts: &mut Attempts,
        what: &str,
        error: &dyn std::fmt::Display,
    ) -> Result<(), StoreError> {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.report(what, error);
        let pause = PAUSE_FIRST.saturating_mul(1 << attempts.failed.min(10)).min(PAUSE_LAST);
        attempts.failed += 1;
        if self.is_closing() {
            return Err(StoreError::Io(format!("Kudu: {what}: {error}")));
        }
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = closing => {}
        }
        Ok(())
    }

    /// Waits for something that itself never gives up, and tells when it takes long. `None` when the store was
    /// being closed and it still was not there after the grace.
    pub(crate) async fn wait<T>(&self, what: &str, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut grace = None;
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            closing.as_mut().enable();
            if self.is_closing() && grace.is_none() {
                grace = Some(Instant::now() + GRACE);
            }
            let until = grace.unwrap_or_else(|| Instant::now() + REPORT);
            tokio::select! {
                output = &mut future => return Some(output),
                () = closing => {}
                () = tokio::time::sleep_until(until) => {
                    if grace.is_some() {
                        return None;
                    }
                    self.report(what, &"no answer");
                }
            }
        }
    }

    /// Something worked: an absence is over.
    pub(crate) fn succeeded(&self, what: &str) {
        if self.reported.lock().take().is_some() {
            tracing::warn!("Kudu answers again: {what}");
        }
    }

    fn report(&self, what: &str, error: &dyn std::fmt::Display) {
        let mut reported = self.reported.lock();
        if reported.is_none_or(|at| at.elapsed() >= REPORT) {
            *reported = Some(Instant::now());
            tracing::warn!(%error, "waiting for Kudu: {what}");
        }
    }
}
