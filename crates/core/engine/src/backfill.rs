//! Backfill: what streams read that has left memory, or was never in it.
//!
//! Owns: the queue of streams that wait, and one step of serving them. All streams that wait for
//! one vbucket share one scan of the store ([`scan`]): it copies each record once, into chunks that
//! every stream gets by reference ([`chunk`]), into an inbox with a bound ([`inbox`]). A scan reads
//! the vbucket at one moment, so its records are one snapshot. It waits for a slow stream while
//! that stream makes progress. It drops a stalled stream: the stream loses its unread records, and
//! requests another scan from its position when its reader continues. So a reader that stalls holds
//! no memory, no scan and no other reader. How long a scan waits ([`patience`]) depends on whether
//! others wait for it: streams of a reader that itself stalls do not count as such, because nothing
//! that they got would be read.
//!
//! Errors of the store: the streams of the scan ask again, and a stream that has failed
//! [`FAILURES_MAX`] times in a row ends. Above the backfill threshold of memory no scan begins.
//! Called by change streams; driven by threads of the bucket, and by tests. Several threads may
//! drive it: each serves another vbucket.

mod chunk;
mod inbox;
mod patience;
mod scan;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use oribi_storage::StoreError;
use oribi_types::{Seqno, Vbid};
use parking_lot::Mutex;

use crate::checkpoint::{StreamOwner, StreamWaker};
use crate::core::Core;
use crate::failure::StoreOperation;
use crate::flusher::Flushers;
use crate::memory::Memory;
use crate::reader_memory::ReaderMemory;
use crate::tasks::{StepClock, Task};

pub(crate) use chunk::BackfillChunk;
pub(crate) use inbox::{BackfillInbox, BackfillSnapshot, CollectionSet, InboxItem};
pub(crate) use patience::{BACKFILL_PAUSE, ScanPatience};

/// Failed scans in a row after which a stream ends.
pub(crate) const FAILURES_MAX: u32 = 5;
/// Bytes of records in one chunk, a single larger record aside.
const CHUNK_BYTES: u64 = 64 << 10;
/// Chunks that an inbox takes.
const INBOX_CHUNKS: u64 = 8;
const _: () = assert!(INBOX_CHUNKS > 0 && CHUNK_BYTES > 0);

/// Why a scan does not continue at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackfillPause {
    /// Pauses in a row in which no stream took anything. A pause ends early when the scan's thread
    /// is woken, so their number says nothing about time.
    pub idle: u32,
    /// Streams wait to be served, of an owner that does not itself hold up the scan.
    pub has_waiters: bool,
}

/// Waits a little; false: the scan drops the streams that hold it up.
pub type BackfillPace<'a> = &'a dyn Fn(BackfillPause) -> bool;

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackfillReport {
    /// Streams that were served.
    pub streams: usize,
    /// Streams that still wait.
    pub waiting: usize,
    /// Nothing can be served for now: memory is short, or the vbucket's last commit is in doubt.
    pub is_blocked: bool,
}

/// Figures of all backfills of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackfillStats {
    /// Streams that wait for a scan.
    pub waiting: u64,
    pub running: u64,
    /// Scans since the bucket was opened.
    pub scans: u64,
    /// Streams that they served; more than scans where streams shared one.
    pub streams: u64,
    /// Records that were copied, once for all streams of a scan.
    pub records: u64,
    /// Times that a scan dropped a stalled stream.
    pub left_behind: u64,
    /// Scans that the store failed.
    pub failures: u64,
    /// Bytes of changes that streams have not sent yet: records, and copies of queued items.
    pub held_bytes: u64,
}

/// Sizes that follow from the quota.
#[derive(Clone, Copy)]
struct Bounds {
    chunk_bytes: u64,
    inbox_bytes: u64,
    inboxes_bytes: u64,
}

impl Bounds {
    fn of(memory: &Memory) -> Bounds {
        let inboxes_bytes = memory.streams_bytes_max();
        let chunk_bytes = (inboxes_bytes / (2 * INBOX_CHUNKS)).clamp(1, CHUNK_BYTES);
        let inbox_bytes = chunk_bytes * INBOX_CHUNKS;
        debug_assert!(inbox_bytes <= inboxes_bytes.max(INBOX_CHUNKS), "an inbox is a part of all");
        Bounds { chunk_bytes, inbox_bytes, inboxes_bytes }
    }
}

/// A stream that waits for a scan.
struct Job {
    vbid: Vbid,
    incarnation: u64,
    start: Seqno,
    inbox: Arc<BackfillInbox>,
}

#[derive(Default)]
struct BackfillCounts {
    running: AtomicU64,
    scans: AtomicU64,
    streams: AtomicU64,
    records: AtomicU64,
    left_behind: AtomicU64,
    failures: AtomicU64,
}

/// The backfills of one bucket.
#[derive(Default)]
pub(crate) struct Backfiller {
    waiting: Mutex<VecDeque<Job>>,
    /// Inboxes whose scan is over, and which may not be read to their end.
    unread: Mutex<Vec<Weak<BackfillInbox>>>,
    /// Bytes in all inboxes; a chunk counts in each.
    in_inboxes: Arc<AtomicU64>,
    threads: Mutex<Vec<Thread>>,
    counts: BackfillCounts,
    /// The budget for large records; unset in processes without readers outside of the engine.
    reader_memory: OnceLock<Arc<dyn ReaderMemory>>,
}

impl Backfiller {
    /// From now on `thread` is woken when a stream waits.
    pub(crate) fn attach(&self, thread: Thread) {
        self.threads.lock().push(thread);
    }

    /// Scans ask this budget before they read a large record. The first call counts.
    pub(crate) fn set_reader_memory(&self, memory: Arc<dyn ReaderMemory>) {
        let _ = self.reader_memory.set(memory);
    }

    fn reader_memory(&self) -> Option<Arc<dyn ReaderMemory>> {
        self.reader_memory.get().cloned()
    }

    /// Queues a stream for the vbucket's changes after `start`.
    pub(crate) fn ask(
        &self,
        (vbid, incarnation): (Vbid, u64),
        start: Seqno,
        wanted: CollectionSet,
        waker: StreamWaker,
    ) -> Arc<BackfillInbox> {
        let inbox = Arc::new(BackfillInbox::new(wanted, waker, Arc::clone(&self.in_inboxes)));
        let job = Job { vbid, incarnation, start, inbox: Arc::clone(&inbox) };
        self.waiting.lock().push_back(job);
        self.threads.lock().iter().for_each(Thread::unpark);
        inbox
    }

    /// True when no stream waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Figures at this moment.
    pub(crate) fn stats(&self, memory: &Memory) -> BackfillStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BackfillStats {
            waiting: self.waiting.lock().len() as u64,
            running: count(&self.counts.running),
            scans: count(&self.counts.scans),
            streams: count(&self.counts.streams),
            records: count(&self.counts.records),
            left_behind: count(&self.counts.left_behind),
            failures: count(&self.counts.failures),
            held_bytes: memory.streams_bytes(),
        }
    }

    /// Serves all streams that wait for the next vbucket. Blocks for the store, and for slow
    /// readers as long as `pace` says.
    ///
    /// # Errors
    /// The store's; the streams ask again or end.
    pub(crate) fn step(
        &self,
        core: &Core,
        flushers: &Flushers,
        pace: BackfillPace<'_>,
        clock: StepClock<'_>,
    ) -> Result<BackfillReport, StoreError> {
        let memory = core.memory();
        let is_short = memory.used_bytes() > memory.backfill_threshold_bytes();
        if is_short || !self.free_memory(Bounds::of(memory), pace) {
            let waiting = self.waiting.lock().len();
            return Ok(BackfillReport { streams: 0, waiting, is_blocked: waiting > 0 });
        }
        let jobs = self.take_jobs();
        let streams = jobs.len();
        if streams == 0 {
            return Ok(BackfillReport::default());
        }
        self.counts.running.fetch_add(1, Ordering::Relaxed);
        let served =
            core.tasks().run(Task::Backfill, clock, || self.serve(core, flushers, pace, jobs));
        let running = self.counts.running.fetch_sub(1, Ordering::Relaxed);
        assert!(running > 0, "a step that ends has begun");
        let is_blocked = !served?;
        let waiting = self.waiting.lock().len();
        Ok(BackfillReport { streams: if is_blocked { 0 } else { streams }, waiting, is_blocked })
    }

    /// False when the vbucket cannot be scanned for now; its streams wait on.
    fn serve(
        &self,
        core: &Core,
        flushers: &Flushers,
        pace: BackfillPace<'_>,
        jobs: Vec<Job>,
    ) -> Result<bool, StoreError> {
        debug_assert!(!jobs.is_empty(), "a scan serves a stream");
        let served = self.scan(core, flushers, pace, &jobs);
        match &served {
            Ok(true) => {
                self.counts.scans.fetch_add(1, Ordering::Relaxed);
                self.counts.streams.fetch_add(jobs.len() as u64, Ordering::Relaxed);
                core.store_succeeded(StoreOperation::Read);
                let mut unread = self.unread.lock();
                unread.retain(|inbox| inbox.upgrade().is_some_and(|inbox| inbox.holds_any()));
                unread.extend(jobs.iter().map(|job| Arc::downgrade(&job.inbox)));
            }
            Ok(false) => self.waiting.lock().extend(jobs),
            Err(error) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                core.store_failed(StoreOperation::Read, error);
                jobs.iter().for_each(|job| job.inbox.fail());
            }
        }
        served
    }

    /// The stream that waits longest, and all others that wait for the same vbucket.
    fn take_jobs(&self) -> Vec<Job> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|job| !job.inbox.is_closed());
        let Some(first) = waiting.pop_front() else { return Vec::new() };
        let of_same =
            |job: &mut Job| job.vbid == first.vbid && job.incarnation == first.incarnation;
        let mut jobs: Vec<Job> = Vec::new();
        let mut others = VecDeque::with_capacity(waiting.len());
        for mut job in waiting.drain(..) {
            match of_same(&mut job) {
                true => jobs.push(job),
                false => others.push_back(job),
            }
        }
        *waiting = others;
        jobs.insert(0, first);
        debug_assert!(
            jobs.iter()
                .all(|job| (job.vbid, job.incarnation) == (jobs[0].vbid, jobs[0].incarnation)),
            "one scan is of one vbucket"
        );
        jobs
    }

    /// Waits until the inboxes have space for a scan. When no stream reads on, all lose what they
    /// have not read. False when the driver wants to do something else first.
    fn free_memory(&self, bounds: Bounds, pace: BackfillPace<'_>) -> bool {
        let held = || self.in_inboxes.load(Ordering::Relaxed);
        let (mut idle, mut before) = (0, held());
        while before >= bounds.inboxes_bytes {
            let has_waiters = idle > 0 && self.has_waiters(&self.owners_of_unread());
            if !pace(BackfillPause { idle, has_waiters }) {
                self.leave_all_behind();
                return held() < bounds.inboxes_bytes;
            }
            let now = held();
            idle = if now < before { 0 } else { idle + 1 };
            before = now;
        }
        true
    }

    /// True when a stream waits whose owner is none of these.
    fn has_waiters(&self, owners: &[StreamOwner]) -> bool {
        let waiting = self.waiting.lock();
        let is_other = |job: &Job| !owners.contains(&job.inbox.owner());
        waiting.iter().any(|job| is_other(job) && !job.inbox.is_closed())
    }

    fn owners_of_unread(&self) -> Vec<StreamOwner> {
        let unread = self.unread.lock();
        let unread = unread.iter().filter_map(Weak::upgrade).filter(|inbox| inbox.holds_any());
        let mut owners: Vec<StreamOwner> = unread.map(|inbox| inbox.owner()).collect();
        owners.sort_unstable();
        owners.dedup();
        debug_assert!(owners.is_sorted(), "owners are listed once");
        owners
    }

    /// Streams lose what they have not read of scans that are over, and ask again.
    pub(crate) fn leave_all_behind(&self) {
        let unread = std::mem::take(&mut *self.unread.lock());
        for inbox in unread.iter().filter_map(Weak::upgrade) {
            if inbox.leave_behind() {
                self.counts.left_behind.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
