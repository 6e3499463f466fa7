//! Waiting for a condition, whatever the speed of the machine.

use std::time::{Duration, Instant};

/// How long a condition in a test may take before it counts as never met. Generous on purpose: a
/// loaded build machine is slow, and a test that passes never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two checks. Short against everything awaited here, long against a system call.
const PAUSE: Duration = Duration::from_millis(2);

/// Calls `look` until it gives a value; `None` when `patience` ran out first.
pub fn poll_until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
