//! The answer to one operation, in the terms that all protocols of the load have in common.

use crate::perf::kv::operation::OperationKind;

/// The answer to one operation.
pub struct KvAnswer<'a> {
    /// The operation's number in [`crate::perf::kv::flight::Flight`].
    pub opaque: u32,
    /// The kind of answer; `None` for one that the load does not request.
    pub kind: Option<OperationKind>,
    /// A status of the binary protocol; those of the text protocols are translated.
    pub status: u16,
    /// The document that was read.
    pub value: &'a [u8],
    /// The document is compressed.
    pub is_compressed: bool,
    /// The server's line for a refusal; empty in the binary protocol.
    pub line: &'a [u8],
}
