//! How many statements run at once, how many wait, and what one of them occupies.
//!
//! Waiting statements run in the order of their arrival. A statement whose client leaves leaves the
//! queue with it, because its request's future is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use oribi_engine::block_arena::{OutsideReservation, reserve_outside};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::{AdminConnection, StreamPlace};
use crate::limits::{
    QUERIES_WAITING_MAX, STATEMENT_HEAP_BYTES_MAX, STATEMENT_HEAP_BYTES_MIN, STATEMENTS_MAX,
};
use crate::statement_memory::MemoryTurn;

/// The statements that run.
pub(crate) struct Statements {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    turn: Arc<MemoryTurn>,
    heap: Arc<Mutex<Heap>>,
}

impl Default for Statements {
    fn default() -> Statements {
        Statements {
            places: Arc::new(Semaphore::new(STATEMENTS_MAX)),
            waiting: AtomicUsize::new(0),
            turn: Arc::default(),
            heap: Arc::default(),
        }
    }
}

/// Why a statement got no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRejection {
    Full,
    /// Its time was over before it had one.
    Timeout,
}

/// One of the statements that wait.
struct QueueEntry<'s>(&'s AtomicUsize);

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a statement that stops waiting was counted");
    }
}

impl Statements {
    /// A place for one more.
    pub fn begin(&self) -> Option<StatementSlot> {
        debug_assert!(self.places.available_permits() <= STATEMENTS_MAX, "a place returns once");
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.ok().map(|place| StatementSlot { _place: place })
    }

    /// A place for one more, after those that wait already.
    ///
    /// # Errors
    /// Too many wait, or there was none before `deadline`.
    pub async fn wait(&self, deadline: Instant) -> Result<StatementSlot, QueueRejection> {
        if let Some(place) = self.begin() {
            return Ok(place);
        }
        let one_more = |waiting: usize| (waiting < QUERIES_WAITING_MAX).then_some(waiting + 1);
        let counted = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.map_err(|_| QueueRejection::Full)?;
        let _waiting = QueueEntry(&self.waiting);
        debug_assert!(self.has_waiters(), "a statement that waits is counted");
        let place = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout_at(deadline.into(), place).await {
            Ok(Ok(place)) => Ok(StatementSlot { _place: place }),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(QueueRejection::Timeout),
        }
    }

    /// True while statements wait for a place.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The turn of those with large documents.
    pub fn turn(&self) -> Arc<MemoryTurn> {
        Arc::clone(&self.turn)
    }

    /// A share of the statements' heap. None while documents leave too little of the process's
    /// memory.
    pub fn share_heap(&self) -> Option<HeapShare> {
        let mut heap = self.heap.lock();
        if heap.shares == 0 {
            heap.reservation = Some(reserve_outside(STATEMENT_HEAP_BYTES_MAX));
        }
        let bytes = heap.reservation.as_ref().map_or(0, OutsideReservation::bytes);
        assert!(
            bytes <= STATEMENT_HEAP_BYTES_MAX,
            "statements have no more than their part of the memory"
        );
        if bytes < STATEMENT_HEAP_BYTES_MIN {
            assert_eq!(heap.shares, 0, "statements share a heap of sufficient size");
            heap.reservation = None;
            return None;
        }
        heap.shares += 1;
        assert!(heap.reservation.is_some(), "a share is of a reservation");
        Some(HeapShare { heap: Arc::clone(&self.heap), bytes })
    }
}

/// The memory in which statements keep groups, sorted rows and joins: the first statement reserves
/// it, the last one releases it.
#[derive(Default)]
struct Heap {
    shares: usize,
    reservation: Option<OutsideReservation>,
}

/// A statement's use of the heap.
pub(crate) struct HeapShare {
    heap: Arc<Mutex<Heap>>,
    /// Size of the whole heap.
    pub bytes: u64,
}

impl Drop for HeapShare {
    fn drop(&mut self) {
        let mut heap = self.heap.lock();
        assert!(heap.shares > 0, "a share of the heap that ends was counted");
        heap.shares -= 1;
        if heap.shares == 0 {
            heap.reservation = None;
        }
    }
}

/// The place of a statement.
pub(crate) struct StatementSlot {
    _place: OwnedSemaphorePermit,
}

/// Place of a statement until its client knows how it ended. A client that has its answer
/// can therefore begin another one.
pub(crate) struct StatementResources {
    _running: StatementSlot,
    stream: StreamPlace,
}

impl StatementResources {
    pub fn new(running: StatementSlot, stream: StreamPlace) -> StatementResources {
        StatementResources { _running: running, stream }
    }

    /// The client's connection, which outlasts this.
    pub fn connection(&self) -> AdminConnection {
        self.stream.connection()
    }
}
