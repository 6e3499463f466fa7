//! Warmup: brings the store's documents back into memory.
//!
//! Owns: one step, which loads one vbucket and lets it serve. Steps may run on several threads. A
//! vbucket that is not loaded yet answers "temporary failure", which clients retry; one that cannot
//! be read stays that way, and the error is reported. Tombstones stay in the store: revisions of
//! re-created documents continue from the highest revision of a deletion, which the vbucket's state
//! carries. Documents of collections that left the manifest before a crash are purged afterwards.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use oribi_storage::StoreError;
use oribi_types::{CollectionId, Vbid};

use crate::bucket::Bucket;
use crate::tasks::{StepClock, Task, no_clock};
use crate::vbucket::VBucket;

/// What one step did.
#[derive(Debug)]
pub enum WarmupStep {
    /// Loaded one vbucket.
    Loaded {
        /// Which one.
        vbid: Vbid,
        /// Documents loaded.
        items: u64,
    },
    /// Could not load one; it stays in temporary failure.
    Failed {
        /// Which one.
        vbid: Vbid,
        /// Why.
        error: StoreError,
    },
    /// Every vbucket was taken by this or another thread.
    Done,
}

impl Bucket {
    /// [`Bucket::warmup_step_timed`] by a clock that stands still.
    pub fn warmup_step(&self) -> WarmupStep {
        self.warmup_step_timed(&no_clock)
    }

    /// Loads the next vbucket that nobody has taken.
    pub fn warmup_step_timed(&self, clock: StepClock<'_>) -> WarmupStep {
        loop {
            let index = self.warmup_next.fetch_add(1, Ordering::Relaxed);
            let Some(vbucket) = self.vbuckets().get(index) else { return WarmupStep::Done };
            if vbucket.is_loading() {
                return self.tasks.run(Task::Warmup, clock, || self.load_vbucket(vbucket));
            }
        }
    }

    fn load_vbucket(&self, vbucket: &VBucket) -> WarmupStep {
        let (mut items, mut tombstones) = (0, 0);
        let mut unknown: Vec<CollectionId> = Vec::new();
        let manifest = self.manifest();
        let scanned = self.store.scan_keys(vbucket.id(), &mut |record| {
            let collection = record.key.collection;
            if !manifest.contains(collection) {
                // Records come in order of collection, so a repeat is next to its like.
                if unknown.last() != Some(&collection) {
                    unknown.push(collection);
                }
            } else if record.deleted {
                vbucket.load_tombstone(&record);
                tombstones += 1;
            } else {
                vbucket.load(&record);
                items += 1;
            }
            ControlFlow::Continue(())
        });
        self.schedule_purges(&unknown);
        let current = self.manifest();
        if current.uid() != manifest.uid() {
            // A collection may have been dropped, and purged from memory, during the scan.
            vbucket.retain_collections(|collection| current.contains(collection));
        }
        let mut warmup = self.warmup.lock();
        warmup.items += items;
        warmup.tombstones += tombstones;
        let step = match scanned {
            Ok(()) => {
                vbucket.finish_loading();
                warmup.vbuckets_done += 1;
                WarmupStep::Loaded { vbid: vbucket.id(), items }
            }
            Err(error) => {
                warmup.failed += 1;
                WarmupStep::Failed { vbid: vbucket.id(), error }
            }
        };
        warmup.done = warmup.vbuckets_done + warmup.failed == warmup.vbuckets;
        if warmup.done {
            self.tasks.finish(Task::Warmup);
        }
        step
    }

    fn schedule_purges(&self, unknown: &[CollectionId]) {
        if unknown.is_empty() {
            return;
        }
        let mut purges = self.purges.lock();
        for collection in unknown {
            if !purges.contains(collection) {
                purges.push(*collection);
            }
        }
        drop(purges);
        self.signal.notify();
    }
}
