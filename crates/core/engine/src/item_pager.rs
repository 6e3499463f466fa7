//! The item pager: keeps a bucket's memory between its watermarks.
//!
//! Owns: the position of its hand, and one bounded step of its work. It is a generalised CLOCK: the
//! hand goes round over the groups of every vbucket's table, lowers the frequency of each document
//! that it passes, and evicts those at zero. A new document begins at zero and a read raises its
//! frequency, so a popular document survives several rounds, one that was read once survives one,
//! and one that was never used none. There is no list to keep in order and nothing to lock on a
//! read. A cache also spares the documents that were written last ([`NewestDocuments`]).
//!
//! With the dense tier, values that are not hot become dense first ([`crate::dense`]): to inflate
//! one that is used now and then costs less than to fetch an evicted one. Cold documents are
//! evicted once the hand has gone round since the run began. When memory is nearly at the quota,
//! compression is too slow for the writers, and the pager only evicts, values of open prepares
//! first. A bucket that evicts nothing only compresses.
//!
//! A run begins when memory is above the high watermark and continues until it is at the low one,
//! or with the dense tier close to the high one ([`Memory::pager_target_bytes`]).
//! When a whole round has met no document that can ever be evicted or become dense, writes get "no
//! memory" instead of "try again". Called by the pager's thread, by fetchers before they read above
//! the quota, and by loaders ([`ItemPager::compress`]).

mod compressor;

use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::policy::EvictionPolicy;
use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::core::Core;
use crate::dense::MemoryTier;
use crate::hash_table::ScanCursor;
use crate::memory::{Memory, MemoryStats};
use crate::newest_documents::{NewestDocuments, SpareLimit};
use crate::tasks::{StepClock, Task};
use crate::vbucket::{Sweep, SweepReport};

use compressor::{DenseCompressor, DensePass, HandMoment};

/// Groups under one hold of a table's lock: at most 224 documents, each a cache miss, so some
/// twenty microseconds.
const GROUPS_PER_SLICE: usize = 32;
/// Groups of one step: some milliseconds.
const GROUPS_PER_STEP: usize = 2048;
const _: () = assert!(GROUPS_PER_STEP.is_multiple_of(GROUPS_PER_SLICE));
const _: () = assert!(ROUNDS_STUCK <= ROUNDS_STUCK_CACHE);
/// Values that one step compresses: some milliseconds.
const COMPRESSIONS_PER_STEP: u64 = 1024;
/// A stuck pager sweeps a slice at a time, until memory has grown by this part of the quota.
const GROWN_PART: u64 = 128;
/// Rounds without an eviction after which the pager is stuck. A frequency is gone after as many
/// rounds as it has steps.
const ROUNDS_STUCK: usize = 8;
/// In a cache, the share of spared documents has to shrink first.
const ROUNDS_STUCK_CACHE: usize = 20;

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagerReport {
    /// Values, or whole documents, that left memory.
    pub evicted: u64,
    /// True when another step is due at once.
    pub more: bool,
    /// A whole round over the bucket evicted nothing: all documents are in use or not durable yet.
    pub is_stuck: bool,
}

/// A place in the tables of all vbuckets.
#[derive(Default)]
struct Hand {
    vbucket: usize,
    cursor: ScanCursor,
    /// Vbuckets that it has passed since the bucket was opened.
    passed: u64,
}

impl Hand {
    fn moment(&self, now: Timestamp) -> HandMoment {
        HandMoment { now, vbuckets_passed: self.passed }
    }
}

#[derive(Default)]
struct State {
    hand: Hand,
    is_running: bool,
    /// Vbuckets that the hand has passed since it evicted something in this run, and since it met a
    /// candidate.
    vbuckets_since_eviction: usize,
    vbuckets_since_candidate: usize,
    /// Memory in use when a whole round met no candidate.
    stuck_at_bytes: Option<u64>,
    /// Vbuckets that the hand has passed in this run.
    vbuckets_of_run: usize,
    /// Values made dense in this run; none before the first.
    densified_of_run: Option<u64>,
    /// The run before made nothing dense, so this one need not wait for a round of it.
    evicts_at_once: bool,
    /// Candidates since the hand was at the first vbucket.
    candidates_of_round: u64,
    newest: NewestDocuments,
    dense: DenseCompressor,
}

impl State {
    /// Counts what the hand has met in one slice.
    fn count(&mut self, slice: SweepReport, is_passed: bool) {
        debug_assert!(slice.evicted <= slice.candidates, "an evicted document was a candidate");
        debug_assert!(slice.densified <= slice.candidates, "a dense document was a candidate");
        if slice.evicted + slice.densified > 0 {
            self.vbuckets_since_eviction = 0;
        }
        if slice.candidates > 0 {
            self.vbuckets_since_candidate = 0;
        }
        self.densified_of_run = self.densified_of_run.map(|before| before + slice.densified);
        if is_passed {
            self.vbuckets_since_eviction += 1;
            self.vbuckets_since_candidate += 1;
            self.vbuckets_of_run += 1;
        }
    }

    /// Documents written since the pager was stuck may be candidates.
    fn look_again(&mut self, memory: &Memory) {
        let grown = memory.quota_bytes() / GROWN_PART;
        if self.stuck_at_bytes.is_some_and(|bytes| memory.used_bytes() > bytes + grown) {
            self.stuck_at_bytes = None;
            (self.vbuckets_since_candidate, self.vbuckets_since_eviction) = (0, 0);
        }
    }

    /// Decides which documents of a cache are spared from now on. The run ends when only the newest
    /// is left and fits the quota.
    fn spare_newest(&mut self, core: &Core, slice: SweepReport, is_passed: bool) {
        self.candidates_of_round += slice.candidates;
        let vbuckets = core.vbuckets().len();
        let is_over_quota = core.memory().used_bytes() > core.memory().document_quota_bytes();
        let is_round_complete = is_passed && self.hand.vbucket == 0;
        if self.newest.is_window_complete() || is_round_complete {
            // By now no older document is left that is unused.
            let is_at_newest = self.vbuckets_since_eviction > ROUNDS_STUCK * vbuckets;
            // The limit of the first round is an old one.
            let rounds = (self.vbuckets_of_run / vbuckets).saturating_sub(1) as u32;
            self.newest.move_limit(match is_at_newest && is_over_quota {
                true => SpareLimit::None,
                false => SpareLimit::AfterRounds(rounds),
            });
        }
        if is_round_complete {
            let candidates = std::mem::take(&mut self.candidates_of_round);
            self.is_running = candidates > 1 || is_over_quota;
        }
    }
}

/// The item pager of one bucket.
#[derive(Default)]
pub(crate) struct ItemPager {
    state: Mutex<State>,
    /// Counts since the bucket was opened.
    evictions: AtomicU64,
    nru_deletions: AtomicU64,
    runs: AtomicU64,
}

impl ItemPager {
    /// Evicts some documents, or makes them dense, once memory is above the high watermark.
    pub(crate) fn step(&self, core: &Core, clock: StepClock<'_>) -> PagerReport {
        let memory = core.memory();
        let mut state = self.state.lock();
        if memory.is_nearly_full() {
            // Under every policy: a copy that is full of prepares could not take their commits.
            let context = core.context(clock());
            core.vbuckets().iter().for_each(|vbucket| _ = vbucket.evict_prepares(&context));
        }
        let (used, target) = (memory.used_bytes(), memory.pager_target_bytes());
        if !memory.can_shrink()
            || used <= target
            || !state.is_running && used <= memory.high_watermark_bytes()
        {
            state.is_running = false;
            state.dense.review(core, clock());
            return PagerReport::default();
        }
        if !state.is_running {
            state.is_running = true;
            state.vbuckets_of_run = 0;
            state.evicts_at_once = state.densified_of_run.replace(0) == Some(0);
            state.vbuckets_since_eviction = 0;
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
        core.tasks().run(Task::ItemPager, clock, || self.page(core, &mut state, clock(), target))
    }

    fn page(&self, core: &Core, state: &mut State, now: Timestamp, target: u64) -> PagerReport {
        let memory = core.memory();
        state.look_again(memory);
        let vbuckets = core.vbuckets().len();
        let mut evicted = 0;
        let mut groups = 0;
        let attempts_before = state.dense.attempts();
        while state.is_running
            && groups < GROUPS_PER_STEP
            && state.dense.attempts() - attempts_before < COMPRESSIONS_PER_STEP
            && memory.used_bytes() > target
        {
            let (slice, is_passed) = sweep_slice(core, state, now, SliceWork::of(memory, state));
            state.dense.train(core, state.hand.moment(now));
            groups += GROUPS_PER_SLICE;
            evicted += slice.evicted;
            state.count(slice, is_passed);
            if slice.candidates > 0 {
                memory.set_nothing_to_evict(false);
            }
            if memory.policy() == EvictionPolicy::Nru {
                state.spare_newest(core, slice, is_passed);
            }
            if state.vbuckets_since_candidate > vbuckets {
                memory.set_nothing_to_evict(true);
                state.stuck_at_bytes.get_or_insert(memory.used_bytes());
                break;
            }
        }
        debug_assert!(groups <= GROUPS_PER_STEP, "a step is bounded");
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
        let is_cache = memory.policy() == EvictionPolicy::Nru;
        if is_cache {
            self.nru_deletions.fetch_add(evicted, Ordering::Relaxed);
        }
        let rounds = if is_cache { ROUNDS_STUCK_CACHE } else { ROUNDS_STUCK };
        let is_stuck = state.vbuckets_since_eviction > rounds * vbuckets
            || state.vbuckets_since_candidate > vbuckets;
        PagerReport { evicted, more: state.is_running && memory.used_bytes() > target, is_stuck }
    }

    /// Makes values dense until memory is below the pager's target; false when all that can be are
    /// dense, or the tier is off. It is how a loader makes place for values.
    pub(crate) fn compress(&self, core: &Core, now: Timestamp) -> bool {
        let memory = core.memory();
        if memory.dense().tier() == MemoryTier::Off {
            return false;
        }
        let mut state = self.state.lock();
        let work = SliceWork { compresses: true, may_evict: false };
        assert!(memory.can_shrink(), "a bucket with the tier can compress");
        // The hand may be in the middle of a vbucket, and a training comes after the first slice.
        let end = state.hand.passed + 2 * core.vbuckets().len() as u64 + 1;
        while memory.used_bytes() >= memory.pager_target_bytes() {
            if state.hand.passed >= end {
                return false;
            }
            sweep_slice(core, &mut state, now, work);
            let moment = state.hand.moment(now);
            state.dense.train(core, moment);
        }
        true
    }

    /// Makes a collection dense with a dictionary that a simulation has trained.
    #[cfg(test)]
    pub(crate) fn adopt(
        &self,
        core: &Core,
        collection: oribi_types::CollectionId,
        trained: &mut [u8],
        now: Timestamp,
    ) {
        let mut state = self.state.lock();
        let moment = state.hand.moment(now);
        state.dense.adopt(core, collection, trained, moment);
    }

    /// Values that were compressed, with or without success.
    #[cfg(test)]
    pub(crate) fn compression_attempts(&self) -> u64 {
        self.state.lock().dense.attempts()
    }

    /// Evicts one document by the bucket's policy, however popular it is. False when there is none,
    /// when it is not durable yet, or when an operation holds it.
    pub(crate) fn evict(&self, core: &Core, vbid: Vbid, key: DocKey<'_>) -> bool {
        let Some(vbucket) = core.vbucket(vbid) else { return false };
        let is_gone = vbucket.evict(&core.context(Timestamp::default()), key);
        self.evictions.fetch_add(u64::from(is_gone), Ordering::Relaxed);
        is_gone
    }

    /// Fills in the figures of evictions.
    pub(crate) fn add_stats(&self, stats: &mut MemoryStats) {
        stats.evictions = self.evictions.load(Ordering::Relaxed);
        stats.nru_deletions = self.nru_deletions.load(Ordering::Relaxed);
        stats.pager_runs = self.runs.load(Ordering::Relaxed);
    }
}

/// What a slice does with cold documents.
#[derive(Clone, Copy)]
struct SliceWork {
    compresses: bool,
    may_evict: bool,
}

impl SliceWork {
    fn of(memory: &Memory, state: &State) -> SliceWork {
        let is_on = memory.dense().tier() == MemoryTier::Dense;
        let evicts = memory.policy() != EvictionPolicy::None;
        let is_urgent = evicts && memory.is_nearly_full();
        let is_round_complete =
            state.evicts_at_once || state.vbuckets_of_run > memory.vbuckets() as usize;
        SliceWork {
            compresses: is_on && !is_urgent,
            may_evict: evicts && (!is_on || is_urgent || is_round_complete),
        }
    }
}

/// Sweeps the groups under the hand and moves it on; true when it has passed a vbucket's last
/// group.
fn sweep_slice(
    core: &Core,
    state: &mut State,
    now: Timestamp,
    work: SliceWork,
) -> (SweepReport, bool) {
    let (vbuckets, memory) = (core.vbuckets(), core.memory());
    let State { hand, newest, dense: compressor, .. } = state;
    debug_assert!(hand.vbucket < vbuckets.len(), "the hand is at a vbucket");
    let vbucket = &vbuckets[hand.vbucket % vbuckets.len()];
    let mut pass = DensePass { compressor, tier: memory.dense(), moment: hand.moment(now) };
    let sweep = Sweep {
        policy: memory.policy(),
        groups: GROUPS_PER_SLICE,
        newest,
        dense: if work.compresses { Some(&mut pass) } else { None },
        may_evict: work.may_evict,
    };
    let (report, is_passed) = vbucket.sweep(&core.context(now), sweep, &mut hand.cursor);
    if is_passed {
        hand.vbucket = (hand.vbucket + 1) % vbuckets.len();
        hand.passed += 1;
        assert!(hand.vbucket < vbuckets.len(), "the hand is at a vbucket");
    }
    if is_passed && hand.vbucket == 0 {
        state.dense.retire(memory.dense());
    }
    (report, is_passed)
}

#[cfg(test)]
mod tests;
