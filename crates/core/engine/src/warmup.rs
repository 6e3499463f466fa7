//! Warmup: brings the store's documents back into memory, while clients are served.
//!
//! Owns: the plan of one load for all vbuckets, its progress, and the figures. A step loads one
//! part of the plan; several threads may run steps. The parts come newest first where the store
//! knows, so values come by recency. With eviction they are loaded until memory reaches the low
//! watermark, then keys and metadata only. This holds for full eviction, too: until everything is
//! loaded, a key in the table is the only sign that its record was seen. After that the item pager
//! evicts it.
//!
//! Vbuckets serve concurrently. A key that an operation misses may still be in the store, so it is
//! fetched first. A stored record enters the table only if nothing is there under its key, and no
//! tombstone leaves the table before loading ends. Revisions of re-created documents continue from
//! the highest revision of a deletion, which the vbucket's state carries.
//!
//! When a part cannot be read, the vbuckets with records in the rest of it are unknown. Every
//! vbucket that is not loaded is then scanned by itself; one whose scan fails stays in temporary
//! failure, and the others serve. Documents of collections that were dropped, before the load or
//! during it, are purged afterwards. A collection that is missing in the manifest was not always
//! dropped: a load may read records newer than the manifest that it began with.
//!
//! On a store that several nodes share, vbuckets come one by one, each as its own part, for as long
//! as the bucket is open. A part that cannot be read is tried again.

mod part;
mod stats;

use std::collections::VecDeque;
use std::thread::Thread;

use oribi_storage::{LoadPart, LoadPlan, LoadValues, StoreError};
use oribi_types::{ManifestUid, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::core::Core;
use crate::item_pager::ItemPager;
use crate::tasks::{StepClock, Task, elapsed_us};
use crate::vbucket::VBucket;

use part::{LoadExtent, PartCounts, PartLoad};
pub use stats::{WarmupState, WarmupStats};

/// Result of one step.
#[derive(Debug)]
pub enum WarmupStep {
    /// Loaded a part of the documents.
    Loaded { items: u64 },
    /// Could not read a part.
    Failed {
        /// The vbucket that stays in temporary failure; `None` when vbuckets will be scanned one by
        /// one to find out.
        vbid: Option<Vbid>,
        error: StoreError,
    },
    /// No part is left.
    Done,
}

/// Loading of one bucket.
pub(crate) struct Warmup {
    stats: Mutex<WarmupStats>,
    work: Mutex<Work>,
    extent: LoadExtent,
    /// Threads that wait for more to load.
    loaders: Mutex<Vec<Thread>>,
}

#[derive(Default)]
struct Work {
    is_planned: bool,
    /// Work was added after everything had been done.
    is_resumed: bool,
    begun: Timestamp,
    parts: VecDeque<LoadPart>,
    /// Parts that some thread is loading.
    running: usize,
    /// A part of several vbuckets could not be read.
    has_failed: bool,
    /// Version of the manifest when the first record was read.
    manifest_uid: ManifestUid,
}

impl Warmup {
    /// Warmup of a bucket that has this many vbuckets to load.
    pub(crate) fn of(vbuckets: usize) -> Warmup {
        let stats = WarmupStats { vbuckets, done: vbuckets == 0, ..WarmupStats::default() };
        Warmup {
            stats: Mutex::new(stats),
            work: Mutex::default(),
            extent: LoadExtent::default(),
            loaders: Mutex::default(),
        }
    }

    /// From now on `thread` is woken when there is more to load.
    pub(crate) fn attach(&self, thread: Thread) {
        self.loaders.lock().push(thread);
    }

    pub(crate) fn stats(&self) -> WarmupStats {
        let stats = *self.stats.lock();
        let state = match (stats.done, self.extent.keeps_values()) {
            (true, _) => WarmupState::Done,
            (false, true) => WarmupState::Values,
            (false, false) => WarmupState::Metadata,
        };
        WarmupStats { state, ..stats }
    }

    /// Loads the next part that no loader has taken.
    pub(crate) fn step(&self, core: &Core, pager: &ItemPager, clock: StepClock<'_>) -> WarmupStep {
        if self.stats().done {
            return WarmupStep::Done;
        }
        let Some(part) = self.next_part(core, clock) else { return WarmupStep::Done };
        let step = core.tasks().run(Task::Warmup, clock, || self.load_part(core, pager, part));
        self.part_ended(core, clock);
        step
    }

    /// Takes a part; the first call makes the plan.
    fn next_part(&self, core: &Core, clock: StepClock<'_>) -> Option<LoadPart> {
        let mut work = self.work.lock();
        if !work.is_planned {
            work.is_planned = true;
            work.begun = clock();
            work.manifest_uid = core.collections().manifest().uid();
            work.parts = self.plan(core).into();
        }
        let part = work.parts.pop_front()?;
        if std::mem::take(&mut work.is_resumed) {
            work.begun = clock();
            work.manifest_uid = core.collections().manifest().uid();
        }
        work.running += 1;
        Some(part)
    }

    /// Begins to serve these claimed vbuckets and queues them for loading.
    pub(crate) fn serve_and_load(&self, core: &Core, vbuckets: &[Vbid]) {
        // Held until the parts are queued, so that no loader takes the load for complete.
        let mut work = self.work.lock();
        let was_idle = work.parts.is_empty() && work.running == 0;
        work.is_planned = true;
        let mut added = 0;
        let _change = core.ownership_changes().begin();
        for vbucket in vbuckets.iter().filter_map(|vbid| core.vbucket(*vbid)) {
            vbucket.begin_serving();
            if vbucket.is_loading() {
                work.parts.push_back(LoadPart::vbucket(vbucket.id()));
                added += 1;
            }
        }
        assert!(added <= vbuckets.len(), "a vbucket is loaded once");
        if added == 0 {
            return;
        }
        if was_idle {
            work.is_resumed = true;
            *self.stats.lock() = WarmupStats::default();
            self.extent.reset();
        }
        let mut stats = self.stats.lock();
        stats.vbuckets += added;
        stats.done = false;
        debug_assert!(stats.vbuckets_done < stats.vbuckets, "something is left to load");
        drop(stats);
        drop(work);
        self.loaders.lock().iter().for_each(Thread::unpark);
    }

    fn plan(&self, core: &Core) -> Vec<LoadPart> {
        let plan = core.store().plan_load().unwrap_or_else(|error| {
            tracing::warn!(bucket = core.name(), %error, "no plan for loading; vbuckets are scanned one by one");
            LoadPlan::by_vbucket(loading(core).map(VBucket::id))
        });
        self.stats.lock().items_estimate = plan.records_estimate;
        // Every key will be in memory; a table of the right size does not grow on the way.
        for (vbid, records) in &plan.records {
            if let Some(vbucket) = core.vbucket(*vbid) {
                vbucket.reserve(*records);
            }
        }
        let is_wanted = |part: &LoadPart| match part.whole_vbucket() {
            Some(vbid) => core.vbucket(vbid).is_some_and(VBucket::is_loading),
            None => true,
        };
        let mut parts: Vec<LoadPart> = plan.parts.into_iter().filter(is_wanted).collect();
        if parts.is_empty() {
            // There are only purged tombstones; the scans find that out.
            parts = loading(core).map(VBucket::id).map(LoadPart::vbucket).collect();
        }
        parts
    }

    fn load_part(&self, core: &Core, pager: &ItemPager, part: LoadPart) -> WarmupStep {
        let whole = part.whole_vbucket().and_then(|vbid| core.vbucket(vbid));
        // Before the first record is read.
        let incarnation = whole.map(VBucket::incarnation);
        if whole.is_some_and(|vbucket| !vbucket.is_loading()) {
            // Another node owns it by now.
            return WarmupStep::Loaded { items: 0 };
        }
        // Small vbuckets have too few documents for a review on the way.
        self.extent.review(core, pager);
        let mut load = PartLoad::new((core, pager), &self.extent, incarnation);
        let values = if load.keeps_values() { LoadValues::Read } else { LoadValues::Skip };
        let loaded = core.store().load_part(part, values, &mut |vbid, record, value_bytes| {
            let left_out = (values == LoadValues::Skip).then_some(value_bytes);
            load.take(vbid, &record, left_out)
        });
        let (counts, unknown) = load.finish();
        core.collections().purge_if_dropped(&unknown, core.signals().first());
        self.count(counts);
        let whole = whole.zip(incarnation);
        match loaded {
            Ok(()) => {
                if let Some((vbucket, incarnation)) = whole {
                    self.stats.lock().vbuckets_done += 1;
                    vbucket.finish_loading(incarnation);
                }
                WarmupStep::Loaded { items: counts.items }
            }
            Err(error) => {
                let vbid = whole.map(|(vbucket, _)| vbucket.id());
                self.part_failed(core, whole);
                WarmupStep::Failed { vbid, error }
            }
        }
    }

    fn count(&self, counts: PartCounts) {
        assert!(counts.values <= counts.items, "a value is a document's");
        let mut stats = self.stats.lock();
        stats.items += counts.items;
        stats.values += counts.values;
        stats.tombstones += counts.tombstones;
        stats.overtaken += counts.overtaken;
    }

    /// A part could not be read. `whole` is its vbucket and incarnation; `None` for a part of
    /// several vbuckets.
    fn part_failed(&self, core: &Core, whole: Option<(&VBucket, u64)>) {
        match whole {
            Some((vbucket, _)) if core.store().shared().is_some() => {
                // The store's cluster may recover soon, and no other node serves the vbucket.
                self.work.lock().parts.push_back(LoadPart::vbucket(vbucket.id()));
            }
            Some((vbucket, incarnation)) => {
                self.stats.lock().failed += 1;
                vbucket.fail_loading(incarnation);
            }
            None => self.work.lock().has_failed = true,
        }
    }

    /// A part is loaded or given up. After the last one the load is complete, or vbuckets are
    /// scanned one by one.
    fn part_ended(&self, core: &Core, clock: StepClock<'_>) {
        let mut work = self.work.lock();
        assert!(work.running > 0, "a finished part was running");
        work.running -= 1;
        let elapsed_us = elapsed_us(work.begun, clock());
        let is_last = work.running == 0 && work.parts.is_empty();
        if is_last && std::mem::take(&mut work.has_failed) {
            // Loaded documents stay; counting begins anew.
            work.parts = loading(core).map(VBucket::id).map(LoadPart::vbucket).collect();
            let mut stats = self.stats.lock();
            let (vbuckets, items_estimate) = (stats.vbuckets, stats.items_estimate);
            *stats = WarmupStats { vbuckets, items_estimate, ..WarmupStats::default() };
        }
        let is_over = is_last && work.parts.is_empty();
        if is_over {
            end_loading(core, work.manifest_uid);
        }
        let mut stats = self.stats.lock();
        stats.elapsed_us = elapsed_us;
        if is_over {
            assert!(stats.failed <= stats.vbuckets, "a vbucket fails once");
            stats.vbuckets_done = stats.vbuckets - stats.failed;
            stats.done = true;
            core.tasks().finish(Task::Warmup);
        }
    }
}

fn loading(core: &Core) -> impl Iterator<Item = &VBucket> {
    core.vbuckets().iter().filter(|vbucket| vbucket.is_loading())
}

/// Everything is loaded, by a manifest that may have changed since then.
fn end_loading(core: &Core, manifest_uid: ManifestUid) {
    let current = core.collections().manifest();
    if current.uid() != manifest_uid {
        // A collection may have been dropped, and purged from memory, while it was loaded.
        for vbucket in core.vbuckets() {
            // One that is neither here nor dropped is newer than this manifest.
            vbucket.retain_collections(|collection| !current.has_dropped(collection));
        }
    }
    loading(core).for_each(|vbucket| vbucket.finish_loading(vbucket.incarnation()));
}
