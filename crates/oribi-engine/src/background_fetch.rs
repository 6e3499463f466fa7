//! The fetcher: reads evicted documents that operations wait for, in batches and off the workers.
//!
//! Owns: the queue of fetches and one step of reading it. A fetch answers no request itself: it
//! brings the document into memory, and the operation runs again. A document that is in memory by
//! then is not read.
//!
//! A step takes as many keys as their values are expected to fill a few MiB, and leaves the rest to
//! the next step when they have, so that little is read and not yet counted. It evicts first when
//! memory is above the quota. The queue bounds the number
//! of waiting operations; beyond it a step fails the rest, which tells clients to come again. When
//! the store is away, all waiters give up together: they have waited along with the batch that
//! found it out. Asking for one document after the other would take as many times as long.

mod queue;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use oribi_storage::{KvStore, Record, StoreError};
use oribi_types::{DocKey, Timestamp, Vbid};

use crate::core::Core;
use crate::failure::StoreOperation;
use crate::item::ItemRef;
use crate::item_pager::ItemPager;
use crate::memory::MemoryStats;
use crate::record;
use crate::tasks::{StepClock, Task, elapsed_us};
use crate::vbucket::{FetchBegun, Installed};

use queue::{BATCH_BYTES, Batch, FetchQueue, Waiter, Wanted};
pub use queue::{FetchOutcome, FetchSink};

/// Times that an overtaken record is read within a step.
const TRIES: usize = 4;
/// Pager steps that a step takes before it reads while memory is above the quota.
const PAGER_STEPS_MAX: usize = 16;

/// The fetcher of one bucket.
#[derive(Default)]
pub(crate) struct Fetcher {
    queue: FetchQueue,
    /// The store was told to end its waits.
    is_ending: AtomicBool,
}

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

/// What became of a key.
enum Read {
    /// Nothing yet: others have filled the batch.
    NotYet,
    /// The store failed to give it.
    Failed,
    /// What the store has, or that it has nothing.
    Done(Option<ItemRef>),
}

impl Read {
    fn is_done(&self) -> bool {
        matches!(self, Read::Done(_))
    }
}

impl Fetcher {
    /// From now on `thread` is woken when there is something to read.
    pub(crate) fn attach(&self, thread: Thread) {
        self.queue.attach(thread);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a fetch of the store's version of `key`. `sink` is called once with
    /// `token`, from another thread, possibly before this returns.
    pub(crate) fn ask(&self, vbid: Vbid, key: DocKey<'_>, sink: &Arc<dyn FetchSink>, token: u64) {
        self.queue.ask(Wanted::new(vbid, key), Waiter::new(sink, token));
    }

    /// The bucket is about to stop: reads end at once, and writes wait only a little longer for an
    /// absent store.
    pub(crate) fn end_waits(&self, core: &Core) {
        self.is_ending.store(true, Ordering::Release);
        core.store().end_waits();
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

    /// Reads a batch of fetches and tells their waiters. Returns how many it told. `pager` makes
    /// room for the batch.
    pub(crate) fn step(&self, core: &Core, pager: &ItemPager, clock: StepClock<'_>) -> usize {
        if self.is_empty() {
            return 0;
        }
        core.tasks().run(Task::Fetcher, clock, || {
            make_room(core, pager, clock);
            self.fetch_batch(core, clock)
        })
    }

    fn fetch_batch(&self, core: &Core, clock: StepClock<'_>) -> usize {
        let Batch { wanted: batch, turned_away } = self.queue.take();
        let begun = clock();
        let wanted: Vec<&Wanted> = batch.iter().map(|(wanted, _)| wanted).collect();
        let mut is_away = false;
        let outcomes = self.bring_in(core, &wanted, &mut is_away);
        core.timings().fetched(batch.len(), elapsed_us(begun, clock()));
        let mut told = turned_away.len();
        let mut failed = turned_away.len();
        turned_away.into_iter().for_each(|waiter| waiter.tell(FetchOutcome::Failed));
        let mut unread = Vec::new();
        for ((wanted, waiters), outcome) in batch.into_iter().zip(outcomes) {
            let Some(outcome) = outcome else {
                unread.push((wanted, waiters));
                continue;
            };
            told += waiters.len();
            failed += if outcome == FetchOutcome::Failed { waiters.len() } else { 0 };
            waiters.into_iter().for_each(|waiter| waiter.tell(outcome));
        }
        if !unread.is_empty() {
            self.queue.put_back(unread);
        }
        if is_away {
            let given_up = self.queue.give_up();
            (told, failed) = (told + given_up, failed + given_up);
        }
        self.queue.count_failed(failed);
        told
    }

    /// Reads and installs until no record was overtaken, or the store is away. `None` is of what is
    /// left to the next step.
    fn bring_in(
        &self,
        core: &Core,
        batch: &[&Wanted],
        is_away: &mut bool,
    ) -> Vec<Option<FetchOutcome>> {
        let mut outcomes = vec![Some(FetchOutcome::Ready); batch.len()];
        let mut left: Vec<usize> = (0..batch.len()).collect();
        for _ in 0..TRIES {
            let context = core.context(Timestamp::default());
            let mut readings: Vec<Reading> = Vec::with_capacity(left.len());
            for at in left.drain(..) {
                let Some(vbucket) = core.vbucket(batch[at].vbid) else { continue };
                if let Some(begun) = vbucket.begin_fetch(batch[at].key()) {
                    readings.push(Reading { at, begun, read: Read::NotYet });
                }
            }
            if readings.is_empty() {
                return outcomes;
            }
            let answers = self.read(core, batch, &mut readings);
            *is_away = answers == Answers::None;
            for Reading { at, begun, read } in readings {
                if matches!(read, Read::NotYet) {
                    outcomes[at] = None;
                    continue;
                }
                let (Some(vbucket), Read::Done(read)) = (core.vbucket(batch[at].vbid), read) else {
                    outcomes[at] = Some(FetchOutcome::Failed);
                    continue;
                };
                match vbucket.install(&context, batch[at].key(), begun, read) {
                    Installed::Done => {}
                    // The store is away; there is no second read.
                    Installed::Overtaken if answers != Answers::All => {
                        outcomes[at] = Some(FetchOutcome::Failed);
                    }
                    Installed::Overtaken => left.push(at),
                    Installed::Differs => {
                        let (bucket, vbid) = (core.name(), batch[at].vbid);
                        tracing::error!(bucket, %vbid, "the store lacks the evicted version of a document");
                        outcomes[at] = Some(FetchOutcome::Failed);
                    }
                }
            }
        }
        // A record that is overtaken again and again may be in memory by now; if not, the operation
        // asks once more.
        outcomes
    }

    /// Reads the batch, until it is full.
    fn read(&self, core: &Core, batch: &[&Wanted], readings: &mut [Reading]) -> Answers {
        let keys: Vec<(Vbid, DocKey<'_>)> = readings
            .iter()
            .map(|reading| (batch[reading.at].vbid, batch[reading.at].key()))
            .collect();
        let mut bytes = 0;
        let result = core.store().get_many(&keys, &mut |index, record| {
            bytes += record.map_or(0, |record| record.value.len());
            readings[index].read = Read::Done(record.map(|record| record::to_item(&record)));
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
                read_one_by_one(core.store(), &keys, readings, &mut bytes)
            }
        };
        match failed {
            Some(error) => core.store_failed(StoreOperation::Read, &error),
            None => _ = core.store_succeeded(StoreOperation::Read),
        }
        let read = readings.iter().filter(|reading| reading.read.is_done()).count();
        self.queue.adapt(read, bytes);
        if !is_away {
            return Answers::All;
        }
        for reading in readings.iter_mut().filter(|reading| !reading.read.is_done()) {
            reading.read = Read::Failed;
        }
        if read > 0 { Answers::Some } else { Answers::None }
    }
}

/// Evicts while memory is above the quota, because the batch adds to it.
fn make_room(core: &Core, pager: &ItemPager, clock: StepClock<'_>) {
    for _ in 0..PAGER_STEPS_MAX {
        if core.memory().used_bytes() <= core.memory().room_bytes() {
            return;
        }
        let report = pager.step(core, clock);
        if !report.more || report.is_stuck {
            return;
        }
    }
}

/// Reads the rest of a batch one by one, until it is full, so that a damaged document hides no
/// other; the last error.
fn read_one_by_one(
    store: &dyn KvStore,
    keys: &[(Vbid, DocKey<'_>)],
    readings: &mut [Reading],
    bytes: &mut usize,
) -> Option<StoreError> {
    let mut failed = None;
    for (reading, (vbid, key)) in readings.iter_mut().zip(keys) {
        if *bytes >= BATCH_BYTES {
            break;
        }
        if reading.read.is_done() {
            continue;
        }
        let mut found = None;
        let visit = &mut |record: Record<'_>| {
            *bytes += record.value.len();
            found = Some(record::to_item(&record));
        };
        match store.get(*vbid, *key, visit) {
            Ok(_) => reading.read = Read::Done(found),
            Err(error) => {
                reading.read = Read::Failed;
                failed = Some(error);
            }
        }
    }
    failed
}
