//! Checkpoints that have left the queue, to be freed without its lock.
//!
//! Owns: them, until they are freed. The queue continues counting their memory until the caller
//! settles the account with what [`ExpelledCheckpoints::free`] returned, because until then it is
//! in use.

use std::collections::VecDeque;
use std::sync::Arc;

use super::closed::ClosedCheckpoint;
use super::sums::QueueMemory;
use crate::item::ItemRef;

/// Checkpoints that no cursor needs any more.
#[must_use = "their memory is counted until they are freed and the queue has settled it"]
#[derive(Default)]
pub struct ExpelledCheckpoints(pub(super) VecDeque<Arc<ClosedCheckpoint>>);

/// Bytes that were freed, for [`super::CheckpointManager::settle`].
#[must_use = "the queue counts these bytes until it has settled them"]
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Settlement(pub(super) QueueMemory);

impl ExpelledCheckpoints {
    /// Items that were still live.
    pub fn items(&self) -> impl Iterator<Item = &ItemRef> {
        self.0.iter().flat_map(|checkpoint| checkpoint.items_after(0))
    }

    /// Tombstones among them; checkpoints without any are not looked at.
    pub fn tombstones(&self) -> impl Iterator<Item = &ItemRef> {
        let some = self.0.iter().filter(|checkpoint| checkpoint.tombstones > 0);
        some.flat_map(|checkpoint| checkpoint.items_after(0)).filter(|item| item.is_deleted())
    }

    /// True when nothing left the queue.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees the slots, and the items without another reference.
    pub fn free(self) -> Settlement {
        let mut freed = QueueMemory::default();
        for checkpoint in self.0 {
            let held = checkpoint.held();
            assert!(
                held.orphan_bytes <= checkpoint.item_bytes,
                "an orphan is an item of its checkpoint"
            );
            freed.slot_bytes += held.slot_bytes;
            freed.orphan_bytes += held.orphan_bytes;
        }
        Settlement(freed)
    }
}
