//! The item pager: keeps a bucket's memory between its watermarks.
//!
//! Owns: the position of its hand, and one bounded step of its work. It is a generalised CLOCK: the
//! hand goes round over the groups of every vbucket's table, lowers the frequency of each document
//! that it passes, and evicts those at zero. A new document begins at zero and a read raises its
//! frequency, so a popular document survives several rounds, one that was read once survives one,
//! and one that was never used none. There is no list to keep in order and nothing to lock on a
//! read.
//!
//! Eviction begins when memory is above the high watermark and goes on until it is at the low one.
//! When a whole round has met no document that can ever be evicted, writes get "no memory" instead
//! of "try again". Called by the pager's thread, and by fetchers before they read above the
//! quota.

use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::config::EvictionPolicy;
use crate::core::Core;
use crate::hash_table::ScanCursor;
use crate::memory::MemoryStats;
use crate::tasks::{StepClock, Task};
use crate::vbucket::SweepReport;

/// Groups under one hold of a table's lock: at most 224 documents, each a cache miss, so some
/// twenty microseconds.
const GROUPS_PER_SLICE: usize = 32;
/// Groups of one step: some milliseconds.
const GROUPS_PER_STEP: usize = 2048;

/// What one step did.
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
    /// Vbuckets that the hand has passed since it evicted something, and since it met a candidate.
    vbuckets_since_eviction: usize,
    vbuckets_since_candidate: usize,
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
            return PagerReport::default();
        }
        if !state.is_running {
            state.is_running = true;
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
        core.tasks().run(Task::ItemPager, clock, || self.page(core, &mut state, clock(), low))
    }

    fn page(&self, core: &Core, state: &mut State, now: Timestamp, low: u64) -> PagerReport {
        let memory = core.memory();
        let vbuckets = core.vbuckets().len();
        let mut evicted = 0;
        let mut groups = 0;
        while groups < GROUPS_PER_STEP && memory.used_bytes() > low {
            let (slice, is_passed) = sweep_slice(core, &mut state.hand, now);
            groups += GROUPS_PER_SLICE;
            evicted += slice.evicted;
            if slice.evicted > 0 {
                state.vbuckets_since_eviction = 0;
            }
            if slice.candidates > 0 {
                state.vbuckets_since_candidate = 0;
                memory.set_nothing_to_evict(false);
            }
            if is_passed {
                state.vbuckets_since_eviction += 1;
                state.vbuckets_since_candidate += 1;
            }
            if state.vbuckets_since_candidate > vbuckets {
                memory.set_nothing_to_evict(true);
                break;
            }
        }
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
        if memory.policy() == EvictionPolicy::Nru {
            self.nru_deletions.fetch_add(evicted, Ordering::Relaxed);
        }
        // A frequency is gone after as many rounds as it has steps.
        let is_stuck = state.vbuckets_since_eviction > 8 * vbuckets
            || state.vbuckets_since_candidate > vbuckets;
        PagerReport { evicted, more: memory.used_bytes() > low, is_stuck }
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
fn sweep_slice(core: &Core, hand: &mut Hand, now: Timestamp) -> (SweepReport, bool) {
    let vbuckets = core.vbuckets();
    let vbucket = &vbuckets[hand.vbucket % vbuckets.len()];
    let (context, policy) = (core.context(now), core.memory().policy());
    let (report, is_passed) = vbucket.sweep(&context, policy, &mut hand.cursor, GROUPS_PER_SLICE);
    if is_passed {
        hand.vbucket = (hand.vbucket + 1) % vbuckets.len();
    }
    (report, is_passed)
}
