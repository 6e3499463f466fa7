//! Checkpoint memory recovery: what is done when the queues of a bucket take too much memory.
//!
//! Owns: the quota that the queues of a bucket share, its marks, and one step of recovery. At the upper mark a step
//! closes big open checkpoints, frees what every cursor has passed, and at last drops cursors that
//! hold up the rest and may be dropped: they resume from the store. It goes on to the lower mark. What is
//! not flushed yet cannot be given up, so the flusher is woken as well; at the quota itself writes are
//! refused for a while (temporary failure). Source of the marks: Couchbase's, which operators know.
//! Driven by the bucket's pager thread, and by tests. It never looks at items.

use crate::bucket::Bucket;
use crate::vbucket::VBucket;

/// Shares of the checkpoint quota at which recovery begins and ends, in per cent.
const UPPER_MARK_PERCENT: u64 = 90;
const LOWER_MARK_PERCENT: u64 = 60;
/// An open checkpoint of this share of what is to be freed is worth closing.
const BIG_CHECKPOINT_DIVISOR: usize = 64;

/// How full the queues are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CheckpointPressure {
    /// Below the upper mark.
    Low,
    /// From the upper mark on: recovery runs.
    High,
    /// At the quota: writes are refused until there is room.
    Full,
}

/// What one step of recovery did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Bytes of all queues before the step.
    pub bytes_before: u64,
    /// Bytes of all queues after it.
    pub bytes_after: u64,
    /// Cursors that were dropped.
    pub cursors_dropped: usize,
}

fn percent(of: u64, percent: u64) -> u64 {
    // Divided first, so that no quota overflows; what is cut off is less than 100 bytes.
    of / 100 * percent
}

impl Bucket {
    /// Bytes that all queues together may take, queued items included.
    pub fn checkpoint_quota_bytes(&self) -> u64 {
        let config = self.config();
        percent(self.memory_quota_bytes(), u64::from(config.upkeep.checkpoint_quota_percent))
    }

    /// How full the queues are when they take `queue_bytes` together.
    pub(crate) fn checkpoint_pressure(&self, queue_bytes: u64) -> CheckpointPressure {
        let quota = self.checkpoint_quota_bytes();
        if queue_bytes >= quota {
            CheckpointPressure::Full
        } else if queue_bytes >= percent(quota, UPPER_MARK_PERCENT) {
            CheckpointPressure::High
        } else {
            CheckpointPressure::Low
        }
    }

    /// Gives checkpoint memory back if the queues are at the upper mark: closes, expels, then drops slow
    /// cursors, until the lower mark is reached. Locks one vbucket's queue at a time, for a moment.
    pub fn recover_checkpoints_step(&self) -> RecoveryReport {
        let sizes = self.queue_sizes();
        let before = sum(&sizes);
        let mut report =
            RecoveryReport { bytes_before: before, bytes_after: before, cursors_dropped: 0 };
        if self.checkpoint_pressure(before) == CheckpointPressure::Low {
            return report;
        }
        let target = percent(self.checkpoint_quota_bytes(), LOWER_MARK_PERCENT);
        let big = before.saturating_sub(target) as usize / BIG_CHECKPOINT_DIVISOR;
        for (_, vbucket) in &sizes {
            vbucket.close_big_checkpoint(big.max(1));
        }
        self.expel_to(target, &sizes);
        if sum(&self.queue_sizes()) > target {
            // Only where it pays: cursors of the fullest queues first.
            for (_, vbucket) in &sizes {
                report.cursors_dropped += vbucket.drop_slow_cursors();
                vbucket.expel_checkpoints();
                if sum(&self.queue_sizes()) <= target {
                    break;
                }
            }
        }
        report.bytes_after = sum(&self.queue_sizes());
        if report.bytes_after > target {
            self.signal.hurry();
        }
        report
    }

    /// Expels from the fullest queues on until `target` is reached.
    fn expel_to(&self, target: u64, sizes: &[(usize, &VBucket)]) {
        let mut bytes = sum(sizes);
        for (before, vbucket) in sizes {
            vbucket.expel_checkpoints();
            bytes = bytes.saturating_sub(before.saturating_sub(vbucket.queue_bytes()) as u64);
            if bytes <= target {
                return;
            }
        }
    }

    /// Bytes of each queue, the fullest first.
    fn queue_sizes(&self) -> Vec<(usize, &VBucket)> {
        let mut sizes: Vec<_> =
            self.vbuckets().iter().map(|vbucket| (vbucket.queue_bytes(), vbucket)).collect();
        sizes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        sizes
    }
}

fn sum(sizes: &[(usize, &VBucket)]) -> u64 {
    sizes.iter().map(|(bytes, _)| *bytes as u64).sum()
}
