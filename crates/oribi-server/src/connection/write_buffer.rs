//! What a connection of the server sends without copying it.
//!
//! Owns: the kinds of large values that stay alive until the socket has taken them. How they are sent
//! is [`oribi_protocol::write_buffer`]'s.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::ItemRef;

/// Output of one connection.
pub type WriteBuffer = oribi_protocol::write_buffer::WriteBuffer<PinnedValue>;

/// Something large that is sent from where it lies.
#[derive(Debug, Clone)]
pub enum PinnedValue {
    /// The body of a stored item; the item stays alive until it is sent.
    Item(ItemRef),
    /// A part of the value of a stored item, by its offsets there.
    Part(ItemRef, Range<u32>),
    /// A document that the server made, such as a manifest.
    Document(Arc<str>),
    /// A body that was inflated for this client.
    Inflated(Arc<Vec<u8>>),
}

impl PinnedValue {
    /// `part` where it lies, if that is inside the value of `item`.
    pub fn part_of(item: &ItemRef, part: &[u8]) -> Option<PinnedValue> {
        let whole = item.value();
        let from = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
        let to = from.checked_add(part.len()).filter(|to| *to <= whole.len())?;
        let part = u32::try_from(from).ok()?..u32::try_from(to).ok()?;
        Some(PinnedValue::Part(item.clone(), part))
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Item(item) => item.body(),
            Self::Part(item, part) => &item.value()[part.start as usize..part.end as usize],
            Self::Document(text) => text.as_bytes(),
            Self::Inflated(body) => body,
        }
    }
}
