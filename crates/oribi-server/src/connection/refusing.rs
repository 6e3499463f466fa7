//! Answers to frames that no handler sees: of an unknown opcode, too long, or out of step.
//!
//! Owns: what is answered, and whether the connection goes on. Called by the connection.

use oribi_protocol::frame::{FrameError, Header};
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

use super::close_reason::CloseReason;
use super::state::ConnectionState;
use super::write_buffer::WriteBuffer;
use crate::dispatch::write_context;

/// Answers a frame with a status and nothing else.
pub(super) fn answer(
    state: &ConnectionState,
    out: &mut WriteBuffer,
    header: &Header,
    status: Status,
) {
    let status = state.wire_status(status);
    write_response(out.tail(), &ResponseParts::new(header.opcode, status, header.opaque));
}

/// As `answer`, with a text for people where the client reads it.
pub(super) fn answer_with(
    state: &ConnectionState,
    out: &mut WriteBuffer,
    header: &Header,
    status: Status,
    context: &'static str,
) {
    let status = state.wire_status(status);
    let parts = ResponseParts::new(header.opcode, status, header.opaque);
    write_context(out, state.features, &parts, context);
}

/// Answers a frame after which the connection ends.
pub(super) fn refuse(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    header: &Header,
    status: Status,
    reason: CloseReason,
) {
    answer(state, out, header, status);
    state.close(reason);
}

/// The stream is out of step: answer if it is known what was asked, and end.
pub(super) fn reject(state: &mut ConnectionState, out: &mut WriteBuffer, error: FrameError) {
    match error {
        FrameError::UnknownMagic(magic) => state.close(CloseReason::UnknownMagic(magic)),
        FrameError::BodyTooShort(header) => {
            refuse(state, out, &header, Status::Einval, CloseReason::BodyTooShort);
        }
    }
}
