//! Warmup: brings the store's documents back into memory, while clients are served.
//!
//! Owns: the plan of one load for all vbuckets, what of each record goes into memory, and the figures.
//! A step loads one part of the plan; steps may run on several threads. The parts come newest first
//! where the store knows, so values are there by recency: with eviction they are loaded until memory
//! reaches the low watermark, then keys and metadata only. That is so with full eviction, too, where
//! the item pager takes them out again when everything is loaded: until then a key in the table is the only
//! sign that its record was seen.
//!
//! Vbuckets serve meanwhile. What an operation does not find may still be in the store, so it is fetched
//! first; a stored record enters the table only if nothing is there under its key, and no tombstone leaves
//! the table before loading ends. Revisions of re-created documents continue from the highest
//! revision of a deletion, which the vbucket's state carries.
//!
//! When a part cannot be read, nothing says which vbuckets have records in the rest of it. So every vbucket
//! that is not loaded is then scanned by itself; one whose scan fails stays in temporary failure, and
//! the others serve. Documents of collections that left the manifest are purged afterwards, those that had not been
//! purged when the last owner ended, and those that were dropped while they were loaded. A collection that is not in the
//! manifest is not always a dropped one: what a load reads may be newer than the manifest that it began with.
//!
//! On a store that several nodes share vbuckets come one by one, each as a part of its own, for as long as the bucket is
//! open; a part that cannot be read is tried again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

use oribi_storage::{LoadPart, LoadPlan, StoreError};
use oribi_types::{CollectionId, ManifestUid, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::eviction::EvictionPolicy;
use crate::stats::{WarmupState, WarmupStats};
use crate::tasks::{StepClock, Task, elapsed_us, no_clock};
use crate::vbucket::VBucket;

mod part;

use part::{Extent, PartLoad};

/// What one step did.
#[derive(Debug)]
pub enum WarmupStep {
    /// Loaded a part of the documents.
    Loaded {
        /// Documents among them.
        items: u64,
    },
    /// Could not read one.
    Failed {
        /// The vbucket that stays in temporary failure; `None` when vbuckets will be scanned one by
        /// one to find out.
        vbid: Option<Vbid>,
        /// Why.
        error: StoreError,
    },
    /// Every part was taken by this or another thread.
    Done,
}

/// Loading of one bucket.
pub(crate) struct Warmup {
    stats: Mutex<WarmupStats>,
    work: Mutex<Work>,
    /// How much of a document goes into memory, as [`Extent`].
    extent: AtomicU8,
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
    /// Warmup of a bucket of which this many vbuckets have something to load.
    pub(crate) fn of(vbuckets: usize) -> Warmup {
        let done = vbuckets == 0;
        let state = if done { WarmupState::Done } else { WarmupState::Values };
        let stats = WarmupStats { vbuckets, done, state, ..WarmupStats::default() };
        let extent = AtomicU8::new(Extent::Values as u8);
        Warmup {
            stats: Mutex::new(stats),
            work: Mutex::default(),
            extent,
            loaders: Mutex::default(),
        }
    }

    /// From now on `thread` is woken when there is more to load.
    pub(crate) fn attach(&self, thread: Thread) {
        self.loaders.lock().push(thread);
    }

    /// Progress so far.
    pub(crate) fn stats(&self) -> WarmupStats {
        *self.stats.lock()
    }

    fn extent(&self) -> Extent {
        Extent::of(self.extent.load(Ordering::Relaxed))
    }
}

impl Bucket {
    /// [`Bucket::warmup_step_timed`] by a clock that stands still.
    pub fn warmup_step(&self) -> WarmupStep {
        self.warmup_step_timed(&no_clock)
    }

    /// Loads the next part that nobody has taken.
    pub fn warmup_step_timed(&self, clock: StepClock<'_>) -> WarmupStep {
        if self.warmup.stats().done {
            return WarmupStep::Done;
        }
        let Some(part) = self.next_part(clock) else { return WarmupStep::Done };
        let step = self.tasks.run(Task::Warmup, clock, || self.load_part(part));
        self.part_ended(clock);
        step
    }

    /// Takes a part; the first call makes the plan.
    fn next_part(&self, clock: StepClock<'_>) -> Option<LoadPart> {
        let mut work = self.warmup.work.lock();
        if !work.is_planned {
            work.is_planned = true;
            work.begun = clock();
            work.manifest_uid = self.manifest().uid();
            work.parts = self.plan_warmup().into();
        }
        let part = work.parts.pop_front()?;
        if std::mem::take(&mut work.is_resumed) {
            work.begun = clock();
            work.manifest_uid = self.manifest().uid();
        }
        work.running += 1;
        Some(part)
    }

    /// Begins to serve these vbuckets, which were claimed, and has their documents loaded meanwhile.
    pub(crate) fn serve_and_load(&self, vbuckets: &[Vbid]) {
        // Until the parts are queued nobody may take the loading for complete.
        let mut work = self.warmup.work.lock();
        let was_idle = work.parts.is_empty() && work.running == 0;
        work.is_planned = true;
        let mut added = 0;
        for vbucket in vbuckets.iter().filter_map(|vbid| self.vbucket(*vbid)) {
            vbucket.begin_serving();
            if vbucket.is_loading() {
                work.parts.push_back(LoadPart::vbucket(vbucket.id()));
                added += 1;
            }
        }
        if added == 0 {
            return;
        }
        if was_idle {
            work.is_resumed = true;
            *self.warmup.stats.lock() =
                WarmupStats { state: WarmupState::Values, ..WarmupStats::default() };
            self.warmup.extent.store(Extent::Values as u8, Ordering::Relaxed);
        }
        let mut stats = self.warmup.stats.lock();
        stats.vbuckets += added;
        stats.done = false;
        drop(stats);
        drop(work);
        self.warmup.loaders.lock().iter().for_each(Thread::unpark);
    }

    fn plan_warmup(&self) -> Vec<LoadPart> {
        let plan = self.store.plan_load().unwrap_or_else(|error| {
            tracing::warn!(bucket = self.config().name, %error, "no plan for loading; vbuckets are scanned one by one");
            LoadPlan::by_vbucket(self.loading().map(VBucket::id))
        });
        self.warmup.stats.lock().items_estimate = plan.records_estimate;
        // Every key will be in memory, so no table has to grow on the way.
        for (vbid, records) in &plan.records {
            if let Some(vbucket) = self.vbucket(*vbid) {
                vbucket.reserve(*records);
            }
        }
        let is_wanted = |part: &LoadPart| match part.whole_vbucket() {
            Some(vbid) => self.vbucket(vbid).is_some_and(VBucket::is_loading),
            None => true,
        };
        let mut parts: Vec<LoadPart> = plan.parts.into_iter().filter(is_wanted).collect();
        if parts.is_empty() {
            // Nothing but tombstones that were purged: the scans find that out.
            parts = self.loading().map(VBucket::id).map(LoadPart::vbucket).collect();
        }
        parts
    }

    fn loading(&self) -> impl Iterator<Item = &VBucket> {
        self.vbuckets().iter().filter(|vbucket| vbucket.is_loading())
    }

    fn load_part(&self, part: LoadPart) -> WarmupStep {
        let whole = part.whole_vbucket().and_then(|vbid| self.vbucket(vbid));
        // Before the first record is read.
        let incarnation = whole.map(VBucket::incarnation);
        if whole.is_some_and(|vbucket| !vbucket.is_loading()) {
            // It is another node's by now.
            return WarmupStep::Loaded { items: 0 };
        }
        // Small vbuckets have too few documents for a look on the way.
        self.review_extent();
        let mut load = PartLoad::new(self, incarnation);
        let loaded = match load.keeps_values() {
            true => self.store.load_part(part, &mut |vbid, record| load.take(vbid, &record, None)),
            false => self.store.load_metadata(part, &mut |vbid, record, value_bytes| {
                load.take(vbid, &record, Some(value_bytes))
            }),
        };
        let (counts, unknown) = load.finish();
        let incarnation = incarnation.unwrap_or_default();
        self.schedule_purges(&unknown);
        let mut stats = self.warmup.stats.lock();
        stats.items += counts.items;
        stats.values += counts.values;
        stats.tombstones += counts.tombstones;
        stats.overtaken += counts.overtaken;
        match (loaded, whole) {
            (Ok(()), Some(_)) => {
                stats.vbuckets_done += 1;
                drop(stats);
                whole.into_iter().for_each(|vbucket| vbucket.finish_loading(incarnation));
                WarmupStep::Loaded { items: counts.items }
            }
            (Ok(()), None) => WarmupStep::Loaded { items: counts.items },
            (Err(error), Some(vbucket)) if self.store.is_shared() => {
                drop(stats);
                // The cluster behind the store may be back in a moment, and nobody else serves the vbucket.
                self.warmup.work.lock().parts.push_back(LoadPart::vbucket(vbucket.id()));
                WarmupStep::Failed { vbid: Some(vbucket.id()), error }
            }
            (Err(error), Some(vbucket)) => {
                stats.failed += 1;
                vbucket.fail_loading(incarnation);
                WarmupStep::Failed { vbid: Some(vbucket.id()), error }
            }
            (Err(error), None) => {
                drop(stats);
                self.warmup.work.lock().has_failed = true;
                WarmupStep::Failed { vbid: None, error }
            }
        }
    }

    /// A part is loaded or given up. After the last one vbuckets serve with certainty, or are scanned
    /// one by one.
    fn part_ended(&self, clock: StepClock<'_>) {
        let mut work = self.warmup.work.lock();
        work.running -= 1;
        let elapsed_us = elapsed_us(work.begun, clock());
        let is_last = work.running == 0 && work.parts.is_empty();
        if is_last && std::mem::take(&mut work.has_failed) {
            // What was loaded stays; counting begins anew.
            work.parts = self.loading().map(VBucket::id).map(LoadPart::vbucket).collect();
            let mut stats = self.warmup.stats.lock();
            let (vbuckets, items_estimate) = (stats.vbuckets, stats.items_estimate);
            let state = stats.state;
            *stats = WarmupStats { vbuckets, items_estimate, state, ..WarmupStats::default() };
        }
        let is_over = is_last && work.parts.is_empty();
        if is_over {
            self.end_warmup(&work);
        }
        let mut stats = self.warmup.stats.lock();
        stats.elapsed_us = elapsed_us;
        if is_over {
            stats.vbuckets_done = stats.vbuckets - stats.failed;
            stats.state = WarmupState::Done;
            stats.done = true;
            self.tasks.finish(Task::Warmup);
        }
    }

    fn end_warmup(&self, work: &Work) {
        let current = self.manifest();
        if current.uid() != work.manifest_uid {
            // A collection may have been dropped, and purged from memory, while it was loaded.
            for vbucket in self.vbuckets() {
                vbucket.retain_collections(|collection| current.contains(collection));
            }
        }
        self.loading().for_each(|vbucket| vbucket.finish_loading(vbucket.incarnation()));
    }

    /// Decides how much of the documents that follow goes into memory.
    fn review_extent(&self) {
        if matches!(self.config().eviction, EvictionPolicy::None | EvictionPolicy::Nru) {
            return;
        }
        if self.warmup.extent() == Extent::Values
            && self.memory.used_bytes() >= self.memory.low_watermark_bytes()
        {
            self.warmup.extent.store(Extent::Metadata as u8, Ordering::Relaxed);
            self.warmup.stats.lock().state = WarmupState::Metadata;
        }
    }

    /// Has documents of collections purged that were not in the manifest, as far as they were dropped: which is for ever,
    /// so that no later manifest has to be asked.
    fn schedule_purges(&self, unknown: &[CollectionId]) {
        let manifest = self.manifest();
        let mut purges = self.purges.lock();
        let known = purges.len();
        for collection in unknown.iter().filter(|collection| manifest.has_dropped(**collection)) {
            if !purges.contains(collection) {
                purges.push(*collection);
            }
        }
        let has_new = purges.len() > known;
        drop(purges);
        if has_new {
            self.signal.notify();
        }
    }
}
