//! The purge of tombstones: removes old ones from the store.
//!
//! Owns: when a pass over all vbuckets begins, and one step of it, which is one vbucket. The store
//! finds and removes the tombstones and frees their space
//! ([`oribi_storage::StoreMaintenance::compact`]) while reads and commits continue; the purge holds
//! no lock of the engine. The store makes the vbucket's purge seqno durable with the removal,
//! before it or at once, and no commit takes it back, so that a change stream knows from which
//! seqno on it has every deletion. The vbucket in memory learns of it afterwards. A stream that
//! opens in between finds it in its scan's moment.
//!
//! The same pass removes prepares that are completed; the store is asked to compact after it.
//!
//! After an error the pass continues with the next vbucket, and the next pass comes soon. A bucket
//! in memory keeps its tombstones in the tables, and only those with attributes. Driven by its own
//! thread, because a step reads a vbucket's keys from disk; and by tests.

use oribi_storage::StoreError;
use oribi_types::policy::Storage;
use oribi_types::{Seqno, Timestamp};
use parking_lot::Mutex;

use crate::core::Core;
use crate::failure::StoreOperation;
use crate::tasks::{StepClock, Task};
use crate::vbucket::VBucket;

/// Passes in the life of a tombstone: it stays an eighth longer at most.
const PASSES_PER_AGE: u32 = 8;
/// Bounds of the time between two passes: not all the time, and at least daily.
const INTERVAL_MIN_S: u32 = 60;
const INTERVAL_MAX_S: u32 = 24 * 60 * 60;
const _: () = assert!(INTERVAL_MIN_S < INTERVAL_MAX_S && PASSES_PER_AGE > 0);

#[derive(Debug, Default)]
struct Passes {
    /// The next vbucket; `None` between two passes.
    next: Option<usize>,
    /// When the last pass began, or the first step ran.
    begun: Option<Timestamp>,
    /// A vbucket of it failed, so the next one comes soon.
    has_failed: bool,
    /// Completed prepares that the pass has removed from the store.
    prepares: u64,
}

/// The tombstone purge of one bucket.
#[derive(Default)]
pub(crate) struct TombstonePurger(Mutex<Passes>);

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PurgeReport {
    /// Highest seqno that was removed, if any was.
    pub purged: Option<Seqno>,
    /// True when the pass continues, at once.
    pub more: bool,
}

impl TombstonePurger {
    /// Waits for the step under way and keeps the next from beginning.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.0.lock()
    }

    /// Begins a pass at the next step, whenever the last one was. A pass under way continues.
    pub(crate) fn ask(&self) {
        let mut passes = self.0.lock();
        passes.next.get_or_insert(0);
    }

    /// Purges the next vbucket of the pass, or begins a pass if it is time. Blocks for the disk.
    ///
    /// # Errors
    /// The store's; the pass continues with the next vbucket.
    pub(crate) fn step(
        &self,
        core: &Core,
        clock: StepClock<'_>,
    ) -> Result<PurgeReport, StoreError> {
        let mut passes = self.0.lock();
        let age_s = core.config().upkeep.tombstone_purge_age_s;
        let now = clock();
        let next = match passes.next {
            Some(next) => next,
            None => {
                let interval_s = match passes.has_failed {
                    true => INTERVAL_MIN_S,
                    false => (age_s / PASSES_PER_AGE).clamp(INTERVAL_MIN_S, INTERVAL_MAX_S),
                };
                let begun = *passes.begun.get_or_insert(now);
                let waited_s = now.unix_s().saturating_sub(begun.unix_s());
                if waited_s < interval_s {
                    return Ok(PurgeReport::default());
                }
                passes.begun = Some(now);
                debug_assert!(now.unix_s() >= begun.unix_s(), "a pass begins after the last one");
                passes.has_failed = false;
                0
            }
        };
        let Some(vbucket) = core.vbuckets().get(next) else { return Ok(PurgeReport::default()) };
        let more = next + 1 < core.vbuckets().len();
        debug_assert!(next < core.vbuckets().len(), "a pass visits the vbuckets of the map");
        passes.next = more.then_some(next + 1);
        debug_assert!(passes.next.is_none_or(|after| after > next), "a pass goes forward");
        let mut purged = Ok(None);
        if vbucket.is_owned() && !vbucket.is_replica() && vbucket.may_have_tombstones() {
            let purge_before = now.unix_s().saturating_sub(age_s);
            let purge = || purge_vbucket(core, vbucket, purge_before, now);
            purged = core.tasks().run(Task::TombstonePurge, clock, purge);
        }
        if core.config().storage == Storage::Persistent {
            // Replicas store prepares as well.
            match core.store().forget_prepares(vbucket.id()) {
                Ok(forgotten) => passes.prepares += forgotten,
                Err(error) => purged = purged.and(Err(error)),
            }
        }
        if !more && std::mem::take(&mut passes.prepares) > 0 {
            core.store().request_compaction();
        }
        if let Err(error) = &purged {
            passes.has_failed = true;
            core.store_failed(StoreOperation::TombstonePurge, error);
        } else if !more && !passes.has_failed {
            core.store_succeeded(StoreOperation::TombstonePurge);
        }
        Ok(PurgeReport { purged: purged?, more })
    }
}

fn purge_vbucket(
    core: &Core,
    vbucket: &VBucket,
    purge_before: u32,
    now: Timestamp,
) -> Result<Option<Seqno>, StoreError> {
    if core.config().storage == Storage::Memory {
        return Ok(vbucket.purge_in_memory(&core.context(now), purge_before));
    }
    let loaded = vbucket.loaded_incarnation();
    let purged = core.store().compact(vbucket.id(), purge_before);
    if loaded.is_none() || loaded != vbucket.loaded_incarnation() {
        // Before the purge seqno, by which readers of collections are checked. A purge that failed
        // may have removed some.
        let unseen = purged.as_ref().copied().unwrap_or(Some(vbucket.persisted_seqno()));
        unseen.into_iter().for_each(|seqno| vbucket.purged_unseen(seqno));
    }
    let purged = purged?;
    debug_assert!(
        purged.is_none_or(|seqno| seqno <= vbucket.high_seqno()),
        "a purged tombstone was queued"
    );
    purged.into_iter().for_each(|seqno| vbucket.raise_purge_seqno(seqno));
    Ok(purged)
}
