//! Serves a client of memcached's text protocol.
//!
//! Owns: when a connection turns out to speak it, and the treatment of the command at the head of
//! its input. Waits, memory, deadlines and back-pressure are those of any connection.
//!
//! Invariants:
//! - the first byte of a connection decides, and no later one;
//! - before a login no more is received than a login takes;
//! - a command is consumed when it is finished, and only then; each key of a `get` is one.

use oribi_engine::ReadSection;
use oribi_protocol::limits::UNAUTHENTICATED_FRAME_BYTES_MAX;
use oribi_protocol::text::login::{self, Login};
use oribi_protocol::text::{Command, DECODED_KEY_BYTES_MAX, DecodedCommand, Decoder, Store};

use super::incoming::Incoming;
use super::lookahead::Lookahead;
use super::{ConnectionDriver, TurnProgress, fetching};
use crate::connection::close_reason::CloseReason;
use crate::connection::fetches::TryHistory;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::text::{self, CommandResult, Offer};
use crate::dispatch::{self, ServeResult};
use crate::limits::{
    FETCH_AHEAD_FRAMES_MAX, FRAMES_PER_TURN, RECEIVE_IN_PLACE_BYTES_MIN,
    UNRESERVED_REQUEST_BYTES_MAX,
};

/// Bytes after a data block.
const END_BYTES: usize = 2;

const _: () = assert!(
    login::CREDENTIALS_BYTES_MAX + oribi_protocol::text::LINE_BYTES_MAX
        < UNAUTHENTICATED_FRAME_BYTES_MAX
);

/// Result of decoding the head of the input.
enum Step {
    /// A command is finished.
    Done,
    /// Bytes were passed over.
    Skipped,
    Wait,
    /// More input is needed.
    NeedInput,
}

impl ConnectionDriver {
    /// True when the first byte of the connection shows that its client speaks the text protocol.
    #[inline]
    pub(super) fn begins_as_text(&mut self) -> bool {
        let unread = self.reader.unread();
        let is_first = self.reader.received_bytes() == unread.len() as u64;
        is_first && self.begin_text()
    }

    #[cold]
    fn begin_text(&mut self) -> bool {
        let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n');
        let is_text = self.reader.unread().first().is_some_and(is_text);
        self.state.decide_text(is_text)
    }

    /// Serves complete commands until there is a reason to stop.
    pub(super) fn serve_text(
        &mut self,
        env: &mut Environment,
        ahead: &mut Lookahead<'_>,
        served: &mut u64,
    ) -> TurnProgress {
        for _ in 0..FRAMES_PER_TURN {
            if let Some(progress) = self.halted() {
                return progress;
            }
            if self.state.pending.due_answer().is_some() {
                text::continue_stat(&mut self.state, &mut self.writer, env);
                return self.halted().unwrap_or(TurnProgress::TurnOver);
            }
            if self.skip_bytes > 0 && !self.skip() {
                return TurnProgress::NeedInput;
            }
            let step = if self.incoming.is_some() {
                self.serve_received(env)
            } else if self.knows_user(env) {
                self.serve_next(env, ahead)
            } else {
                self.log_in(env)
            };
            match step {
                Step::Done => *served += 1,
                Step::Skipped => {}
                Step::Wait => return self.waiting(),
                Step::NeedInput if self.state.closing().is_some() => return TurnProgress::Closing,
                Step::NeedInput => return TurnProgress::NeedInput,
            }
        }
        self.halted().unwrap_or(TurnProgress::TurnOver)
    }

    /// True when the client has a user: its own, or that of clients without a login.
    #[inline]
    fn knows_user(&mut self, env: &Environment) -> bool {
        if !self.state.user.is_known() {
            self.state.adopt_memcached(&env.server);
        }
        self.state.user.is_known()
    }

    fn log_in(&mut self, env: &mut Environment) -> Step {
        assert!(!self.state.user.is_known(), "a known user does not log in again");
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        if state.closing().is_some() {
            return Step::NeedInput;
        }
        let consumed = match login::decode(reader.unread()) {
            Login::Incomplete => return self.need_more(env, 1),
            Login::TooLong => {
                text::refuse_line(writer, login::UNAUTHENTICATED);
                state.close(CloseReason::LineTooLong);
                return Step::NeedInput;
            }
            Login::Foreign(protocol) => {
                state.close(CloseReason::ForeignProtocol(protocol));
                return Step::NeedInput;
            }
            Login::Refused { answer, consumed } => {
                text::refuse_line(writer, answer);
                consumed
            }
            Login::Credentials { user, password, consumed } => {
                text::begin_login(*id, state, writer, env, (user, password));
                consumed
            }
        };
        reader.consume(consumed);
        self.timing.partial_since_ms = 0;
        Step::Done
    }

    /// Serves the command at the head of the input.
    #[inline]
    fn serve_next(&mut self, env: &mut Environment, ahead: &mut Lookahead<'_>) -> Step {
        debug_assert!(
            self.incoming.is_none() && self.skip_bytes == 0,
            "a line begins where one ended"
        );
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        ahead.advance_text(state, reader.unread(), self.decoder);
        let mut decoder = self.decoder;
        let (command, consumed) = match decoder.decode(reader.unread()) {
            DecodedCommand::Complete { command, consumed } => (command, consumed),
            DecodedCommand::Skipped { consumed } => {
                reader.consume(consumed);
                self.decoder = decoder;
                ahead.restart();
                return Step::Skipped;
            }
            DecodedCommand::Incomplete => return self.need_more(env, 1),
            DecodedCommand::TooLong => {
                state.close(CloseReason::LineTooLong);
                return Step::NeedInput;
            }
            DecodedCommand::Foreign(protocol) => {
                state.close(CloseReason::ForeignProtocol(protocol));
                return Step::NeedInput;
            }
            DecodedCommand::Partial { store, line_bytes, value_bytes } => {
                let quiet = store.quiet && store.meta.is_none();
                return self.receive_store(env, line_bytes, value_bytes, quiet);
            }
        };
        self.timing.partial_since_ms = 0;
        let pending_bytes = writer.pending_bytes();
        let tries = state.deferred.take_head();
        let section = Some(ahead.section());
        let offer = Offer { section, ahead: ahead.key(), tries, received: None };
        let CommandResult { served, abandons_keys, .. } =
            text::serve_command(*id, state, writer, env, &command, offer);
        if let ServeResult::Fetch { tries, .. } = served {
            let behind = (&reader.unread()[consumed..], decoder);
            wait_for_fetch(*id, state, env, &command, behind, tries);
        }
        self.expects_incoming = self.expects_incoming.saturating_sub(1);
        if served != ServeResult::Done {
            return Step::Wait;
        }
        if let Command::Invalid(fault) = command {
            self.skip_bytes = fault.skip_bytes;
        }
        if abandons_keys {
            decoder.abandon_keys();
            ahead.restart();
        } else {
            ahead.served(writer.pending_bytes() - pending_bytes);
        }
        self.decoder = decoder;
        reader.consume(consumed);
        Step::Done
    }

    /// Prepares for a command of which `bytes_min` more bytes are missing.
    fn need_more(&mut self, env: &Environment, bytes_min: usize) -> Step {
        let needed = self.reader.unread().len() + bytes_min;
        self.note_partial(env, needed);
        self.reader.reserve_frame(needed);
        Step::NeedInput
    }

    fn note_partial(&mut self, env: &Environment, needed: usize) {
        if self.timing.partial_since_ms == 0 && !self.reader.is_empty() {
            self.timing.partial_since_ms = env.now_ms;
        }
        self.timing.partial_bytes = needed;
    }

    /// Prepares for the rest of a store command: its line is there, its data block is not.
    fn receive_store(
        &mut self,
        env: &mut Environment,
        line_bytes: usize,
        value_bytes: usize,
        quiet: bool,
    ) -> Step {
        let needed = line_bytes + value_bytes + END_BYTES;
        self.note_partial(env, needed);
        if needed > UNRESERVED_REQUEST_BYTES_MAX
            && self.state.reserved.bytes() < env.memory.memory().counted(needed)
            && let Some(served) = self.reserve(env, needed)
        {
            let Err(reason) = served else { return Step::Wait };
            if !quiet {
                text::refuse_line(&mut self.writer, reason);
            }
            self.skip_bytes = needed;
            return Step::Done;
        }
        let is_stored_in_place = value_bytes >= RECEIVE_IN_PLACE_BYTES_MIN;
        if is_stored_in_place && self.begin_incoming_text(env, line_bytes, value_bytes) {
            return Step::NeedInput;
        }
        match needed > UNRESERVED_REQUEST_BYTES_MAX {
            true => self.reader.reserve_whole(needed),
            false => self.reader.reserve_frame(needed),
        }
        Step::NeedInput
    }

    /// Reserves memory for a large store command. `None` when that is done; else the answer to the
    /// command, or nothing when it waits.
    fn reserve(
        &mut self,
        env: &mut Environment,
        needed: usize,
    ) -> Option<Result<(), &'static str>> {
        const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
        match self.reserve_bytes(env, needed) {
            None => None,
            Some(ServeResult::Later) => Some(Ok(())),
            Some(_) => Some(Err(NO_MEMORY)),
        }
    }

    /// Starts to receive a value into its item. False when the command is to be received as usual.
    fn begin_incoming_text(
        &mut self,
        env: &mut Environment,
        line_bytes: usize,
        value_bytes: usize,
    ) -> bool {
        assert!(self.incoming.is_none(), "one value is received at a time");
        let ConnectionDriver { id, reader, state, .. } = self;
        let (line, value) = reader.unread().split_at(line_bytes);
        let Some(store) = store_of(line) else { return false };
        // Such a value becomes a part of a version that is built from the current one.
        if store.meta.is_some_and(|meta| meta.invalidates || meta.new_cas.is_some()) {
            return false;
        }
        let mut room = [0; DECODED_KEY_BYTES_MAX];
        let Some(meant) = text::translate(&Command::Store(store), &mut room) else { return false };
        let mut frame = meant.frame();
        if !Incoming::is_store(frame.header.opcode) {
            return false;
        }
        frame.header.body_bytes += value_bytes as u32;
        let Some(mut item) = dispatch::begin_store(*id, state, env, &frame, value_bytes) else {
            return false;
        };
        let value = &value[..value.len().min(value_bytes)];
        item.append(value);
        let received_bytes = line_bytes + value.len();
        self.incoming = Some(Box::new(Incoming { header: frame.header, parts: line.into(), item }));
        reader.consume(received_bytes);
        true
    }

    /// Serves the store command whose value was received into its item, once the end of its data
    /// block is there.
    fn serve_received(&mut self, env: &mut Environment) -> Step {
        if self.incoming.as_ref().is_none_or(|incoming| incoming.item.missing_bytes() > 0) {
            return Step::NeedInput;
        }
        let Some(end) = self.reader.unread().first_chunk::<END_BYTES>().copied() else {
            return self.need_more(env, END_BYTES);
        };
        let Some(incoming) = self.incoming.take() else { return Step::NeedInput };
        let Incoming { header, parts, item } = *incoming;
        self.timing.partial_since_ms = 0;
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        let Some(store) = store_of(&parts) else { return Step::NeedInput };
        let is_terminated = end == *b"\r\n";
        let command = Command::Store(Store { is_terminated, ..store });
        let tries = state.deferred.take_head();
        let received = is_terminated.then_some(item);
        let offer = Offer { section: None, ahead: None, tries, received };
        let ended = text::serve_command(*id, state, writer, env, &command, offer);
        if let ServeResult::Fetch { tries, .. } = ended.served {
            let behind = (&reader.unread()[END_BYTES..], Decoder::default());
            wait_for_fetch(*id, state, env, &command, behind, tries);
        }
        match ended.received {
            Some(item) => {
                self.incoming = Some(Box::new(Incoming { header, parts, item }));
                Step::Wait
            }
            None => {
                self.expects_incoming = super::serving::INCOMING_EXPECTED;
                self.decoder = Decoder::default();
                reader.consume(END_BYTES);
                Step::Done
            }
        }
    }
}

/// The store command of a line that was decoded before.
fn store_of(line: &[u8]) -> Option<Store<'_>> {
    match Decoder::default().decode(line) {
        DecodedCommand::Partial { store, .. } => Some(store),
        _ => None,
    }
}

/// Makes the connection wait until the document of `command` is fetched. Fetches documents for the
/// commands after it as well.
fn wait_for_fetch(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    command: &Command<'_>,
    (behind, mut decoder): (&[u8], Decoder),
    tries: TryHistory,
) {
    let mut room = [0; DECODED_KEY_BYTES_MAX];
    let Some(meant) = text::translate(command, &mut room) else { return };
    let token = fetching::wait_for(id, state, env, &meant.frame(), tries);
    let section = ReadSection::open();
    let mut ahead = Lookahead::new(&section, env.server.connections.limits.prefetch_keys, 0);
    let mut rest = behind;
    let (mut asked, mut seen) = (0, 0);
    while seen < FETCH_AHEAD_FRAMES_MAX {
        ahead.advance_text(state, rest, decoder);
        let DecodedCommand::Complete { command, consumed } = decoder.decode(rest) else { break };
        let mut room = [0; DECODED_KEY_BYTES_MAX];
        let Some(meant) = text::translate(&command, &mut room) else { break };
        if !fetching::ask_ahead(state, env, &meant.frame(), token, &mut asked) {
            break;
        }
        seen += 1;
        ahead.served(0);
        rest = &rest[consumed..];
    }
    fetching::wait_behind(state, asked, seen);
}
