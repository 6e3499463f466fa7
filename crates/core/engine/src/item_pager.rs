//! The item pager: keeps a bucket's memory between its watermarks.
//!
//! Owns: the position of its hand, and one bounded step of its work. It is a generalised CLOCK: the
//! hand goes round over the groups of every vbucket's table, lowers the frequency of each document
//! that it passes, and evicts those at zero. A new document begins at zero and a read raises its
//! frequency, so a popular document survives several rounds, one that was read once survives one,
//! and one that was never used none. There is no list to keep in order and nothing to lock on a
//! read. A cache also spares the documents that were written last ([`NewestDocuments`]).
//!
//! With the dense tier, cold values become dense first ([`crate::dense`]). Cold documents are
//! evicted once the hand has gone round since the run began, or when memory is nearly at the quota.
//!
//! Eviction begins when memory is above the high watermark and continues until it is at the low
//! one. When a whole round has met no document that can ever be evicted, writes get "no memory"
//! instead of "try again". Called by the pager's thread, and by fetchers before they read above the
//! quota.

mod compressor;

use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::policy::EvictionPolicy;
use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::core::Core;
use crate::dense::MemoryTier;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;
use crate::memory::MemoryStats;
use crate::newest_documents::{NewestDocuments, SpareLimit};
use crate::tasks::{StepClock, Task};
use crate::vbucket::{Densify, Sweep, SweepReport};

use compressor::DenseCompressor;

/// Groups under one hold of a table's lock: at most 224 documents, each a cache miss, so some
/// twenty microseconds.
const GROUPS_PER_SLICE: usize = 32;
/// Groups of one step: some milliseconds.
const GROUPS_PER_STEP: usize = 2048;
const _: () = assert!(GROUPS_PER_STEP.is_multiple_of(GROUPS_PER_SLICE));
const _: () = assert!(ROUNDS_STUCK <= ROUNDS_STUCK_CACHE);
/// Values that one step compresses: some milliseconds.
const COMPRESSIONS_PER_STEP: u64 = 1024;
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
}

#[derive(Default)]
struct State {
    hand: Hand,
    is_running: bool,
    /// Vbuckets that the hand has passed since it evicted something in this run, and since it met a
    /// candidate.
    vbuckets_since_eviction: usize,
    vbuckets_since_candidate: usize,
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
    /// Evicts some documents once memory is above the high watermark, until it is at the low one.
    pub(crate) fn step(&self, core: &Core, clock: StepClock<'_>) -> PagerReport {
        let memory = core.memory();
        let mut state = self.state.lock();
        let (used, low) = (memory.used_bytes(), memory.low_watermark_bytes());
        if memory.policy() == EvictionPolicy::None
            || used <= low
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
        core.tasks().run(Task::ItemPager, clock, || self.page(core, &mut state, clock(), low))
    }

    fn page(&self, core: &Core, state: &mut State, now: Timestamp, low: u64) -> PagerReport {
        let memory = core.memory();
        let vbuckets = core.vbuckets().len();
        let mut evicted = 0;
        let mut groups = 0;
        let attempts_before = state.dense.attempts();
        while state.is_running
            && groups < GROUPS_PER_STEP
            && state.dense.attempts() - attempts_before < COMPRESSIONS_PER_STEP
            && memory.used_bytes() > low
        {
            let (slice, is_passed) = sweep_slice(core, state, now);
            state.dense.train(core, now);
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
        PagerReport { evicted, more: state.is_running && memory.used_bytes() > low, is_stuck }
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

/// Sweeps the groups under the hand and moves it on; true when it has passed a vbucket's last
/// group.
fn sweep_slice(core: &Core, state: &mut State, now: Timestamp) -> (SweepReport, bool) {
    let vbuckets = core.vbuckets();
    let memory = core.memory();
    let is_on = memory.dense().tier() == MemoryTier::Dense;
    // A whole round has compressed the cold values, or compression is too slow for the writers.
    let may_evict = !is_on
        || state.evicts_at_once
        || state.vbuckets_of_run > vbuckets.len()
        || memory.used_bytes() > memory.backfill_threshold_bytes();
    let State { hand, newest, dense, .. } = state;
    let tier = memory.dense();
    let mut densified = |item: &ItemRef| dense.densified(tier, item);
    let densify: Option<&mut Densify<'_>> = if is_on { Some(&mut densified) } else { None };
    debug_assert!(hand.vbucket < vbuckets.len(), "the hand is at a vbucket");
    let vbucket = &vbuckets[hand.vbucket % vbuckets.len()];
    let policy = memory.policy();
    let sweep = Sweep { policy, groups: GROUPS_PER_SLICE, newest, densify, may_evict };
    let (report, is_passed) = vbucket.sweep(&core.context(now), sweep, &mut hand.cursor);
    if is_passed {
        hand.vbucket = (hand.vbucket + 1) % vbuckets.len();
    }
    (report, is_passed)
}
