//! Waiting while Kudu is unreachable, and the end of such waits.
//!
//! Owns: the pauses between attempts, the log lines about an outage, and the mark that the store is
//! being closed. Invariants: the log gets at most one line in ten seconds about waiting and one
//! when the wait is over. Once the store is being closed, reads end at once, and all other waits
//! end within a grace period. A caller with a time limit waits no longer than that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oribi_storage::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First pause before a retry, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);
/// Time between two log lines about an outage.
const REPORT: Duration = Duration::from_secs(10);
/// Grace period for work in progress when the store is being closed; this includes the last flush.
const GRACE: Duration = Duration::from_secs(20);
/// Additional time for work that ends by itself with the grace period, before it is abandoned.
const GRACE_REST: Duration = Duration::from_secs(1);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Start of the store's closing.
    closing_since: Mutex<Option<Instant>>,
    closing: Notify,
    /// Time of the last log line about this outage.
    reported: Mutex<Option<Instant>>,
    /// Retries since the store was opened.
    retries: AtomicU64,
}

/// The wait of one caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    failed: u32,
    /// When the caller's wait ends; without it the caller waits for as long as Kudu is unreachable.
    limit: Option<Instant>,
}

impl Attempts {
    /// A wait that ends at `limit`.
    pub(crate) fn until(limit: Option<Instant>) -> Attempts {
        Attempts { failed: 0, limit }
    }
}

/// The result of a wait.
#[derive(Debug)]
pub(crate) enum WaitResult<T> {
    Done(T),
    /// The caller's limit has passed.
    TimeIsUp,
    /// The store is being closed, and the grace period is over.
    Closed,
}

impl Patience {
    /// Starts the closing: no wait exceeds the grace period from now on.
    pub(crate) fn end(&self) {
        self.closing_since.lock().get_or_insert_with(Instant::now);
        self.closing.notify_waiters();
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// The end of the last wait, if the store is being closed.
    fn end_of_grace(&self) -> Option<Instant> {
        self.closing_since.lock().map(|since| since + GRACE)
    }

    /// Runs a read, at most until the limit. The store's closing ends it at once, because its
    /// caller is stopping too.
    pub(crate) async fn read<T>(
        &self,
        limit: Option<Instant>,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if self.closing_since.lock().is_some() {
            return Err(StoreError::Away("the store is being closed".into()));
        }
        let end = async {
            match limit {
                Some(limit) => tokio::time::sleep_until(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = read => read,
            () = closing => Err(StoreError::Away("the store is being closed".into())),
            () = end => Err(StoreError::Away("Kudu: no answer in time".into())),
        }
    }

    /// Runs work that ends by itself with the grace period, except while it waits for a single
    /// answer. Such a wait is cut off soon after, and the result is `None`.
    pub(crate) async fn within_grace<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            closing.as_mut().enable();
            let end = self.end_of_grace().map(|end| end + GRACE_REST);
            let cut_off = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // This comes first, so that work that needs no wait completes even after the end.
                biased;
                output = &mut future => return Some(output),
                () = closing => {}
                () = cut_off => return None,
            }
        }
    }

    /// Handles a transient failure: pauses, or fails because the store is being closed or the
    /// caller's limit has passed.
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

    /// Waits for a future without its own deadline, at most until the limit, and logs a long wait.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        limit: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> WaitResult<T> {
        let mut future = std::pin::pin!(future);
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            closing.as_mut().enable();
            let end = self.end_of_grace();
            let report = Instant::now() + REPORT;
            let until = [end, limit].into_iter().flatten().fold(report, Instant::min);
            tokio::select! {
                output = &mut future => return WaitResult::Done(output),
                () = closing => {}
                () = tokio::time::sleep_until(until) => {
                    if end.is_some_and(|end| end <= until) {
                        return WaitResult::Closed;
                    }
                    if limit.is_some_and(|limit| limit <= until) {
                        return WaitResult::TimeIsUp;
                    }
                    self.report(what, &"no answer");
                }
            }
        }
    }

    /// Notes a success: an outage is over.
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
        let begun = Instant::now();
        (future.await, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn reads_end_with_the_store_the_rest_after_the_grace() {
        const CLOSED_AFTER: Duration = Duration::from_secs(5);
        let patience = Patience::default();
        let no_answer = std::future::pending::<Result<(), StoreError>>;
        let limit = Duration::from_secs(10);
        let (read, took) = timed(patience.read(Some(Instant::now() + limit), no_answer())).await;
        assert!(matches!(read, Err(StoreError::Away(_))) && took == limit, "{read:?} {took:?}");
        let closing = async {
            tokio::time::sleep(CLOSED_AFTER).await;
            patience.end();
        };
        let reads = timed(patience.read(None, no_answer()));
        let writes = timed(patience.within_grace(no_answer()));
        let ((read, read_for), (written, written_for), ()) = tokio::join!(reads, writes, closing);
        assert!(matches!(read, Err(StoreError::Away(_))) && written.is_none());
        assert_eq!((read_for, written_for), (CLOSED_AFTER, CLOSED_AFTER + GRACE + GRACE_REST));
        let (read, took) = timed(patience.read(None, async { Ok(()) })).await;
        assert!(matches!(read, Err(StoreError::Away(_))) && took.is_zero());
        let written = patience.within_grace(async { 7 }).await;
        assert_eq!(written, Some(7), "what needs no wait is done");
    }
}
