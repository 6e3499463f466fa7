//! The item pager: keeps a bucket's memory between its watermarks.
//!
//! Owns: where its hand is, and one bounded step of its work. It is a generalised CLOCK: the hand goes round over
//! the groups of every vbucket's table, lowers the frequency of each document that it passes, and takes those that
//! are at zero. A document that is read raises its own frequency, so what is popular survives several rounds and what
//! was read once survives one. There is no list to keep in order and nothing to lock on a read.
//!
//! A step begins when memory is above the high watermark and goes on until it is at the low one. When a
//! whole round has met no document that could ever be evicted, writes are told that there is no memory, instead of
//! to come again. Called by the pager's thread, and by the fetcher when it makes memory faster than that.

use std::sync::atomic::Ordering;

use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::block_arena;
use crate::bucket::Bucket;
use crate::eviction::EvictionPolicy;
use crate::tasks::{StepClock, Task};
use crate::vbucket::{Sweep, SweepReport};

/// Groups that are looked at under one hold of a table's lock: at most 224 documents, each a cache miss, so
/// some twenty microseconds.
const GROUPS_PER_SLICE: usize = 32;
/// Groups of one step: some milliseconds.
const GROUPS_PER_STEP: usize = 2048;

/// Rounds of compaction that move documents and empty no chunk until they count as futile.
const FUTILE_FROM: u32 = 3;
/// Rounds of compaction without gain until the pause between them grows no more.
const FUTILE_ROUNDS_MAX: u32 = 6;

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagerReport {
    /// Values, or whole documents, that left memory.
    pub evicted: u64,
    /// True when another step is due at once.
    pub more: bool,
    /// A whole round over the bucket evicted nothing: what is there is in use or not durable yet.
    pub is_stuck: bool,
}

/// A place in the tables of all vbuckets.
#[derive(Default)]
struct Hand {
    vbucket: usize,
    group: usize,
}

#[derive(Default)]
struct State {
    hand: Hand,
    is_running: bool,
    /// Vbuckets that the hand has passed since it evicted something, and since it met a candidate.
    vbuckets_since_eviction: usize,
    vbuckets_since_candidate: usize,
}

/// What the pager keeps from step to step.
#[derive(Default)]
pub(crate) struct ItemPager {
    state: Mutex<State>,
    compaction: Mutex<Compaction>,
}

/// A round that empties sparse chunks.
#[derive(Default)]
struct Compaction {
    hand: Hand,
    is_running: bool,
    /// Calls that are passed over before the next round, because the last ones gained nothing.
    pause: u32,
    futile_rounds: u32,
    moved: u64,
}

impl Compaction {
    /// Begins a round unless the pause is not over or there is nothing to gain.
    fn begin(&mut self, is_sparse: bool) -> bool {
        if self.pause > 0 && (self.is_futile() || !is_sparse) {
            self.pause -= 1;
            return false;
        }
        if !block_arena::begin_compaction() {
            return false;
        }
        (self.hand, self.moved, self.is_running) = (Hand::default(), 0, true);
        true
    }

    /// Ends a round. What is still in a marked chunk belongs to others, is not durable yet, or was in use.
    fn end(&mut self) {
        self.is_running = false;
        match (block_arena::end_compaction(), self.moved) {
            (0, 0) => self.futile_rounds += FUTILE_FROM,
            (0, _) => self.futile_rounds += 1,
            _ => self.futile_rounds = 0,
        }
        self.pause = 1 << self.futile_rounds.min(FUTILE_ROUNDS_MAX);
    }

    /// True when the last rounds have emptied nothing.
    fn is_futile(&self) -> bool {
        self.futile_rounds >= FUTILE_FROM
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        if self.is_running {
            block_arena::end_compaction();
        }
    }
}

impl Bucket {
    /// Evicts some documents if memory is above the high watermark, or has been and is not yet at the low one.
    pub fn page_items_step(&self, clock: StepClock<'_>) -> PagerReport {
        let memory = &self.memory;
        let mut state = self.pager.state.lock();
        let (used, low) = (memory.used_bytes(), memory.low_watermark_bytes());
        if memory.policy == EvictionPolicy::None
            || used <= low
            || !state.is_running && used <= memory.high_watermark_bytes()
        {
            state.is_running = false;
            return PagerReport::default();
        }
        if !state.is_running {
            state.is_running = true;
            memory.counters.pager_runs.fetch_add(1, Ordering::Relaxed);
        }
        self.tasks.run(Task::ItemPager, clock, || self.page(&mut state, clock(), low))
    }

    fn page(&self, state: &mut State, now: Timestamp, low: u64) -> PagerReport {
        let policy = self.memory.policy;
        let vbuckets = self.vbuckets().len();
        let mut total = SweepReport::default();
        let mut groups = 0;
        while groups < GROUPS_PER_STEP && self.memory.used_bytes() > low {
            let (slice, is_passed) = self.sweep_slice(&mut state.hand, Sweep::Evict(policy), now);
            groups += GROUPS_PER_SLICE;
            total.add(slice);
            if slice.evicted > 0 {
                state.vbuckets_since_eviction = 0;
            }
            if slice.candidates > 0 {
                state.vbuckets_since_candidate = 0;
                self.memory.set_nothing_to_evict(false);
            }
            if is_passed {
                state.vbuckets_since_eviction += 1;
                state.vbuckets_since_candidate += 1;
            }
            if state.vbuckets_since_candidate > vbuckets {
                self.memory.set_nothing_to_evict(true);
                break;
            }
        }
        let counters = &self.memory.counters;
        counters.evictions.fetch_add(total.evicted, Ordering::Relaxed);
        if policy == EvictionPolicy::Nru {
            counters.nru_deletions.fetch_add(total.evicted, Ordering::Relaxed);
        }
        // A frequency is gone after as many rounds as it has steps.
        let is_stuck = state.vbuckets_since_eviction > 8 * vbuckets
            || state.vbuckets_since_candidate > vbuckets;
        PagerReport { evicted: total.evicted, more: self.memory.used_bytes() > low, is_stuck }
    }

    /// Sweeps the groups under the hand and moves it on; true when it has passed a vbucket's last group.
    fn sweep_slice(&self, hand: &mut Hand, sweep: Sweep, now: Timestamp) -> (SweepReport, bool) {
        let vbucket = &self.vbuckets()[hand.vbucket % self.vbuckets().len()];
        let context = self.context(now);
        let report = vbucket.sweep(&context, sweep, hand.group, GROUPS_PER_SLICE);
        hand.group += GROUPS_PER_SLICE;
        let is_passed = hand.group >= vbucket.group_count();
        if is_passed {
            *hand = Hand { vbucket: (hand.vbucket + 1) % self.vbuckets().len(), group: 0 };
        }
        (report, is_passed)
    }

    /// Gives back memory that is mapped and free: when the arena has much of it, marks its sparsest chunks and
    /// moves this bucket's documents out of them. True when another step is due at once.
    pub fn compact_memory_step(&self, clock: StepClock<'_>) -> bool {
        let mut state = self.pager.compaction.lock();
        let is_sparse = self.memory.is_sparse();
        if !state.is_running && !state.begin(is_sparse) {
            self.memory.set_sparse(false);
            return false;
        }
        // Writes wait only while something is done about it.
        self.memory.set_sparse(is_sparse);
        self.tasks.run(Task::MemoryCompaction, clock, || self.compact_memory(&mut state, clock()));
        if !state.is_running && state.is_futile() {
            self.memory.set_sparse(false);
        }
        state.is_running || is_sparse && !state.is_futile()
    }

    fn compact_memory(&self, state: &mut Compaction, now: Timestamp) {
        let mut groups = 0;
        while groups < GROUPS_PER_STEP {
            let (slice, is_passed) = self.sweep_slice(&mut state.hand, Sweep::Compact, now);
            groups += GROUPS_PER_SLICE;
            state.moved += slice.moved;
            self.memory.counters.blocks_moved.fetch_add(slice.moved, Ordering::Relaxed);
            if is_passed && state.hand.vbucket == 0 {
                return state.end();
            }
        }
    }

    /// Evicts one document by the bucket's policy, however much it is in use. False when there is none, when it
    /// is not durable yet, or when somebody is at it.
    pub fn evict(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let Some(vbucket) = self.vbucket(vbid) else { return false };
        let is_gone = vbucket.evict(&self.context(Timestamp::default()), key);
        self.memory.counters.evictions.fetch_add(u64::from(is_gone), Ordering::Relaxed);
        is_gone
    }
}
