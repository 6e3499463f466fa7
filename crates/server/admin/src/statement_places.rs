//! How many statements run at once, and what one of them occupies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_engine::block_arena::{OutsideReservation, reserve_outside};
use parking_lot::Mutex;

use crate::admission::{AdminConnection, StreamPlace};
use crate::limits::{SQL_HEAP_BYTES_MAX, SQL_HEAP_BYTES_MIN, SQL_STATEMENTS_MAX};
use crate::sql::memory::MemoryTurn;

/// The statements that run.
#[derive(Default)]
pub(crate) struct Statements(Arc<AtomicUsize>, Arc<MemoryTurn>, Arc<Mutex<Heap>>);

impl Statements {
    /// A place for one more.
    pub fn begin(&self) -> Option<StatementSlot> {
        let one_more = |running: usize| (running < SQL_STATEMENTS_MAX).then_some(running + 1);
        let begun = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        begun.ok().map(|_| StatementSlot(Arc::clone(&self.0)))
    }

    /// The turn of those with large documents.
    pub fn turn(&self) -> Arc<MemoryTurn> {
        Arc::clone(&self.1)
    }

    /// A share of SQLite's heap. None while documents leave too little of the process's memory.
    pub fn share_heap(&self) -> Option<HeapShare> {
        let mut heap = self.2.lock();
        if heap.shares == 0 {
            heap.reservation = Some(reserve_outside(SQL_HEAP_BYTES_MAX));
        }
        let bytes = heap.reservation.as_ref().map_or(0, OutsideReservation::bytes);
        if bytes < SQL_HEAP_BYTES_MIN {
            heap.reservation = None;
            return None;
        }
        heap.shares += 1;
        Some(HeapShare { heap: Arc::clone(&self.2), bytes })
    }
}

/// SQLite's heap, which all statements use together: the first one reserves it, the last one gives
/// it back.
#[derive(Default)]
struct Heap {
    shares: usize,
    reservation: Option<OutsideReservation>,
}

/// A statement's use of SQLite's heap. The statement drops it after its database.
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
pub(crate) struct StatementSlot(Arc<AtomicUsize>);

impl Drop for StatementSlot {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a statement that ends was counted");
    }
}

/// What a statement occupies until its client is told how it ended. A client that has its answer
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
