//! Reserves memory for large documents of a producer before they enter its output.
//!
//! Owns: when a stream may take a large document. Sent from its place in a table, it needs a share
//! of its block. One that a backfill has copied was granted to the backfill, and needs nothing.
//!
//! Invariant: the connection asks only while its output is empty, so it waits with nothing
//! reserved. Other streams of the connection continue during the wait.

use oribi_engine::dcp::ChangedDocument;
use oribi_protocol::dcp::open::OpenFlags;

use crate::connection::memory::ConnectionReservation;
use crate::connection::memory::budget::Demand;
use crate::connection::memory::ledger::MemoryLedger;
use crate::connection::waker::ConnectionId;

/// The answer to [`Lender::ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoanDecision {
    /// The document may be sent.
    Yes,
    /// It may be asked for again when the output is empty, or memory is granted.
    Later,
}

/// See the module text.
pub(crate) struct Lender<'a> {
    /// The worker's part of the budget.
    pub ledger: &'a MemoryLedger,
    pub connection: ConnectionId,
    /// Memory that it has reserved.
    pub reserved: &'a mut ConnectionReservation,
    /// Now, on the worker's monotonic clock.
    pub now_ms: u64,
    /// A request of the connection is in the queue.
    pub request_waits: bool,
}

impl Lender<'_> {
    /// The document's additional memory demand before it is sent, if any.
    pub fn demand(&self, flags: OpenFlags, document: &ChangedDocument<'_>) -> Option<Demand> {
        let item = document.item?;
        let is_large = document.record.value.len() >= self.ledger.reserved_answer_bytes_min();
        let is_sent = !document.record.deleted
            && !flags.has(OpenFlags::NO_VALUE)
            && !flags.has(OpenFlags::NO_VALUE_WITH_DATATYPE);
        (is_large && is_sent).then(|| Demand::of_block(item))
    }

    /// Reserves memory, or queues the connection for it, once: `waits` is whether it is queued.
    pub fn ask(&mut self, demand: Demand, has_output: bool, waits: &mut bool) -> LoanDecision {
        let bytes = self.ledger.memory().counted(demand.bytes);
        let demand = Demand { bytes, ..demand };
        debug_assert!(demand.block.is_some(), "a document is lent by its block");
        if self.reserved.covers(demand, has_output) {
            return LoanDecision::Yes;
        }
        if has_output || *waits || self.request_waits {
            return LoanDecision::Later;
        }
        let granted = match self.reserved.take_is_fresh() {
            true => self.ledger.exchange(self.reserved, demand, self.connection),
            false => {
                self.ledger.memory().release_all(self.reserved);
                self.ledger.reserve(demand, self.connection)
            }
        };
        let Some(grant) = granted else {
            *waits = true;
            return LoanDecision::Later;
        };
        self.reserved.add(grant, self.now_ms);
        LoanDecision::Yes
    }
}
