//! A store request whose value is received straight into its item.
//!
//! A value of some size would be copied twice more on the usual way: when the input block grows, and from
//! there into the item. So once the head of such a request is there (header, extras, key) and passes
//! every check that can be made without the value, the item's block is allocated, and the socket is read
//! into it. When the last byte has come the request is served like any other, its value already in
//! place. Owns: the head, which the input block does not keep. Invariant: no block is allocated for a
//! request that is certain to be refused; such a one is received and answered as usual.

use oribi_engine::FillingItem;
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;

use crate::limits::RECEIVE_IN_PLACE_BYTES_MIN;

/// See the module text.
pub(super) struct Incoming {
    /// Its header.
    pub(super) header: Header,
    /// Framing extras, extras and key.
    pub(super) parts: Box<[u8]>,
    /// The item whose value is on its way.
    pub(super) item: FillingItem,
}

impl Incoming {
    /// Bytes of a request up to its value, when the value is one to be received in place.
    pub(super) fn head_bytes(header: &Header) -> Option<usize> {
        let value_bytes = header.value_bytes()?;
        let is_store = matches!(
            Opcode::from_u8(header.opcode)?,
            Opcode::Set
                | Opcode::Setq
                | Opcode::Add
                | Opcode::Addq
                | Opcode::Replace
                | Opcode::Replaceq
        );
        (is_store && value_bytes >= RECEIVE_IN_PLACE_BYTES_MIN)
            .then(|| header.frame_bytes() - value_bytes)
    }

    /// The request whose complete head is `head`, for whose value there is `item`.
    pub(super) fn new(header: Header, head: &[u8], item: FillingItem) -> Incoming {
        Incoming { header, parts: head[HEADER_BYTES..].into(), item }
    }
}

/// A request without its value, from what stands between its header and the value.
pub(super) fn frame_of(header: Header, parts: &[u8]) -> Frame<'_> {
    let (framing, rest) = parts.split_at(usize::from(header.framing_bytes));
    let (extras, key) = rest.split_at(usize::from(header.extras_bytes));
    Frame { header, framing, extras, key, value: &[] }
}
