//! Consecutive checkpoints of a batch that are written together.
//!
//! Owns: dividing a batch into runs, and coalescing within one: of each key only the newest version
//! is written. Streams close checkpoints more often than the flusher does; coalescing over a run
//! keeps that from costing the store more. A run must be durable as a whole: at the end of one of
//! its checkpoints but the last, a version that was left out would be missing. So a run is no
//! larger than a checkpoint may be, which every store writes at once. All of it happens without
//! the queue lock.

use std::collections::HashSet;
use std::sync::Arc;

use oribi_types::Seqno;

use super::batch::{CursorBatch, ITEMS_AHEAD};
use super::closed::ClosedCheckpoint;
use super::replicated_version::IncompleteSnapshot;
use crate::item::ItemRef;
use crate::prefetch::load_line;

/// Checkpoints that are written together.
#[derive(Clone, Copy)]
pub struct CheckpointRun<'b> {
    checkpoints: &'b [Arc<ClosedCheckpoint>],
    /// Everything after this seqno is in the batch.
    from: u64,
    end: u64,
}

impl CursorBatch {
    /// The batch in runs of at least one checkpoint, and of several while they have no more items
    /// and bytes than given. The state at the end of a run is complete only together with all runs
    /// before it.
    pub fn runs(
        &self,
        items_max: usize,
        bytes_max: usize,
    ) -> impl Iterator<Item = CheckpointRun<'_>> {
        let mut left = self.checkpoints.as_slice();
        std::iter::from_fn(move || {
            let (mut items, mut bytes) = (0, 0);
            let fits = |checkpoint: &&Arc<ClosedCheckpoint>| {
                items += checkpoint.items;
                bytes += checkpoint.item_bytes;
                items <= items_max && bytes <= bytes_max
            };
            let count = left.iter().take_while(fits).count().max(1);
            let (checkpoints, rest) = left.split_at_checked(count)?;
            left = rest;
            let end = checkpoints.last()?.end;
            assert!(end > self.from.0 && end <= self.end.0, "a run is a part of its batch");
            Some(CheckpointRun { checkpoints, from: self.from.0, end })
        })
    }
}

impl<'b> CheckpointRun<'b> {
    /// The run is complete up to here.
    pub fn end(&self) -> Seqno {
        Seqno(self.end)
    }

    /// The snapshot of which a replica has only a part at the end of the run.
    pub fn incomplete(&self) -> Option<IncompleteSnapshot> {
        self.checkpoints.last().and_then(|last| last.incomplete)
    }

    /// The newest version of each key, in ascending seqno.
    pub fn newest_items(&self) -> Vec<&'b ItemRef> {
        let (checkpoints, from) = (self.checkpoints, self.from);
        debug_assert!(!checkpoints.is_empty() && from < self.end, "a run has a checkpoint");
        let count = checkpoints.iter().map(|checkpoint| checkpoint.items).sum();
        let mut items = Vec::with_capacity(count);
        for checkpoint in checkpoints {
            items.extend(checkpoint.items_after(from));
        }
        // Within one checkpoint a key is there once.
        if checkpoints.len() > 1 {
            keep_the_newest(&mut items);
        }
        debug_assert!(items.is_sorted_by_key(|item| item.seqno()), "versions are in order");
        debug_assert!(items.last().is_none_or(|item| item.seqno().0 <= self.end), "a run ends");
        items
    }
}

fn keep_the_newest(items: &mut Vec<&ItemRef>) {
    let mut newer = HashSet::with_capacity(items.len());
    items.reverse();
    // As `retain` does it, which does not show the items ahead.
    let mut kept = 0;
    for index in 0..items.len() {
        if let Some(ahead) = items.get(index + ITEMS_AHEAD) {
            load_line(ahead.address());
        }
        let item = items[index];
        if newer.insert(item.key()) {
            items[kept] = item;
            kept += 1;
        }
    }
    items.truncate(kept);
    items.reverse();
    debug_assert_eq!(kept, newer.len(), "one version of each key is kept");
}
