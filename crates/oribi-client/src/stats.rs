//! Statistics: one request, many answers.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::connection::{Answer, Waiter};
use crate::error::ClientError;

/// Statistics as they arrive from the server, in its order.
pub struct StatStream {
    answers: mpsc::UnboundedReceiver<Answer>,
    timeout: Duration,
}

impl StatStream {
    pub(crate) fn new(timeout: Duration) -> (StatStream, Waiter) {
        let (sender, answers) = mpsc::unbounded_channel();
        (StatStream { answers, timeout }, Waiter::Stream(sender))
    }

    /// The next statistic as name and value; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<(String, String)>, ClientError> {
        let answer = tokio::time::timeout(self.timeout, self.answers.recv())
            .await
            .map_err(|_| ClientError::Timeout)?;
        // The channel ends after the terminator or an error.
        let Some(answer) = answer else { return Ok(None) };
        let response = answer?;
        response.outcome()?;
        if response.key().is_empty() && response.value().is_empty() {
            return Ok(None);
        }
        let name = String::from_utf8_lossy(response.key()).into_owned();
        let value = String::from_utf8_lossy(&response.value()).into_owned();
        Ok(Some((name, value)))
    }
}
