//! Where a stream reads, and what a look there finds.
//!
//! Owns: the state of both sources between two steps. The sides of the stream change it.

use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::Seqno;

use super::step::{EndReason, SnapshotMarker};
use crate::backfill::{Chunk, Inbox, Snapshot};
use crate::item::ItemRef;
use crate::prefetch::load_lines;
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
    /// Seqno of that record once the filter has let it through, and whether it will let nothing
    /// through after it.
    pub(super) passed: Option<Seqno>,
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
    /// What the filter shows and was not sent.
    pub(super) items: std::vec::IntoIter<ItemRef>,
    /// Some of it is no document. Rare: an event is queued in a checkpoint of its own.
    pub(super) has_event: bool,
    /// What was sent last. It is let go of while it is in the processor's cache.
    pub(super) current: Option<ItemRef>,
    /// The read was complete up to here.
    pub(super) end: Seqno,
    /// The queue had nothing behind it.
    pub(super) is_rest: bool,
    /// The filter shows nothing any more after it.
    pub(super) is_last: bool,
}

/// The item that is sent after this many others is being loaded: as long as a miss takes, with a
/// copy of half a kibibyte for each. Of a long one only the first bytes are loaded; the processor
/// loads the rest when it sees them being copied.
const SENT_AHEAD: usize = 4;
const SENT_AHEAD_BYTES_MAX: usize = 1024;

impl Batch {
    /// The next item to send.
    pub(super) fn advance(&mut self) -> Option<&ItemRef> {
        self.current = Some(self.items.next()?);
        Batch::load_ahead(self.items.as_slice(), 0);
        self.current.as_ref()
    }

    /// Loads what is sent first. The headers were read just now.
    pub(super) fn load_first(items: &[ItemRef]) {
        items.iter().take(SENT_AHEAD).for_each(load_item);
    }

    /// Loads what is sent soon after the item before `next`.
    pub(super) fn load_ahead(items: &[ItemRef], next: usize) {
        items.get(next + SENT_AHEAD - 1).into_iter().for_each(load_item);
    }

    /// Lets go of the next items, which were sent. Returns the seqno of the last of them.
    pub(super) fn pass(&mut self, count: usize) -> Option<Seqno> {
        self.current = None;
        self.items.by_ref().take(count).last().map(|item| item.seqno())
    }

    /// The item that was sent last.
    pub(super) fn current(&self) -> Option<(Record<'_>, Option<&ItemRef>)> {
        let item = self.current.as_ref()?;
        Some((record::of(item), Some(item)))
    }
}

fn load_item(item: &ItemRef) {
    load_lines(item.address(), item.block_bytes().min(SENT_AHEAD_BYTES_MAX));
}
