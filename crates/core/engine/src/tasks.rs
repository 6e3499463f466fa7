//! Figures of background work: what ran, how often and for how long.
//!
//! Owns: one record per kind of work, written when a step begins and ends, never by an
//! operation of a client. Times come from the clock of the step's driver. Called by the
//! steps and by their threads; read for stats.

use oribi_types::Timestamp;
use parking_lot::Mutex;

/// The clock of a step's driver. It must not go backwards during the step.
pub type StepClock<'a> = &'a dyn Fn() -> Timestamp;

/// A clock that stalls, for drivers that need no times.
pub(crate) fn no_clock() -> Timestamp {
    Timestamp::default()
}

/// Microseconds between two readings.
pub(crate) fn elapsed_us(from: Timestamp, to: Timestamp) -> u64 {
    to.unix_ns.saturating_sub(from.unix_ns) / 1000
}

/// Whether a task is at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskState {
    /// A step is under way.
    Running,
    /// It waits for the next reason to run.
    Snoozed,
    /// It will not run again.
    Dead,
}

/// Object of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskKind {
    /// It writes queued mutations to the store.
    Writer,
    /// It reads documents from the store that operations wait for.
    Reader,
    /// It walks the store, and no operation waits for it.
    StoreUpkeep,
    /// It needs no store.
    Memory,
}

/// Figures of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskStats {
    pub name: &'static str,
    pub description: &'static str,
    /// Object of the work.
    pub kind: TaskKind,
    /// Whether it is at work.
    pub state: TaskState,
    /// Steps that have ended.
    pub runs: u64,
    /// Time of all these steps, in microseconds. Steps of a task with several threads may overlap.
    pub total_runtime_us: u64,
    /// Time of the step that ended last, in microseconds.
    pub last_runtime_us: u64,
    /// When the last step began, by its driver's clock; 0 when none did.
    pub last_start: Timestamp,
}

/// Kinds of background work, in the order of [`Tasks::stats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Task {
    Flusher,
    Warmup,
    CollectionPurge,
    PressureReview,
    ItemPager,
    MemoryCompaction,
    Fetcher,
    ExpiryPager,
    TombstonePurge,
    Backfill,
}

/// Names, descriptions and kinds, by discriminant of [`Task`].
const TEXTS: [(&str, &str, TaskKind); 10] = [
    ("flusher", "Makes queued mutations durable", TaskKind::Writer),
    ("warmup", "Loads documents from the store", TaskKind::Reader),
    ("collection_purge", "Removes documents of dropped collections", TaskKind::StoreUpkeep),
    ("pressure_review", "Decides whether memory or queue refuse writes", TaskKind::Memory),
    ("item_pager", "Evicts documents above the memory watermarks", TaskKind::Memory),
    ("memory_compaction", "Moves documents out of sparse memory", TaskKind::Memory),
    ("fetcher", "Reads evicted documents that operations wait for", TaskKind::Reader),
    ("expiry_pager", "Deletes documents that have expired", TaskKind::Memory),
    ("tombstone_purge", "Removes old tombstones from the store", TaskKind::StoreUpkeep),
    ("backfill", "Reads older changes for change streams", TaskKind::Reader),
];

const _: () = assert!(Task::Backfill as usize + 1 == TEXTS.len(), "every task has its texts");

#[derive(Clone, Copy, Default)]
struct Record {
    running: u32,
    is_dead: bool,
    runs: u64,
    total_us: u64,
    last_us: u64,
    last_start: Timestamp,
}

/// Records of one bucket's tasks.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<[Record; TEXTS.len()]>);

impl Tasks {
    /// Runs one step of `task` and records it.
    pub(crate) fn run<R>(&self, task: Task, clock: StepClock<'_>, step: impl FnOnce() -> R) -> R {
        let begun = clock();
        {
            let record = &mut self.0.lock()[task as usize];
            record.running += 1;
            debug_assert!(record.running > 0, "a step under way is counted");
            record.last_start = begun;
        }
        let result = step();
        let took_us = elapsed_us(begun, clock());
        let record = &mut self.0.lock()[task as usize];
        assert!(record.running > 0, "a step that ends has begun");
        record.running -= 1;
        record.runs += 1;
        record.total_us += took_us;
        record.last_us = took_us;
        result
    }

    /// Says that `task` will not run again.
    pub(crate) fn finish(&self, task: Task) {
        self.0.lock()[task as usize].is_dead = true;
    }

    /// Figures of all tasks.
    pub(crate) fn stats(&self) -> Vec<TaskStats> {
        let records = *self.0.lock();
        let stats =
            records.iter().zip(TEXTS).map(|(record, (name, description, kind))| TaskStats {
                name,
                description,
                kind,
                state: record.state(),
                runs: record.runs,
                total_runtime_us: record.total_us,
                last_runtime_us: record.last_us,
                last_start: record.last_start,
            });
        stats.collect()
    }
}

impl Record {
    fn state(&self) -> TaskState {
        match (self.running, self.is_dead) {
            (1.., _) => TaskState::Running,
            (0, true) => TaskState::Dead,
            (0, false) => TaskState::Snoozed,
        }
    }
}
