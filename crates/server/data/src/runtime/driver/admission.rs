//! Decides by the header alone which frames may be received.
//!
//! Invariant: no byte of a body is stored before its announced size has passed here. The connection
//! calls this for each header, complete frames included.

use oribi_protocol::frame::Header;
use oribi_protocol::limits::{FRAME_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::magic::Magic;
use oribi_protocol::status::Status;

use crate::connection::close_reason::CloseReason;
use crate::dispatch;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

/// The decision on a frame, before its body is read.
pub(super) enum Admission {
    /// Receive and serve it.
    Serve,
    /// Receive it: an answer to a message of a change stream.
    Answer,
    /// Answer with the status and the reason, and skip the body without storing it.
    Skip(Status, &'static str),
    /// Answer with the status and end the connection.
    Close(Status, CloseReason),
}

/// Decides by the header alone whether a frame may be received.
#[inline]
pub(super) fn admit(state: &mut ConnectionState, env: &Environment, header: &Header) -> Admission {
    // Frames that any client may send, which are nearly all of them.
    let is_small = header.frame_bytes() <= UNAUTHENTICATED_FRAME_BYTES_MAX;
    if header.magic == Magic::ClientRequest && is_small {
        return Admission::Serve;
    }
    admit_other(state, env, header)
}

fn admit_other(state: &mut ConnectionState, env: &Environment, header: &Header) -> Admission {
    let is_answer = header.magic == Magic::ClientResponse && state.producer.is_some();
    if is_answer && header.frame_bytes() <= UNAUTHENTICATED_FRAME_BYTES_MAX {
        return Admission::Answer;
    }
    if !matches!(header.magic, Magic::ClientRequest | Magic::AltClientRequest) {
        let reason = CloseReason::NotARequest(header.magic as u8);
        return Admission::Close(Status::Einval, reason);
    }
    let frame_bytes = header.frame_bytes();
    if frame_bytes > FRAME_BYTES_MAX {
        return Admission::Close(Status::Einval, CloseReason::FrameTooLarge { frame_bytes });
    }
    if frame_bytes > UNAUTHENTICATED_FRAME_BYTES_MAX && !state.user.is_known() {
        if dispatch::makes_legacy(header.opcode) {
            state.adopt_memcached(&env.server);
        }
        if !state.user.is_known() {
            let reason = CloseReason::UnauthenticatedFrameTooLarge { frame_bytes };
            return Admission::Close(Status::Einval, reason);
        }
    }
    let is_too_long =
        |bytes: usize| bytes > VALUE_BYTES_MAX && bytes > dispatch::value_bytes_max(header.opcode);
    if header.value_bytes().is_some_and(is_too_long) {
        return Admission::Skip(Status::E2big, "the value is longer than a document may be");
    }
    Admission::Serve
}
