//! Tracks a connection's part of the memory that all connections share, and reserves more.
//!
//! Owns: how a large request gets its reservation before it is received, when a reservation ends,
//! and how long a client may lag with one.
//!
//! Invariants:
//! - a connection asks only while it has nothing reserved and nothing to send, so it holds nothing
//!   while it waits;
//! - a reservation ends with the turn in which its request is received and served, or its answer
//!   sent.
//!
//! The connection and the worker call this. See [`crate::connection::memory`].

use oribi_protocol::frame::Header;
use oribi_protocol::limits::{HEADER_BYTES, KEY_FIELD_BYTES_MAX};
use oribi_protocol::status::Status;

use super::{ConnectionDriver, TurnProgress, extra_ms, incoming};
use crate::connection::memory::budget::{Demand, Grant};
use crate::connection::pending::{HeadWait, Pending};
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::PinnedValue;
use crate::dispatch::environment::Environment;
use crate::dispatch::{self, ServeResult, fail_request};
use crate::limits::{
    HELD_BYTES_WORTH_CLOSING, HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS, UNRESERVED_REQUEST_BYTES_MAX,
};

/// Most bytes of a request before its value: header, framing extras, extras and key.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 2 * u8::MAX as usize + KEY_FIELD_BYTES_MAX;

const NO_MEMORY: &str = "the memory for connections is in use";

impl ConnectionDriver {
    /// Bytes held for this connection alone: received and unserved input, parked requests, a value
    /// being received into its item, the block of answers and the documents in the output queue.
    pub fn buffer_bytes(&self) -> usize {
        let parked = self.state.deferred.bytes();
        let incoming = self.incoming.as_ref().map_or(0, |incoming| incoming.header.frame_bytes());
        let pinned: usize = self.writer.pinned().map(|value| value.held_bytes()).sum();
        self.reader.capacity() + parked + incoming + self.writer.block_bytes() + pinned
    }

    /// Ends a turn: reports the held bytes to the worker's ledger, and returns reservations that
    /// are no longer needed. `transport_bytes` is what the transport holds for the connection.
    pub fn settle(&mut self, env: &mut Environment, transport_bytes: usize) {
        if self.state.reserved.is_any() && !self.uses_reservation() {
            self.release(env);
        }
        let pinned = || self.writer.pinned().filter_map(PinnedValue::block);
        for grant in self.state.reserved.take_unused(|key| pinned().any(|block| block == key)) {
            env.memory.memory().release_grant(grant);
        }
        let buffers = self.buffer_bytes() + transport_bytes;
        self.state.record().buffer_bytes.set(buffers as u64);
        debug_assert!(self.granted_bytes() <= buffers, "granted values are in the buffers");
        let unreserved = buffers - self.granted_bytes();
        self.hold(env, unreserved.saturating_sub(self.state.reserved.bytes()));
    }

    /// Bytes of the output for which shared reservations pay.
    fn granted_bytes(&self) -> usize {
        let reserved = &self.state.reserved;
        let granted = self.writer.pinned().filter(|value| value.is_granted(reserved));
        granted.map(PinnedValue::held_bytes).sum()
    }

    /// Returns everything that the connection holds or waits for, when it ends.
    pub fn give_back(&mut self, env: &mut Environment) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        self.leave_queue(env);
        self.release(env);
        self.hold(env, 0);
        assert!(!self.state.reserved.is_any(), "a connection that ends holds no reservation");
    }

    fn uses_reservation(&self) -> bool {
        self.timing.partial_since_ms != 0
            || self.incoming.is_some()
            || !self.writer.is_empty()
            // A whole request that waits for something else.
            || (!self.reader.is_empty() && self.reader.capacity() > UNRESERVED_REQUEST_BYTES_MAX)
    }

    fn release(&mut self, env: &mut Environment) {
        if self.state.reserved.is_any() {
            env.memory.memory().release_all(&mut self.state.reserved);
        }
    }

    /// Leaves the queue for memory. The streams of a producer ask again.
    fn leave_queue(&mut self, env: &Environment) {
        let producer = self.state.producer.as_mut();
        let is_producers = producer.is_some_and(|it| std::mem::take(&mut it.waits_for_memory));
        if is_producers || self.state.pending.waits_for_memory() {
            env.memory.leave(self.id);
        }
    }

    fn hold(&mut self, env: &mut Environment, bytes: usize) {
        let before = std::mem::replace(&mut self.held_bytes, bytes);
        env.memory.note(before, bytes);
    }

    /// Shrinks the input buffer to the received bytes, for a connection that may wait for long.
    pub fn shrink(&mut self, env: &mut Environment) {
        let before = self.reader.capacity();
        if !self.state.reserved.is_any() {
            self.reader.shrink();
        }
        debug_assert!(self.reader.capacity() <= before, "a buffer that shrinks frees memory");
        let freed = before - self.reader.capacity();
        self.hold(env, self.held_bytes.saturating_sub(freed));
    }

    /// Start of the client's lag in finishing a request or reading an answer, if that holds memory.
    pub fn lags_since_ms(&self) -> Option<u64> {
        let is_waiting = self.state.pending.is_waiting();
        let since_ms = match self.timing.stalled_since_ms {
            0 if is_waiting => 0,
            0 => self.timing.partial_since_ms,
            stalled_ms => stalled_ms,
        };
        (since_ms != 0 && self.held_bytes >= HELD_BYTES_WORTH_CLOSING).then_some(since_ms)
    }

    /// True when others wait for memory, and the client has stalled for too long with the memory of
    /// this connection. Its streams release their memory beyond the output.
    pub fn holds_up_others(&mut self, env: &Environment) -> bool {
        if !env.memory.memory().has_waiters() {
            return false;
        }
        let is_late = |since_ms: u64| {
            since_ms != 0 && env.now_ms - since_ms.min(env.now_ms) > HOLDER_LAG_MAX_MS
        };
        let is_stalled = is_late(self.timing.stalled_since_ms);
        if let Some(producer) = &mut self.state.producer {
            producer.give_up_unsent(is_stalled);
        }
        // A client that is being sent something is late when its socket is full, not when the
        // server has had no time for it.
        let is_holder_late = match self.writer.is_empty() {
            true => is_late(self.state.reserved.since_ms()),
            false => is_stalled,
        };
        let holds_reserved = self.state.reserved.is_any() && self.uses_reservation();
        holds_reserved && is_holder_late
            || is_stalled && self.granted_bytes() > 0
            || env.memory.memory().is_tight() && self.lags_since_ms().is_some_and(is_late)
    }

    /// Records that bytes arrived. They earn the client of a slow large request more time.
    pub fn received(&mut self, bytes: usize, now_ms: u64) {
        let timing = &mut self.timing;
        if timing.partial_since_ms != 0 && timing.partial_bytes > UNRESERVED_REQUEST_BYTES_MAX {
            timing.partial_since_ms = (timing.partial_since_ms + extra_ms(bytes)).min(now_ms);
            self.earn_time(bytes, now_ms);
        }
    }

    pub(super) fn earn_time(&mut self, bytes: usize, now_ms: u64) {
        if self.state.reserved.is_any() {
            self.state.reserved.earn_time(bytes, now_ms);
        }
    }

    /// Takes the reservation that the connection waited for.
    pub fn memory_granted(&mut self, env: &mut Environment, grant: Grant) {
        let producer = self.state.producer.as_mut();
        let is_producers = producer.is_some_and(|it| std::mem::take(&mut it.waits_for_memory));
        if is_producers {
            return self.state.reserved.add_fresh(grant, env.now_ms);
        }
        let waited = |wait| matches!(wait, HeadWait::Memory { .. });
        if !self.state.pending.end_head_wait(waited) {
            // The reservation came too late.
            return env.memory.memory().release_grant(grant);
        }
        self.state.reserved.add_fresh(grant, env.now_ms);
        debug_assert!(self.state.reserved.is_any(), "what was granted is held");
        if self.timing.partial_since_ms != 0 {
            // The client could not continue during the wait.
            self.timing.partial_since_ms = env.now_ms;
        }
    }

    /// Ends a wait for memory that has taken too long; true when it did.
    pub fn expire_memory_wait(&mut self, env: &mut Environment) -> bool {
        let timed_out = self.state.pending.time_out_memory(env.now_ms, MEMORY_WAIT_MS);
        if timed_out {
            env.memory.leave(self.id);
            env.memory.memory().note_refused();
        }
        timed_out
    }

    /// The effect of a wait on the turn; `None` when requests can still be served.
    pub(super) fn wait_progress(&self) -> Option<TurnProgress> {
        let waits_unless_ready =
            || (!self.state.deferred.has_ready()).then_some(TurnProgress::Waiting);
        match &self.state.pending {
            Pending::Nothing | Pending::Retry(_) | Pending::Answer(_) => None,
            Pending::Job { .. } | Pending::Deferred => waits_unless_ready(),
            Pending::Head { wait, .. } => match wait {
                HeadWait::Fetch => waits_unless_ready(),
                HeadWait::Drain => (!self.writer.is_empty()).then_some(TurnProgress::OutputFull),
                HeadWait::Memory { .. } | HeadWait::Bucket => Some(TurnProgress::Waiting),
            },
        }
    }

    /// Continues with a partly received request that needs a reservation: refuses it by its
    /// head, or reserves memory for it. `None` when more of it is to be received.
    pub(super) fn receive_large(
        &mut self,
        env: &mut Environment,
        header: Header,
        frame_bytes: usize,
    ) -> Option<ServeResult> {
        debug_assert!(
            frame_bytes > UNRESERVED_REQUEST_BYTES_MAX,
            "small requests need no reservation"
        );
        let head_bytes = frame_bytes - header.value_bytes().unwrap_or(0);
        debug_assert!(head_bytes >= HEADER_BYTES, "a head has the header");
        if head_bytes > HEAD_BYTES_MAX {
            return Some(self.pass_over(&header, Status::Einval, "the key is not valid"));
        }
        if self.reader.unread().len() < head_bytes {
            self.reader.reserve_frame(head_bytes);
            return None;
        }
        if self.state.reserved.bytes() < env.memory.memory().counted(frame_bytes) {
            if let Some(served) = self.admit_large(env, header, head_bytes) {
                return Some(served);
            }
            if let Some(served) = self.reserve_request(env, &header, frame_bytes) {
                return Some(served);
            }
        }
        let is_stored_in_place = incoming::Incoming::head_bytes(&header).is_some();
        if !(is_stored_in_place && self.begin_incoming(env, header, head_bytes)) {
            self.reader.reserve_whole(frame_bytes);
        }
        None
    }

    /// Refuses a request by its head if it would not be served anyway.
    fn admit_large(
        &mut self,
        env: &mut Environment,
        header: Header,
        head_bytes: usize,
    ) -> Option<ServeResult> {
        debug_assert_eq!(self.skip_bytes, 0, "one body is passed over at a time");
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        let head = &reader.unread()[HEADER_BYTES..head_bytes];
        let frame = incoming::frame_of(header, head);
        if dispatch::admits_large(*id, state, writer, env, &frame) {
            return None;
        }
        self.skip_bytes = header.frame_bytes();
        Some(ServeResult::Done)
    }

    /// Reserves memory for a request. `None` when the reservation is made; otherwise the request is
    /// refused or waits.
    fn reserve_request(
        &mut self,
        env: &mut Environment,
        header: &Header,
        frame_bytes: usize,
    ) -> Option<ServeResult> {
        match self.reserve_bytes(env, frame_bytes) {
            Some(ServeResult::Done) => Some(self.pass_over(header, Status::Etmpfail, NO_MEMORY)),
            waits => waits,
        }
    }

    /// Reserves memory for a request of `bytes`. `None` when the reservation is made; `Done` when
    /// it is refused.
    pub(super) fn reserve_bytes(
        &mut self,
        env: &mut Environment,
        bytes: usize,
    ) -> Option<ServeResult> {
        debug_assert!(bytes > 0, "a reservation is of memory");
        if self.state.pending.take_memory_timeout() {
            return Some(ServeResult::Done);
        }
        self.reader.shrink();
        if !self.writer.is_empty() {
            self.state.pending.wait_at_head(HeadWait::Drain);
            return Some(ServeResult::Later);
        }
        // The reservation of the previous request, and the place in the queue of its streams.
        self.release(env);
        self.leave_queue(env);
        match env.memory.reserve(Demand::of_bytes(bytes), self.id) {
            Some(grant) => {
                self.state.reserved.add(grant, env.now_ms);
                None
            }
            None => {
                let since_ms = env.now_ms;
                self.state.pending.wait_at_head(HeadWait::Memory { since_ms });
                Some(ServeResult::Later)
            }
        }
    }

    /// Answers a partly received request, and skips the rest of it.
    fn pass_over(&mut self, header: &Header, status: Status, context: &'static str) -> ServeResult {
        debug_assert_eq!(self.skip_bytes, 0, "one body is passed over at a time");
        let request = RequestId::of(header);
        fail_request(&mut self.state, &mut self.writer, request, status, Some(context));
        self.skip_bytes = header.frame_bytes();
        ServeResult::Done
    }
}
