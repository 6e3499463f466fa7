//! How often, and how far, the work goes that nobody waits for.
//!
//! Owns: these settings of a bucket and what they are unless set. The steps that they govern are the expiry
//! pager, the tombstone purge, checkpoint recovery and the flusher; whoever drives a step looks here.

use crate::limits::FLUSH_BYTES_MAX;

/// See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upkeep {
    /// Seconds between the beginnings of two passes that delete what has expired and that nobody reads.
    pub expiry_pager_interval_s: u32,
    /// Seconds that a tombstone stays in the store after its deletion was persisted.
    pub tombstone_purge_age_s: u32,
    /// Part of the memory quota, in per cent, that the mutation queues may take before checkpoints are closed,
    /// expelled and, at last, slow cursors dropped.
    pub checkpoint_quota_percent: u8,
    /// Bytes of items gathered over all vbuckets before they are committed together; the last checkpoint may
    /// exceed it. Bounds what one flush pins in memory.
    pub flush_bytes_max: usize,
}

impl Default for Upkeep {
    /// Ten minutes, three days and a fifth: what Couchbase's clients and tools are used to. Flushes of 32 MiB.
    fn default() -> Upkeep {
        Upkeep {
            expiry_pager_interval_s: 600,
            tombstone_purge_age_s: 3 * 24 * 60 * 60,
            checkpoint_quota_percent: 20,
            flush_bytes_max: FLUSH_BYTES_MAX,
        }
    }
}
