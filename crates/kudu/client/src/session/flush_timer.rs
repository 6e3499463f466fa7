//! Sends rows that have waited long enough when no more rows come.
//!
//! Each session that flushes in the background has one such task. It sleeps while there are no
//! rows, and otherwise until the oldest row is due. It never waits for the lock of the rows. A
//! program may hold that lock over an `await` on the thread that runs this task, so the timer looks
//! again a moment later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::SessionShared;

/// How soon the timer looks again when a row is in progress.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Runs until the session aborts it on drop.
pub(super) async fn run(shared: Arc<SessionShared>) {
    loop {
        shared.timer.notified().await;
        while let Some(due) = next_look(&shared) {
            tokio::time::sleep_until(due).await;
            send_what_is_due(&shared);
        }
    }
}

/// When to look next; `None` without rows.
fn next_look(shared: &SessionShared) -> Option<Instant> {
    match shared.filling.try_lock() {
        Some(filling) => {
            filling.oldest().map(|oldest| oldest + shared.writing.options.flush_interval)
        }
        None => Some(Instant::now() + RETRY_AFTER),
    }
}

fn send_what_is_due(shared: &Arc<SessionShared>) {
    let Some(mut filling) = shared.filling.try_lock() else { return };
    // If the clock cannot go back that far, no row is due yet.
    let Some(limit) = Instant::now().checked_sub(shared.writing.options.flush_interval) else {
        return;
    };
    let sealed = filling.seal_older_than(limit);
    shared.writing.send(sealed);
}
