//! Writes that are done in memory and whose answer waits for the store.
//!
//! Owns: everything the answer needs, so that the connection may forget the request. Invariant: a
//! completion finds its write by position *and* serial number; serial numbers are given out by the
//! worker and not reused for four thousand million writes, so that a completion which arrives after
//! its write timed out can never answer another write. Called by the write dispatcher (park), the
//! connection (complete, time out).

use oribi_engine::{ItemRef, Mutation};
use oribi_protocol::response::ServerDuration;
use oribi_protocol::status::Status;
use oribi_types::VbUuid;
use slab::Slab;

use super::state::ConnectionState;
use crate::environment::{Environment, LatencyClock};
use crate::limits::PARKED_MAX;
use crate::slow_operation_log::{Operation, OperationClass};

/// The part of an answer that depends on what the write did.
#[derive(Debug)]
pub enum Answer {
    /// Set, add, replace, append, prepend, delete.
    Mutation(Mutation),
    /// Increment and decrement.
    Counter {
        /// Version and place of the new value.
        mutation: Mutation,
        /// The new value.
        value: u64,
    },
    /// Touch: only the CAS is answered.
    Touched(Mutation),
    /// Mutations of sub-documents.
    SubDocument {
        /// Version and place of the new value.
        mutation: Mutation,
        /// Success, or success on a tombstone.
        status: Status,
        /// What counters stand at.
        value: Vec<u8>,
    },
    /// Get-and-touch: the document.
    Document(ItemRef),
}

impl Answer {
    /// The history that the mutation is part of, where the answer knows it.
    pub fn history(&self) -> Option<VbUuid> {
        match self {
            Answer::Mutation(mutation)
            | Answer::Counter { mutation, .. }
            | Answer::Touched(mutation)
            | Answer::SubDocument { mutation, .. } => Some(mutation.vb_uuid),
            Answer::Document(_) => None,
        }
    }
}

/// One waiting write.
#[derive(Debug)]
pub struct Parked {
    /// Serial number of the write in the worker.
    pub serial: u32,
    /// Opcode of the request.
    pub opcode: u8,
    /// Opaque of the request.
    pub opaque: u32,
    /// When the request was first tried, on the latency clock; 0 when that is not measured.
    pub begun_ns: u64,
    /// When it was parked, on the worker's monotonic clock.
    pub since_ms: u64,
    /// When the client stops waiting, on the worker's monotonic clock.
    pub deadline_ms: u64,
    /// What to answer once it is durable.
    pub answer: Answer,
}

impl Parked {
    /// How long the request took until now, where the client negotiated to be told.
    pub(crate) fn duration(&self, clock: &LatencyClock) -> Option<ServerDuration> {
        let elapsed_ns = || clock.now_ns().saturating_sub(self.begun_ns);
        (self.begun_ns != 0).then(|| ServerDuration::of_ns(elapsed_ns()))
    }

    /// Tells the slow operation log about a write that is decided. Its key is not known any more.
    pub(crate) fn note_if_slow(&self, state: &ConnectionState, env: &mut Environment) {
        let operation = Operation {
            opcode: self.opcode,
            class: OperationClass::Durable,
            connection: state.record.number,
            user: state.identity.as_ref().map_or("", |identity| &identity.name),
            bucket: state.bucket.as_ref().map_or("", |bucket| bucket.name()),
            key: b"",
            execute_us: None,
            fetch_ms: 0,
            persist_ms: env.now_ms.saturating_sub(self.since_ms),
        };
        env.slow.note(env.now_ms, &operation);
    }
}

/// Token of one waiting write among all of a worker: 20 bits of connection slot, 12 bits of position,
/// 32 bits of serial number.
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
    /// As it travels through the engine.
    pub fn encode(self) -> u64 {
        u64::from(self.slot) << 44 | u64::from(self.position) << 32 | u64::from(self.serial)
    }

    /// Reverses `encode`.
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
    writes: Slab<Parked>,
}

impl ParkedWrites {
    /// The position that the next write will get; `None` when too many wait already.
    pub fn next_position(&self) -> Option<u16> {
        (self.writes.len() < PARKED_MAX).then(|| self.writes.vacant_key() as u16)
    }

    /// Parks a write at `next_position`.
    pub fn park(&mut self, write: Parked) {
        self.writes.insert(write);
    }

    /// Takes the write that a completion is for, if it still waits.
    pub fn take(&mut self, position: u16, serial: u32) -> Option<Parked> {
        let key = usize::from(position);
        let is_same = self.writes.get(key).is_some_and(|parked| parked.serial == serial);
        is_same.then(|| self.writes.remove(key))
    }

    /// Takes some write whose deadline has passed.
    pub fn take_overdue(&mut self, now_ms: u64) -> Option<Parked> {
        let key = self.writes.iter().find(|(_, parked)| parked.deadline_ms <= now_ms)?.0;
        Some(self.writes.remove(key))
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use oribi_engine::Mutation;
    use oribi_types::{Cas, Seqno, VbUuid};

    use super::{Answer, ParkToken, Parked, ParkedWrites};

    fn answer() -> Answer {
        Answer::Mutation(Mutation { cas: Cas(1), seqno: Seqno(2), vb_uuid: VbUuid(3) })
    }

    fn write(serial: u32, opaque: u32, deadline_ms: u64) -> Parked {
        let answer = answer();
        Parked { serial, opcode: 0, opaque, begun_ns: 0, since_ms: 1, deadline_ms, answer }
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
        assert_eq!(parked.take_overdue(5).unwrap().opaque, 10);
        assert_eq!(parked.next_position(), Some(position));
        parked.park(write(2, 11, 50));
        assert!(parked.take(position, 1).is_none());
        assert_eq!(parked.take(position, 2).unwrap().opaque, 11);
        assert!(parked.is_empty());
    }
}
