//! What a statement holds of documents beside SQLite's own memory.
//!
//! Owns: its reservations in the connections' memory, and the turn of statements with large
//! documents. Invariants:
//! - a large document, or what is made of one, is reserved before it is in memory;
//! - one statement at a time holds large documents, so that none waits for memory that another one
//!   holds while it waits, too;
//! - a statement waits [`MEMORY_WAIT_MS`] at most, and then ends with an error;
//! - one that holds large documents while others wait for memory ends when its client has taken
//!   nothing, and no document was finished, for [`HOLDER_LAG_MAX_MS`].
//!
//! Callers: the sources of this module's parent, and `admin::query`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::connection_memory::{ConnectionMemory, Reservation};
use crate::limits::{HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS};

/// Pause before memory is asked for again.
const PAUSE: Duration = Duration::from_millis(10);

/// The turn of statements with large documents.
#[derive(Default)]
pub(crate) struct Turn {
    is_taken: AtomicBool,
    waiting: AtomicUsize,
}

/// See the module text.
pub(crate) struct StatementMemory {
    memory: Arc<ConnectionMemory>,
    turn: Arc<Turn>,
    has_turn: AtomicBool,
    /// Reservations for large documents, and of what waits for the client.
    holding: AtomicUsize,
    in_the_way_since: Mutex<Option<Instant>>,
}

/// Why there is no memory.
pub(super) enum NoMemory {
    /// As much may nothing have.
    Never(usize),
    /// Others have it.
    Now,
}

impl StatementMemory {
    /// Of a statement that holds nothing.
    pub fn new(memory: Arc<ConnectionMemory>, turn: Arc<Turn>) -> StatementMemory {
        StatementMemory {
            memory,
            turn,
            has_turn: AtomicBool::new(false),
            holding: AtomicUsize::new(0),
            in_the_way_since: Mutex::default(),
        }
    }

    /// True when the statement has to end, so that others get the memory that it holds.
    pub fn is_in_the_way(&self) -> bool {
        let has_turn = self.has_turn.load(Ordering::Acquire);
        let others_wait = || {
            self.memory.has_waiters() || has_turn && self.turn.waiting.load(Ordering::Acquire) > 0
        };
        let mut since = self.in_the_way_since.lock();
        if self.holding.load(Ordering::Acquire) == 0 || !others_wait() {
            *since = None;
            return false;
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        waited > Duration::from_millis(HOLDER_LAG_MAX_MS)
    }

    /// Something was finished or sent.
    pub fn note_progress(&self) {
        *self.in_the_way_since.lock() = None;
    }

    /// Reserves what every scan needs. `has_to_end` is asked while it waits.
    pub(super) fn hold_usual(
        &self,
        bytes: usize,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<Reservation, NoMemory> {
        let deadline = Instant::now() + Duration::from_millis(MEMORY_WAIT_MS);
        loop {
            if let Some(reservation) = self.memory.hold(bytes) {
                return Ok(reservation);
            }
            if Instant::now() >= deadline || has_to_end() {
                return Err(NoMemory::Now);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reserves memory for a large document. `has_to_end` is asked while it waits.
    pub(super) fn hold_large(
        self: &Arc<Self>,
        bytes: usize,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<LargeHeld, NoMemory> {
        if bytes > self.memory.reservable_bytes() {
            return Err(NoMemory::Never(self.memory.reservable_bytes()));
        }
        if !self.take_turn() {
            self.turn.waiting.fetch_add(1, Ordering::AcqRel);
            let deadline = Instant::now() + Duration::from_millis(MEMORY_WAIT_MS);
            let is_ours = loop {
                std::thread::sleep(PAUSE);
                if self.take_turn() {
                    break true;
                }
                if Instant::now() >= deadline || has_to_end() {
                    break false;
                }
            };
            self.turn.waiting.fetch_sub(1, Ordering::AcqRel);
            if !is_ours {
                return Err(NoMemory::Now);
            }
        }
        let held = self.hold_usual(bytes, has_to_end);
        // Without a reservation its drop gives the turn back.
        let holding = self.holding();
        Ok(LargeHeld { reservation: held?, _holding: holding })
    }

    /// Counts what waits for the client as held, as long as the result lives.
    pub fn holding(self: &Arc<Self>) -> Holding {
        Holding::new(Arc::clone(self))
    }

    fn take_turn(&self) -> bool {
        if self.has_turn.load(Ordering::Acquire) {
            return true;
        }
        let taken =
            self.turn.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        self.has_turn.store(taken.is_ok(), Ordering::Release);
        taken.is_ok()
    }
}

/// Memory of a large document, until this is dropped.
pub(crate) struct LargeHeld {
    reservation: Reservation,
    _holding: Holding,
}

impl LargeHeld {
    /// Gives back all but so many bytes.
    pub fn keep(&mut self, bytes: usize) {
        self.reservation.keep(bytes);
    }
}

/// The statement holds something, until this is dropped.
pub(crate) struct Holding(Arc<StatementMemory>);

impl Holding {
    fn new(memory: Arc<StatementMemory>) -> Holding {
        memory.holding.fetch_add(1, Ordering::AcqRel);
        Holding(memory)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let memory = &self.0;
        memory.note_progress();
        if memory.holding.fetch_sub(1, Ordering::AcqRel) == 1
            && memory.has_turn.swap(false, Ordering::AcqRel)
        {
            memory.turn.is_taken.store(false, Ordering::Release);
        }
    }
}
