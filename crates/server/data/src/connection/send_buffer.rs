//! The values that a connection of the server sends without copying them.
//!
//! Owns: the kinds of large values that stay alive until the socket has taken them.
//! [`oribi_protocol::write_buffer`] sends them.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::ItemRef;
use oribi_engine::compression::Inflater;
use oribi_engine::dcp::SharedRecord;
use oribi_protocol::write_buffer::{BrokenValue, PinnedBytes};

use crate::connection::memory::ConnectionReservation;
use crate::connection::memory::budget::BlockKey;

/// The output of one connection.
pub type SendBuffer = oribi_protocol::write_buffer::WriteBuffer<PinnedValue>;

/// A large value that is sent from its place in memory.
#[derive(Debug)]
pub enum PinnedValue {
    /// The body of a stored item; the item stays alive until it is sent.
    Item(ItemRef),
    /// A part of a stored item's value, by its offsets there.
    Part(ItemRef, Range<u32>),
    /// A document made by the server, such as a manifest.
    Document(Arc<str>),
    /// A part of messages that several connections send.
    Messages(Arc<Vec<u8>>, Range<u32>),
    /// The compressed body of a stored item, inflated piece by piece as the client takes it.
    Inflating(ItemRef, Box<Inflater>),
    /// A part of the value of a record that a backfill has copied, by its offsets there.
    Record(SharedRecord, Range<u32>),
    /// The compressed end of such a value from an offset on, inflated piece by piece.
    InflatingRecord(SharedRecord, u32, Box<Inflater>),
}

/// The range of `part` within `whole`, if it lies there.
pub(crate) fn range_within(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let begin = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = begin.checked_add(part.len()).filter(|end| *end <= whole.len())?;
    debug_assert!(begin <= end, "a part ends after its beginning");
    Some(begin..end)
}

impl PinnedValue {
    /// Bytes of memory that the value keeps alive. The server's own documents are shared, so they
    /// count as none.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Item(item) | Self::Part(item, _) => item.block_bytes(),
            Self::Document(_) => 0,
            Self::Messages(messages, _) => messages.capacity(),
            Self::Inflating(item, inflating) => item.block_bytes() + inflating.held_bytes(),
            Self::Record(record, _) => record.bytes(),
            Self::InflatingRecord(record, _, inflating) => record.bytes() + inflating.held_bytes(),
        }
    }

    /// The block of a version that the value keeps.
    pub fn block(&self) -> Option<BlockKey> {
        match self {
            Self::Item(item) | Self::Part(item, _) | Self::Inflating(item, _) => {
                Some(BlockKey::of(item))
            }
            _ => None,
        }
    }

    /// True when a reservation pays for the memory: one that the connection shares, or that of a
    /// backfill.
    pub fn is_granted(&self, reserved: &ConnectionReservation) -> bool {
        match self {
            Self::Record(record, _) | Self::InflatingRecord(record, ..) => record.is_granted(),
            _ => self.block().is_some_and(|key| reserved.has_block(key)),
        }
    }
}

impl PinnedBytes for PinnedValue {
    fn total_bytes(&self) -> usize {
        match self {
            Self::Item(item) => item.body().len(),
            Self::Part(_, part) | Self::Messages(_, part) | Self::Record(_, part) => {
                (part.end - part.start) as usize
            }
            Self::Document(text) => text.len(),
            Self::Inflating(_, inflating) | Self::InflatingRecord(.., inflating) => {
                inflating.total_bytes()
            }
        }
    }

    fn ready(&self, sent: usize) -> &[u8] {
        debug_assert!(sent <= self.total_bytes(), "no more was sent than there is");
        match self {
            Self::Item(item) => &item.body()[sent..],
            Self::Part(item, part) => &item.value()[part.start as usize + sent..part.end as usize],
            Self::Document(text) => &text.as_bytes()[sent..],
            Self::Messages(all, part) => &all[part.start as usize + sent..part.end as usize],
            Self::Inflating(_, inflating) | Self::InflatingRecord(.., inflating) => {
                inflating.ready(sent)
            }
            Self::Record(record, part) => {
                &record.value()[part.start as usize + sent..part.end as usize]
            }
        }
    }

    fn make_ready(&mut self, sent: usize) -> Result<(), BrokenValue> {
        match self {
            Self::Inflating(item, inflating) => {
                inflating.make(item.body(), sent).map_err(|_| BrokenValue)
            }
            Self::InflatingRecord(record, from, inflating) => {
                inflating.make(&record.value()[*from as usize..], sent).map_err(|_| BrokenValue)
            }
            _ => Ok(()),
        }
    }
}
