//! Writes that are complete in memory and whose answer waits for the store.
//!
//! Owns: everything the answer needs, so that the connection may forget the request. Invariant: a
//! completion finds its write by position *and* serial number. The worker gives out serial numbers
//! and does not reuse one for four thousand million writes. A completion that arrives after its
//! write timed out therefore never answers another write.
//!
//! Callers: the write dispatcher (park) and the connection (complete, time out).

use oribi_engine::{AppliedMutation, ItemRef};
use oribi_protocol::response::ServerDuration;
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Seqno, VbUuid};
use slab::Slab;

use crate::buckets::PrepareGuard;
use crate::connection::latency_clock::LatencyClock;
use crate::connection::request_id::RequestId;
use crate::limits::PARKED_MAX;

/// The part of an answer that depends on the write's result.
#[derive(Debug)]
pub enum Answer {
    /// Set, add, replace, append, prepend, delete.
    Mutation(AppliedMutation),
    Counter {
        /// CAS and seqno of the new value.
        mutation: AppliedMutation,
        value: u64,
    },
    /// Touch: only the CAS is answered.
    Touched(AppliedMutation),
    SubDocument {
        /// CAS and seqno of the new value.
        mutation: AppliedMutation,
        /// Success, or success on a tombstone.
        status: Status,
        /// The new values of counters.
        value: Vec<u8>,
        /// Datatype of the value.
        datatype: Datatype,
    },
    Document(ItemRef),
}

impl Answer {
    /// The vbucket history of the mutation, where the answer has it.
    pub fn history(&self) -> Option<VbUuid> {
        match self {
            Answer::Mutation(mutation)
            | Answer::Counter { mutation, .. }
            | Answer::Touched(mutation)
            | Answer::SubDocument { mutation, .. } => Some(mutation.vb_uuid),
            Answer::Document(_) => None,
        }
    }

    /// The same write, for a wait whose answer is kept elsewhere.
    pub(crate) fn position(&self) -> Answer {
        match self {
            Answer::Mutation(mutation)
            | Answer::Counter { mutation, .. }
            | Answer::Touched(mutation)
            | Answer::SubDocument { mutation, .. } => Answer::Mutation(*mutation),
            Answer::Document(item) => Answer::Document(item.clone()),
        }
    }

    /// Bytes of memory that it keeps besides itself.
    fn held_bytes(&self) -> usize {
        match self {
            Answer::Document(item) => item.block_bytes(),
            Answer::SubDocument { value, .. } => value.capacity(),
            Answer::Mutation(_) | Answer::Counter { .. } | Answer::Touched(_) => 0,
        }
    }

    /// The seqno that has to be durable before the answer is sent.
    pub fn seqno(&self) -> Seqno {
        match self {
            Answer::Mutation(mutation)
            | Answer::Counter { mutation, .. }
            | Answer::Touched(mutation)
            | Answer::SubDocument { mutation, .. } => mutation.seqno,
            Answer::Document(item) => item.seqno(),
        }
    }

    /// The write is a version of this seqno: its prepare was committed.
    pub fn set_seqno(&mut self, seqno: Seqno) {
        debug_assert!(seqno > self.seqno(), "a commit follows its prepare");
        match self {
            Answer::Mutation(mutation)
            | Answer::Counter { mutation, .. }
            | Answer::Touched(mutation)
            | Answer::SubDocument { mutation, .. } => mutation.seqno = seqno,
            // Its answer names no seqno.
            Answer::Document(_) => {}
        }
    }
}

#[derive(Debug)]
pub struct ParkedWrite {
    /// Serial number of the write in the worker.
    pub serial: u32,
    /// The request to answer.
    pub request: RequestId,
    /// When the request was first tried, on the latency clock; 0 when it is not measured.
    pub begun_ns: u64,
    /// When the write was parked, on the worker's monotonic clock.
    pub since_ms: u64,
    /// When the client stops waiting, on the worker's monotonic clock.
    pub deadline_ms: u64,
    /// The answer, once the write is durable.
    pub answer: Answer,
    /// Of a write that other nodes have to acknowledge.
    pub(crate) _prepare: Option<PrepareGuard>,
}

impl ParkedWrite {
    /// How long the request has taken so far, if the client negotiated that figure.
    pub(crate) fn duration(&self, clock: &LatencyClock) -> Option<ServerDuration> {
        let elapsed_ns = || clock.now_ns().saturating_sub(self.begun_ns);
        (self.begun_ns != 0).then(|| ServerDuration::of_ns(elapsed_ns()))
    }
}

/// Token of one waiting write, unique within a worker: 20 bits of connection slot, 12 bits of
/// position, 32 bits of serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkToken {
    /// The connection's position in the worker's slab.
    pub slot: u32,
    /// The write's position in the connection.
    pub position: u16,
    /// Serial number of the write in the worker.
    pub serial: u32,
}

impl ParkToken {
    /// Encodes the token for its way through the engine.
    pub fn encode(self) -> u64 {
        assert!(self.slot < 1 << 20 && self.position < 1 << 12, "a token has 20 and 12 bits");
        let token =
            u64::from(self.slot) << 44 | u64::from(self.position) << 32 | u64::from(self.serial);
        debug_assert_eq!(ParkToken::decode(token), self, "a token is read as it was written");
        token
    }

    pub fn decode(token: u64) -> ParkToken {
        ParkToken {
            slot: (token >> 44) as u32,
            position: (token >> 32 & 0xfff) as u16,
            serial: token as u32,
        }
    }
}

/// The waiting writes of one connection.
#[derive(Debug, Default)]
pub struct ParkedWrites {
    writes: Slab<ParkedWrite>,
    /// What their answers keep.
    answer_bytes: usize,
}

impl ParkedWrites {
    /// The position of the next write; `None` when too many wait already.
    pub fn next_position(&self) -> Option<u16> {
        (self.writes.len() < PARKED_MAX).then(|| self.writes.vacant_key() as u16)
    }

    /// Parks a write at `next_position`.
    pub fn park(&mut self, write: ParkedWrite) {
        assert!(self.writes.len() < PARKED_MAX, "the caller asked for a position first");
        debug_assert!(self.writes.vacant_key() < PARKED_MAX, "a token has 12 bits for a position");
        assert!(write.serial != 0, "serial 0 stands for no write");
        debug_assert!(write.deadline_ms >= write.since_ms, "a deadline follows the beginning");
        self.answer_bytes += write.answer.held_bytes();
        self.writes.insert(write);
    }

    /// Takes the write that a completion belongs to, if it still waits.
    pub fn take(&mut self, position: u16, serial: u32) -> Option<ParkedWrite> {
        let key = usize::from(position);
        let is_same = self.writes.get(key).is_some_and(|parked| parked.serial == serial);
        is_same.then(|| self.remove(key))
    }

    /// Takes one write whose deadline has passed.
    pub fn take_overdue(&mut self, now_ms: u64) -> Option<ParkedWrite> {
        let key = self.writes.iter().find(|(_, parked)| parked.deadline_ms <= now_ms)?.0;
        Some(self.remove(key))
    }

    fn remove(&mut self, key: usize) -> ParkedWrite {
        let write = self.writes.remove(key);
        let bytes = write.answer.held_bytes();
        assert!(self.answer_bytes >= bytes, "an answer is counted until its write is taken");
        self.answer_bytes -= bytes;
        write
    }

    /// Bytes of memory that the writes and their answers keep.
    pub fn held_bytes(&self) -> usize {
        self.writes.capacity() * size_of::<ParkedWrite>() + self.answer_bytes
    }

    /// Panics unless the sum is that of the answers. Visits every write.
    pub fn check_invariants(&self) {
        let bytes: usize = self.writes.iter().map(|(_, write)| write.answer.held_bytes()).sum();
        assert_eq!(self.answer_bytes, bytes, "each answer is counted");
    }

    /// Number of waiting writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use oribi_engine::AppliedMutation;
    use oribi_types::{Cas, Seqno, VbUuid};

    use super::{Answer, ParkToken, ParkedWrite, ParkedWrites};
    use crate::connection::request_id::RequestId;

    fn answer() -> Answer {
        Answer::Mutation(AppliedMutation { cas: Cas(1), seqno: Seqno(2), vb_uuid: VbUuid(3) })
    }

    fn write(serial: u32, opaque: u32, deadline_ms: u64) -> ParkedWrite {
        let answer = answer();
        let request = RequestId { opcode: 0, opaque };
        ParkedWrite {
            serial,
            request,
            begun_ns: 0,
            since_ms: 1,
            deadline_ms,
            answer,
            _prepare: None,
        }
    }

    #[test]
    fn token_survives_the_round_trip_at_its_limits() {
        let token = ParkToken { slot: (1 << 20) - 1, position: 4095, serial: u32::MAX };
        assert_eq!(ParkToken::decode(token.encode()), token);
        let token = ParkToken { slot: 5, position: 0, serial: 9 };
        assert_eq!(ParkToken::decode(token.encode()), token);
    }

    #[test]
    fn late_completion_does_not_answer_the_next_write() {
        let mut parked = ParkedWrites::default();
        let position = parked.next_position().unwrap();
        parked.park(write(1, 10, 5));
        assert_eq!(parked.take_overdue(5).unwrap().request.opaque, 10);
        assert_eq!(parked.next_position(), Some(position));
        parked.park(write(2, 11, 50));
        assert!(parked.take(position, 1).is_none());
        assert_eq!(parked.take(position, 2).unwrap().request.opaque, 11);
        assert!(parked.is_empty());
    }
}
