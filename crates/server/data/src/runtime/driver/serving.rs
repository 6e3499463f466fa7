//! Turns received bytes into served requests.
//!
//! Owns: the treatment of the frame at the head of a connection's input. The frame may be complete
//! or partial, its value may be received into its item, or it may be skipped.
//!
//! Invariants:
//! - a frame is served or refused exactly once, unless it waits for a fetch;
//! - a frame is consumed when it is finished, and only then;
//! - decoded parts are borrowed from the input and never moved.
//!
//! The connection calls this in its turn.

use oribi_protocol::frame::{self, DecodedFrame, Frame, Header};
use oribi_protocol::limits::HEADER_BYTES;

use super::admission::{Admission, admit};
use super::incoming::{self, Incoming};
use super::lookahead::Lookahead;
use super::refusing::{refuse, reject};
use super::{ConnectionDriver, fetching};
use crate::connection::request_id::RequestId;
use crate::dispatch::environment::Environment;
use crate::dispatch::{self, ServeResult, fail_request, serve_frame};
use crate::limits::UNRESERVED_REQUEST_BYTES_MAX;

/// For how many requests after a value received in place another one is expected.
pub(super) const INCOMING_EXPECTED: u8 = 8;

impl ConnectionDriver {
    /// Serves the frame at the input's head. `None` if it is incomplete or the connection ends.
    #[inline]
    pub(super) fn process_frame(
        &mut self,
        env: &mut Environment,
        ahead: &mut Lookahead<'_>,
    ) -> Option<ServeResult> {
        debug_assert!(
            self.incoming.is_none() && self.skip_bytes == 0,
            "a frame begins where one ended"
        );
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        let Some(frame) = Frame::whole(reader.unread()) else { return self.process_part(env) };
        let consumed = frame.header.frame_bytes();
        debug_assert!(consumed <= reader.unread().len(), "a whole frame was received");
        self.timing.partial_since_ms = 0;
        let pending_bytes = writer.pending_bytes();
        let tries = state.deferred.take_head();
        let mut served = match admit(state, env, &frame.header) {
            Admission::Serve => {
                let reading = (ahead.section(), ahead.key());
                serve_frame(*id, state, writer, env, &frame, reading, tries)
            }
            Admission::Answer => {
                dispatch::take_answer(state, &frame);
                ServeResult::Done
            }
            Admission::Skip(status, context) => {
                fail_request(state, writer, RequestId::of(&frame.header), status, Some(context));
                ServeResult::Done
            }
            Admission::Close(status, reason) => {
                refuse(state, writer, &frame.header, status, reason);
                return None;
            }
        };
        if let ServeResult::Fetch { overtakable, tries } = served {
            let (bytes, behind) = reader.unread().split_at(consumed);
            if overtakable && fetching::park(*id, state, env, bytes, &frame, tries) {
                served = ServeResult::Done;
            } else {
                fetching::wait_at_head(*id, state, env, &frame, behind, tries);
            }
        }
        self.expects_incoming = self.expects_incoming.saturating_sub(1);
        if served == ServeResult::Done {
            ahead.served(writer.pending_bytes() - pending_bytes);
            reader.consume(consumed);
        }
        Some(served)
    }

    /// Prepares for the rest of a partial frame, or ends the connection.
    fn process_part(&mut self, env: &mut Environment) -> Option<ServeResult> {
        let ConnectionDriver { reader, writer, state, timing, .. } = self;
        let needed = match frame::decode(reader.unread()) {
            Ok(DecodedFrame::Incomplete { needed }) => needed,
            Ok(DecodedFrame::Complete { consumed, .. }) => consumed,
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
            Admission::Serve if needed > UNRESERVED_REQUEST_BYTES_MAX => {
                return self.receive_large(env, header, needed);
            }
            Admission::Answer => self.reader.reserve_frame(needed),
            Admission::Serve => match Incoming::head_bytes(&header) {
                Some(head) if reader.unread().len() < head => reader.reserve_frame(head),
                Some(head) if self.begin_incoming(env, header, head) => {}
                _ => self.reader.reserve_frame(needed),
            },
            Admission::Skip(status, context) => {
                fail_request(state, writer, RequestId::of(&header), status, Some(context));
                self.skip_bytes = needed;
                return Some(ServeResult::Done);
            }
            Admission::Close(status, reason) => refuse(state, writer, &header, status, reason),
        }
        None
    }

    /// Starts to receive a value into its item. False when the request is to be received as usual.
    /// The head of the request, `head_bytes` long, is already there.
    pub(super) fn begin_incoming(
        &mut self,
        env: &mut Environment,
        header: Header,
        head_bytes: usize,
    ) -> bool {
        assert!(self.incoming.is_none(), "one value is received at a time");
        let ConnectionDriver { id, reader, state, .. } = self;
        let (head, value) = reader.unread().split_at(head_bytes);
        let frame = incoming::frame_of(header, &head[HEADER_BYTES..]);
        let value_bytes = header.frame_bytes() - head_bytes;
        let Some(mut item) = dispatch::begin_store(*id, state, env, &frame, value_bytes) else {
            return false;
        };
        debug_assert!(value.len() <= value_bytes, "a value has bytes of its frame only");
        item.append(value);
        let received_bytes = head_bytes + value.len();
        self.incoming = Some(Box::new(Incoming::new(header, head, item)));
        reader.consume(received_bytes);
        true
    }

    /// Serves the store request whose value was received into its item.
    pub(super) fn serve_incoming(&mut self, env: &mut Environment) -> ServeResult {
        let Some(incoming) = self.incoming.take() else { return ServeResult::Done };
        let Incoming { header, parts, item } = *incoming;
        assert_eq!(item.missing_bytes(), 0, "a value is stored when it is whole");
        let frame = incoming::frame_of(header, &parts);
        // The request is complete, whatever it may still have to wait for.
        self.timing.partial_since_ms = 0;
        let ConnectionDriver { id, reader, writer, state, .. } = self;
        let tries = state.deferred.take_head();
        let (served, received) =
            dispatch::serve_received(*id, state, writer, env, &frame, item, tries);
        if let ServeResult::Fetch { tries, .. } = served {
            fetching::wait_at_head(*id, state, env, &frame, reader.unread(), tries);
        }
        match received {
            Some(item) => self.incoming = Some(Box::new(Incoming { header, parts, item })),
            None => self.expects_incoming = INCOMING_EXPECTED,
        }
        served
    }

    /// Skips the rest of an oversized frame; true at its end.
    pub(super) fn skip(&mut self) -> bool {
        debug_assert!(self.incoming.is_none(), "a value is received or passed over");
        let available = self.reader.unread().len().min(self.skip_bytes);
        self.reader.consume(available);
        self.skip_bytes -= available;
        if self.skip_bytes == 0 {
            self.timing.partial_since_ms = 0;
        }
        self.skip_bytes == 0
    }
}
