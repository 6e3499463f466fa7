//! The outcome of a request that another thread served.

use oribi_protocol::status::Status;

/// The answer to a request whose frame is no longer there: a reply, or the status of a failure.
pub(crate) type LateOutcome = Result<LateReply, Status>;

pub(crate) struct LateReply {
    pub status: Status,
    pub extras: &'static [u8],
    pub value: Vec<u8>,
}

impl LateReply {
    /// Success and a value.
    pub fn value(value: Vec<u8>) -> LateReply {
        LateReply { status: Status::Success, extras: &[], value }
    }
}
