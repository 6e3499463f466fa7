//! The hash table together with the sums that are kept under the same lock.
//!
//! Owns: exact counts of documents, tombstones and bytes, by adding and subtracting each item as it
//! enters and leaves. No counter is shared between vbuckets; readers sum over them.

use oribi_types::RevSeqno;

use crate::hash_table::{HashTable, KeyHash};
use crate::item::ItemRef;

pub(super) struct Table {
    pub(super) index: HashTable,
    tombstones: usize,
    item_bytes: usize,
    max_deleted_rev: u64,
}

impl Table {
    pub(super) fn new(index: HashTable, max_deleted_rev: RevSeqno) -> Table {
        Table { index, tombstones: 0, item_bytes: 0, max_deleted_rev: max_deleted_rev.0 }
    }

    pub(super) fn items(&self) -> usize {
        self.index.len() - self.tombstones
    }

    pub(super) fn tombstones(&self) -> usize {
        self.tombstones
    }

    pub(super) fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    pub(super) fn max_deleted_rev(&self) -> RevSeqno {
        RevSeqno(self.max_deleted_rev)
    }

    /// Stores a version; returns the one it replaced, to be dropped after the lock.
    pub(super) fn insert(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        self.item_bytes += item.block_bytes();
        if item.is_deleted() {
            self.tombstones += 1;
            self.max_deleted_rev = self.max_deleted_rev.max(item.rev_seqno().0);
        }
        let replaced = self.index.insert(hash, item);
        if let Some(old) = &replaced {
            self.subtract(old);
        }
        replaced
    }

    /// Removes exactly this version, if it is still the current one.
    pub(super) fn remove_same(&mut self, hash: KeyHash, item: &ItemRef) {
        if self.index.get(hash, item.key()).is_some_and(|current| current.same_block(item)) {
            self.index.remove(hash, item.key());
            self.subtract(item);
        }
    }

    /// Empties the table and returns what was in it, to be dropped after the lock.
    pub(super) fn clear(&mut self) -> HashTable {
        let empty = HashTable::new(self.index.seed().clone());
        (self.tombstones, self.item_bytes) = (0, 0);
        std::mem::replace(&mut self.index, empty)
    }

    fn subtract(&mut self, item: &ItemRef) {
        self.item_bytes -= item.block_bytes();
        self.tombstones -= usize::from(item.is_deleted());
    }
}
