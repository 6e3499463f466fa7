//! The end of the loops of other threads, also when a check fails.
//!
//! A scope waits for its threads: without the guard a failed check would hang instead of failing.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped. Make it first in the scope.
pub struct StopOnDrop<'s>(pub &'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
