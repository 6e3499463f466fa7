//! Compaction: one task for the whole process, because all buckets share one arena.
//!
//! Owns: the list of buckets that take part, the round under way, and when the next one begins. A
//! round goes over the tables of every bucket twice (`block_arena::Round`): it counts movable
//! blocks, then moves those in chunks that can become empty. The first pager that comes drives a
//! bounded slice; a second one continues with its own work. There are two reasons to compact:
//!
//! * **Pressure**: the arena is above the lower bound (`memory/process.rs`). Rounds follow each
//!   other while they gain, and may move several bytes for each byte gained. Above the upper bound
//!   all buckets refuse writes.
//! * **Leisure**: much is mapped and free. A round begins once a second at most, and moves no more
//!   than it gains.
//!
//! A round that gains nothing makes the pause before the next one longer. Lock order: a slice's
//! state, then the locks of arena and vbuckets. A thread that maps memory locks the list of
//! buckets, so nothing is locked under that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oribi_types::Timestamp;
use oribi_types::policy::Storage;
use parking_lot::Mutex;

use crate::block_arena::{self, Goal, Pressure, Round};
use crate::bucket::Bucket;
use crate::hash_table::ScanCursor;
use crate::idle_memory;
use crate::tasks::{StepClock, Task};

/// Free memory that leisure leaves alone: a part of all, and some bytes.
const FREE_PART_KEPT: u64 = 32;
const FREE_BYTES_KEPT: u64 = 16 << 20;

/// Bytes that a round gains beyond the excess, so that the next does not begin at once.
const GAINED_MORE_BYTES: u64 = 8 << 20;
/// Most bytes moved for each byte gained, under pressure and at leisure.
const MOVED_UNDER_PRESSURE: usize = 5;
const MOVED_AT_LEISURE: usize = 1;

/// Pause under pressure after a first round without gain; it doubles up to the longest, which is
/// shorter while writes wait.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LAST: Duration = Duration::from_millis(640);
const PAUSE_LAST_AT_BOUND: Duration = Duration::from_millis(20);
const LEISURE_FIRST: Duration = Duration::from_secs(1);
const LEISURE_LAST: Duration = Duration::from_secs(64);

/// Groups of a table under one hold of its lock, and of one slice.
const GROUPS_PER_HOLD: usize = 32;
const GROUPS_PER_SLICE: usize = 2048;
const _: () = assert!(GROUPS_PER_SLICE.is_multiple_of(GROUPS_PER_HOLD));
const _: () = assert!(PAUSE_LAST_AT_BOUND.as_millis() < PAUSE_LAST.as_millis());
const _: () = assert!(PAUSE_FIRST.as_millis() < PAUSE_LAST_AT_BOUND.as_millis());
const _: () = assert!(LEISURE_FIRST.as_millis() < LEISURE_LAST.as_millis());
const _: () = assert!(MOVED_AT_LEISURE < MOVED_UNDER_PRESSURE);

static SOURCES: Mutex<Vec<Arc<Bucket>>> = Mutex::new(Vec::new());
static STATE: Mutex<State> = Mutex::new(State::new());
/// A pager was woken because memory grows, and none has looked since.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Adds a bucket to the rounds. Its threads drive compaction among other work.
pub(crate) fn join(bucket: &Arc<Bucket>) {
    block_arena::watch_growth(memory_has_grown);
    let mut sources = SOURCES.lock();
    let is_new = !sources.iter().any(|source| Arc::ptr_eq(source, bucket));
    debug_assert!(is_new, "a bucket joins compaction once");
    sources.push(Arc::clone(bucket));
}

/// Takes a bucket out of the rounds. No slice refers to it when this returns.
pub(crate) fn leave(bucket: &Bucket) {
    let is_other = |source: &Arc<Bucket>| !std::ptr::eq(Arc::as_ptr(source), bucket);
    let mut state = STATE.lock();
    let of_round = state.running.iter_mut().flat_map(|running| &mut running.sources);
    for source in of_round {
        if source.as_ref().is_some_and(|source| !is_other(source)) {
            *source = None;
        }
    }
    let mut sources = SOURCES.lock();
    sources.retain(is_other);
    debug_assert!(sources.iter().all(is_other), "a bucket leaves compaction once");
    if sources.is_empty() {
        // No pager is left to continue with the round, or to look after kept memory.
        drop(sources);
        state.running = None;
        idle_memory::no_step_follows();
    }
}

/// Called by a thread that takes memory above the lower bound. That thread may hold a vbucket's
/// locks.
fn memory_has_grown() {
    let is_at_bound = block_arena::pressure() == Pressure::AtBound;
    if !is_at_bound && IS_WOKEN.load(Ordering::Relaxed) {
        return;
    }
    let sources = SOURCES.lock();
    sources.iter().for_each(|source| source.core().memory().set_at_bound(is_at_bound));
    if !IS_WOKEN.swap(true, Ordering::AcqRel)
        && let Some(source) = sources.first()
    {
        source.core().memory().wake_pager();
    }
}

/// Refuses writes in every bucket, or takes them again. At the bound, streams that stall lose the
/// versions that backfills of a bucket in memory keep for them.
fn show_pressure() {
    let is_at_bound = block_arena::pressure() == Pressure::AtBound;
    // Freeing takes a while, and threads that need memory ask for the lock.
    let sources = SOURCES.lock().clone();
    for source in sources {
        source.core().memory().set_at_bound(is_at_bound);
        if is_at_bound && source.core().config().storage == Storage::Memory {
            source.backfiller().leave_all_behind();
        }
    }
}

/// When a step is due again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextStep {
    Now,
    /// Once some milliseconds have passed: memory is short, and the last round gained nothing.
    Soon,
    /// When there is a reason.
    Whenever,
}

/// A place in the tables of all buckets.
#[derive(Clone, Copy, Default)]
struct Hand {
    source: usize,
    vbucket: usize,
    cursor: ScanCursor,
}

/// The round under way.
struct CompactionRound {
    round: Round,
    /// The buckets of the round, `None` for those that have left.
    sources: Vec<Option<Arc<Bucket>>>,
    is_counting: bool,
    hand: Hand,
    begun: Timestamp,
}

struct State {
    running: Option<CompactionRound>,
    /// Rounds that freed no chunk, or found none to move, since the last one that freed some.
    failures: u32,
    ended: Timestamp,
    last_round: Duration,
}

impl State {
    const fn new() -> State {
        State {
            running: None,
            failures: 0,
            ended: Timestamp::from_unix_s(0),
            last_round: Duration::ZERO,
        }
    }

    /// Begins a round if there is a reason and the pause after the last one is over.
    fn begin(&mut self, pressure: Pressure, now: Timestamp) -> bool {
        assert!(self.running.is_none(), "one round of compaction at a time");
        let since = now.unix_ns.abs_diff(self.ended.unix_ns);
        if Duration::from_nanos(since) < self.pause(pressure) {
            return false;
        }
        let Some(goal) = goal(pressure) else { return false };
        let Some(round) = Round::begin(goal) else {
            self.end(0, now, now);
            return false;
        };
        let sources = SOURCES.lock().iter().cloned().map(Some).collect();
        self.running = Some(CompactionRound {
            round,
            sources,
            is_counting: true,
            hand: Hand::default(),
            begun: now,
        });
        true
    }

    fn end(&mut self, gained_bytes: usize, begun: Timestamp, now: Timestamp) {
        debug_assert!(self.running.is_none(), "a round ends once");
        self.failures = if gained_bytes > 0 { 0 } else { self.failures.saturating_add(1) };
        self.last_round = Duration::from_nanos(now.unix_ns.saturating_sub(begun.unix_ns));
        self.ended = now;
    }

    /// Time from the end of a round to the next. After one without gain it is at least as long as
    /// that round took.
    fn pause(&self, pressure: Pressure) -> Duration {
        let (first, last) = match pressure {
            Pressure::Low => (LEISURE_FIRST, LEISURE_LAST),
            _ if self.failures == 0 => return Duration::ZERO,
            Pressure::High => (PAUSE_FIRST, PAUSE_LAST),
            Pressure::AtBound => (PAUSE_FIRST, PAUSE_LAST_AT_BOUND),
        };
        let doubled = first.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled.min(last).max(self.last_round.min(PAUSE_LAST))
    }

    /// Continues with the round for some groups.
    fn slice(&mut self, now: Timestamp) {
        let Some(mut running) = self.running.take() else { return };
        let mut groups = 0;
        while groups < GROUPS_PER_SLICE {
            groups += GROUPS_PER_HOLD;
            if !running.advance(now) {
                continue;
            }
            // Everything was looked at.
            if running.is_counting && running.round.keep_movable() {
                debug_assert!(
                    running.hand.source >= running.sources.len(),
                    "a pass ends after the last bucket"
                );
                (running.is_counting, running.hand) = (false, Hand::default());
                continue;
            }
            let gained = running.round.end();
            return self.end(gained, running.begun, now);
        }
        self.running = Some(running);
    }
}

impl CompactionRound {
    /// Works on the groups under the hand and moves it on; true when it has passed the last one.
    fn advance(&mut self, now: Timestamp) -> bool {
        let Hand { source, vbucket, .. } = self.hand;
        let Some(bucket) = self.sources.get(source) else { return true };
        let place =
            bucket.as_ref().and_then(|bucket| Some((bucket, bucket.vbuckets().get(vbucket)?)));
        let Some((bucket, vbucket)) = place else {
            self.hand = Hand { source: source + 1, ..Hand::default() };
            return false;
        };
        let cursor = &mut self.hand.cursor;
        let is_passed = match self.is_counting {
            true => vbucket.count_movable(&mut self.round, cursor, GROUPS_PER_HOLD),
            false => {
                let context = bucket.core().context(now);
                let (moved, is_passed) =
                    vbucket.move_blocks(&context, &self.round, cursor, GROUPS_PER_HOLD);
                bucket.core().memory().count_moved(moved);
                is_passed
            }
        };
        self.hand.vbucket += usize::from(is_passed);
        false
    }
}

/// The goal of a round; `None` when there is no reason for one.
fn goal(pressure: Pressure) -> Option<Goal> {
    if pressure > Pressure::Low {
        let gain_bytes = (block_arena::excess_bytes() + GAINED_MORE_BYTES) as usize;
        return Some(Goal { gain_bytes, moved_per_gained: MOVED_UNDER_PRESSURE });
    }
    let arena = block_arena::stats();
    let free = (arena.free_block_bytes + arena.free_unit_bytes) as u64;
    let kept = FREE_BYTES_KEPT + arena.chunk_bytes as u64 / FREE_PART_KEPT;
    (free > kept)
        .then(|| Goal { gain_bytes: (free - kept) as usize, moved_per_gained: MOVED_AT_LEISURE })
}

/// One slice of the process's compaction, on this bucket's thread, unless another bucket's thread
/// runs one.
pub(crate) fn step(bucket: &Bucket, clock: StepClock<'_>) -> NextStep {
    IS_WOKEN.store(false, Ordering::Release);
    let pressure = block_arena::pressure();
    let waiting = match pressure {
        Pressure::Low => NextStep::Whenever,
        Pressure::High | Pressure::AtBound => NextStep::Soon,
    };
    let core = bucket.core();
    let next = match STATE.try_lock() {
        Some(mut state) => match state.running.is_some() || state.begin(pressure, clock()) {
            true => {
                core.tasks().run(Task::MemoryCompaction, clock, || state.slice(clock()));
                NextStep::Now
            }
            false => waiting,
        },
        None => waiting,
    };
    if core.memory().is_refusing() || pressure == Pressure::AtBound {
        show_pressure();
    }
    next
}
