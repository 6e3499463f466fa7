//! Background work of a bucket, a step at a time.
//!
//! Owns: which piece of work is handed which other. The file of each piece describes its step.
//! Called by the bucket's threads, and by tests, which drive steps by hand.

use std::sync::Arc;

use oribi_storage::StoreError;
use oribi_types::{DocKey, Vbid};

use super::Bucket;
use crate::backfill::{BackfillPace, BackfillReport, Backfiller};
use crate::background_fetch::{FetchSink, Fetcher};
use crate::checkpoint_recovery::{self, RecoveryReport};
use crate::expiry_pager::ExpiryReport;
use crate::flusher::FlushReport;
use crate::item_pager::PagerReport;
use crate::reader_memory::ReaderMemory;
use crate::tasks::{StepClock, no_clock};
use crate::tombstone_purge::PurgeReport;
use crate::warmup::{Warmup, WarmupStep};

impl Bucket {
    pub(crate) fn warmup(&self) -> &Warmup {
        &self.warmup
    }

    #[cfg(test)]
    pub(crate) fn flushers(&self) -> &crate::flusher::Flushers {
        &self.flushers
    }

    pub(crate) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// [`Bucket::flush_step_timed`] by a clock that stalls.
    ///
    /// # Errors
    /// As there.
    pub fn flush_step(&self) -> Result<FlushReport, StoreError> {
        self.flush_step_timed(&no_clock)
    }

    /// Flushes a bounded part of the queue and purges dropped collections: one step of each
    /// flusher. Tasks and timings are measured by `clock`.
    ///
    /// # Errors
    /// The store's first error; the same items are tried again by the next step.
    pub fn flush_step_timed(&self, clock: StepClock<'_>) -> Result<FlushReport, StoreError> {
        let mut all = Ok(FlushReport::default());
        for group in 0..self.flusher_count() {
            let step = self.flusher_step(group, clock);
            all = all.and_then(|all| Ok(all.and(step?)));
        }
        debug_assert!(
            all.as_ref().map_or(true, |all| all.vbuckets <= self.vbuckets().len()),
            "a vbucket is in one group"
        );
        all
    }

    /// Flushers, one for each group of vbuckets that the store commits side by side.
    pub fn flusher_count(&self) -> usize {
        self.flushers.count()
    }

    /// [`Bucket::flush_step_timed`] of the flusher of one group only.
    ///
    /// # Errors
    /// As there.
    pub fn flusher_step(
        &self,
        group: usize,
        clock: StepClock<'_>,
    ) -> Result<FlushReport, StoreError> {
        debug_assert!(group < self.flusher_count(), "a group has a flusher");
        self.core.note_time(clock());
        self.flushers.step(&self.core, group, clock)
    }

    /// [`Bucket::warmup_step_timed`] by a clock that stalls.
    pub fn warmup_step(&self) -> WarmupStep {
        self.warmup_step_timed(&no_clock)
    }

    /// Loads the next part that no loader has taken.
    pub fn warmup_step_timed(&self, clock: StepClock<'_>) -> WarmupStep {
        self.warmup.step(&self.core, &self.pager, clock)
    }

    /// Queues a fetch of the store's version of `key` into memory. `sink` is called once with
    /// `token`, from another thread, possibly before this returns.
    pub fn fetch(&self, vbid: Vbid, key: DocKey<'_>, sink: &Arc<dyn FetchSink>, token: u64) {
        self.fetcher.ask(vbid, key, sink, token);
    }

    /// [`Bucket::fetch_step_timed`] by a clock that stalls.
    pub fn fetch_step(&self) -> usize {
        self.fetch_step_timed(&no_clock)
    }

    /// Reads a batch of fetches and notifies their waiters. Returns the number of notified waiters.
    pub fn fetch_step_timed(&self, clock: StepClock<'_>) -> usize {
        self.fetcher.step(&self.core, &self.pager, clock)
    }

    /// The bucket is about to stop: reads end at once, and writes wait only a little longer for an
    /// absent store.
    pub fn end_waits(&self) {
        self.fetcher.end_waits(&self.core);
    }

    /// True after [`Bucket::end_waits`]: a failed read is expected then, and not logged.
    pub fn is_ending(&self) -> bool {
        self.fetcher.is_ending()
    }

    /// Backfills ask this budget before they read a large record. The first call counts.
    pub fn set_reader_memory(&self, memory: Arc<dyn ReaderMemory>) {
        self.backfiller.set_reader_memory(memory);
    }

    /// Evicts some documents once memory is above the high watermark, until it is at the low one.
    pub fn page_items_step(&self, clock: StepClock<'_>) -> PagerReport {
        self.core.note_time(clock());
        self.pager.step(&self.core, clock)
    }

    #[cfg(test)]
    pub(crate) fn pager(&self) -> &crate::item_pager::ItemPager {
        &self.pager
    }

    /// Evicts one document by the bucket's policy, however popular it is. False when there is none,
    /// when it is not durable yet, or when an operation holds it.
    pub fn evict(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.pager.evict(&self.core, vbid, key)
    }

    /// Continues with the expiry pager's pass, or begins one if it is time. The first begins one
    /// interval after the first call. An interval of 0 means never.
    pub fn expiry_pager_step(&self, clock: StepClock<'_>) -> ExpiryReport {
        self.expiry_pager.step(&self.core, clock)
    }

    /// Purges old tombstones of the next vbucket of the pass, or begins a pass if it is time.
    /// Blocks for the disk.
    ///
    /// # Errors
    /// The store's; the pass continues with the next vbucket.
    pub fn purge_tombstones_step(&self, clock: StepClock<'_>) -> Result<PurgeReport, StoreError> {
        self.tombstone_purge.step(&self.core, clock)
    }

    pub(crate) fn backfiller(&self) -> &Backfiller {
        &self.backfiller
    }

    /// Serves all change streams that wait for a backfill of the next vbucket. Blocks for the
    /// store, and for slow readers as long as `pace` says.
    ///
    /// # Errors
    /// The store's; the streams ask again or end.
    pub fn backfill_step(
        &self,
        pace: BackfillPace<'_>,
        clock: StepClock<'_>,
    ) -> Result<BackfillReport, StoreError> {
        self.backfiller.step(&self.core, &self.flushers, pace, clock)
    }

    /// Frees checkpoint memory if the queues are at the upper mark: closes checkpoints, expels
    /// items, then drops slow cursors, down to the lower mark. Locks one vbucket's queue at a time,
    /// for a moment.
    pub fn recover_checkpoints_step(&self) -> RecoveryReport {
        checkpoint_recovery::step(&self.core)
    }

    /// Decides from store and vbuckets which writes are refused. A flusher's thread calls it a few
    /// times a second, except while all are in long commits; quota and queue refuse writes without
    /// it.
    pub fn review_pressure(&self) {
        self.core.review_pressure();
    }
}
