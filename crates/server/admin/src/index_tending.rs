//! The task that keeps indexes in step with buckets and collections that come and go.

use std::sync::Arc;
use std::time::Duration;

use super::blocking::blocking;
use super::state::AdminState;

/// Interval of looks at buckets and collections that have come or gone.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// Builds the indexes of new buckets, and ends those of dropped ones, until the server stops.
pub(super) async fn tend_until_stopped(state: Arc<AdminState>) {
    let mut stopping = state.stopping.clone();
    loop {
        let tended = Arc::clone(&state);
        // It reads files. A call that fails is made up for by the next one.
        let _ = blocking(move || tended.queries.indexes.tend(&tended.server)).await;
        tokio::select! {
            () = tokio::time::sleep(TEND_INTERVAL) => {}
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    let stopped = Arc::clone(&state);
    let _ = blocking(move || stopped.queries.indexes.stop()).await;
}
