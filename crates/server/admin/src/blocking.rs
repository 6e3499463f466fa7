//! Calls that wait for the disk, away from the event loop.

use hyper::StatusCode;
use tokio::sync::oneshot;

use super::message::{HttpRejection, HttpReply, error};

/// Runs a call that waits for the disk. A panic in it is the answer 500.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpRejection> {
    let (sender, outcome) = oneshot::channel();
    // Without a receiver the client is gone. A call that panics drops the sender.
    start(Box::new(move || drop(sender.send(call()))));
    outcome.await.map_err(|_| {
        error(StatusCode::INTERNAL_SERVER_ERROR, "the request was not finished").into()
    })
}

/// One type of task for all calls: tokio's code for a task is several KiB for each type.
fn start(call: Box<dyn FnOnce() + Send>) {
    drop(tokio::task::spawn_blocking(call));
}

/// 500 for a failure that needs an operator.
pub(crate) fn failed(action: &str, failure: &dyn std::fmt::Display) -> HttpReply {
    tracing::error!(error = %failure, "cannot {action}");
    error(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot {action}: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::blocking;

    #[tokio::test]
    async fn a_panicking_call_fails_alone() {
        assert!(blocking::<()>(|| panic!("a call of this test")).await.is_err());
        assert_eq!(blocking(|| 1).await.ok(), Some(1));
    }
}
