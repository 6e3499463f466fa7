//! One client connection as a state machine without I/O: bytes in, bytes out.
//!
//! Owns: the received bytes that are not yet served ([`ReadBuffer`]), the answers that are not yet
//! sent ([`SendBuffer`]), the negotiated features, and the current wait. The driver is a worker,
//! the in-memory harness or a fuzzer. It reads a socket into the one buffer and writes the other to
//! the socket. In between it calls [`ConnectionDriver::process`] until there is nothing left to do.
//!
//! Invariants:
//! - a STAT is answered in slices; between two slices the driver may send output and serve other
//!   connections;
//! - frames are served strictly in order, with one exception: if the client negotiated it, later
//!   frames overtake writes that wait to be persisted and requests whose document is being fetched;
//! - no frame is served during a wait, while too much output is pending, or after the connection
//!   began to close;
//! - a frame is buffered only after its announced size passed the limits. A value over the limit is
//!   answered and skipped without being stored; a large value within it is received into its item;
//! - every end of the connection has one [`CloseReason`], reported once.
//!
//! A connection that was opened for change streams sends them after its requests.
//!
//! The connection has no socket and reads no clock.

mod admission;
mod announcing;
mod changes;
mod fetching;
mod incoming;
mod lookahead;
mod memory;
mod refusing;
mod serving;
mod text;

use std::sync::Arc;

use oribi_auth::audit::Event;
use oribi_auth::{Identity, UserStore};
use oribi_engine::{FillingItem, PersistOutcome, ReadSection};
use oribi_protocol::feature::Feature;
use oribi_protocol::read_buffer::ReadBuffer;
use oribi_protocol::status::Status;
use oribi_protocol::text::Decoder;

use crate::buckets::MemcachedPlace;
use crate::connection::close_reason::CloseReason;
use crate::connection::parked::{ParkToken, ParkedWrite};
use crate::connection::pending::{HeadWait, LongAnswer};
use crate::connection::registry::ConnectionRecord;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;
use crate::dispatch::status;
use crate::dispatch::{self, ServeResult};
use crate::limits::{
    DCP_IDLE_TIMEOUT_MS, FRAME_DEADLINE_BYTES_PER_SECOND, FRAMES_PER_TURN, HEAD_ROOM_BYTES,
    OUTPUT_FLUSH_BYTES,
};
use crate::server_context::ConnectionLimits;
use incoming::Incoming;
use lookahead::Lookahead;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnProgress {
    /// Every complete frame is served.
    NeedInput,
    /// Output should be sent before more frames are served.
    OutputFull,
    /// Other connections should get their turn; there are more frames.
    TurnOver,
    /// The connection waits for something.
    Waiting,
    /// Send the pending output, then end.
    Closing,
}

/// Start times of deadlines, on the driver's clock; 0 for none.
#[derive(Debug, Default)]
struct Timing {
    active_ms: u64,
    /// When the connection first saw that the frame at the head of the buffer is partial. Bytes of
    /// a large frame that arrive later move it on.
    partial_since_ms: u64,
    partial_bytes: usize,
    /// When the socket last took no more. Bytes that it took since then move it on.
    stalled_since_ms: u64,
}

/// One client connection as a state machine without I/O.
pub(crate) struct ConnectionDriver {
    id: ConnectionId,
    reader: ReadBuffer,
    writer: SendBuffer,
    state: ConnectionState,
    timing: Timing,
    /// Unsent bytes of answers from which on requests wait.
    send_queue_bytes_max: usize,
    /// Unsent bytes, among them values in their place, that are sent before more requests are
    /// served.
    pinned_flush_bytes: usize,
    /// Bytes of an oversized body that are still to be skipped.
    skip_bytes: usize,
    /// Where in the stream of a client of the text protocol the next byte is.
    decoder: Decoder,
    /// A store request whose value is being received into its item.
    incoming: Option<Box<Incoming>>,
    /// How many of the next requests may also have a large value, because a recent one had.
    expects_incoming: u8,
    value_bytes_read: u16,
    /// Bytes that the worker's ledger counts for this connection.
    held_bytes: usize,
    /// A new cluster map waits until the client has read some of the output.
    owes_cluster_map: bool,
}

impl ConnectionDriver {
    /// Creates a connection that has received nothing.
    pub fn new(
        id: ConnectionId,
        record: Arc<ConnectionRecord>,
        now_ms: u64,
        limits: &ConnectionLimits,
    ) -> ConnectionDriver {
        ConnectionDriver {
            id,
            reader: ReadBuffer::new(),
            writer: SendBuffer::new(),
            state: ConnectionState::new(record, now_ms),
            timing: Timing { active_ms: now_ms, ..Timing::default() },
            send_queue_bytes_max: limits.send_queue_bytes_max,
            pinned_flush_bytes: OUTPUT_FLUSH_BYTES,
            skip_bytes: 0,
            decoder: Decoder::default(),
            incoming: None,
            expects_incoming: 0,
            value_bytes_read: 0,
            held_bytes: 0,
            owes_cluster_map: false,
        }
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Published state of the connection, for other threads.
    pub fn record(&self) -> &ConnectionRecord {
        self.state.record()
    }

    /// The buffer for received bytes.
    pub fn reader(&mut self) -> &mut ReadBuffer {
        &mut self.reader
    }

    /// The item that receives bytes instead, while the value of a large store request arrives.
    pub fn incoming(&mut self) -> Option<&mut FillingItem> {
        let incoming = self.incoming.as_mut()?;
        // The end of its data block is received as usual.
        (incoming.item.missing_bytes() > 0).then_some(&mut incoming.item)
    }

    /// Where that item lies, also while it is complete and its request waits.
    #[cfg(test)]
    pub fn incoming_address(&self) -> Option<usize> {
        self.incoming.as_ref().map(|incoming| incoming.item.value_address())
    }

    /// Most bytes to receive at once while no item is being filled. After a large value another one
    /// is likely: then only its head is received here, and its whole value straight into its item.
    pub fn receive_bytes_max(&self) -> usize {
        if self.expects_incoming > 0 { HEAD_ROOM_BYTES } else { usize::MAX }
    }

    /// True while a large value is being received or sent as its own transfer.
    pub fn is_moving_large_value(&self) -> bool {
        self.incoming.is_some() || self.writer.holds_pinned()
    }

    /// True while its turns are long, so that small requests of others should not wait for several
    /// of them: while the rest of a large value is the client's, and while backfills fill its
    /// output.
    pub fn is_transfer(&self) -> bool {
        match &self.state.producer {
            Some(producer) => producer.share.is_bulk(),
            None => self.is_moving_large_value(),
        }
    }

    /// True for a producer of changes.
    pub fn is_producer(&self) -> bool {
        self.state.producer.is_some()
    }

    /// The buffer of answers.
    pub fn writer(&mut self) -> &mut SendBuffer {
        &mut self.writer
    }

    /// Makes `identity` the user of the connection, proved by means other than a request.
    pub fn authenticate(&mut self, identity: Arc<Identity>) {
        self.state.authenticate(identity);
    }

    /// Records in the audit log a user authenticated by a certificate. Ends the connection when
    /// only administrators may still connect.
    pub fn audit_certified(&mut self, env: &Environment) {
        assert!(self.state.user.is_known(), "a certificate proves a user before it is audited");
        let is_admin = self.state.rights().is_admin();
        if env.server.access.audit.is_on() {
            env.server.access.audit.record(self.state.actor(), Event::Authenticated);
        }
        if !env.server.connections.admit_user(is_admin) {
            self.close(CloseReason::TooManyConnections);
        }
    }

    /// Updates the user's rights; false when the user no longer exists.
    pub fn refresh_user(&mut self, users: &UserStore) -> bool {
        self.state.refresh_user(users)
    }

    /// Follows collections that were created or dropped since.
    pub fn refresh_collection(&mut self, place: &MemcachedPlace) {
        self.state.find_collection(place);
    }

    /// True once the first byte has begun the text protocol.
    pub fn is_text(&self) -> bool {
        self.state.is_text()
    }

    /// True when later requests may overtake one that waits.
    pub fn is_unordered(&self) -> bool {
        self.state.features().has(Feature::UnorderedExecution)
    }

    /// Why the connection ends, once it does.
    pub fn closing(&self) -> Option<CloseReason> {
        self.state.closing()
    }

    /// Makes the connection end as soon as its output is sent.
    pub fn close(&mut self, reason: CloseReason) {
        self.state.close(reason);
        debug_assert!(self.closing().is_some(), "a connection has a reason to close");
    }

    /// False while more input would only fill memory: during a wait, while a STAT is being
    /// answered, while the client does not take output, or when the connection ends.
    pub fn wants_input(&self) -> bool {
        !self.is_halted() && !self.state.pending.is_answering()
    }

    /// True while [`ConnectionDriver::process`] would do nothing.
    pub fn is_halted(&self) -> bool {
        self.halted().is_some()
    }

    /// True while some write of this connection waits for the store.
    pub fn waits_for_store(&self) -> bool {
        self.state.deferred.has_writes()
    }

    /// True while some request is parked, so that an answer will follow without more input.
    pub fn has_parked(&self) -> bool {
        self.state.deferred.is_any()
    }

    /// Serves complete frames until there is a reason to stop. Parked requests that can continue
    /// come first, then the STAT that is being answered, then the next frame. One slice of a STAT
    /// is a whole turn's work.
    pub fn process(&mut self, env: &mut Environment) -> TurnProgress {
        let mut served = 0;
        self.timing.active_ms = env.now_ms;
        self.pinned_flush_bytes = env.transfer_slice_bytes().min(self.send_queue_bytes_max);
        if !self.state.pending.is_nothing() && self.writer.is_empty() {
            self.state.pending.end_head_wait(|wait| wait == HeadWait::Drain);
        }
        if self.owes_cluster_map {
            self.announce_cluster_map(&env.server);
        }
        let may_continue = self.state.pending.is_answering() || self.state.deferred.has_ready();
        let mut progress = self.serve_frames(env, &mut served);
        if self.state.producer.is_some() {
            progress = self.begin_changes(env, progress, served > 0);
        }
        if may_continue || !env.stretch.opcodes().is_empty() {
            dispatch::end_stretch(&self.state, env);
        }
        if served > 0 && !self.state.pending.is_nothing() {
            self.state.pending.head_served(env.now_ms);
        }
        env.requests_served = env.requests_served.wrapping_add(served);
        let record = self.state.record();
        record.requests.add(served);
        record.active_unix_ns.set(env.now.unix_ns);
        progress
    }

    fn serve_frames(&mut self, env: &mut Environment, served: &mut u64) -> TurnProgress {
        if let Some(progress) = self.serve_fetched(env) {
            return progress;
        }
        let section = ReadSection::open();
        let mut ahead = Lookahead::new(
            &section,
            env.server.connections.limits.prefetch_keys,
            self.value_bytes_read,
        );
        let progress = match self.state.is_text() || self.begins_as_text() {
            false => self.serve_ahead(env, &mut ahead, served),
            true => self.serve_text(env, &mut ahead, served),
        };
        debug_assert!(
            usize::from(ahead.value_bytes()) <= crate::limits::PREFETCH_BYTES_MAX,
            "a look ahead is bounded"
        );
        self.value_bytes_read = ahead.value_bytes();
        progress
    }

    fn serve_ahead(
        &mut self,
        env: &mut Environment,
        ahead: &mut Lookahead<'_>,
        served: &mut u64,
    ) -> TurnProgress {
        for _ in 0..FRAMES_PER_TURN {
            if let Some(progress) = self.halted() {
                return progress;
            }
            if let Some(answer) = self.state.pending.due_answer() {
                let is_stat = matches!(answer, LongAnswer::Stat(_));
                let (state, out) = (&mut self.state, &mut self.writer);
                match is_stat {
                    true => dispatch::continue_stat(state, out, env),
                    false => dispatch::resume_range_scan(state, out, self.id, env),
                }
                return self.halted().unwrap_or(TurnProgress::TurnOver);
            }
            if self.skip_bytes > 0 && !self.skip() {
                return TurnProgress::NeedInput;
            }
            if let Some(incoming) = &self.incoming {
                if incoming.item.missing_bytes() > 0 {
                    return TurnProgress::NeedInput;
                }
                match self.serve_incoming(env) {
                    ServeResult::Done => *served += 1,
                    ServeResult::Later | ServeResult::Fetch { .. } => return self.waiting(),
                }
                continue;
            }
            ahead.advance(&self.state, self.reader.unread());
            match self.process_frame(env, ahead) {
                Some(ServeResult::Done) => *served += 1,
                Some(ServeResult::Later | ServeResult::Fetch { .. }) => return self.waiting(),
                None if self.state.closing().is_some() => return TurnProgress::Closing,
                None => return TurnProgress::NeedInput,
            }
        }
        self.halted().unwrap_or(TurnProgress::TurnOver)
    }

    #[inline(always)]
    fn halted(&self) -> Option<TurnProgress> {
        if self.state.closing().is_some() {
            return Some(TurnProgress::Closing);
        }
        if !self.state.pending.is_nothing()
            && let Some(progress) = self.wait_progress()
        {
            return Some(progress);
        }
        self.output_is_full().then_some(TurnProgress::OutputFull)
    }

    /// Why a request was left at the head of the input.
    fn waiting(&self) -> TurnProgress {
        self.halted().unwrap_or(TurnProgress::Waiting)
    }

    fn output_is_full(&self) -> bool {
        // While the socket takes everything, output goes out in pieces that amortise a system call.
        // Once it does not, a little more output is collected before requests have to wait. The
        // output of a STAT has no bound, so a STAT waits at once.
        let collects = self.timing.stalled_since_ms != 0 && !self.state.pending.is_answering();
        let limit = if collects { self.send_queue_bytes_max } else { self.flush_bytes() };
        self.writer.pending_bytes() >= limit
    }

    /// Output from which on it is sent. Values that are sent from their place cost no copy, and go
    /// out in whole slices.
    fn flush_bytes(&self) -> usize {
        match self.writer.holds_pinned() {
            true => self.pinned_flush_bytes,
            false => OUTPUT_FLUSH_BYTES,
        }
    }

    /// Completes a write that waited for the store. Late or foreign tokens are ignored.
    pub fn persisted(&mut self, env: &mut Environment, token: ParkToken, outcome: PersistOutcome) {
        let parked = self.state.deferred.writes();
        let Some(mut parked) = parked.and_then(|all| all.take(token.position, token.serial)) else {
            return;
        };
        let outcome = match outcome {
            PersistOutcome::Persisted => Ok(()),
            PersistOutcome::Committed(seqno) => {
                parked.answer.set_seqno(seqno);
                Ok(())
            }
            PersistOutcome::Failed => {
                let context =
                    "the store failed, or another copy is active: the outcome is not known";
                Err((status::of_persist(outcome), context))
            }
        };
        self.answer_parked(env, &parked, outcome);
    }

    /// Answers a write whose persistence is decided. `context` is the text for a write that is not
    /// known to be durable.
    fn answer_parked(
        &mut self,
        env: &mut Environment,
        parked: &ParkedWrite,
        outcome: Result<(), (Status, &'static str)>,
    ) {
        if let (Err(_), Some(operations)) = (outcome, self.state.selection.operations()) {
            operations.counters().durable_ambiguous.add(1);
        }
        let (state, out) = (&mut self.state, &mut self.writer);
        match state.is_text() {
            false => dispatch::answer_parked(state, out, env, parked, outcome),
            true if dispatch::text::answer_parked(state, out, env, parked, outcome) => {}
            // The answer to a failed `gat` ends before its keys do.
            true => self.decoder.abandon_keys(),
        }
        self.state.release_deferred();
    }

    /// Lets a write that waits for memory, or a stream request that waits for its vbucket, try
    /// again.
    pub fn retry_write(&mut self) {
        self.state.pending.end_head_wait(|wait| wait == HeadWait::Bucket);
    }

    /// Takes the blocking thread's result for the request that this connection waits with. A result
    /// from another `session` of the node may no longer be true.
    pub fn job_done(
        &mut self,
        env: &mut Environment,
        session: u64,
        result: JobResult<Environment>,
    ) {
        if result.has_documents() && !env.still_holds(session) {
            return self.close(CloseReason::LeaseLost);
        }
        let Some(request) = self.state.pending.end_job() else { return };
        let (state, out) = (&mut self.state, &mut self.writer);
        match state.is_text() {
            false => dispatch::finish(state, out, env, request, result),
            true => dispatch::text::finish(state, out, env, request, result),
        }
    }

    /// Panics unless the current wait, the parked requests and the received bytes agree with each
    /// other.
    pub fn check_invariants(&self) {
        assert!(
            self.skip_bytes == 0 || self.incoming.is_none(),
            "a body is passed over and received at a time"
        );
        self.state.check_invariants();
    }

    /// Records that the socket took `sent` bytes. While the client lags, sent bytes extend its
    /// deadline.
    pub fn sent(&mut self, sent: usize, now_ms: u64) {
        debug_assert!(sent <= self.writer.pending_bytes(), "only pending bytes are sent");
        self.writer.advance(sent);
        self.earn_time(sent, now_ms);
        let since = &mut self.timing.stalled_since_ms;
        if self.writer.is_empty() {
            *since = 0;
        } else if *since != 0 {
            *since = (*since + extra_ms(sent)).min(now_ms);
        }
    }

    /// Records that the socket takes no more for now.
    pub fn stalled(&mut self, now_ms: u64) {
        if self.timing.stalled_since_ms == 0 {
            self.timing.stalled_since_ms = now_ms;
        }
    }

    /// Answers parked writes whose deadline has passed; true when there were any.
    pub fn expire_parked(&mut self, env: &mut Environment) -> bool {
        let mut any = false;
        let now_ms = env.now_ms;
        while let Some(parked) =
            self.state.deferred.writes().and_then(|all| all.take_overdue(now_ms))
        {
            let context = "the write was not as durable as asked for before the timeout";
            self.answer_parked(env, &parked, Err((Status::SyncWriteAmbiguous, context)));
            any = true;
        }
        any
    }

    /// Why the connection has to end now because a deadline has passed. `open_to_all` is
    /// development mode, where a client may be idle without authentication.
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
        let producer = self.state.producer.as_ref();
        if let Some(reason) = self.state.closing().filter(|_| producer.is_some()) {
            // Its streams are over, so whatever output is left is of no use.
            return Some(reason);
        }
        // A DCP consumer may process its received changes for a while before it reads on.
        let send_deadline_ms = match producer {
            Some(_) => limits.send_deadline_ms.max(DCP_IDLE_TIMEOUT_MS),
            None => limits.send_deadline_ms,
        };
        if is_over(timing.stalled_since_ms, send_deadline_ms) {
            return Some(CloseReason::SendDeadline);
        }
        let is_partial = timing.partial_since_ms != 0;
        // The deadline also runs while a password is checked: a client that sends one wrong
        // password after the other is always in that state. In development mode a client may have
        // been idle for long before it logs in.
        let is_waiting = self.state.pending.is_waiting();
        let is_beginning = is_partial || self.state.user.is_in_exchange();
        let must_authenticate =
            !self.state.user.is_known() && (!open_to_all || (is_beginning && !is_waiting));
        let unknown_since_ms = self.state.user.unknown_since_ms();
        if must_authenticate
            && unknown_since_ms.is_some_and(|since_ms| is_over(since_ms, limits.auth_deadline_ms))
        {
            return Some(CloseReason::AuthDeadline);
        }
        // The server itself made this connection wait, so its input is not overdue.
        if is_waiting || timing.stalled_since_ms != 0 {
            return None;
        }
        if is_partial && is_over(timing.partial_since_ms, limits.frame_deadline_ms) {
            return Some(CloseReason::FrameDeadline);
        }
        let is_idle = !self.state.deferred.is_any()
            && !self.state.pending.is_answering()
            && !is_partial
            && producer.is_none();
        if limits.idle_timeout_ms != 0
            && is_idle
            && is_over(timing.active_ms, limits.idle_timeout_ms)
        {
            return Some(CloseReason::Idle);
        }
        None
    }
}

/// Time that the transfer of `bytes` may take on top of a fixed deadline.
fn extra_ms(bytes: usize) -> u64 {
    (bytes as u64 * 1000) / FRAME_DEADLINE_BYTES_PER_SECOND as u64
}
