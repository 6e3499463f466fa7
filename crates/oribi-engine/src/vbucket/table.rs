//! The hash table together with the sums that are kept under the same lock.
//!
//! Owns: exact counts of documents, tombstones and bytes, over all and per collection, by adding and
//! subtracting each item as it enters and leaves. No counter is shared between vbuckets; readers
//! sum over them.

use oribi_storage::Record;
use oribi_types::{CollectionId, RevSeqno, Seqno};

use super::collection_figures::CollectionFigures;
use crate::hash_table::{HashTable, KeyHash};
use crate::item::ItemRef;

/// Writes by what they did to the table, since it was made.
#[derive(Clone, Copy, Default)]
pub(super) struct Writes {
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) deleted: u64,
}

pub(super) struct Table {
    pub(super) index: HashTable,
    tombstones: usize,
    item_bytes: usize,
    max_deleted_rev: u64,
    writes: Writes,
    collections: CollectionFigures,
}

impl Table {
    pub(super) fn new(index: HashTable, max_deleted_rev: RevSeqno) -> Table {
        Table {
            index,
            tombstones: 0,
            item_bytes: 0,
            max_deleted_rev: max_deleted_rev.0,
            writes: Writes::default(),
            collections: CollectionFigures::default(),
        }
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

    pub(super) fn writes(&self) -> Writes {
        self.writes
    }

    pub(super) fn collections(&self) -> &CollectionFigures {
        &self.collections
    }

    /// Stores a version that a client's operation made; returns the one it replaced, to be dropped
    /// after the lock.
    pub(super) fn write(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        let is_deletion = item.is_deleted();
        let replaced = self.insert(hash, item);
        let count = match &replaced {
            _ if is_deletion => &mut self.writes.deleted,
            Some(old) if !old.is_deleted() => &mut self.writes.updated,
            _ => &mut self.writes.created,
        };
        *count += 1;
        replaced
    }

    /// Stores a document that was read from the store. Only while loading.
    pub(super) fn load(&mut self, hash: KeyHash, item: ItemRef) {
        self.collections.of(item.key().collection).stored(item.seqno());
        self.insert(hash, item);
    }

    /// Takes note of a tombstone that is and stays in the store. Only while loading.
    pub(super) fn load_tombstone(&mut self, record: &Record<'_>) {
        self.collections.of(record.key.collection).stored(record.seqno);
    }

    /// The newest versions of some collections have become durable. Those that were dropped
    /// meanwhile are left alone.
    pub(super) fn persisted(&mut self, newest: &[(CollectionId, Seqno)]) {
        for (collection, seqno) in newest {
            if let Some(figures) = self.collections.get_mut(*collection) {
                figures.stored(*seqno);
            }
        }
    }

    fn insert(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        self.item_bytes += item.block_bytes();
        if item.is_deleted() {
            self.tombstones += 1;
            self.max_deleted_rev = self.max_deleted_rev.max(item.rev_seqno().0);
        }
        let figures = self.collections.of(item.key().collection);
        figures.add(&item);
        let replaced = self.index.insert(hash, item);
        if let Some(old) = &replaced {
            // A key's versions are all of one collection.
            figures.subtract(old);
            self.item_bytes -= old.block_bytes();
            self.tombstones -= usize::from(old.is_deleted());
        }
        replaced
    }

    /// Removes exactly this version, if it is still the current one.
    pub(super) fn remove_same(&mut self, hash: KeyHash, item: &ItemRef) {
        if self.index.get(hash, item.key()).is_some_and(|current| current.same_block(item)) {
            self.index.remove(hash, item.key());
            self.collections.of(item.key().collection).subtract(item);
            self.item_bytes -= item.block_bytes();
            self.tombstones -= usize::from(item.is_deleted());
        }
    }

    /// Forgets the figures of every collection that `keep` refuses, after its versions were removed.
    pub(super) fn retain_collections(&mut self, keep: impl Fn(CollectionId) -> bool) {
        self.collections.retain(keep);
    }

    /// Empties the table and returns what was in it, to be dropped after the lock.
    pub(super) fn clear(&mut self) -> (HashTable, CollectionFigures) {
        let empty = HashTable::new(self.index.seed().clone());
        (self.tombstones, self.item_bytes) = (0, 0);
        (std::mem::replace(&mut self.index, empty), std::mem::take(&mut self.collections))
    }
}
