//! Waiting while Kudu is away, and when to stop.
//!
//! Owns: the pauses between attempts, the log lines about an absence, and the mark that the store is being
//! closed. Invariants: there is at most one line in ten seconds about waiting and one when it is over; once the
//! store is being closed, nobody waits longer than a grace more; who has a time limit waits no longer than that.

use std::sync::atomic::{AtomicU64, Ordering};
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
/// How long what is under way may still take when the store is being closed: the last flush is among it.
const GRACE: Duration = Duration::from_secs(20);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// When the store began to be closed.
    closing_since: Mutex<Option<Instant>>,
    closing: Notify,
    /// When the last line was written, of this absence.
    reported: Mutex<Option<Instant>>,
    /// Attempts that had to be repeated, since the store was opened.
    retries: AtomicU64,
}

/// A wait of one caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    failed: u32,
    /// When the caller gives up; without it he waits for as long as Kudu is away.
    limit: Option<Instant>,
}

impl Attempts {
    /// A wait that ends then.
    pub(crate) fn until(limit: Option<Instant>) -> Attempts {
        Attempts { failed: 0, limit }
    }
}

/// What became of a wait.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    Done(T),
    /// The caller's time is up.
    TimeIsUp,
    /// The store is being closed, and the grace is over.
    Closed,
}

impl Patience {
    /// Nobody waits longer than the grace from now on.
    pub(crate) fn end(&self) {
        self.closing_since.lock().get_or_insert_with(Instant::now);
        self.closing.notify_waiters();
    }

    /// Attempts that had to be repeated so far.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// When nobody waits any more, if the store is being closed.
    fn end_of_grace(&self) -> Option<Instant> {
        self.closing_since.lock().map(|since| since + GRACE)
    }

    /// An attempt failed in a way that passes: pauses, or gives up because the store is being closed or the
    /// caller has no more time.
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
        let ends = [self.end_of_grace(), attempts.limit];
        if ends.into_iter().flatten().min().is_some_and(|end| Instant::now() >= end) {
            return Err(StoreError::Io(format!("Kudu: {what}: {error}")));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Waits for something that itself never gives up, no longer than to the limit, and tells when it takes long.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        limit: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Waited<T> {
        let mut future = std::pin::pin!(future);
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            closing.as_mut().enable();
            let end = self.end_of_grace();
            let report = Instant::now() + REPORT;
            let until = [end, limit].into_iter().flatten().fold(report, Instant::min);
            tokio::select! {
                output = &mut future => return Waited::Done(output),
                () = closing => {}
                () = tokio::time::sleep_until(until) => {
                    if end.is_some_and(|end| end <= until) {
                        return Waited::Closed;
                    }
                    if limit.is_some_and(|limit| limit <= until) {
                        return Waited::TimeIsUp;
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
