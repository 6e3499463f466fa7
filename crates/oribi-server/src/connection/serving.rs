//! From received bytes to served requests.
//!
//! Owns: what is done with the frame at the head of a connection's input, whether all of it is there, or a part, whether
//! its value is received into its item, or it is passed over. Invariants: a frame is served, or refused, exactly once,
//! unless it waits for a fetch; it is consumed when it is done, and only then; what was decoded is borrowed from where
//! it is by all who look at it, and not moved. Called by the connection in its turn.

use oribi_engine::KeyAhead;
use oribi_protocol::frame::{self, Decoded, Frame, Header};
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::status::Status;

use super::admission::{Admission, admit};
use super::fetches::Tries;
use super::incoming::{self, Incoming};
use super::lookahead::Lookahead;
use super::refusing::{answer, answer_with, refuse, reject};
use super::state::ConnectionState;
use super::write_buffer::WriteBuffer;
use super::{Connection, fetching};
use crate::dispatch::{self, Exchange, Served};
use crate::environment::Environment;
use crate::mailbox::ConnectionId;

/// How many requests after a value received in place another one is still expected.
const INCOMING_EXPECTED: u8 = 8;

impl Connection {
    /// Serves the frame at the head of the buffer; `None` when it is not complete or not acceptable.
    #[inline]
    pub(super) fn process_frame(
        &mut self,
        env: &mut Environment,
        ahead: &mut Lookahead,
    ) -> Option<Served> {
        let Connection { id, reader, writer, state, .. } = self;
        let Some(frame) = Frame::whole(reader.unread()) else { return self.process_part(env) };
        let consumed = frame.header.frame_bytes();
        self.timing.partial_since_ms = 0;
        let pending_bytes = writer.pending_bytes();
        let tries = state.fetches.as_mut().map_or(Tries::default(), |all| all.take_head());
        let mut served = match admit(state, env, &frame.header) {
            Admission::Serve => serve_frame(*id, state, writer, env, &frame, ahead.key(), tries),
            Admission::Skip(status, context) => {
                answer_with(state, writer, &frame.header, status, context);
                Served::Done
            }
            Admission::Close(status, reason) => {
                refuse(state, writer, &frame.header, status, reason);
                return None;
            }
        };
        if let Served::Fetch { overtakable, tries } = served {
            let (bytes, behind) = reader.unread().split_at(consumed);
            if overtakable && fetching::park(*id, state, env, bytes, &frame, tries) {
                served = Served::Done;
            } else {
                fetching::wait_at_head(*id, state, env, &frame, behind, tries);
            }
        }
        self.expects_incoming = self.expects_incoming.saturating_sub(1);
        if served == Served::Done {
            ahead.served(writer.pending_bytes() - pending_bytes);
            reader.consume(consumed);
        }
        Some(served)
    }

    /// Prepares for the rest of a frame of which only a part is there, or ends the connection.
    fn process_part(&mut self, env: &mut Environment) -> Option<Served> {
        let Connection { reader, writer, state, timing, .. } = self;
        let needed = match frame::decode(reader.unread()) {
            Ok(Decoded::Incomplete { needed }) => needed,
            Ok(Decoded::Complete { consumed, .. }) => consumed,
            Err(error) => {
                reject(state, writer, error);
                return None;
            }
        };
        if timing.partial_since_ms == 0 && !reader.is_empty() {
            timing.partial_since_ms = env.now_ms;
        }
        timing.partial_bytes = needed;
        let header = reader.unread().first_chunk::<HEADER_BYTES>()?;
        let header = Header::decode(header).ok()?;
        match admit(state, env, &header) {
            Admission::Serve => match Incoming::head_bytes(&header) {
                Some(head) if reader.unread().len() < head => reader.reserve_frame(head),
                Some(head) if self.begin_incoming(env, header, head) => {}
                _ => self.reader.reserve_frame(needed),
            },
            Admission::Skip(status, context) => {
                answer_with(state, writer, &header, status, context);
                self.skip_bytes = needed;
                return Some(Served::Done);
            }
            Admission::Close(status, reason) => refuse(state, writer, &header, status, reason),
        }
        None
    }

    /// Starts receiving a value into its item; false when the request is to be received as usual. The
    /// head of the request, `head_bytes` long, has been received.
    fn begin_incoming(&mut self, env: &mut Environment, header: Header, head_bytes: usize) -> bool {
        let Connection { id, reader, writer, state, .. } = self;
        let Some(opcode) = dispatch::opcode_of(header.opcode) else { return false };
        let (head, value) = reader.unread().split_at(head_bytes);
        let frame = incoming::frame_of(header, &head[HEADER_BYTES..]);
        let value_bytes = header.frame_bytes() - head_bytes;
        let mut x = Exchange::new(*id, &frame, opcode, state, writer, env);
        let Some(mut item) = dispatch::begin_store(&mut x, value_bytes) else { return false };
        item.append(value);
        let received_bytes = head_bytes + value.len();
        self.incoming = Some(Box::new(Incoming::new(header, head, item)));
        reader.consume(received_bytes);
        true
    }

    /// Serves the store request whose value has been received into its item.
    pub(super) fn serve_incoming(&mut self, env: &mut Environment) -> Served {
        let Some(incoming) = self.incoming.take() else { return Served::Done };
        let Incoming { header, parts, item } = *incoming;
        let Some(opcode) = dispatch::opcode_of(header.opcode) else { return Served::Done };
        let frame = incoming::frame_of(header, &parts);
        // It is all there, whatever it may have to wait for.
        self.timing.partial_since_ms = 0;
        let tries = self.state.fetches.as_mut().map_or(Tries::default(), |all| all.take_head());
        let mut x = Exchange::new(self.id, &frame, opcode, &mut self.state, &mut self.writer, env);
        (x.received, x.tries) = (Some(item), tries);
        let served = dispatch::serve(&mut x);
        let received = x.received.take();
        if let Served::Fetch { tries, .. } = served {
            let behind = self.reader.unread();
            fetching::wait_at_head(self.id, &mut self.state, env, &frame, behind, tries);
        }
        match (served, received) {
            (Served::Later | Served::Fetch { .. }, Some(item)) => {
                self.incoming = Some(Box::new(Incoming { header, parts, item }));
            }
            _ => self.expects_incoming = INCOMING_EXPECTED,
        }
        served
    }

    /// Passes over the rest of an oversized frame; true when its end was reached.
    pub(super) fn skip(&mut self) -> bool {
        let available = self.reader.unread().len().min(self.skip_bytes);
        self.reader.consume(available);
        self.skip_bytes -= available;
        if self.skip_bytes == 0 {
            self.timing.partial_since_ms = 0;
        }
        self.skip_bytes == 0
    }
}

/// Serves one whole request.
pub(super) fn serve_frame(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    env: &mut Environment,
    frame: &Frame<'_>,
    ahead: Option<KeyAhead>,
    tries: Tries,
) -> Served {
    let Some(opcode) = dispatch::opcode_of(frame.header.opcode) else {
        answer(state, out, &frame.header, Status::UnknownCommand);
        return Served::Done;
    };
    let mut x = Exchange::new(id, frame, opcode, state, out, env);
    (x.ahead, x.tries) = (ahead, tries);
    dispatch::serve(&mut x)
}
