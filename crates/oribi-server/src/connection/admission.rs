//! Which frames may be received, decided by the header alone.
//!
//! Invariant: nothing of a body is stored before its announced size has passed here. Called by the
//! connection for each header, complete frames included.

use oribi_protocol::frame::Header;
use oribi_protocol::limits::{FRAME_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::magic::Magic;
use oribi_protocol::status::Status;

use super::close_reason::CloseReason;
use super::state::ConnectionState;
use crate::dispatch;
use crate::environment::Environment;

/// What a header is good for, before its body is looked at.
pub(super) enum Admission {
    /// Receive and serve it.
    Serve,
    /// Answer with the status and why, and pass over the body without storing it.
    Skip(Status, &'static str),
    /// Answer with the status and end.
    Close(Status, CloseReason),
}

/// Decides by the header alone whether a frame may be received.
#[inline]
pub(super) fn admit(state: &mut ConnectionState, env: &Environment, header: &Header) -> Admission {
    // What everybody may send, which is nearly all there is.
    let is_small = header.frame_bytes() <= UNAUTHENTICATED_FRAME_BYTES_MAX;
    if header.magic == Magic::ClientRequest && is_small {
        return Admission::Serve;
    }
    admit_other(state, env, header)
}

fn admit_other(state: &mut ConnectionState, env: &Environment, header: &Header) -> Admission {
    if !matches!(header.magic, Magic::ClientRequest | Magic::AltClientRequest) {
        let reason = CloseReason::NotARequest(header.magic as u8);
        return Admission::Close(Status::Einval, reason);
    }
    let frame_bytes = header.frame_bytes();
    if frame_bytes > FRAME_BYTES_MAX {
        return Admission::Close(Status::Einval, CloseReason::FrameTooLarge { frame_bytes });
    }
    if frame_bytes > UNAUTHENTICATED_FRAME_BYTES_MAX && state.identity.is_none() {
        if dispatch::makes_legacy(header.opcode) {
            state.adopt_legacy(&env.server);
        }
        if state.identity.is_none() {
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
