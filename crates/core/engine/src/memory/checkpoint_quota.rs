//! The checkpoint quota: how much of a bucket's memory its queues may take.
//!
//! Owns: the marks within it. Recovery begins at the upper mark and ends at the lower one; at the
//! quota writes are refused. Source of the marks: Couchbase's, which operators know.

/// Shares of the checkpoint quota at which recovery begins and ends, in per cent.
const UPPER_MARK_PERCENT: u64 = 90;
const LOWER_MARK_PERCENT: u64 = 60;
const _: () = assert!(LOWER_MARK_PERCENT < UPPER_MARK_PERCENT && UPPER_MARK_PERCENT < 100);

/// How full the queues are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CheckpointPressure {
    /// Below the upper mark.
    Low,
    /// From the upper mark on: recovery runs.
    High,
    /// At the quota: writes are refused until there is space.
    Full,
}

/// Bytes that all queues together may take, queued items included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointQuota {
    pub(crate) bytes: u64,
}

impl CheckpointQuota {
    /// How full queues of so many bytes are.
    pub(crate) fn pressure(self, queue_bytes: u64) -> CheckpointPressure {
        if queue_bytes >= self.bytes {
            CheckpointPressure::Full
        } else if queue_bytes >= percent(self.bytes, UPPER_MARK_PERCENT) {
            CheckpointPressure::High
        } else {
            CheckpointPressure::Low
        }
    }

    pub(crate) fn lower_mark_bytes(self) -> u64 {
        percent(self.bytes, LOWER_MARK_PERCENT)
    }
}

fn percent(of: u64, percent: u64) -> u64 {
    // Divided first, so that no quota overflows; this loses less than 100 bytes.
    of / 100 * percent
}
