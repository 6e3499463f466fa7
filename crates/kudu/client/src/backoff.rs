//! The delay before the next attempt.
//!
//! Both shapes are those of the C++ client, so a cluster sees the same load from either. Writes
//! back off linearly: a busy tablet server is soon free again, and a long sleep costs throughput.
//! Calls to masters and scans back off exponentially, up to about five seconds. Both add jitter, so
//! that clients that failed together do not return together. The random number is a parameter, so
//! the arithmetic is testable.

use std::time::Duration;

use tokio::time::Instant;

/// How the delay grows with the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backoff {
    /// The attempt number in milliseconds, plus up to 4 ms.
    Linear,
    /// 10 to 19 ms, doubled with every attempt after the first, at most eight times.
    Exponential,
}

impl Backoff {
    /// The delay after attempt number `attempt`, counted from 1.
    pub(crate) fn delay(self, attempt: u32) -> Duration {
        // Without entropy the delay merely loses its jitter.
        self.delay_with(attempt, getrandom::u32().unwrap_or(0))
    }

    fn delay_with(self, attempt: u32, random: u32) -> Duration {
        let millis = match self {
            Backoff::Linear => u64::from(attempt) + u64::from(random % 5),
            Backoff::Exponential => {
                (10 + u64::from(random % 10)) << attempt.saturating_sub(1).min(8)
            }
        };
        Duration::from_millis(millis)
    }
}

/// Waits. If the deadline comes first, it returns false at once, because there is no time for
/// another attempt.
pub(crate) async fn pause(delay: Duration, deadline: Instant) -> bool {
    if Instant::now() + delay >= deadline {
        return false;
    }
    tokio::time::sleep(delay).await;
    true
}

/// Waits for a future, at most until the deadline: another holder may need longer than the caller
/// has.
pub(crate) async fn until<T>(deadline: Instant, wanted: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline, wanted).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_waits_grow_by_a_millisecond() {
        assert_eq!(Backoff::Linear.delay_with(1, 0), Duration::from_millis(1));
        assert_eq!(Backoff::Linear.delay_with(7, 4), Duration::from_millis(11));
        assert_eq!(Backoff::Linear.delay_with(7, 5), Duration::from_millis(7));
    }

    #[test]
    fn exponential_waits_double_up_to_five_seconds() {
        assert_eq!(Backoff::Exponential.delay_with(1, 0), Duration::from_millis(10));
        assert_eq!(Backoff::Exponential.delay_with(3, 9), Duration::from_millis(76));
        assert_eq!(Backoff::Exponential.delay_with(9, 9), Duration::from_millis(4864));
        assert_eq!(Backoff::Exponential.delay_with(u32::MAX, 9), Duration::from_millis(4864));
    }
}
