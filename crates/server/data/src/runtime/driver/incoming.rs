//! Receives the value of a store request straight into its item.
//!
//! On the usual path a large value is copied twice more: when the input block grows, and from there
//! into the item. Here the connection waits for the head of the request (header, extras, key) and
//! makes every check that does not need the value. It then allocates the item's block, and the
//! socket is read into it. After the last byte the request is served like any other, with its value
//! already in place.
//!
//! Owns: the head, which the input block does not keep. Invariant: no block is allocated for a
//! request that is certain to be refused. Such a request is received and answered as usual.

use oribi_engine::FillingItem;
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;

use crate::limits::RECEIVE_IN_PLACE_BYTES_MIN;

/// A store request whose value is still arriving.
pub(super) struct Incoming {
    pub(super) header: Header,
    /// Framing extras, extras and key; in the text protocol, the line.
    pub(super) parts: Box<[u8]>,
    /// The item that receives the value.
    pub(super) item: FillingItem,
}

impl Incoming {
    /// Bytes of a request before its value, when the value is to be received in place.
    pub(super) fn head_bytes(header: &Header) -> Option<usize> {
        let value_bytes = header.value_bytes()?;
        (Incoming::is_store(header.opcode) && value_bytes >= RECEIVE_IN_PLACE_BYTES_MIN)
            .then(|| header.frame_bytes() - value_bytes)
    }

    /// True for requests whose value becomes that of a document.
    pub(super) fn is_store(opcode: u8) -> bool {
        use Opcode::{Add, Addq, Replace, Replaceq, Set, Setq};
        let opcode = Opcode::from_u8(opcode);
        opcode.is_some_and(|one| matches!(one, Set | Setq | Add | Addq | Replace | Replaceq))
    }

    /// A request whose complete head is `head`; `item` receives its value.
    pub(super) fn new(header: Header, head: &[u8], item: FillingItem) -> Incoming {
        Incoming { header, parts: head[HEADER_BYTES..].into(), item }
    }
}

/// A request without its value, built from the parts between its header and the value.
pub(super) fn frame_of(header: Header, parts: &[u8]) -> Frame<'_> {
    let (framing, rest) = parts.split_at(usize::from(header.framing_bytes));
    let (extras, key) = rest.split_at(usize::from(header.extras_bytes));
    debug_assert_eq!(key.len(), usize::from(header.key_bytes), "the parts are those of the header");
    Frame { header, framing, extras, key, value: &[] }
}
