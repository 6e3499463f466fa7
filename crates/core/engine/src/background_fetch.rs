//! The fetchers: read evicted documents that operations wait for, in batches and off the workers.
//!
//! Owns: the queue of fetches and one step of reading it. Several threads take steps, so that the
//! disk has several reads at a time. A fetch answers no request itself: it brings the document into
//! memory, and the operation runs again. A document that is in memory by then is not read.
//!
//! **Bytes read and not yet counted** are bounded. A step takes as many keys as are expected to
//! fill a MiB; once they do, the next step reads the rest. It evicts first when memory is above the
//! quota. A step defers a large document, which is read by its own step, of which one at a time is
//! at work in the whole process; small ones do not wait for it.
//!
//! The queue bounds the number of waiting operations; beyond it a step fails the rest, and their
//! clients retry. When the store is away, all waiters fail together, also those of other batches:
//! they have waited as long as the batch that found the failure. Fetching one document after the
//! other would wait once for each.

mod queue;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oribi_storage::{KvStore, LARGE_RECORD_BYTES, LookupResult, StoreError};
use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::MutexGuard;

use crate::core::Core;
use crate::failure::StoreOperation;
use crate::item::ItemRef;
use crate::item_pager::ItemPager;
use crate::large_read::LARGE_READ;
use crate::memory::MemoryStats;
use crate::record;
use crate::tasks::{StepClock, Task, elapsed_us};
use crate::vbucket::{FetchBegun, InstallOutcome};

use queue::{BATCH_BYTES, FetchBatch, FetchKey, FetchQueue, FetchWaiter, KeyOutcome};
pub use queue::{FetchOutcome, FetchSink};

/// Times that an overtaken record is read within a step.
const TRIES: usize = 4;
/// Pager steps that a step takes before it reads while memory is above the quota.
const PAGER_STEPS_MAX: usize = 16;
const _: () = assert!(TRIES > 1, "an overtaken record is read again");
const _: () = assert!(LARGE_RECORD_BYTES <= BATCH_BYTES, "a batch holds a small record");

/// How often a step that waits for its turn looks whether the bucket is about to stop.
const TURN_LOOK: Duration = Duration::from_millis(100);

/// The fetches of one bucket.
#[derive(Default)]
pub(crate) struct Fetcher {
    queue: FetchQueue,
    /// The store has been asked to end its waits.
    is_ending: AtomicBool,
}

/// Its holder may read a large document.
type Turn = MutexGuard<'static, ()>;

/// The bucket is about to stop.
struct Ending;

/// How much of a batch the store answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// All of it; single documents may be damaged.
    All,
    /// A part of the store is away.
    Some,
    /// The store is away.
    None,
}

/// A key of a batch that memory lacks, and the record that was read.
struct Reading {
    /// Index in the batch.
    at: usize,
    begun: FetchBegun,
    read: Read,
}

/// Result of reading a key.
enum Read {
    /// Nothing yet: others have filled the batch.
    NotYet,
    /// It is large, so it was not read.
    Large,
    /// The store failed to give it.
    Failed,
    /// The store's version, or none.
    Done(Option<ItemRef>),
}

impl Read {
    fn is_done(&self) -> bool {
        matches!(self, Read::Done(_))
    }
}

impl Fetcher {
    /// Sets the number of threads that take steps.
    pub(crate) fn share_among(&self, threads: usize) {
        self.queue.share_among(threads);
    }

    /// Sleeps until there may be a step to take. The thread that sets `stop` wakes it after that.
    pub(crate) fn sleep(&self, stop: &AtomicBool) {
        self.queue.sleep(stop);
    }

    /// True when there is nothing for another step to read.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// Queues a fetch of the store's version of `key`. `sink` is called once with
    /// `token`, from another thread, possibly before this returns.
    pub(crate) fn ask(&self, vbid: Vbid, key: DocKey<'_>, sink: &Arc<dyn FetchSink>, token: u64) {
        self.queue.ask(FetchKey::new(vbid, key), FetchWaiter::new(sink, token));
    }

    /// The bucket is about to stop: reads end at once, and writes wait only a little longer for an
    /// absent store.
    pub(crate) fn end_waits(&self, core: &Core) {
        self.is_ending.store(true, Ordering::Release);
        if let Some(store) = core.store().shared() {
            store.end_waits();
        }
    }

    /// True after [`Fetcher::end_waits`]: a failed read is expected then, and not logged.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Fails all waiters because the bucket closes, and from now on every new one.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Fills in the figures of fetches.
    pub(crate) fn add_stats(&self, stats: &mut MemoryStats) {
        self.queue.add_stats(stats);
    }

    /// Reads a batch of fetches and notifies their waiters; reads a further batch when all its
    /// documents are large and deferred. Returns the number of notified waiters: 0 when the queue
    /// is empty. `pager` makes space for the batch.
    pub(crate) fn step(&self, core: &Core, pager: &ItemPager, clock: StepClock<'_>) -> usize {
        loop {
            let (batch, turned_away) = self.queue.take();
            debug_assert!(
                !batch.is_large || batch.wanted.len() == 1,
                "a large document is read by itself"
            );
            if batch.wanted.is_empty() {
                return turned_away;
            }
            // Another step takes the rest of the queue, also while this one makes space.
            let told = core.tasks().run(Task::Fetcher, clock, || {
                free_memory(core, pager, clock);
                self.fetch_batch(core, batch, clock)
            });
            if turned_away + told > 0 {
                return turned_away + told;
            }
        }
    }

    fn fetch_batch(&self, core: &Core, batch: FetchBatch, clock: StepClock<'_>) -> usize {
        let mut is_away = false;
        let findings = match self.turn_of(&batch) {
            Ok(turn) => {
                let begun = clock();
                let findings = self.bring_in(core, &batch, turn, &mut is_away);
                let over = findings.iter().filter(|finding| matches!(finding, KeyOutcome::Over(_)));
                core.timings().fetched(over.count(), elapsed_us(begun, clock()));
                findings
            }
            Err(Ending) => vec![KeyOutcome::Over(FetchOutcome::Failed); batch.wanted.len()],
        };
        assert_eq!(findings.len(), batch.wanted.len(), "a finding for each key");
        let mut told = self.queue.finish(batch, &findings);
        if is_away {
            told += self.queue.give_up();
        }
        told
    }

    /// Waits for the turn that a large document needs.
    fn turn_of(&self, batch: &FetchBatch) -> Result<Option<Turn>, Ending> {
        if !batch.is_large {
            return Ok(None);
        }
        loop {
            if let Some(turn) = LARGE_READ.try_lock_for(TURN_LOOK) {
                return Ok(Some(turn));
            }
            if self.is_ending() {
                return Err(Ending);
            }
        }
    }

    /// Reads and installs until no record was overtaken, or the store is away.
    fn bring_in(
        &self,
        core: &Core,
        batch: &FetchBatch,
        turn: Option<Turn>,
        is_away: &mut bool,
    ) -> Vec<KeyOutcome> {
        let wanted = &batch.wanted;
        let mut findings = vec![KeyOutcome::Over(FetchOutcome::Ready); wanted.len()];
        let mut left: Vec<usize> = (0..wanted.len()).collect();
        let failed = KeyOutcome::Over(FetchOutcome::Failed);
        for _ in 0..TRIES {
            debug_assert!(left.len() <= wanted.len(), "a key is read once in a try");
            let context = core.context(Timestamp::default());
            let mut readings: Vec<Reading> = Vec::with_capacity(left.len());
            for at in left.drain(..) {
                let Some(vbucket) = core.vbucket(wanted[at].vbid) else { continue };
                if let Some(begun) = vbucket.begin_fetch(wanted[at].key()) {
                    readings.push(Reading { at, begun, read: Read::NotYet });
                }
            }
            if readings.is_empty() {
                break;
            }
            let record_bytes_max = if turn.is_some() { usize::MAX } else { LARGE_RECORD_BYTES };
            let answers = self.read(core, wanted, record_bytes_max, &mut readings);
            *is_away = answers == Answers::None;
            debug_assert!(
                readings.iter().all(|reading| reading.at < wanted.len()),
                "a reading is of a key"
            );
            for Reading { at, begun, read } in readings {
                let installed = match (core.vbucket(wanted[at].vbid), read) {
                    (Some(vbucket), Read::Done(read)) => {
                        vbucket.install(&context, wanted[at].key(), begun, read)
                    }
                    (_, Read::NotYet) => {
                        findings[at] = KeyOutcome::Unread;
                        continue;
                    }
                    (_, Read::Large) => {
                        findings[at] = KeyOutcome::Large;
                        continue;
                    }
                    (_, Read::Failed) | (None, Read::Done(_)) => {
                        findings[at] = failed;
                        continue;
                    }
                };
                match installed {
                    InstallOutcome::Done => {}
                    // The store is away; there is no second read.
                    InstallOutcome::Overtaken if answers != Answers::All => findings[at] = failed,
                    InstallOutcome::Overtaken => left.push(at),
                    InstallOutcome::Differs => {
                        let (bucket, vbid) = (core.name(), wanted[at].vbid);
                        tracing::error!(bucket, %vbid, "the store lacks the evicted version of a document");
                        findings[at] = failed;
                    }
                }
            }
        }
        // A record that is overtaken again and again may be in memory by now; if not, the operation
        // asks once more.
        assert_eq!(findings.len(), wanted.len(), "a finding for each key");
        drop(turn);
        findings
    }

    /// Reads the batch, until it is full.
    fn read(
        &self,
        core: &Core,
        wanted: &[FetchKey],
        record_bytes_max: usize,
        readings: &mut [Reading],
    ) -> Answers {
        let keys: Vec<(Vbid, DocKey<'_>)> = readings
            .iter()
            .map(|reading| (wanted[reading.at].vbid, wanted[reading.at].key()))
            .collect();
        assert_eq!(keys.len(), readings.len(), "a reading for each key");
        let mut bytes = 0;
        let result = core.store().get_many(&keys, record_bytes_max, &mut |index, answer| {
            debug_assert!(index < readings.len(), "an answer is to a key");
            readings[index].read = read_of(answer, &mut bytes);
            match bytes < BATCH_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        let is_away = matches!(result, Err(StoreError::Away(_)));
        let failed = match result {
            Ok(()) => None,
            Err(error @ StoreError::Away(_)) => Some(error).filter(|_| !self.is_ending()),
            Err(error) => {
                tracing::error!(bucket = core.name(), %error, "a batch of evicted documents could not be read; reading them one by one");
                read_one_by_one(core.store(), &keys, record_bytes_max, readings, &mut bytes)
            }
        };
        match failed {
            Some(error) => core.store_failed(StoreOperation::Read, &error),
            None => _ = core.store_succeeded(StoreOperation::Read),
        }
        let read = readings.iter().filter(|reading| reading.read.is_done()).count();
        let answered = readings
            .iter()
            .filter(|reading| matches!(reading.read, Read::Done(_) | Read::Large))
            .count();
        debug_assert!(read <= answered, "a record that was read is an answer");
        if record_bytes_max == LARGE_RECORD_BYTES {
            self.queue.adapt(read, bytes);
        }
        if !is_away {
            return Answers::All;
        }
        for reading in readings.iter_mut().filter(|reading| matches!(reading.read, Read::NotYet)) {
            reading.read = Read::Failed;
        }
        if answered > 0 { Answers::Some } else { Answers::None }
    }
}

/// Evicts while memory is above the quota, because the batch adds to it.
fn free_memory(core: &Core, pager: &ItemPager, clock: StepClock<'_>) {
    for _ in 0..PAGER_STEPS_MAX {
        if core.memory().used_bytes() <= core.memory().document_quota_bytes() {
            return;
        }
        let report = pager.step(core, clock);
        if !report.more || report.is_stuck {
            return;
        }
    }
}

/// Takes an answer of the store, and adds to the bytes that were read.
fn read_of(answer: LookupResult<'_>, bytes: &mut usize) -> Read {
    match answer {
        LookupResult::Absent => Read::Done(None),
        LookupResult::Large => Read::Large,
        LookupResult::Record(record) => {
            *bytes += record.value.len();
            Read::Done(Some(record::to_item(&record)))
        }
    }
}

/// Reads the rest of a batch one by one, until it is full, so that a damaged document hides no
/// other; the last error.
fn read_one_by_one(
    store: &dyn KvStore,
    keys: &[(Vbid, DocKey<'_>)],
    record_bytes_max: usize,
    readings: &mut [Reading],
    bytes: &mut usize,
) -> Option<StoreError> {
    debug_assert_eq!(keys.len(), readings.len(), "a reading for each key");
    let mut failed = None;
    for (reading, (vbid, key)) in readings.iter_mut().zip(keys) {
        if *bytes >= BATCH_BYTES {
            break;
        }
        if !matches!(reading.read, Read::NotYet) {
            continue;
        }
        let mut read = Read::Failed;
        let result = store.get_many(&[(*vbid, *key)], record_bytes_max, &mut |_, answer| {
            read = read_of(answer, bytes);
            ControlFlow::Continue(())
        });
        reading.read = read;
        failed = result.err().or(failed);
    }
    failed
}
