//! The part of a request that its answer repeats: opcode and opaque.
//!
//! A request that is answered later keeps only this until then.

use oribi_protocol::frame::Header;

/// See the module text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId {
    /// Opcode, even an unknown one.
    pub opcode: u8,
    /// The client's number for the request.
    pub opaque: u32,
}

impl RequestId {
    /// Of the request with this header.
    pub fn of(header: &Header) -> RequestId {
        RequestId { opcode: header.opcode, opaque: header.opaque }
    }
}
