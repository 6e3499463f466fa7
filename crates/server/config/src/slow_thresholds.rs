//! When an operation counts as slow.

/// Milliseconds from which an operation is slow, by class; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowThresholds {
    pub read_ms: u64,
    pub write_ms: u64,
    /// Writes that wait for the store.
    pub durable_ms: u64,
    pub other_ms: u64,
}

impl SlowThresholds {
    pub const OFF: SlowThresholds =
        SlowThresholds { read_ms: 0, write_ms: 0, durable_ms: 0, other_ms: 0 };

    /// The least threshold in use.
    pub fn least(&self) -> Option<u64> {
        let all = [self.read_ms, self.write_ms, self.durable_ms, self.other_ms];
        all.into_iter().filter(|ms| *ms != 0).min()
    }
}

impl Default for SlowThresholds {
    fn default() -> SlowThresholds {
        SlowThresholds { read_ms: 500, write_ms: 500, durable_ms: 2_000, other_ms: 2_000 }
    }
}
