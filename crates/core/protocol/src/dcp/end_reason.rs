//! Why a stream ends: the extras of its last message.

use crate::dcp::{MessageHead, StreamHead, write_head};
use crate::opcode::Opcode;

/// Reason of the last message of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EndReason {
    /// The requested end is reached.
    Ok = 0,
    /// The consumer closed the stream.
    Closed = 1,
    /// The vbucket is not served here any more.
    StateChanged = 2,
    /// The connection ends.
    Disconnected = 3,
    /// The consumer is too slow.
    Slow = 4,
    /// Reading from disk failed.
    BackfillFail = 5,
    /// The consumer must roll back.
    Rollback = 6,
    /// All collections of the filter are gone.
    FilterEmpty = 7,
    /// The user may not read the stream any more.
    LostPrivileges = 8,
}

impl EndReason {
    /// Decodes the extras of the message: exactly four bytes with a known reason.
    pub fn decode(extras: &[u8]) -> Option<EndReason> {
        let code = u32::from_be_bytes(extras.try_into().ok()?);
        EndReason::ALL.into_iter().find(|reason| *reason as u32 == code)
    }

    /// Appends the message, and returns the bytes of the frame.
    pub fn write(self, out: &mut Vec<u8>, stream: StreamHead) -> usize {
        let extras = (self as u32).to_be_bytes();
        let head =
            MessageHead { extras: &extras, ..MessageHead::new(Opcode::DcpStreamEnd, stream) };
        write_head(out, &head, 0)
    }

    /// All reasons in ascending order.
    pub const ALL: [EndReason; 9] = [
        EndReason::Ok,
        EndReason::Closed,
        EndReason::StateChanged,
        EndReason::Disconnected,
        EndReason::Slow,
        EndReason::BackfillFail,
        EndReason::Rollback,
        EndReason::FilterEmpty,
        EndReason::LostPrivileges,
    ];
}
