//! Calls that wait for the disk, away from the event loop.

use hyper::StatusCode;

use super::message::{Refusal, Reply, error};

/// Runs a call that waits for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let outcome = tokio::task::spawn_blocking(call).await;
    outcome.map_err(|_| {
        error(StatusCode::INTERNAL_SERVER_ERROR, "the request was not finished").into()
    })
}

/// 500 for a failure that needs an operator.
pub(crate) fn failed(action: &str, failure: &dyn std::fmt::Display) -> Reply {
    tracing::error!(error = %failure, "cannot {action}");
    error(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot {action}: {failure}"))
}
