//! Checkpoint memory recovery, for when the queues of a bucket take too much memory.
//!
//! Owns: one step of recovery. At the upper mark of the checkpoint quota ([`CheckpointPressure`]) a
//! step closes big open checkpoints, frees what every cursor has passed, and at last drops slow
//! cursors that can resume from the store. It continues to the lower mark. Items that are not
//! flushed yet stay, so the step wakes the flushers as well; at the quota itself writes get
//! temporary failure. It never looks at items. Driven by the bucket's pager thread, and by tests.

use oribi_types::Timestamp;

use crate::core::Core;
use crate::flusher_signal::FlusherSignal;
use crate::memory::CheckpointPressure;
use crate::vbucket::VBucket;

/// Recovery closes an open checkpoint if it has this share of the bytes to free.
const BIG_CHECKPOINT_DIVISOR: usize = 64;
const _: () = assert!(BIG_CHECKPOINT_DIVISOR > 0);

/// Result of one step of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Bytes of all queues before the step.
    pub bytes_before: u64,
    /// Bytes of all queues after it.
    pub bytes_after: u64,
    /// Cursors that were dropped.
    pub cursors_dropped: usize,
}

/// Frees checkpoint memory if the queues are at the upper mark: closes checkpoints, expels items,
/// then drops slow cursors, down to the lower mark. Locks one vbucket's queue at a time, for a
/// moment.
pub(crate) fn step(core: &Core) -> RecoveryReport {
    let sizes = queue_sizes(core);
    let before = sum(&sizes);
    let mut report =
        RecoveryReport { bytes_before: before, bytes_after: before, cursors_dropped: 0 };
    let quota = core.memory().queue_quota();
    if quota.pressure(before) == CheckpointPressure::Low {
        return report;
    }
    let target = quota.lower_mark_bytes();
    debug_assert!(target <= before, "a queue under pressure is above the lower mark");
    let big = before.saturating_sub(target) as usize / BIG_CHECKPOINT_DIVISOR;
    for (_, vbucket) in &sizes {
        vbucket.close_big_checkpoint(big.max(1));
    }
    expel_to(target, &sizes);
    if sum(&queue_sizes(core)) > target {
        // The cursors of the fullest queues first.
        for (_, vbucket) in &sizes {
            report.cursors_dropped += vbucket.drop_slow_cursors();
            vbucket.expel_checkpoints();
            if sum(&queue_sizes(core)) <= target {
                break;
            }
        }
    }
    let context = core.context(Timestamp::default());
    for (_, vbucket) in &sizes {
        vbucket.report_memory(&context);
    }
    report.bytes_after = sum(&queue_sizes(core));
    if report.bytes_after > target {
        core.signals().all().iter().for_each(FlusherSignal::hurry);
    }
    report
}

/// Expels from the fullest queues on until `target` is reached.
fn expel_to(target: u64, sizes: &[(usize, &VBucket)]) {
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
fn queue_sizes(core: &Core) -> Vec<(usize, &VBucket)> {
    let mut sizes: Vec<_> =
        core.vbuckets().iter().map(|vbucket| (vbucket.queue_bytes(), vbucket)).collect();
    sizes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    debug_assert_eq!(sizes.len(), core.vbuckets().len(), "each vbucket has a queue");
    sizes
}

fn sum(sizes: &[(usize, &VBucket)]) -> u64 {
    sizes.iter().map(|(bytes, _)| *bytes as u64).sum()
}
