//! Memory that a statement holds for documents and rows, in addition to what the language keeps.
//!
//! Owns: its reservations in the connections' memory, and the turn of statements with large
//! documents. Invariants:
//! - a large document, or what is made of one, is reserved before it is in memory;
//! - one statement at a time holds large documents, so that none waits for memory that another one
//!   holds while it waits, too;
//! - a statement waits [`MEMORY_WAIT_MS`] at most, and then ends with an error; until then every
//!   holder of connections' memory sees that it waits;
//! - while others wait for memory, one whose client lags with its rows ends, and so does one that
//!   holds large documents and for [`HOLDER_LAG_MAX_MS`] has finished none and sent nothing. This
//!   holds in all that a statement does, and until its client has its last row.
//!
//! Callers: `query_store` and `query_service`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::{HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS};
use oribi_server::admin_api::memory::{ConnectionMemory, Reservation};

/// Pause before memory is asked for again.
const PAUSE: Duration = Duration::from_millis(10);
const _: () = assert!(PAUSE.as_millis() < MEMORY_WAIT_MS as u128, "a wait has several looks");

/// The turn of statements with large documents.
#[derive(Default)]
pub(crate) struct MemoryTurn {
    is_taken: AtomicBool,
    waiting: AtomicUsize,
}

/// See the module text.
pub(crate) struct StatementMemory {
    memory: Arc<ConnectionMemory>,
    turn: Arc<MemoryTurn>,
    has_turn: AtomicBool,
    /// Reservations for large documents.
    holding: AtomicUsize,
    client: Box<dyn Fn() -> ClientPace + Send + Sync>,
    /// True while the statement waits for memory.
    waits: AtomicBool,
    /// Since when others wait, no document was finished and nothing was on its way to the client.
    in_the_way_since: Mutex<Option<Instant>>,
}

/// How a client takes the rows that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPace {
    /// It has them all.
    HasAll,
    Reads,
    /// So slowly that others need not wait for it.
    Lags,
}

/// Why there is no memory.
pub(super) enum NoMemory {
    /// As much may nothing have.
    Never(usize),
    Now,
}

impl StatementMemory {
    /// Of a statement that holds nothing, and whose client takes its rows as `client` says.
    pub fn new(
        memory: Arc<ConnectionMemory>,
        turn: Arc<MemoryTurn>,
        client: impl Fn() -> ClientPace + Send + Sync + 'static,
    ) -> StatementMemory {
        StatementMemory {
            memory,
            turn,
            has_turn: AtomicBool::new(false),
            holding: AtomicUsize::new(0),
            client: Box::new(client),
            waits: AtomicBool::new(false),
            in_the_way_since: Mutex::default(),
        }
    }

    /// True when the statement has to end, so that others get the memory that it holds.
    pub fn is_in_the_way(&self) -> bool {
        let pace = (self.client)();
        let holds_document = self.holding.load(Ordering::Acquire) > 0;
        let mut since = self.in_the_way_since.lock();
        match pace {
            ClientPace::Lags if self.has_waiters(pace) => true,
            ClientPace::HasAll if holds_document && self.has_waiters(pace) => {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                waited > Duration::from_millis(HOLDER_LAG_MAX_MS)
            }
            _ => {
                *since = None;
                false
            }
        }
    }

    /// True while others wait for what the statement holds.
    fn has_waiters(&self, pace: ClientPace) -> bool {
        let waits = self.waits.load(Ordering::Acquire);
        if waits && pace == ClientPace::HasAll {
            // Not its client makes others wait. But connections are served before it, so it would
            // wait for them while they wait for it.
            return self.memory.has_queue();
        }
        let is_turn_awaited = || {
            self.has_turn.load(Ordering::Acquire) && self.turn.waiting.load(Ordering::Acquire) > 0
        };
        self.memory.waiters() > usize::from(waits) || is_turn_awaited()
    }

    /// Retries a reservation until it succeeds. Polls `has_to_end` until then.
    pub fn wait_for<T>(
        &self,
        ask: &dyn Fn() -> Option<T>,
        has_to_end: &dyn Fn() -> bool,
    ) -> Option<T> {
        if let Some(memory) = ask() {
            return Some(memory);
        }
        let deadline = Instant::now() + Duration::from_millis(MEMORY_WAIT_MS);
        let _waiting = self.memory.wait_beside();
        debug_assert!(!self.waits.load(Ordering::Acquire), "a statement waits for one thing");
        self.waits.store(true, Ordering::Release);
        let found = loop {
            if Instant::now() >= deadline || has_to_end() {
                break None;
            }
            std::thread::sleep(PAUSE);
            if let Some(memory) = ask() {
                break Some(memory);
            }
        };
        self.waits.store(false, Ordering::Release);
        found
    }

    /// Reserves the memory that every scan needs. Polls `has_to_end` while it waits.
    pub(super) fn hold_usual(
        &self,
        bytes: usize,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<Reservation, NoMemory> {
        self.wait_for(&|| self.memory.hold(bytes), has_to_end).ok_or(NoMemory::Now)
    }

    /// Reserves memory for a large document. `has_to_end` is asked while it waits.
    pub(super) fn hold_large(
        self: &Arc<Self>,
        bytes: usize,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<LargeValueMemory, NoMemory> {
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
            let before = self.turn.waiting.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "a statement that waits for its turn is counted");
            if !is_ours {
                return Err(NoMemory::Now);
            }
        }
        let held = self.hold_usual(bytes, has_to_end);
        // Without a reservation its drop gives the turn back.
        let holding = Holding::new(Arc::clone(self));
        Ok(LargeValueMemory { reservation: held?, _holding: holding })
    }

    fn take_turn(&self) -> bool {
        if self.has_turn.load(Ordering::Acquire) {
            return true;
        }
        let taken =
            self.turn.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        self.has_turn.store(taken.is_ok(), Ordering::Release);
        debug_assert!(
            taken.is_err() || self.turn.is_taken.load(Ordering::Acquire),
            "a statement keeps the turn that it took"
        );
        taken.is_ok()
    }
}

/// Memory of a large document, until this is dropped.
pub(crate) struct LargeValueMemory {
    reservation: Reservation,
    _holding: Holding,
}

impl LargeValueMemory {
    /// Gives back all but so many bytes.
    pub fn keep(&mut self, bytes: usize) {
        self.reservation.keep(bytes);
    }
}

/// The statement holds a large document, until this is dropped.
struct Holding(Arc<StatementMemory>);

impl Holding {
    fn new(memory: Arc<StatementMemory>) -> Holding {
        memory.holding.fetch_add(1, Ordering::AcqRel);
        Holding(memory)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let memory = &self.0;
        *memory.in_the_way_since.lock() = None;
        let before = memory.holding.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a reservation for a large document is counted");
        if before == 1 && memory.has_turn.swap(false, Ordering::AcqRel) {
            let was_taken = memory.turn.is_taken.swap(false, Ordering::AcqRel);
            assert!(was_taken, "only the statement whose turn it is ends the turn");
        }
    }
}
