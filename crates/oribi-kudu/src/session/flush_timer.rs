//! Sends rows that have waited long enough although nobody applies more of them.
//!
//! A task for each session that flushes in the background. It sleeps while there are no rows, and until the
//! oldest row is due otherwise. It never waits for the lock of the rows: a program may hold it over an `await`
//! on the very thread that runs this task, so the timer looks again a moment later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::SessionShared;

/// How soon the timer looks again when a row was being described.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Runs until it is aborted, which the session does when it is dropped.
pub(super) async fn run(shared: Arc<SessionShared>) {
    loop {
        shared.timer.notified().await;
        while let Some(due) = next_look(&shared) {
            tokio::time::sleep_until(due).await;
            send_what_is_due(&shared);
        }
    }
}

/// When to look, or nothing when there are no rows.
fn next_look(shared: &SessionShared) -> Option<Instant> {
    match shared.filling.try_lock() {
        Some(filling) => filling.oldest().map(|oldest| oldest + shared.options.flush_interval),
        None => Some(Instant::now() + RETRY_AFTER),
    }
}

fn send_what_is_due(shared: &Arc<SessionShared>) {
    let Some(mut filling) = shared.filling.try_lock() else { return };
    // A clock that cannot go back that far has seen nothing become due.
    let Some(limit) = Instant::now().checked_sub(shared.options.flush_interval) else { return };
    let sealed = filling.seal_older_than(limit);
    shared.send(sealed);
}
