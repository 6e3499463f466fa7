//! One client connection as a state machine without I/O: bytes in, bytes out.
//!
//! Owns: the received bytes that are not yet served ([`ReadBuffer`]), the answers that are not yet sent
//! ([`WriteBuffer`]), what was negotiated, and what is waited for. The driver (a worker, the in-memory
//! harness, a fuzzer) reads a socket into the one, writes the other to it, and calls [`Connection::process`]
//! in between until it reports that there is nothing to do.
//!
//! Invariants:
//! - a STAT is answered in slices; between two of them the driver may send and serve others;
//! - frames are served strictly in order; only what waits for the store, writes to be persisted and
//!   requests whose document is fetched, is overtaken, and only when the client negotiated that;
//! - no frame is served while something is waited for, while too much output is pending, or after the
//!   connection began to close;
//! - a frame is buffered only after its announced size passed the limits; a value over the limit is
//!   answered and skipped without being stored, a large one within it is received into its item;
//! - whatever ends the connection is one [`CloseReason`], reported once.
//!
//! It deliberately knows no socket and reads no clock.

mod admission;
mod announcing;
pub mod close_reason;
pub(crate) mod features;
pub(crate) mod fetches;
mod fetching;
mod incoming;
mod lookahead;
pub(crate) mod parked;
mod refusing;
pub(crate) mod rights;
mod serving;
pub(crate) mod state;
pub mod write_buffer;

use std::sync::Arc;

use oribi_engine::{FillingItem, PersistOutcome};
use oribi_protocol::read_buffer::ReadBuffer;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

use crate::audit::Event;
use crate::auth::{Identity, UserStore};
use crate::blocking_thread::JobResult;
use crate::connection_registry::ConnectionRecord;
use crate::dispatch::{self, Served, write_answer, write_context};
use crate::environment::Environment;
use crate::limits::{
    FRAME_DEADLINE_BYTES_PER_SECOND, FRAMES_PER_TURN, HEAD_ROOM_BYTES, OUTPUT_FLUSH_BYTES,
};
use crate::mailbox::ConnectionId;
use crate::server_context::ConnectionLimits;
use crate::status;
use close_reason::CloseReason;
use incoming::Incoming;
use lookahead::Lookahead;
use parked::{ParkToken, Parked};
use state::{ConnectionState, Wait};
use write_buffer::WriteBuffer;

/// Why [`Connection::process`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Every complete frame is served.
    NeedInput,
    /// Output should be sent before more frames are served.
    OutputFull,
    /// Others should get their turn; there are more frames.
    TurnOver,
    /// Something is waited for.
    Waiting,
    /// Send what is pending, then end.
    Closing,
}

/// Times that deadlines are counted from, on the driver's clock; 0 for none.
#[derive(Debug, Default)]
struct Timing {
    /// Its last turn.
    active_ms: u64,
    /// When the frame at the head of the buffer was first seen to be partial.
    partial_since_ms: u64,
    /// Its announced size.
    partial_bytes: usize,
    /// When the socket last took no more, moved on by what it took since.
    stalled_since_ms: u64,
}

/// See the module text.
pub(crate) struct Connection {
    id: ConnectionId,
    reader: ReadBuffer,
    writer: WriteBuffer,
    state: ConnectionState,
    timing: Timing,
    /// Answers that are not sent, from which on requests wait.
    send_queue_bytes_max: usize,
    /// Bytes of an oversized body that are still to be passed over.
    skip_bytes: usize,
    /// A store request whose value is being received into its item.
    incoming: Option<Box<Incoming>>,
    /// Requests to come that may well be such a one, because one was not long ago.
    expects_incoming: u8,
    /// See [`Lookahead::value_bytes`].
    value_bytes_read: u16,
}

impl Connection {
    /// A connection that nothing was received on.
    pub fn new(
        id: ConnectionId,
        record: Arc<ConnectionRecord>,
        now_ms: u64,
        limits: &ConnectionLimits,
    ) -> Connection {
        Connection {
            id,
            reader: ReadBuffer::new(),
            writer: WriteBuffer::new(),
            state: ConnectionState::new(record, now_ms),
            timing: Timing { active_ms: now_ms, ..Timing::default() },
            send_queue_bytes_max: limits.send_queue_bytes_max,
            skip_bytes: 0,
            incoming: None,
            expects_incoming: 0,
            value_bytes_read: 0,
        }
    }

    /// Which connection this is.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// What others can know of it.
    pub fn record(&self) -> &ConnectionRecord {
        &self.state.record
    }

    /// Where received bytes go.
    pub fn reader(&mut self) -> &mut ReadBuffer {
        &mut self.reader
    }

    /// The item that received bytes go into instead, while the value of a large store request comes.
    pub fn incoming(&mut self) -> Option<&mut FillingItem> {
        self.incoming.as_mut().map(|incoming| &mut incoming.item)
    }

    /// Most bytes to receive at once while no item is waiting for them. Behind a large value another one is
    /// likely: then only its head is received here, and all of its value straight into its item.
    pub fn receive_bytes_max(&self) -> usize {
        if self.expects_incoming > 0 { HEAD_ROOM_BYTES } else { usize::MAX }
    }

    /// True while a large value is on its way in or out, as its own transfer.
    pub fn is_moving_large_value(&self) -> bool {
        self.incoming.is_some() || self.writer.holds_pinned()
    }

    /// Where answers come from.
    pub fn writer(&mut self) -> &mut WriteBuffer {
        &mut self.writer
    }

    /// Bytes that are held for this connection alone: what is received and not served, parked requests,
    /// a value on its way into its item, and the block of answers.
    pub fn buffer_bytes(&mut self) -> usize {
        let parked = self.state.fetches.as_ref().map_or(0, |fetches| fetches.parked_bytes());
        let incoming = self.incoming.as_ref().map_or(0, |incoming| incoming.header.frame_bytes());
        self.reader.capacity() + parked + incoming + self.writer.tail().capacity()
    }

    /// Makes `identity` the user of the connection, proved by other means than a request.
    pub fn authenticate(&mut self, identity: Arc<Identity>) {
        self.state.authenticate(identity);
    }

    /// Records a user who was proved by a certificate, and ends the connection when only administrators get
    /// one now.
    pub fn audit_certified(&mut self, env: &Environment) {
        let is_admin = self.state.rights.is_admin();
        if env.server.audit.is_on() {
            env.server.audit.record(self.state.actor(), Event::Authenticated);
        }
        if !env.server.admit_user(is_admin) {
            self.close(CloseReason::TooManyConnections);
        }
    }

    /// Brings the user's rights up to date; false when there is no such user any more.
    pub fn refresh_user(&mut self, users: &UserStore) -> bool {
        self.state.refresh_user(users)
    }

    /// Why the connection ends, once it does.
    pub fn closing(&self) -> Option<CloseReason> {
        self.state.closing
    }

    /// Makes the connection end as soon as its output is sent.
    pub fn close(&mut self, reason: CloseReason) {
        self.state.close(reason);
    }

    /// False while reading would only fill memory: something is waited for, a STAT is being answered,
    /// output is not taken, or the connection ends.
    pub fn wants_input(&self) -> bool {
        !self.is_halted() && !self.state.is_streaming()
    }

    /// True while [`Connection::process`] would do nothing.
    pub fn is_halted(&self) -> bool {
        self.halted().is_some()
    }

    /// True while some write of this connection waits for the store.
    pub fn waits_for_store(&self) -> bool {
        self.state.has_parked_writes()
    }

    /// True while some request is parked, and something will be answered without more input.
    pub fn has_parked(&self) -> bool {
        self.state.has_parked()
    }

    /// Serves complete frames until there is a reason to stop. Parked requests that can go on come before
    /// everything else, a STAT that is being answered before the next frame, and one slice of it is a whole
    /// turn's work.
    pub fn process(&mut self, env: &mut Environment) -> Progress {
        let mut served = 0;
        self.timing.active_ms = env.now_ms;
        let goes_on = self.state.is_streaming() || self.state.has_ready();
        let progress = self.serve_frames(env, &mut served);
        if goes_on || !env.stretch.opcodes().is_empty() {
            dispatch::end_stretch(&self.state, env);
        }
        let record = &self.state.record;
        record.requests.add(served);
        record.active_unix_ns.set(env.now.unix_ns);
        progress
    }

    fn serve_frames(&mut self, env: &mut Environment, served: &mut u64) -> Progress {
        if let Some(progress) = self.serve_fetched(env) {
            return progress;
        }
        let mut ahead = Lookahead::new(env.server.limits.prefetch_keys, self.value_bytes_read);
        let progress = self.serve_ahead(env, &mut ahead, served);
        self.value_bytes_read = ahead.value_bytes();
        progress
    }

    fn serve_ahead(
        &mut self,
        env: &mut Environment,
        ahead: &mut Lookahead,
        served: &mut u64,
    ) -> Progress {
        for _ in 0..FRAMES_PER_TURN {
            if let Some(progress) = self.halted() {
                return progress;
            }
            if self.state.stat.is_some() {
                dispatch::continue_stat(&mut self.state, &mut self.writer, env);
                return self.halted().unwrap_or(Progress::TurnOver);
            }
            if self.state.range_scan.is_some() {
                let (state, out) = (&mut self.state, &mut self.writer);
                dispatch::resume_range_scan(state, out, self.id, env);
                return self.halted().unwrap_or(Progress::TurnOver);
            }
            if self.skip_bytes > 0 && !self.skip() {
                return Progress::NeedInput;
            }
            if let Some(incoming) = &self.incoming {
                if incoming.item.missing_bytes() > 0 {
                    return Progress::NeedInput;
                }
                match self.serve_incoming(env) {
                    Served::Done => *served += 1,
                    Served::Later | Served::Fetch { .. } => return Progress::Waiting,
                }
                continue;
            }
            ahead.advance(&self.state, self.reader.unread());
            match self.process_frame(env, ahead) {
                Some(Served::Done) => *served += 1,
                Some(Served::Later | Served::Fetch { .. }) => return Progress::Waiting,
                None if self.state.closing.is_some() => return Progress::Closing,
                None => return Progress::NeedInput,
            }
        }
        self.halted().unwrap_or(Progress::TurnOver)
    }

    fn halted(&self) -> Option<Progress> {
        if self.state.closing.is_some() {
            return Some(Progress::Closing);
        }
        if self.state.wait != Wait::Nothing && !self.state.has_ready() {
            return Some(Progress::Waiting);
        }
        self.output_is_full().then_some(Progress::OutputFull)
    }

    fn output_is_full(&self) -> bool {
        // While the socket takes everything, output goes out in pieces that amortise a system call;
        // once it does not, a little more is collected before requests have to wait.
        // A STAT knows no end of output, so it waits at once.
        let collects = self.timing.stalled_since_ms != 0 && !self.state.is_streaming();
        let limit = if collects { self.send_queue_bytes_max } else { OUTPUT_FLUSH_BYTES };
        self.writer.pending_bytes() >= limit
    }

    /// A write that waited for the store is decided. Late or foreign tokens are ignored.
    pub fn persisted(&mut self, env: &mut Environment, token: ParkToken, outcome: PersistOutcome) {
        let parked = self.state.parked.as_mut();
        let Some(parked) = parked.and_then(|all| all.take(token.position, token.serial)) else {
            return;
        };
        let context = "the store failed; whether it has the write is not known";
        self.answer_parked(env, &parked, (status::of_persist(outcome), context));
    }

    /// Answers a write that is decided; the context is for one that is not known to be durable.
    fn answer_parked(
        &mut self,
        env: &mut Environment,
        parked: &Parked,
        (status, context): (Status, &'static str),
    ) {
        let features = self.state.features;
        parked.note_if_slow(&self.state, env);
        let parts = ResponseParts {
            duration: parked.duration(&env.latency_clock),
            ..ResponseParts::new(parked.opcode, status, parked.opaque)
        };
        if status == Status::Success {
            write_answer(&mut self.writer, features, parts, &parked.answer);
        } else {
            if let Some(operations) = &self.state.operations {
                operations.counters().durable_ambiguous.add(1);
            }
            let parts = ResponseParts { status: self.state.wire_status(status), ..parts };
            write_context(&mut self.writer, features, &parts, context);
        }
        self.state.release_parked();
    }

    /// The blocking thread has a result for the request that this connection waits with. What it has found out in
    /// another `session` of the node may not be true any more.
    pub fn job_done(&mut self, env: &mut Environment, session: u64, result: JobResult) {
        let is_of_documents = !matches!(result, JobResult::Sasl(_) | JobResult::Refused);
        if is_of_documents && !env.still_holds(session) {
            return self.close(CloseReason::LeaseLost);
        }
        let Wait::Job { opcode, opaque } = std::mem::take(&mut self.state.wait) else { return };
        let request = (opcode, opaque);
        let (state, out) = (&mut self.state, &mut self.writer);
        match result {
            JobResult::Sasl(step) => {
                dispatch::finish_sasl(state, out, env, request, step);
            }
            JobResult::FlushAll(result) => dispatch::finish_flush(out, request, &result),
            JobResult::Answer(status, value) => {
                dispatch::finish_answer(state, out, request, (status, &value));
            }
            JobResult::Stat(prepared) => dispatch::begin_stat(state, out, request, prepared),
            JobResult::RangeScan(answer) => {
                dispatch::finish_range_scan(state, out, request, answer)
            }
            JobResult::Refused => {
                state.stat = None;
                state.range_scan = None;
                let parts = ResponseParts::new(opcode, Status::Etmpfail, opaque);
                write_response(out.tail(), &parts);
            }
        }
    }

    /// The socket took `sent` bytes. While it lags behind, that earns the client more time.
    pub fn sent(&mut self, sent: usize, now_ms: u64) {
        self.writer.advance(sent);
        let since = &mut self.timing.stalled_since_ms;
        if self.writer.is_empty() {
            *since = 0;
        } else if *since != 0 {
            *since = (*since + extra_ms(sent)).min(now_ms);
        }
    }

    /// The socket takes no more for now.
    pub fn stalled(&mut self, now_ms: u64) {
        if self.timing.stalled_since_ms == 0 {
            self.timing.stalled_since_ms = now_ms;
        }
    }

    /// Answers parked writes whose time is up; true when there were any.
    pub fn expire_parked(&mut self, env: &mut Environment) -> bool {
        let mut any = false;
        let now_ms = env.now_ms;
        while let Some(parked) = self.state.parked.as_mut().and_then(|all| all.take_overdue(now_ms))
        {
            let context = "the store did not have the write before the timeout";
            self.answer_parked(env, &parked, (Status::SyncWriteAmbiguous, context));
            any = true;
        }
        any
    }

    /// Why the connection has to end now because of the time that passed. `open_to_all` is development
    /// mode, where a client may be idle without having authenticated.
    pub fn overdue(
        &self,
        now_ms: u64,
        limits: &ConnectionLimits,
        open_to_all: bool,
    ) -> Option<CloseReason> {
        let timing = &self.timing;
        let is_over = |since_ms: u64, allowed_ms: u64| {
            since_ms != 0 && now_ms.saturating_sub(since_ms) > allowed_ms
        };
        if is_over(timing.stalled_since_ms, limits.send_deadline_ms) {
            return Some(CloseReason::SendDeadline);
        }
        let is_partial = timing.partial_since_ms != 0;
        // Also while a password is checked: whoever sends one wrong password after the other always waits. Where
        // all may come in a client may have been idle for long before it logs in.
        let is_waiting = self.state.wait != Wait::Nothing;
        let is_beginning = is_partial || self.state.sasl.is_some();
        let must_authenticate =
            self.state.identity.is_none() && (!open_to_all || (is_beginning && !is_waiting));
        if must_authenticate && is_over(self.state.anonymous_since_ms, limits.auth_deadline_ms) {
            return Some(CloseReason::AuthDeadline);
        }
        // A connection that waits by the server's own doing is not to blame for its input.
        if is_waiting || timing.stalled_since_ms != 0 {
            return None;
        }
        let frame_ms = limits.frame_deadline_ms + extra_ms(timing.partial_bytes);
        if is_partial && is_over(timing.partial_since_ms, frame_ms) {
            return Some(CloseReason::FrameDeadline);
        }
        let is_idle = !self.state.has_parked() && !self.state.is_streaming() && !is_partial;
        if limits.idle_timeout_ms != 0
            && is_idle
            && is_over(timing.active_ms, limits.idle_timeout_ms)
        {
            return Some(CloseReason::Idle);
        }
        None
    }
}

/// Time that moving `bytes` may take on top of a fixed deadline.
fn extra_ms(bytes: usize) -> u64 {
    (bytes as u64 * 1000) / FRAME_DEADLINE_BYTES_PER_SECOND as u64
}
