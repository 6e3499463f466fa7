//! One scan of a vbucket, for all streams that wait for it.
//!
//! Owns: the snapshot that the scan shows. The store reports the moment of its scan: its last
//! seqno, and how far tombstones were purged. A reader of the default collection only also needs
//! the last seqno of that collection, because its snapshot must end at a change that it gets. The
//! vbucket has that seqno while no commit is under way. So a scan for such a reader begins again if
//! a commit came in between, and keeps its flusher from committing after some tries. A flush
//! empties memory before the store, so no scan begins during one. A bucket in memory has no store:
//! its scan is one of the hash table, see [`VBucket::memory_snapshot`].

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oribi_storage::{LARGE_RECORD_BYTES, Record, SeqnoRange, StoreError};
use oribi_types::Seqno;
use oribi_types::policy::Storage;

use super::chunk::{BackfillChunk, ChunkRecords};
use super::inbox::{BackfillInbox, BackfillSnapshot};
use super::{BackfillPace, BackfillPause, Backfiller, Bounds, Job};
use crate::checkpoint::StreamOwner;
use crate::core::Core;
use crate::flusher::Flushers;
use crate::reader_memory::MemoryGrant;
use crate::vbucket::VBucket;

/// Scans that may meet a commit at their beginning before one keeps commits away.
const TRIES: usize = 3;

impl Backfiller {
    /// Scans the vbucket of `jobs`. False when it cannot be scanned for now.
    pub(super) fn scan(
        &self,
        core: &Core,
        flushers: &Flushers,
        pace: BackfillPace<'_>,
        jobs: &[Job],
    ) -> Result<bool, StoreError> {
        let Some(first) = jobs.first() else { return Ok(true) };
        let vbucket = core.vbucket(first.vbid);
        let vbucket = vbucket.filter(|vbucket| is_same(vbucket, first.incarnation));
        let Some(vbucket) = vbucket else {
            jobs.iter().for_each(|job| _ = job.inbox.leave_behind());
            return Ok(true);
        };
        let start = jobs.iter().map(|job| job.start).min().unwrap_or_default();
        debug_assert!(
            jobs.iter().all(|job| job.start >= start),
            "a scan begins for its first reader"
        );
        debug_assert!(jobs.iter().all(|job| job.vbid == first.vbid), "one scan is of one vbucket");
        let reader = |job: &'_ Job| Reader { inbox: Arc::clone(&job.inbox), start: job.start };
        let scan = || Scan {
            backfiller: self,
            core,
            vbucket,
            pace,
            bounds: Bounds::of(core.memory()),
            incarnation: first.incarnation,
            readers: jobs.iter().map(reader).collect(),
            records: ChunkRecords::default(),
            grant: None,
        };
        if core.config().storage == Storage::Memory {
            return Ok(scan().show_memory(start));
        }
        // The store may have versions that a flush has removed from memory only.
        if core.ownership_changes().settled().is_none() {
            return Ok(false);
        }
        for attempt in 0..=TRIES {
            let mut no_commit = (attempt == TRIES).then(|| flushers.hold(first.vbid));
            let scan = scan();
            if scan.knows_default_end() && scan.show_store(start, &mut || drop(no_commit.take()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_same(vbucket: &VBucket, incarnation: u64) -> bool {
    vbucket.is_serving() && vbucket.incarnation() == incarnation
}

#[derive(Clone)]
struct Reader {
    inbox: Arc<BackfillInbox>,
    start: Seqno,
}

struct Scan<'a> {
    backfiller: &'a Backfiller,
    core: &'a Core,
    vbucket: &'a VBucket,
    pace: BackfillPace<'a>,
    bounds: Bounds,
    incarnation: u64,
    readers: Vec<Reader>,
    records: ChunkRecords,
    /// Memory for the large record that is read next.
    grant: Option<Box<dyn MemoryGrant>>,
}

impl Scan<'_> {
    /// False when a commit came in between, so that nothing was shown.
    fn show_store(self, start: Seqno, begun: &mut dyn FnMut()) -> Result<bool, StoreError> {
        let range = SeqnoRange::seqnos(Seqno(start.0 + 1), Seqno(u64::MAX));
        // Before the scan begins: later completions are not inside of it.
        let high_completed = self.vbucket.stored_completed_seqno();
        let mut scan = self.core.store().begin_scan(self.vbucket.id(), range)?;
        let moment = scan.snapshot();
        let Some(default_end) = self.default_end(moment.high_seqno) else { return Ok(false) };
        let is_news = moment.purge_seqno > self.vbucket.purge_seqno();
        if is_news && is_same(self.vbucket, self.incarnation) {
            // A purge has failed after it had removed some tombstones, or has not reported them
            // yet; they may not have been counted.
            self.vbucket.purged_unseen(moment.purge_seqno);
            self.vbucket.raise_purge_seqno(moment.purge_seqno);
        }
        begun();
        let end = moment.high_seqno;
        debug_assert!(default_end <= end, "a collection is a part of the snapshot");
        let purge_seqno = moment.purge_seqno;
        self.begin(BackfillSnapshot { end, default_end, purge_seqno, high_completed });
        let shown = RefCell::new(self);
        scan.resume(&mut |bytes| shown.borrow_mut().reserve(bytes), &mut |record| {
            let mut shown = shown.borrow_mut();
            shown.take(&record);
            shown.flow()
        })?;
        shown.into_inner().end();
        Ok(true)
    }

    /// Breaks when the rest of the scan would reach no reader.
    fn flow(&self) -> ControlFlow<()> {
        match is_same(self.vbucket, self.incarnation) && !self.readers.is_empty() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    /// Waits for memory for a large record: the store's copy and that of the chunk. The readers
    /// first get the earlier records, so that they send them during the wait. Breaks when all
    /// readers have left, or the driver wants to stop.
    fn reserve(&mut self, record_bytes: usize) -> ControlFlow<()> {
        let Some(memory) = self.backfiller.reader_memory() else {
            return ControlFlow::Continue(());
        };
        self.deliver();
        self.grant = None;
        debug_assert!(self.records.is_empty(), "a scan waits after it has delivered");
        let mut request = memory.request(2 * record_bytes);
        loop {
            self.grant = request.poll();
            if self.grant.is_some() {
                return ControlFlow::Continue(());
            }
            self.readers.retain(|reader| !reader.inbox.is_closed());
            self.flow()?;
            if !(self.pace)(BackfillPause { idle: 0, has_waiters: false }) {
                self.leave_behind(&self.readers.clone());
                return ControlFlow::Break(());
            }
        }
    }

    /// True unless a reader needs the last seqno of the default collection, which is unknown now.
    fn knows_default_end(&self) -> bool {
        !self.has_legacy_reader() || self.vbucket.settled_store().is_some()
    }

    fn has_legacy_reader(&self) -> bool {
        self.readers.iter().any(|reader| reader.inbox.is_legacy())
    }

    /// The last seqno of the default collection in a store that ends at `high`.
    fn default_end(&self, high: Seqno) -> Option<Seqno> {
        if !self.has_legacy_reader() {
            return Some(Seqno(0));
        }
        let settled = self.vbucket.settled_store().filter(|settled| settled.seqno == high);
        settled.map(|settled| settled.default_seqno)
    }

    fn begin(&self, snapshot: BackfillSnapshot) {
        self.readers.iter().for_each(|reader| reader.inbox.begin(snapshot));
    }

    fn take(&mut self, record: &Record<'_>) {
        debug_assert!(self.records.bytes() < self.bounds.chunk_bytes, "a full chunk is delivered");
        let (collection, seqno) = (record.key.collection, record.seqno);
        let wants = |reader: &Reader| reader.start < seqno && reader.inbox.wants(collection);
        let grant = self.grant.take();
        if !self.readers.iter().any(wants) {
            return;
        }
        if record.value.len() > LARGE_RECORD_BYTES {
            self.take_large(record, grant);
            return;
        }
        if self.records.is_empty() {
            self.records = ChunkRecords::with_room(self.bounds.chunk_bytes as usize);
        }
        self.records.push(record);
        if self.records.bytes() >= self.bounds.chunk_bytes {
            self.deliver();
            self.wait_for_room();
        }
    }

    /// Copies a large record into its own chunk.
    fn take_large(&mut self, record: &Record<'_>, grant: Option<Box<dyn MemoryGrant>>) {
        self.deliver();
        debug_assert!(self.records.is_empty(), "a large record is alone in its chunk");
        let mut records = ChunkRecords::with_room(record.key.key.len() + record.value.len());
        records.push(record);
        self.backfiller.counts.records.fetch_add(1, Ordering::Relaxed);
        let account = self.core.memory().streams_account();
        let chunk = match grant {
            Some(grant) => BackfillChunk::of_granted(records, grant, account),
            None => BackfillChunk::of_records(records, account),
        };
        self.push(&chunk);
        drop(chunk);
        self.wait_for_room();
    }

    fn deliver(&mut self) {
        let records = std::mem::take(&mut self.records);
        if !records.is_empty() {
            let count = records.len() as u64;
            self.backfiller.counts.records.fetch_add(count, Ordering::Relaxed);
            self.push(&BackfillChunk::of_records(records, self.core.memory().streams_account()));
        }
    }

    fn push(&self, chunk: &Arc<BackfillChunk>) {
        debug_assert!(chunk.len() > 0, "a chunk has a record");
        self.readers.iter().for_each(|reader| reader.inbox.push(chunk));
        self.core.memory().streams_grew();
    }

    fn end(mut self) {
        if is_same(self.vbucket, self.incarnation) {
            self.deliver();
            self.readers.iter().for_each(|reader| reader.inbox.complete());
        } else {
            self.readers.iter().for_each(|reader| _ = reader.inbox.leave_behind());
        }
    }

    /// Waits for the streams that have as much as they take until they have read half of that, so
    /// that the scan is woken for many records. Leaves those after that stall.
    fn wait_for_room(&mut self) {
        debug_assert!(self.records.is_empty(), "a scan waits after it has delivered");
        let half = self.bounds.inbox_bytes / 2;
        let is_full = |reader: &&Reader| reader.inbox.has(self.bounds.inbox_bytes);
        let mut full: Vec<Reader> = self.readers.iter().filter(is_full).cloned().collect();
        let mut pause = BackfillPause { idle: 0, has_waiters: false };
        let mut before = u64::MAX;
        loop {
            self.readers.retain(|reader| !reader.inbox.is_closed());
            full.retain(|reader| reader.inbox.has(half + 1));
            if full.is_empty() {
                return;
            }
            let scanner = std::thread::current();
            let taken = full.iter().map(|it| it.inbox.taken(scanner.clone(), half)).sum();
            pause.idle = if taken == before { pause.idle + 1 } else { 0 };
            before = taken;
            // Whatever was taken before the scan asked to be woken.
            if full.iter().any(|reader| !reader.inbox.has(half + 1)) {
                continue;
            }
            pause.has_waiters = pause.idle > 0 && self.has_waiters(&full);
            if !(self.pace)(pause) {
                self.leave_behind(&full);
                return;
            }
        }
    }

    fn has_waiters(&self, slow: &[Reader]) -> bool {
        let owners: Vec<StreamOwner> = slow.iter().map(|reader| reader.inbox.owner()).collect();
        self.backfiller.has_waiters(&owners)
    }

    fn leave_behind(&mut self, slow: &[Reader]) {
        debug_assert!(!slow.is_empty(), "a scan continues without slow readers only");
        for reader in slow {
            reader.inbox.leave_behind();
            self.backfiller.counts.left_behind.fetch_add(1, Ordering::Relaxed);
        }
        let is_slow =
            |reader: &Reader| slow.iter().any(|slow| Arc::ptr_eq(&slow.inbox, &reader.inbox));
        self.readers.retain(|reader| !is_slow(reader));
    }

    /// Shows a vbucket that has no store. False when its queue could not be read for now.
    fn show_memory(self, start: Seqno) -> bool {
        let context = self.core.context(oribi_types::Timestamp::default());
        let Some(shown) = self.vbucket.memory_snapshot(&context, start) else { return false };
        debug_assert!(shown.default_end <= shown.end, "a collection is a part of the snapshot");
        self.begin(BackfillSnapshot {
            end: shown.end,
            default_end: shown.default_end,
            purge_seqno: self.vbucket.purge_seqno(),
            high_completed: Seqno(0),
        });
        let account = self.core.memory().streams_account();
        let bytes_max = self.bounds.chunk_bytes as usize;
        let mut items = shown.items.into_iter().peekable();
        while let Some(first) = items.next() {
            let mut bytes = first.block_bytes_plain();
            let mut part = vec![first];
            let fits = |bytes: usize, next: &crate::item::ItemRef| {
                bytes + next.block_bytes_plain() <= bytes_max
            };
            while let Some(next) = items.next_if(|next| fits(bytes, next)) {
                bytes += next.block_bytes_plain();
                part.push(next);
            }
            let chunk = BackfillChunk::of_items(part, account);
            self.backfiller.counts.records.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            self.readers.iter().for_each(|reader| reader.inbox.push(&chunk));
        }
        self.end();
        true
    }
}
