//! How versions move within a vbucket's memory, so that sparse chunks of the arena become empty.
//!
//! Owns: one slice of a round of compaction. A version may move when only the table refers to it:
//! neither the queue nor an answer has it. It need not be durable, because the copy is the same
//! version. Addresses decide for most groups of a table; no item outside a chosen chunk is touched.

use super::VBucket;
use super::context::Context;
use super::paging::Successor;
use crate::block_arena::Round;
use crate::hash_table::ScanCursor;
use crate::item::{ItemRef, NewItem};

impl VBucket {
    /// Counts what could move in the next `groups` groups after the cursor; true when the scan is
    /// complete.
    pub(crate) fn count_movable(
        &self,
        round: &mut Round,
        cursor: &mut ScanCursor,
        groups: usize,
    ) -> bool {
        self.table.lock().index.scan(cursor, groups, |item| {
            if is_movable(item, round) {
                round.count_movable(item.address().addr(), item.block_bytes());
            }
        })
    }

    /// Moves what can move in the next `groups` groups after the cursor. Returns the number of
    /// blocks, and true when the scan is complete.
    pub(crate) fn move_blocks(
        &self,
        context: &Context<'_>,
        round: &Round,
        cursor: &mut ScanCursor,
        groups: usize,
    ) -> (u64, bool) {
        let (found, is_complete) =
            self.table.lock().pick(cursor, groups, |item| is_movable(item, round));
        // All copies are made before the first original is freed, so that no copy takes an
        // original's place.
        let copies: Vec<ItemRef> = found.iter().map(copy_of).collect();
        debug_assert_eq!(copies.len(), found.len(), "every block has its copy");
        let (mut moved, mut bytes) = (0, 0);
        for (item, copy) in found.into_iter().zip(copies) {
            let block_bytes = item.block_bytes();
            if self.replace(context, item, Successor::Copy(copy)) {
                moved += 1;
                bytes += block_bytes;
            }
        }
        debug_assert_eq!(moved == 0, bytes == 0, "a block that moved has bytes");
        if moved > 0 {
            round.moved(bytes);
        }
        (moved, is_complete)
    }
}

/// Asked under the table's lock.
fn is_movable(item: &ItemRef, round: &Round) -> bool {
    item.is_to_move(round) && item.references() == 1
}

fn copy_of(item: &ItemRef) -> ItemRef {
    let mut copy = NewItem::copy_of(item, item.is_in_store_only());
    copy.copy_frequency(item);
    if item.is_incompressible() {
        copy.as_item().note_incompressible();
    }
    debug_assert_eq!(copy.as_item().seqno(), item.seqno(), "a copy is of the same version");
    copy.publish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemFields;
    use oribi_types::{CollectionId, DocKey};

    #[test]
    fn a_copy_keeps_what_the_pager_knows() {
        let key = DocKey { collection: CollectionId::DEFAULT, key: b"noise" };
        let item = NewItem::new(key, ItemFields::default(), &[b"value"]).publish();
        assert!(!copy_of(&item).is_incompressible());
        item.note_incompressible();
        assert!(copy_of(&item).is_incompressible());
    }
}
