//! Result of one read by the persistence cursor.
//!
//! Owns: references to whole closed checkpoints. Items of a checkpoint are visited through it,
//! after the queue lock was released, without counting a reference for each; the queue keeps the
//! checkpoints at least until the cursor has advanced, and the batch keeps them after that. What a
//! stream reads is a [`super::StreamBatch`].

use std::sync::Arc;

use oribi_types::{Cas, Seqno};

use super::closed::ClosedCheckpoint;
use super::replicated_version::IncompleteSnapshot;
use crate::item::ItemRef;

/// Items whose headers are being loaded while the one before them is looked at: a miss takes about
/// as long as the work on so many.
pub(crate) const ITEMS_AHEAD: usize = 8;

/// How much one read takes. Whole checkpoints are taken, at least one, until either is reached.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    pub items_max: usize,
    /// Bytes of their blocks.
    pub bytes_max: usize,
    /// Checkpoints: what the time under the queue lock depends on.
    pub checkpoints_max: usize,
}

#[derive(Default)]
pub struct CursorBatch {
    pub(super) checkpoints: Vec<Arc<ClosedCheckpoint>>,
    /// Everything after this seqno is in the batch.
    pub from: Seqno,
    /// The batch is complete up to here, also where slots were empty.
    pub end: Seqno,
    /// Highest CAS handed out up to `end`, or later.
    pub max_cas: Cas,
    pub item_count: usize,
    /// Bytes of the blocks of all items of its checkpoints.
    pub item_bytes: usize,
    /// True when more was queued after `end` at the time of the read.
    pub more: bool,
}

impl CursorBatch {
    /// The items in ascending seqno.
    pub fn items(&self) -> impl Iterator<Item = &ItemRef> {
        self.checkpoints.iter().flat_map(|checkpoint| checkpoint.items_after(self.from.0))
    }

    /// The snapshot of which a replica has only a part at the end of the batch.
    pub fn incomplete(&self) -> Option<IncompleteSnapshot> {
        self.checkpoints.last().and_then(|last| last.incomplete)
    }

    /// True when nothing was queued.
    pub fn is_empty(&self) -> bool {
        debug_assert!(self.from <= self.end, "a read goes forward");
        self.item_count == 0
    }
}
