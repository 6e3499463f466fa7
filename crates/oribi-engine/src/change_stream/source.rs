//! Where a stream reads, and what a look there finds.
//!
//! Owns: the state of both sources between two steps. The sides of the stream change it.

use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::Seqno;

use super::step::{EndReason, SnapshotMarker};
use crate::backfill::{Chunk, Inbox, Snapshot};
use crate::item::ItemRef;
use crate::record;

/// Where a stream reads.
pub(super) enum Source {
    Backfill(Reading),
    Memory(Option<Batch>),
}

/// What one look at the source has found.
pub(super) enum Turn {
    Again,
    Marker(SnapshotMarker),
    /// The stream has it.
    Change,
    Advanced(Seqno),
    End(EndReason),
    Idle,
}

/// A scan, as the stream reads it.
pub(super) struct Reading {
    pub(super) inbox: Arc<Inbox>,
    /// Where the stream stood when it asked.
    pub(super) from: Seqno,
    pub(super) snapshot: Option<Snapshot>,
    /// End of the marker, once it is sent.
    pub(super) announced: Option<Seqno>,
    pub(super) chunk: Option<Arc<Chunk>>,
    /// The next record of the chunk.
    pub(super) at: usize,
    /// The filter has let that record through, and whether it will let nothing through after it.
    pub(super) is_passed: bool,
    pub(super) is_last: bool,
}

impl Reading {
    /// Bytes and records that wait for the stream.
    pub(super) fn held(&self) -> (u64, u64) {
        self.inbox.held()
    }

    pub(super) fn close(&self) {
        self.inbox.close();
    }

    /// The record that was sent last.
    pub(super) fn current(&self) -> Option<(Record<'_>, Option<&ItemRef>)> {
        let (chunk, at) = (self.chunk.as_ref()?, self.at.checked_sub(1)?);
        Some((chunk.record(at)?, chunk.item(at)))
    }
}

/// One snapshot.
pub(super) struct Batch {
    /// Until it is sent.
    pub(super) marker: Option<SnapshotMarker>,
    /// What the filter shows.
    pub(super) items: Vec<ItemRef>,
    /// Items sent.
    pub(super) sent: usize,
    /// The read was complete up to here.
    pub(super) end: Seqno,
    /// The filter shows nothing any more after it.
    pub(super) is_last: bool,
}

impl Batch {
    /// The item that was sent last.
    pub(super) fn current(&self) -> Option<(Record<'_>, Option<&ItemRef>)> {
        let item = self.items.get(self.sent.checked_sub(1)?)?;
        Some((record::of(item), Some(item)))
    }
}
