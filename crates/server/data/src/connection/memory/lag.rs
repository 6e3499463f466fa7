//! A client's lag in reading or sending the bytes for which memory is held.
//!
//! Owns: its minimum rate, [`HOLDER_BYTES_PER_SECOND`], and its maximum lag while others wait for
//! memory, [`HOLDER_LAG_MAX_MS`]. Connections of workers count the same by their own clock
//! (`connection::memory`).

use std::time::{Duration, Instant};

use crate::limits::{HOLDER_BYTES_PER_SECOND, HOLDER_LAG_MAX_MS};

/// See the module text.
#[derive(Debug)]
pub struct Lag {
    since: Instant,
}

impl Lag {
    /// Of a client for which memory is held from now on.
    pub fn begin() -> Lag {
        Lag { since: Instant::now() }
    }

    /// The client has taken or sent so many bytes since the last call.
    pub fn earn(&mut self, bytes: usize) {
        let before = self.since;
        let earned = Duration::from_secs(bytes as u64) / HOLDER_BYTES_PER_SECOND as u32;
        self.since = (self.since + earned).min(Instant::now());
        debug_assert!(self.since >= before, "time that is earned is a gain");
    }

    /// True when the client lags so far that others need not wait for it.
    pub fn is_too_long(&self) -> bool {
        self.since.elapsed() > Duration::from_millis(HOLDER_LAG_MAX_MS)
    }
}
