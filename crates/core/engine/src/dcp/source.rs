//! The sources of a stream, and the result of one look at them.
//!
//! Owns: the state of both sources between two steps. The sides of the stream change it.

use std::sync::Arc;

use oribi_types::Seqno;

use super::step::{ChangedDocument, CopiedRecord, StreamEndReason, StreamMarker};
use crate::backfill::{BackfillChunk, BackfillInbox, BackfillSnapshot};
use crate::checkpoint::StreamBatch;
use crate::item::ItemRef;
use crate::record;

/// Where a stream reads.
pub(super) enum StreamSource {
    Backfill(BackfillReader),
    Memory(Option<SnapshotBatch>),
}

/// Result of one look at the source.
pub(super) enum StreamTurn {
    Again,
    Marker(StreamMarker),
    /// The stream has it.
    Change,
    Advanced(Seqno),
    End(StreamEndReason),
    Idle,
}

/// A scan, as the stream reads it.
pub(super) struct BackfillReader {
    pub(super) inbox: Arc<BackfillInbox>,
    /// Where the stream stood when it asked.
    pub(super) from: Seqno,
    pub(super) snapshot: Option<BackfillSnapshot>,
    /// End of the marker, once it is sent.
    pub(super) announced: Option<Seqno>,
    pub(super) chunk: Option<Arc<BackfillChunk>>,
    /// The next record of the chunk.
    pub(super) at: usize,
    /// Seqno of that record once the filter has let it through, and whether it will let nothing
    /// through after it.
    pub(super) passed: Option<Seqno>,
    pub(super) is_last: bool,
}

impl BackfillReader {
    /// Bytes and records that wait for the stream.
    pub(super) fn held(&self) -> (u64, u64) {
        self.inbox.held()
    }

    pub(super) fn close(&self) {
        self.inbox.close();
    }

    /// The record that was sent last.
    pub(super) fn current(&self) -> Option<ChangedDocument<'_>> {
        let chunk = self.chunk.as_ref()?;
        debug_assert!(self.at <= chunk.len(), "a stream reads inside of a chunk");
        document_of(chunk, self.at.checked_sub(1)?)
    }

    /// Drops the changes that were not sent. The inbox then requests another scan.
    pub(super) fn give_up(&mut self) {
        (self.chunk, self.at, self.passed) = (None, 0, None);
        self.inbox.give_up();
    }

    /// Lets go of the chunk once all of it was sent or left out.
    pub(super) fn release_passed(&mut self) {
        let len = self.chunk.as_ref().map_or(self.at, |chunk| chunk.len());
        debug_assert!(self.at <= len, "a stream reads inside of a chunk");
        if self.chunk.as_ref().is_some_and(|chunk| self.at >= chunk.len()) {
            self.chunk = None;
        }
    }

    /// True while it keeps a large record that the process's budget has granted, and has not
    /// passed it.
    pub(super) fn holds_granted(&self) -> bool {
        let is_granted = |chunk: &Arc<BackfillChunk>| chunk.is_granted();
        self.chunk.as_ref().is_some_and(is_granted) || self.inbox.holds_granted()
    }
}

/// A record of a chunk.
pub(super) fn document_of(chunk: &Arc<BackfillChunk>, index: usize) -> Option<ChangedDocument<'_>> {
    let (record, item) = (chunk.record(index)?, chunk.item(index));
    let copied = item.is_none().then_some(CopiedRecord { chunk, index });
    Some(ChangedDocument { record, item, copied })
}

/// One snapshot. Nothing of it is looked at before its turn, but what decides where it ends.
pub(super) struct SnapshotBatch {
    /// Until it is sent.
    pub(super) marker: Option<StreamMarker>,
    pub(super) read: StreamBatch,
    /// Everything up to here was sent or left out.
    pub(super) at: Seqno,
    /// The last change that the filter shows.
    pub(super) last: Seqno,
    /// It is an event, which is queued in its own checkpoint.
    pub(super) is_event: bool,
    /// The filter shows nothing any more after it.
    pub(super) is_last: bool,
    /// Result of the last single step.
    pub(super) current: Option<ItemRef>,
}

impl SnapshotBatch {
    /// True when everything that is shown of it was sent.
    pub(super) fn is_sent(&self) -> bool {
        debug_assert!(self.at <= self.read.end(), "a stream sends what it has read");
        self.marker.is_none() && self.at >= self.last
    }

    /// The item that was sent last.
    pub(super) fn current(&self) -> Option<ChangedDocument<'_>> {
        let item = self.current.as_ref()?;
        debug_assert!(item.seqno() <= self.last, "a change is inside its snapshot");
        Some(ChangedDocument { record: record::of(item), item: Some(item), copied: None })
    }
}
