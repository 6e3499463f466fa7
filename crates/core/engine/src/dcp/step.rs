//! Output of a stream, one step at a time.
//!
//! Owns: these types. A step borrows from the stream, so no document is copied for it.

use std::fmt;
use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::Seqno;

use crate::backfill::BackfillChunk;
use crate::item::ItemRef;
use crate::system_event::ManifestEvent;

/// The next thing to send.
#[derive(Debug)]
pub enum StreamStep<'a> {
    Snapshot(StreamMarker),
    /// One change inside of it.
    Change(StreamChange<'a>),
    /// The snapshot is whole up to here, and the last of it is not shown to this stream. Never for
    /// [`crate::dcp::StreamFilter::Default`].
    SeqnoAdvanced(Seqno),
    /// The stream is over; nothing follows.
    End(StreamEndReason),
    /// Nothing for now. [`crate::dcp::StreamSink::ready`] reports the next change.
    Idle,
}

/// The announcement of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamMarker {
    /// No change of the snapshot is below this seqno.
    pub start: Seqno,
    /// Its last seqno; a change or a [`StreamStep::SeqnoAdvanced`] follows with exactly this one.
    pub end: Seqno,
    /// Where it is read from.
    pub source: SnapshotSource,
    /// A checkpoint begins with it. A detail of replication.
    pub is_checkpoint: bool,
    /// Tombstones up to here may be missing.
    pub purge_seqno: Seqno,
}

/// Where a snapshot is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotSource {
    /// The queue of recent mutations.
    Memory,
    Disk,
}

#[derive(Debug)]
pub enum StreamChange<'a> {
    /// A document was written, deleted or has expired.
    Document(ChangedDocument<'a>),
    /// A scope or collection came or went.
    Event(ManifestEvent<'a>),
}

/// A version of a document, or its tombstone.
#[derive(Debug)]
pub struct ChangedDocument<'a> {
    pub record: Record<'a>,
    /// The block of it, if it comes from memory: a reference keeps the bytes for as long as a
    /// message needs them.
    pub item: Option<&'a ItemRef>,
    /// The copy of a backfill that it comes from, which can be kept in the same way.
    pub copied: Option<CopiedRecord<'a>>,
}

/// A record that a backfill has copied.
#[derive(Clone, Copy)]
pub struct CopiedRecord<'a> {
    pub(super) chunk: &'a Arc<BackfillChunk>,
    pub(super) index: usize,
}

impl CopiedRecord<'_> {
    /// A reference that keeps the copy.
    pub fn share(&self) -> SharedRecord {
        SharedRecord { chunk: Arc::clone(self.chunk), index: self.index }
    }

    /// True when the process's budget has granted the copy, so a reference to it costs nothing.
    pub fn is_granted(&self) -> bool {
        self.chunk.is_granted()
    }
}

impl fmt::Debug for CopiedRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiedRecord").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A reference to a record that a backfill has copied.
pub struct SharedRecord {
    chunk: Arc<BackfillChunk>,
    index: usize,
}

impl SharedRecord {
    pub fn value(&self) -> &[u8] {
        self.chunk.record(self.index).map_or(&[], |record| record.value)
    }

    /// Bytes of the copy.
    pub fn bytes(&self) -> usize {
        self.chunk.bytes() as usize
    }

    pub fn is_granted(&self) -> bool {
        self.chunk.is_granted()
    }
}

impl fmt::Debug for SharedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecord").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Why a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEndReason {
    /// The end seqno is reached.
    Ok,
    /// The vbucket is no longer this node's, was emptied, or has lost deletions that the reader
    /// needs.
    StateChanged,
    /// The store cannot be read.
    BackfillFailed,
    /// Everything that the filter lets through was dropped.
    FilterEmpty,
}

/// Where a stream reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamPhase {
    /// It waits for a backfill, or reads from one.
    Backfilling,
    /// It reads recent mutations from memory.
    InMemory,
    Dead,
}

/// Figures of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStats {
    pub phase: StreamPhase,
    /// The snapshot begins after this seqno.
    pub start_seqno: Seqno,
    /// Seqno at which it ends.
    pub end_seqno: Seqno,
    /// Last seqno that it sent.
    pub last_sent_seqno: Seqno,
    pub last_sent_seqno_advance: Seqno,
    /// End of the last marker.
    pub last_sent_snap_end_seqno: Seqno,
    /// Last seqno that it has read, sent or left out.
    pub last_read_seqno: Seqno,
    /// Seqnos from there to the vbucket's last one: an upper bound of the changes to come.
    pub items_remaining: u64,
    /// Changes sent from backfills.
    pub backfill_sent: u64,
    /// Changes sent from memory.
    pub memory_sent: u64,
    /// Backfills begun, those after a dropped cursor included.
    pub backfills: u64,
    /// Times that its cursor was dropped because memory was short.
    pub cursors_dropped: u64,
    /// Bytes and records of a backfill that it has not read yet.
    pub backfill_buffer_bytes: u64,
    pub backfill_buffer_items: u64,
    /// Items in memory that it has not read yet.
    pub items_ready: u64,
    /// Whether it has a cursor in the queue.
    pub cursor_registered: bool,
}
