//! What a connection of the server sends without copying it.
//!
//! Owns: the kinds of large values that stay alive until the socket has taken them. How they are sent
//! is [`oribi_protocol::write_buffer`]'s.

use std::sync::Arc;

use oribi_engine::ItemRef;

/// Output of one connection.
pub type WriteBuffer = oribi_protocol::write_buffer::WriteBuffer<PinnedValue>;

/// Something large that is sent from where it lies.
#[derive(Debug, Clone)]
pub enum PinnedValue {
    /// The body of a stored item; the item stays alive until it is sent.
    Item(ItemRef),
    /// A document that the server made, such as a manifest.
    Document(Arc<str>),
    /// A body that was inflated for this client.
    Inflated(Arc<Vec<u8>>),
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Item(item) => item.body(),
            Self::Document(text) => text.as_bytes(),
            Self::Inflated(body) => body,
        }
    }
}
