//! The hash table together with the sums that are kept under the same lock.
//!
//! Owns: exact counts of documents, tombstones and bytes, over all and per collection, by adding and
//! subtracting each item as it enters and leaves. No counter is shared between vbuckets; readers
//! sum over them.

use oribi_storage::Record;
use oribi_types::{CollectionId, RevSeqno, Seqno};

use super::collection_figures::{CollectionFigures, CollectionStats, Share};
use crate::hash_table::{HashTable, KeyHash, Place};
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
    tombstones: u64,
    item_bytes: u64,
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
        self.index.len() - self.tombstones()
    }

    pub(super) fn tombstones(&self) -> usize {
        self.tombstones as usize
    }

    pub(super) fn item_bytes(&self) -> usize {
        self.item_bytes as usize
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

    /// Stores a version that a client's operation made, at the place of its key if that has one; returns the one it replaced, to be dropped
    /// after the lock.
    pub(super) fn write(
        &mut self,
        hash: KeyHash,
        place: Option<Place>,
        item: ItemRef,
    ) -> Option<ItemRef> {
        let (new, seqno) = (Share::of(&item), item.seqno());
        if new.tombstones > 0 {
            self.max_deleted_rev = self.max_deleted_rev.max(item.rev_seqno().0);
        }
        let collection = item.key().collection;
        let replaced = self.index.put(hash, place, item);
        let old = replaced.as_ref().map_or(Share::default(), Share::of);
        self.writes.deleted += new.tombstones;
        self.writes.updated += new.items & old.items;
        self.writes.created += new.items & (1 - old.items);
        self.exchange(collection, &new, &old).high_seqno = seqno;
        replaced
    }

    /// Stores a document that was read from the store, unless there is something under its key:
    /// then it is given back. Only while loading.
    pub(super) fn load(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        let (new, seqno) = (Share::of(&item), item.seqno());
        let collection = item.key().collection;
        if self.index.locate(hash, item.key()).is_some() {
            self.collections.of(collection).stored(seqno);
            return Some(item);
        }
        self.index.put(hash, None, item);
        self.exchange(collection, &new, &Share::default()).stored(seqno);
        None
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

    /// Removes exactly this version, if it is still the current one.
    pub(super) fn remove_same(&mut self, hash: KeyHash, item: &ItemRef) {
        if self.index.get(hash, item.key()).is_some_and(|current| current.same_block(item)) {
            self.index.remove(hash, item.key());
            self.exchange(item.key().collection, &Share::default(), &Share::of(item));
        }
    }

    /// Keeps all sums when one version has taken the place of another; either may be nothing.
    fn exchange(
        &mut self,
        collection: CollectionId,
        new: &Share,
        old: &Share,
    ) -> &mut CollectionStats {
        self.item_bytes = self.item_bytes + new.item_bytes - old.item_bytes;
        self.tombstones = self.tombstones + new.tombstones - old.tombstones;
        let figures = self.collections.of(collection);
        figures.exchange(new, old);
        figures
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
