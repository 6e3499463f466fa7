//! The flusher: makes queued mutations durable, in one commit for all vbuckets that have any.
//!
//! Owns: one step of that work, and the signal that wakes whoever drives it. The steps of one [`FlushPass`] follow each
//! other without a pause; between passes lies the flush interval, unless somebody waits. A step reads whole
//! checkpoints from the dirty vbuckets, commits them together with the vbuckets' states, and only
//! then advances persisted seqnos and answers waiters. A failed commit acknowledges nothing: the
//! cursors go back, waiters are told, and writes are refused until a later commit succeeds.
//! The commit borrows the item blocks; no document is copied or re-serialised on the way down.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

use oribi_storage::{Record, StoreError, VbBatch, VbucketState};
use oribi_types::{CollectionId, Seqno, Timestamp};

use crate::bucket::Bucket;
use crate::checkpoint::{CursorBatch, ReadLimits};
use crate::collections::Manifest;
use crate::flush_pass::FlushPass;
use crate::item::ItemRef;
use crate::limits::{FLUSH_ITEMS_PER_VBUCKET, READ_CHECKPOINTS_MAX};
use crate::planted::{self, Bug};
use crate::tasks::{StepClock, Task, elapsed_us, no_clock};
use crate::vbucket::{FlushRead, VBucket};

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushReport {
    /// Vbuckets committed.
    pub vbuckets: usize,
    /// Items committed.
    pub items: usize,
    /// True when there is more to do.
    pub more: bool,
    /// True when the pass is not over: what is left was due with the rest, and waits for no interval of its own.
    pub is_mid_pass: bool,
}

/// Wakes the flusher's thread.
#[derive(Default)]
pub(crate) struct FlusherSignal {
    work: AtomicBool,
    urgent: AtomicBool,
    thread: OnceLock<Thread>,
}

impl FlusherSignal {
    /// There is something to flush, soon.
    pub(crate) fn notify(&self) {
        // Between the caller's mark on a vbucket and the look at the signal, as in `reset` between the two the other way
        // round: either this sees the signal taken away, or the flusher sees the mark.
        fence(Ordering::SeqCst);
        if !self.work.load(Ordering::Relaxed) && !self.work.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Somebody waits for the flush.
    pub(crate) fn hurry(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// `thread` is the one to wake. Called before anybody can write.
    pub(crate) fn attach(&self, thread: Thread) {
        // A second driver of the same bucket would be a bug, and harmless: steps exclude each other.
        let _ = self.thread.set(thread);
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
    }

    fn reset(&self) {
        self.urgent.store(false, Ordering::Release);
        self.work.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// What one vbucket brings into a commit.
struct Reading<'a> {
    vbucket: &'a VBucket,
    batch: CursorBatch,
    state: VbucketState,
    incarnation: u64,
}

/// The highest seqno of each collection that one vbucket brings into a commit.
type NewestSeqnos = Vec<(CollectionId, Seqno)>;

impl Bucket {
    /// [`Bucket::flush_step_timed`] by a clock that stands still.
    ///
    /// # Errors
    /// As there.
    pub fn flush_step(&self) -> Result<FlushReport, StoreError> {
        self.flush_step_timed(&no_clock)
    }

    /// Flushes what is queued, up to a bounded amount, and purges dropped collections. What it
    /// costs is measured by `clock` for tasks and timings.
    ///
    /// # Errors
    /// The store's error; the same items are tried again by the next step.
    pub fn flush_step_timed(&self, clock: StepClock<'_>) -> Result<FlushReport, StoreError> {
        let mut pass = self.flush_lock.lock();
        let flushed = self.tasks.run(Task::Flusher, clock, || self.flush(&mut pass, clock));
        if flushed.is_err() && pass.give_up() {
            // Somebody may wait for what this pass did not come to.
            self.signal.notify();
            self.signal.hurry();
        }
        flushed
    }

    fn flush(&self, pass: &mut FlushPass, clock: StepClock<'_>) -> Result<FlushReport, StoreError> {
        // Somebody who waits may wait for a vbucket that this pass has already visited.
        if pass.is_over() || self.signal.is_urgent() {
            // Before reading: a write that comes later sets the signal again. Not in mid-pass, where it would
            // forget the vbuckets that were visited and became dirty again.
            self.signal.reset();
            pass.begin(self.vbuckets().len());
        }
        if let Err(error) = self.purge_dropped_collections(clock) {
            self.step_failed(&[], &error);
            return Err(error);
        }
        let readings = self.read_dirty_vbuckets(pass, clock);
        if readings.is_empty() {
            return Ok(FlushReport { more: self.signal.is_set(), ..Default::default() });
        }
        let manifest = self.manifest();
        let begun = clock();
        let mut newest = Vec::with_capacity(readings.len());
        let mut batches = Vec::with_capacity(readings.len());
        for reading in &readings {
            newest.push(reading.add_batches(&manifest, &mut batches));
        }
        let items = batches.iter().map(|batch| batch.records.len()).sum();
        if planted::has(Bug::AcknowledgesBeforeTheCommit) {
            for Reading { vbucket, batch, .. } in &readings {
                vbucket.waiters().persisted(batch.end);
            }
        }
        if let Err(error) = self.store.commit(&batches)
            && !planted::has(Bug::IgnoresAFailedCommit)
        {
            drop(batches);
            self.step_failed(&readings, &error);
            return Err(error);
        }
        drop(batches);
        self.storage_failed.store(false, Ordering::Relaxed);
        let is_mid_pass = !pass.is_over();
        let more = is_mid_pass || self.signal.is_set();
        let report = FlushReport { vbuckets: readings.len(), items, more, is_mid_pass };
        self.finish_flush(readings, &newest, items, begun, clock);
        Ok(report)
    }

    /// The commit that began at `begun` was a success.
    fn finish_flush(
        &self,
        readings: Vec<Reading<'_>>,
        newest: &[NewestSeqnos],
        items: usize,
        begun: Timestamp,
        clock: StepClock<'_>,
    ) {
        let committed = clock();
        let mut before = committed;
        for (reading, newest) in readings.into_iter().zip(newest) {
            self.timings.lock().flushed(reading.batch.items(), committed);
            reading.vbucket.flushed(reading.batch, reading.incarnation, newest);
            let after = clock();
            let took_us = elapsed_us(before, after);
            self.timings.lock().checkpoint_remover.saturating_record(took_us);
            before = after;
        }
        let mut timings = self.timings.lock();
        timings.disk_commit.saturating_record(elapsed_us(begun, committed));
        timings.flush_batch_items.saturating_record(items as u64);
    }

    /// Nothing of the step counts: everything is to be tried again, and writes are refused until then. What another
    /// node has taken over is given up instead.
    fn step_failed(&self, readings: &[Reading<'_>], error: &StoreError) {
        if matches!(error, StoreError::Fenced(_)) {
            self.deactivate_fenced(error);
        } else {
            self.storage_failed.store(true, Ordering::Relaxed);
            self.review_pressure();
        }
        for reading in readings {
            reading.vbucket.flush_failed(reading.incarnation);
            reading.vbucket.mark_dirty(&self.signal);
        }
        self.signal.notify();
    }

    /// Whole checkpoints of the dirty vbuckets of the pass, until the batch is big enough.
    fn read_dirty_vbuckets(&self, pass: &mut FlushPass, clock: StepClock<'_>) -> Vec<Reading<'_>> {
        let (mut readings, mut with_more) = (Vec::new(), Vec::new());
        let (mut bytes, bytes_max) = (0, self.config().upkeep.flush_bytes_max);
        while bytes < bytes_max
            && let Some(index) = pass.visit()
        {
            let vbucket = &self.vbuckets()[index];
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
            let FlushRead { batch, state, incarnation } = read;
            let took_us = elapsed_us(begun, clock());
            self.timings.lock().persistence_cursor_get_all_items.saturating_record(took_us);
            bytes += batch.item_bytes;
            if batch.more {
                vbucket.mark_dirty(&self.signal);
                with_more.push(index);
            }
            readings.push(Reading { vbucket, batch, state, incarnation });
        }
        if bytes >= bytes_max && planted::has(Bug::SkipsAVbucketOfAPass) {
            pass.visit();
        }
        // Only now, so that a vbucket is in a commit once.
        with_more.into_iter().for_each(|index| pass.visit_again(index));
        readings
    }

    /// Documents of a collection that left the manifest: first out of memory, then out of the
    /// store. No commit runs meanwhile, and later ones leave such documents out, so none comes back.
    fn purge_dropped_collections(&self, clock: StepClock<'_>) -> Result<(), StoreError> {
        let dropped = self.purges.lock().clone();
        if dropped.is_empty() {
            return Ok(());
        }
        self.tasks.run(Task::CollectionPurge, clock, || self.purge(&dropped))
    }

    fn purge(&self, dropped: &[CollectionId]) -> Result<(), StoreError> {
        for vbucket in self.vbuckets().iter().filter(|vbucket| vbucket.is_owned()) {
            vbucket.retain_collections(|collection| !dropped.contains(&collection));
            for collection in dropped {
                self.store.purge_collection(vbucket.id(), *collection)?;
            }
        }
        self.purges.lock().retain(|collection| !dropped.contains(collection));
        Ok(())
    }
}

impl<'a> Reading<'a> {
    /// Adds one batch for each checkpoint, because a key is at most once in each; what stands in an
    /// earlier batch is never durable without the batches before it.
    fn add_batches<'b>(
        &'b self,
        manifest: &Manifest,
        batches: &mut Vec<VbBatch<'b>>,
    ) -> NewestSeqnos {
        let mut newest = NewestSeqnos::new();
        // Where the collection of the last item stands in `newest`: runs of one collection search once.
        let mut last = None;
        for (end, item_count, items) in self.batch.checkpoints() {
            let mut records = Vec::with_capacity(item_count);
            for item in items {
                let record = to_record(item);
                let collection = record.key.collection;
                match last {
                    Some((known, at)) if known == collection => {
                        let (_, seqno): &mut (_, Seqno) = &mut newest[at];
                        *seqno = record.seqno;
                    }
                    _ => last = Some((collection, note(&mut newest, collection, record.seqno))),
                }
                let is_lost = record.deleted && planted::has(Bug::LosesTombstones);
                if (collection == CollectionId::DEFAULT || manifest.contains(collection))
                    && !is_lost
                {
                    records.push(record);
                }
            }
            if planted::has(Bug::DropsTheLastRecord) {
                records.pop();
            }
            let end = if planted::has(Bug::WrongSeqnoInState) { Seqno(end.0 + 1) } else { end };
            let state = VbucketState { high_seqno: end, ..self.state.clone() };
            batches.push(VbBatch { vbid: self.vbucket.id(), records, state });
        }
        newest
    }
}

/// Sets the seqno of a collection; where it stands.
fn note(newest: &mut NewestSeqnos, collection: CollectionId, seqno: Seqno) -> usize {
    match newest.iter().position(|(known, _)| *known == collection) {
        Some(at) => {
            newest[at].1 = seqno;
            at
        }
        None => {
            newest.push((collection, seqno));
            newest.len() - 1
        }
    }
}

fn to_record(item: &ItemRef) -> Record<'_> {
    Record {
        key: item.key(),
        value: item.value(),
        cas: item.cas(),
        seqno: item.seqno(),
        rev_seqno: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        deleted: item.is_deleted(),
    }
}
