//! Counts of a queue's checkpoints.
//!
//! Owns: the two sums, of items and of memory. The manager keeps them over all checkpoints, a
//! closed checkpoint of itself.

/// Number of items that were queued and not deduplicated, and bytes of their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) items: u64,
    pub(super) bytes: u64,
}

/// Memory that only the queue holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct QueueMemory {
    pub(super) slot_bytes: usize,
    /// Blocks that the table has released.
    pub(super) orphan_bytes: usize,
}
