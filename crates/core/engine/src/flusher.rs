//! The flushers: make queued mutations durable, each in one commit for its dirty vbuckets.
//!
//! A bucket has a flusher for each group of vbuckets that its store commits side by side
//! ([`StoreProperties::commit_groups`](oribi_storage::StoreProperties::commit_groups)). They share
//! only the bucket. The first also purges dropped collections, and keeps the others from committing
//! concurrently.
//!
//! Owns: the passes under way and one step of each. The steps of one [`FlushPass`] follow each
//! other without a pause. Between passes lies the flush interval, unless an operation waits for
//! durability. A step reads whole checkpoints from the dirty vbuckets, commits them together with
//! the vbuckets' states, and only then advances persisted seqnos and answers waiters. A failed
//! commit acknowledges nothing: the cursors go back, waiters are told, and writes are refused until
//! a later commit succeeds (`failure.rs`). The commit borrows the item blocks; no document is
//! copied or re-serialised on the way down.

use oribi_storage::{StoreError, VbBatch, VbucketPhase, VbucketState};
use oribi_types::{CollectionId, Seqno, Timestamp, Vbid};
use parking_lot::{Mutex, MutexGuard};

use crate::checkpoint::{CursorBatch, ReadLimits};
use crate::collections::BucketManifest;
use crate::core::Core;
use crate::failure::StoreOperation;
use crate::flush_pass::FlushPass;
use crate::flusher_signal::FlusherSignal;
use crate::limits::{
    CHECKPOINT_BYTES_MAX, CHECKPOINT_ITEMS_MAX, FLUSH_ITEMS_PER_VBUCKET, READ_CHECKPOINTS_MAX,
};
use crate::prefetch::load_line;
use crate::record;
use crate::tasks::{StepClock, Task, elapsed_us};
use crate::vbucket::{FlushRead, PrepareLog, VBucket};

/// Items after the one whose header is read of which the header is being loaded.
const ITEMS_AHEAD: usize = 8;

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushReport {
    pub vbuckets: usize,
    pub items: usize,
    /// True when there is more to do.
    pub more: bool,
    /// True when the pass is not over: the rest is due at once, without an interval.
    pub is_mid_pass: bool,
}

impl FlushReport {
    /// Sum of this step and another one.
    pub(crate) fn and(self, other: FlushReport) -> FlushReport {
        FlushReport {
            vbuckets: self.vbuckets + other.vbuckets,
            items: self.items + other.items,
            more: self.more || other.more,
            is_mid_pass: self.is_mid_pass || other.is_mid_pass,
        }
    }
}

/// One vbucket's share of a commit.
struct Reading<'a> {
    vbucket: &'a VBucket,
    batch: CursorBatch,
    /// At the end of the batch, without prepares.
    state: VbucketState,
    prepares: PrepareLog,
    incarnation: u64,
}

/// The highest seqno of each collection that one vbucket brings into a commit.
type NewestSeqnos = Vec<(CollectionId, Seqno)>;

/// Keeps steps from beginning.
pub(crate) type NoStep<'a> = MutexGuard<'a, FlushPass>;

/// The flushers of one bucket, by their group of vbuckets.
pub(crate) struct Flushers {
    /// Each is held during a step, and by callers that exclude one. Whoever holds several has taken
    /// them in ascending order.
    passes: Box<[Mutex<FlushPass>]>,
}

impl Flushers {
    pub(crate) fn new(groups: usize) -> Flushers {
        Flushers { passes: (0..groups.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.passes.len()
    }

    /// Waits for the step under way of this vbucket's flusher and keeps the next from beginning.
    pub(crate) fn hold(&self, vbid: Vbid) -> NoStep<'_> {
        self.passes[usize::from(vbid.0) % self.count()].lock()
    }

    /// The same for all flushers.
    pub(crate) fn hold_all(&self) -> Vec<NoStep<'_>> {
        self.passes.iter().map(Mutex::lock).collect()
    }

    /// True while a step of a flusher is under way or excluded.
    #[cfg(test)]
    pub(crate) fn is_held(&self, group: usize) -> bool {
        self.passes[group].is_locked()
    }

    /// Flushes a bounded part of the group's queues; the first flusher also purges dropped
    /// collections. Tasks and timings are measured by `clock`.
    ///
    /// # Errors
    /// The store's error; the same items are tried again by the group's next step.
    pub(crate) fn step(
        &self,
        core: &Core,
        group: usize,
        clock: StepClock<'_>,
    ) -> Result<FlushReport, StoreError> {
        let mut pass = self.passes[group].lock();
        debug_assert!(group < core.signals().all().len(), "every flusher has a signal");
        let step = Step { core, flushers: self, group, clock };
        let flushed = core.tasks().run(Task::Flusher, clock, || step.flush(&mut pass));
        if flushed.is_err() && pass.give_up() {
            // An operation may wait for a vbucket that this pass did not reach.
            step.signal().notify();
            step.signal().hurry();
        }
        flushed
    }
}

/// One step under way.
#[derive(Clone, Copy)]
struct Step<'a> {
    core: &'a Core,
    flushers: &'a Flushers,
    group: usize,
    clock: StepClock<'a>,
}

impl<'a> Step<'a> {
    fn signal(self) -> &'a FlusherSignal {
        &self.core.signals().all()[self.group]
    }

    /// The vbuckets of the group.
    fn vbuckets(self) -> impl ExactSizeIterator<Item = &'a VBucket> {
        self.core.vbuckets().iter().skip(self.group).step_by(self.flushers.count())
    }

    fn flush(self, pass: &mut FlushPass) -> Result<FlushReport, StoreError> {
        // The operation that waits may need a vbucket that this pass has visited already.
        if pass.is_over() || self.signal().is_urgent() {
            // Before reading: a later write sets the signal again. Never in mid-pass: that would
            // forget vbuckets that became dirty again after their visit.
            self.signal().reset();
            pass.begin(self.vbuckets().len());
        }
        let restored = self.restore_prepares();
        let report = self.commit_dirty(pass)?;
        restored.map(|()| report)
    }

    /// Commits prepares that wait for their values, some of each vbucket.
    fn restore_prepares(self) -> Result<(), StoreError> {
        let Step { core, clock, .. } = self;
        for vbucket in self.vbuckets().filter(|vbucket| vbucket.wants_value()) {
            match vbucket.restore_prepares(&core.context(clock()), core.store()) {
                Ok(()) => _ = core.store_succeeded(StoreOperation::Read),
                Err(error) => {
                    core.store_failed(StoreOperation::Read, &error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn commit_dirty(self, pass: &mut FlushPass) -> Result<FlushReport, StoreError> {
        let core = self.core;
        if self.group == 0 {
            if let Err(error) = self.purge_dropped_collections() {
                self.step_failed(StoreOperation::CollectionPurge, &[], &error);
                return Err(error);
            }
            self.works_again(StoreOperation::CollectionPurge);
        }
        let readings = self.read_dirty_vbuckets(pass);
        if readings.is_empty() {
            if core.needs_a_probe(self.group) {
                self.probe()?;
            }
            return Ok(FlushReport { more: self.signal().is_set(), ..Default::default() });
        }
        let manifest = core.collections().manifest();
        let begun = (self.clock)();
        let mut newest = Vec::with_capacity(readings.len());
        let mut batches = Vec::with_capacity(readings.len());
        for reading in &readings {
            newest.push(reading.add_batches(&manifest, &mut batches));
        }
        let items = batches.iter().map(|batch| batch.records.len()).sum();
        if let Err(error) = core.store().commit(&batches) {
            drop(batches);
            self.step_failed(StoreOperation::Commit, &readings, &error);
            return Err(error);
        }
        drop(batches);
        self.works_again(StoreOperation::Commit);
        let is_mid_pass = !pass.is_over();
        let more = is_mid_pass || self.signal().is_set();
        let report = FlushReport { vbuckets: readings.len(), items, more, is_mid_pass };
        self.finish_flush(readings, &newest, items, begun);
        Ok(report)
    }

    /// The commit that began at `begun` was a success.
    fn finish_flush(
        self,
        readings: Vec<Reading<'_>>,
        newest: &[NewestSeqnos],
        items: usize,
        begun: Timestamp,
    ) {
        assert_eq!(readings.len(), newest.len(), "every vbucket has the seqnos of its collections");
        assert!(readings.len() <= self.vbuckets().len(), "a vbucket is in a commit once");
        let Step { core, clock, .. } = self;
        let committed = clock();
        let mut before = committed;
        for (reading, newest) in readings.into_iter().zip(newest) {
            core.timings().flushed(reading.batch.items(), committed);
            reading.vbucket.flushed(reading.batch, reading.incarnation, newest);
            // A level may have waited for this store.
            reading.vbucket.complete_prepares(&core.context(committed));
            // There is space in the queue: writes that it refused are taken again at once.
            reading.vbucket.report_memory(&core.context(committed));
            let after = clock();
            core.timings().checkpoint_remover.saturating_record(elapsed_us(before, after));
            before = after;
        }
        let mut timings = core.timings();
        timings.disk_commit.saturating_record(elapsed_us(begun, committed));
        timings.flush_batch_items.saturating_record(items as u64);
    }

    /// Finds out whether the store takes commits again when there is nothing to commit: writes one
    /// vbucket's state unchanged.
    fn probe(self) -> Result<(), StoreError> {
        if let Some(vbucket) = self.vbuckets().find(|vbucket| vbucket.is_owned()) {
            let (vbid, state) = (vbucket.id(), vbucket.persisted_state());
            debug_assert_eq!(
                state.high_seqno,
                vbucket.persisted_seqno(),
                "a probe changes nothing"
            );
            let probed = self.core.store().commit(&[VbBatch { vbid, records: Vec::new(), state }]);
            if let Err(error) = probed {
                self.step_failed(StoreOperation::Commit, &[], &error);
                return Err(error);
            }
        }
        self.works_again(StoreOperation::Commit);
        Ok(())
    }

    /// `operation` has succeeded. Writes that its failure refused are taken at once.
    fn works_again(self, operation: StoreOperation) {
        if self.core.store_succeeded_in(self.group, operation) {
            self.core.review_pressure();
        }
    }

    /// Nothing of the step counts: the next step tries everything again, and writes are refused
    /// until then. Vbuckets that another node has taken over are given up instead.
    fn step_failed(self, operation: StoreOperation, readings: &[Reading<'_>], error: &StoreError) {
        let core = self.core;
        if matches!(error, StoreError::Fenced(_)) {
            core.deactivate_fenced(error);
        } else {
            core.store_failed_in(self.group, operation, error);
            core.review_pressure();
        }
        for reading in readings {
            reading.vbucket.flush_failed(reading.incarnation);
            reading.vbucket.mark_dirty(core.signals());
        }
        self.signal().notify();
    }

    /// Whole checkpoints of the dirty vbuckets of the pass, until the batch is big enough.
    fn read_dirty_vbuckets(self, pass: &mut FlushPass) -> Vec<Reading<'a>> {
        let Step { core, clock, .. } = self;
        let (mut readings, mut with_more) = (Vec::new(), Vec::new());
        let (mut bytes, bytes_max) = (0, core.config().upkeep.flush_bytes_max);
        while bytes < bytes_max
            && let Some(position) = pass.visit()
        {
            let vbucket = &core.vbuckets()[self.group + position * self.flushers.count()];
            debug_assert_eq!(
                usize::from(vbucket.id().0) % self.flushers.count(),
                self.group,
                "one group"
            );
            if !vbucket.take_dirty() {
                continue;
            }
            let begun = clock();
            let limits = ReadLimits {
                items_max: FLUSH_ITEMS_PER_VBUCKET,
                bytes_max: bytes_max - bytes,
                checkpoints_max: READ_CHECKPOINTS_MAX,
            };
            let Some(read) = vbucket.read_for_flush(limits) else {
                continue;
            };
            let FlushRead { batch, state, prepares, incarnation } = read;
            assert!(batch.end >= batch.from, "a read goes forward");
            assert_eq!(
                state.high_seqno, batch.end,
                "a commit's state is that at the end of its batch"
            );
            let took_us = elapsed_us(begun, clock());
            core.timings().persistence_cursor_get_all_items.saturating_record(took_us);
            bytes += batch.item_bytes;
            if batch.more {
                vbucket.mark_dirty(core.signals());
                with_more.push(position);
            }
            readings.push(Reading { vbucket, batch, state, prepares, incarnation });
        }
        // Only now, so that a vbucket is in a commit once.
        assert!(with_more.len() <= readings.len(), "a vbucket is in a commit once");
        with_more.into_iter().for_each(|position| pass.visit_again(position));
        readings
    }

    /// Removes documents of dropped collections, first from memory, then from the store. No flusher
    /// commits concurrently, and later commits leave such documents out, so none comes back.
    fn purge_dropped_collections(self) -> Result<(), StoreError> {
        let dropped = self.core.collections().to_purge();
        if dropped.is_empty() {
            return Ok(());
        }
        // All but the first, which this step holds.
        let _no_step: Vec<NoStep<'_>> = self.flushers.passes[1..].iter().map(Mutex::lock).collect();
        self.core.tasks().run(Task::CollectionPurge, self.clock, || self.purge(&dropped))
    }

    fn purge(self, dropped: &[CollectionId]) -> Result<(), StoreError> {
        for vbucket in self.core.vbuckets().iter().filter(|vbucket| vbucket.is_owned()) {
            vbucket.retain_collections(|collection| !dropped.contains(&collection));
            for collection in dropped {
                self.core.store().purge_collection(vbucket.id(), *collection)?;
            }
        }
        self.core.collections().purged(dropped);
        Ok(())
    }
}

impl<'a> Reading<'a> {
    /// Adds one batch for each run of checkpoints. A batch is never durable without the batches
    /// before it.
    fn add_batches<'b>(
        &'b self,
        manifest: &BucketManifest,
        batches: &mut Vec<VbBatch<'b>>,
    ) -> NewestSeqnos {
        let mut newest = NewestSeqnos::new();
        let mut end = self.batch.from;
        // The last item's collection and its index in `newest`: a run of one collection searches
        // once.
        let mut last = None;
        for run in self.batch.runs(CHECKPOINT_ITEMS_MAX, CHECKPOINT_BYTES_MAX) {
            let items = run.newest_items();
            let mut records = Vec::with_capacity(items.len());
            let mut state = self.state.clone().complete_at(run.end());
            state = self.prepares.describe(state, run.end());
            for (index, item) in items.iter().enumerate() {
                if let Some(ahead) = items.get(index + ITEMS_AHEAD) {
                    load_line(ahead.address());
                }
                let record = record::of(item);
                let collection = record.key.collection;
                match last {
                    Some((known, at)) if known == collection => {
                        let (_, seqno): &mut (_, Seqno) = &mut newest[at];
                        *seqno = record.seqno;
                    }
                    _ => last = Some((collection, note(&mut newest, collection, record.seqno))),
                }
                // A prepare whose outcome is in the same run, or before it, is not needed.
                let is_completed = collection == CollectionId::PREPARES
                    && !record.deleted
                    && record.seqno <= state.high_completed_seqno;
                if manifest.keeps(collection) && !is_completed {
                    records.push(record);
                }
            }
            assert!(run.end() > end, "the runs of a batch follow each other");
            debug_assert!(
                records.is_sorted_by_key(|record| record.seqno),
                "a batch is in seqno order"
            );
            end = run.end();
            if let Some(incomplete) =
                run.incomplete().filter(|_| state.phase == VbucketPhase::Replica)
            {
                state.snapshot_start = incomplete.complete_end;
                state.snapshot_end = incomplete.snapshot_end;
            }
            batches.push(VbBatch { vbid: self.vbucket.id(), records, state });
        }
        assert_eq!(end, self.batch.end, "the runs make up the batch");
        newest
    }
}

/// Sets the seqno of a collection; its index.
fn note(newest: &mut NewestSeqnos, collection: CollectionId, seqno: Seqno) -> usize {
    match newest.iter().position(|(known, _)| *known == collection) {
        Some(at) => {
            debug_assert!(newest[at].1 <= seqno, "versions of a batch are in order");
            newest[at].1 = seqno;
            at
        }
        None => {
            newest.push((collection, seqno));
            newest.len() - 1
        }
    }
}
