//! Answers to frames after which the connection ends.
//!
//! Owns: the answer when the stream is out of step, or when a frame may not be received. The
//! connection calls this.

use oribi_protocol::frame::{FrameError, Header};
use oribi_protocol::status::Status;

use crate::connection::close_reason::CloseReason;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::fail_request;

/// Answers a frame after which the connection ends.
pub(super) fn refuse(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    header: &Header,
    status: Status,
    reason: CloseReason,
) {
    fail_request(state, out, RequestId::of(header), status, None);
    state.close(reason);
}

/// Ends a connection whose stream is out of step. Answers first if the request is known.
pub(super) fn reject(state: &mut ConnectionState, out: &mut SendBuffer, error: FrameError) {
    match error {
        FrameError::UnknownMagic(magic) => state.close(CloseReason::UnknownMagic(magic)),
        FrameError::BodyTooShort(header) => {
            refuse(state, out, &header, Status::Einval, CloseReason::BodyTooShort);
        }
    }
}
