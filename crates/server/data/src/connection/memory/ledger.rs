//! Memory that the connections of one worker hold without a reservation.
//!
//! Owns: their sum, and its difference from the last report to the process-wide figure. Invariant:
//! that difference is less than [`REPORT_BYTES`] after each note. So small requests write no shared
//! state, and the figure is wrong by no more than that for each worker. The worker calls this when
//! a connection's turn is over and when it ends.

use std::sync::Arc;

use super::budget::{Demand, Grant};
use super::{ConnectionMemory, ConnectionReservation};
use crate::connection::waker::{ConnectionId, ConnectionWaker};
use crate::limits::{RESERVED_ANSWER_BYTES_MIN, RESERVED_ANSWER_BYTES_MIN_TIGHT};

/// Difference from which on a worker reports.
pub const REPORT_BYTES: usize = 256 << 10;
const _: () = assert!(REPORT_BYTES < crate::limits::SMALL_CONNECTION_BYTES);

/// See the module text.
#[derive(Debug)]
pub struct MemoryLedger {
    memory: Arc<ConnectionMemory>,
    waker: Arc<dyn ConnectionWaker>,
    held_bytes: usize,
    reported_bytes: usize,
    /// True if all workers' connections held too much at this worker's last report.
    is_over: bool,
    /// Answers from this size on are reserved. Less than usual while unreserved memory is short.
    reserved_answer_bytes_min: usize,
}

impl MemoryLedger {
    /// The ledger of a worker whose connections hold nothing.
    pub fn new(memory: Arc<ConnectionMemory>, waker: Arc<dyn ConnectionWaker>) -> MemoryLedger {
        MemoryLedger {
            memory,
            waker,
            held_bytes: 0,
            reported_bytes: 0,
            is_over: false,
            reserved_answer_bytes_min: RESERVED_ANSWER_BYTES_MIN,
        }
    }

    pub fn memory(&self) -> &ConnectionMemory {
        &self.memory
    }

    /// Notes that a connection, which held `before` bytes, now holds `after`.
    #[inline]
    pub fn note(&mut self, before: usize, after: usize) {
        debug_assert!(self.held_bytes + after >= before, "a connection was counted before");
        self.held_bytes = self.held_bytes + after - before;
        if self.held_bytes.abs_diff(self.reported_bytes) >= REPORT_BYTES {
            self.report();
        }
    }

    #[cold]
    fn report(&mut self) {
        self.memory.note_unreserved(self.reported_bytes, self.held_bytes);
        self.reported_bytes = self.held_bytes;
        self.is_over = self.memory.is_over();
        self.reserved_answer_bytes_min = match self.memory.is_tight() {
            true => RESERVED_ANSWER_BYTES_MIN_TIGHT,
            false => RESERVED_ANSWER_BYTES_MIN,
        };
    }

    /// True when connections are to be closed because all of them together hold too much.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reports everything and checks again whether connections are to be closed.
    pub fn is_still_over(&mut self) -> bool {
        self.report();
        self.is_over
    }

    /// This worker can do no more until the memory held has changed or time has passed.
    pub fn rest(&mut self) {
        assert!(self.is_over, "only a ledger over its limit rests");
        self.is_over = false;
    }

    /// Size from which on an answer is reserved.
    #[inline]
    pub fn reserved_answer_bytes_min(&self) -> usize {
        self.reserved_answer_bytes_min
    }

    /// Reserves memory for a connection; `None` when the connection is queued.
    pub fn reserve(&self, demand: Demand, connection: ConnectionId) -> Option<Grant> {
        self.memory.reserve(demand, &self.waker, connection)
    }

    /// As [`MemoryLedger::reserve`], in exchange for what the connection was granted.
    pub fn exchange(
        &self,
        before: &mut ConnectionReservation,
        demand: Demand,
        connection: ConnectionId,
    ) -> Option<Grant> {
        self.memory.exchange(before, demand, &self.waker, connection)
    }

    /// Removes a connection from the queue.
    pub fn leave(&self, connection: ConnectionId) {
        self.memory.leave(&self.waker, connection);
    }
}
