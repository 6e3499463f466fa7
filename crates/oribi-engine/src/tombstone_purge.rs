//! The purge of tombstones: what was deleted long ago leaves the store, too.
//!
//! Owns: when a pass over all vbuckets begins and one step of it, which is one vbucket. The store finds and removes the
//! tombstones and gives their space back ([`oribi_storage::KvStore::compact`]) while others read and commit; no lock of the
//! engine is held meanwhile. Then the vbucket's purge seqno is raised and made durable, so that who has to
//! know every deletion knows from where on it can.
//!
//! A commit that runs between the store's purge and that has the old purge seqno in its state, so it is written once
//! more, after it. Driven by a thread of its own, because a step reads a vbucket's keys from disk; and by tests.

use oribi_storage::{StoreError, VbBatch};
use oribi_types::{Seqno, Timestamp};
use parking_lot::Mutex;

use crate::bucket::{Bucket, Storage};
use crate::tasks::{StepClock, Task};
use crate::vbucket::VBucket;

/// A pass begins this many times in the life of a tombstone, so that it stays an eighth longer at most, ..
const PASSES_PER_AGE: u32 = 8;
/// .. but neither all the time nor less than daily.
const INTERVAL_MIN_S: u32 = 60;
const INTERVAL_MAX_S: u32 = 24 * 60 * 60;

#[derive(Debug, Default)]
struct Passes {
    /// The next vbucket; `None` between two passes.
    next: Option<usize>,
    /// When the last pass began, or the bucket was first looked at.
    begun: Option<Timestamp>,
}

/// The tombstone purge of one bucket.
#[derive(Default)]
pub(crate) struct TombstonePurge(Mutex<Passes>);

impl TombstonePurge {
    /// Waits for the step that is under way, and keeps others from beginning.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.0.lock()
    }
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PurgeReport {
    /// Highest seqno that was removed, if any was.
    pub purged: Option<Seqno>,
    /// True when the pass goes on, at once.
    pub more: bool,
}

impl Bucket {
    /// Purges the next vbucket of the pass that is under way, or begins a pass if it is time. Blocks for the disk.
    ///
    /// # Errors
    /// The store's; the pass goes on behind that vbucket.
    pub fn purge_tombstones_step(&self, clock: StepClock<'_>) -> Result<PurgeReport, StoreError> {
        let mut passes = self.tombstone_purge.0.lock();
        if self.config().storage == Storage::Memory {
            return Ok(PurgeReport::default());
        }
        let age_s = self.config().upkeep.tombstone_purge_age_s;
        let now = clock();
        let next = match passes.next {
            Some(next) => next,
            None => {
                let interval_s = (age_s / PASSES_PER_AGE).clamp(INTERVAL_MIN_S, INTERVAL_MAX_S);
                let begun = *passes.begun.get_or_insert(now);
                let waited_s = now.unix_s().saturating_sub(begun.unix_s());
                if waited_s < interval_s {
                    return Ok(PurgeReport::default());
                }
                passes.begun = Some(now);
                0
            }
        };
        let Some(vbucket) = self.vbuckets().get(next) else { return Ok(PurgeReport::default()) };
        let more = next + 1 < self.vbuckets().len();
        passes.next = more.then_some(next + 1);
        if !vbucket.is_owned() || !vbucket.may_have_tombstones() {
            return Ok(PurgeReport { purged: None, more });
        }
        let purge_before = now.unix_s().saturating_sub(age_s);
        let purge = || self.purge_vbucket(vbucket, purge_before);
        let purged = self.tasks.run(Task::TombstonePurge, clock, purge)?;
        Ok(PurgeReport { purged, more })
    }

    fn purge_vbucket(
        &self,
        vbucket: &VBucket,
        purge_before: u32,
    ) -> Result<Option<Seqno>, StoreError> {
        let Some(purged) = self.store.compact(vbucket.id(), purge_before)? else { return Ok(None) };
        vbucket.raise_purge_seqno(purged);
        let _no_flush_step = self.flush_lock.lock();
        let state = vbucket.persisted_state();
        self.store.commit(&[VbBatch { vbid: vbucket.id(), records: Vec::new(), state }])?;
        Ok(Some(purged))
    }
}
