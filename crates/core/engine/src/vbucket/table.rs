//! The hash table together with the sums that are kept under the same lock.
//!
//! Owns: exact counts of documents, tombstones and bytes, over all and per collection, by adding
//! and subtracting each item as it enters and leaves. No counter is shared between vbuckets;
//! readers sum over them.

use std::mem::offset_of;

use oribi_storage::Record;
use oribi_types::{CollectionId, RevSeqno, Seqno};

use super::collection_figures::{CollectionFigures, CollectionStats, ItemFigures};
use super::locks::Locks;
use super::pending::PendingWrites;
use crate::hash_table::{HashTable, KeyHash, ScanCursor, TablePlace};
use crate::item::ItemRef;

/// How many datatypes there are: combinations of JSON, Snappy and extended attributes.
pub(crate) const DATATYPES: usize = 8;

/// Writes by their effect on the table, since its creation.
#[derive(Clone, Copy, Default)]
pub(super) struct WriteCounts {
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) deleted: u64,
}

/// The fields that an overwrite of a document of the default collection changes come first: with
/// the lock before it, it is one cache line. The lines after it change more rarely, so they stay
/// in the caches of all cores that write.
#[repr(C)]
pub(super) struct VbucketTable {
    item_bytes: u64,
    updated: u64,
    collections: CollectionFigures,
    pub(super) index: HashTable,
    pub(super) locks: Locks,
    pub(super) pending: PendingWrites,
    tombstones: u64,
    /// Versions in the table whose values are in the store only.
    evicted: u64,
    datatypes: [u32; DATATYPES],
    /// Documents that were evicted whole: the table has nothing of them.
    stored_only: u64,
    /// Highest seqno of a version that has left the table.
    max_removed_seqno: Seqno,
    /// Bytes that were reported to the bucket.
    reported: u64,
    max_deleted_rev: u64,
    created: u64,
    deleted: u64,
}

/// Bytes of a [`VbucketTable`] that an overwrite changes.
pub(super) const OVERWRITTEN_BYTES: usize =
    offset_of!(VbucketTable, collections) + CollectionStats::OVERWRITTEN_BYTES;

impl VbucketTable {
    pub(super) fn new(index: HashTable, max_deleted_rev: RevSeqno) -> VbucketTable {
        VbucketTable {
            item_bytes: 0,
            updated: 0,
            collections: CollectionFigures::default(),
            index,
            locks: Locks::default(),
            pending: PendingWrites::default(),
            tombstones: 0,
            evicted: 0,
            datatypes: [0; DATATYPES],
            stored_only: 0,
            max_removed_seqno: Seqno(0),
            reported: 0,
            max_deleted_rev: max_deleted_rev.0,
            created: 0,
            deleted: 0,
        }
    }

    /// Documents, wherever their values are.
    pub(super) fn items(&self) -> usize {
        debug_assert!(self.tombstones() <= self.index.len(), "a tombstone is in the table");
        self.index.len() - self.tombstones() + self.stored_only as usize
    }

    /// Documents that are in the store only, by value or whole.
    pub(super) fn evicted_items(&self) -> usize {
        debug_assert!(
            self.evicted <= self.index.len() as u64,
            "an evicted version is in the table"
        );
        (self.evicted + self.stored_only) as usize
    }

    /// Highest seqno of a version that has left the table.
    pub(super) fn max_removed_seqno(&self) -> Seqno {
        self.max_removed_seqno
    }

    /// Documents that were evicted whole.
    pub(super) fn stored_only(&self) -> u64 {
        self.stored_only
    }

    /// Bytes that were reported to the bucket.
    #[cfg(test)]
    pub(super) fn reported(&self) -> u64 {
        self.reported
    }

    /// Bytes of table and queue.
    #[inline]
    pub(super) fn used(&self, queue_bytes: usize) -> u64 {
        self.item_bytes + (self.index.table_bytes() + queue_bytes) as u64
    }

    /// By how much table and queue have grown since this was asked last; `None` below `least`
    /// bytes.
    #[inline]
    pub(super) fn unreported(&mut self, queue_bytes: usize, least: u64) -> Option<i64> {
        let used = self.used(queue_bytes);
        if used.abs_diff(self.reported) < least {
            return None;
        }
        let before = std::mem::replace(&mut self.reported, used);
        Some(used as i64 - before as i64)
    }

    pub(super) fn tombstones(&self) -> usize {
        self.tombstones as usize
    }

    /// Documents by the bits of their datatype.
    pub(super) fn datatypes(&self) -> [u32; DATATYPES] {
        self.datatypes
    }

    pub(super) fn item_bytes(&self) -> usize {
        self.item_bytes as usize
    }

    pub(super) fn max_deleted_rev(&self) -> RevSeqno {
        RevSeqno(self.max_deleted_rev)
    }

    pub(super) fn writes(&self) -> WriteCounts {
        WriteCounts { created: self.created, updated: self.updated, deleted: self.deleted }
    }

    pub(super) fn collections(&self) -> &CollectionFigures {
        &self.collections
    }

    /// Stores a new version at the place of its key, if it has one. Returns the version that it
    /// replaced, to be dropped after the lock.
    pub(super) fn write(
        &mut self,
        hash: KeyHash,
        place: Option<TablePlace>,
        item: ItemRef,
    ) -> Option<ItemRef> {
        let (new, seqno) = (ItemFigures::of(&item), item.seqno());
        if new.tombstones > 0 {
            self.max_deleted_rev = self.max_deleted_rev.max(item.rev_seqno().0);
        }
        let collection = item.key().collection;
        let replaced = self.index.put(hash, place, item);
        debug_assert!(
            replaced.as_ref().is_none_or(|replaced| replaced.seqno() < seqno),
            "versions of a key enter the table in order"
        );
        let old = replaced.as_ref().map_or(ItemFigures::default(), ItemFigures::of);
        match new.items & old.items {
            0 => {
                self.deleted += new.tombstones;
                self.created += new.items;
            }
            _ => self.updated += 1,
        }
        self.exchange(collection, &new, &old).high_seqno = seqno;
        replaced
    }

    /// Makes a version current that was pending. Others may have been written after it, but none of
    /// its key.
    pub(super) fn commit(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        let collection = item.key().collection;
        let newest = self.collections.of(collection).high_seqno;
        let place = self.index.locate(hash, item.key());
        let replaced = self.write(hash, place, item);
        let figures = self.collections.of(collection);
        figures.high_seqno = figures.high_seqno.max(newest);
        replaced
    }

    /// A deletion of this revision is queued.
    pub(super) fn raise_max_deleted_rev(&mut self, rev_seqno: RevSeqno) {
        self.max_deleted_rev = self.max_deleted_rev.max(rev_seqno.0);
    }

    /// True when a client has locked a version, or a write waits for the store.
    #[inline]
    pub(super) fn has_exceptions(&self) -> bool {
        !self.locks.is_empty() || !self.pending.is_empty()
    }

    /// Puts another block of the same version in a version's place.
    pub(super) fn substitute(
        &mut self,
        hash: KeyHash,
        place: TablePlace,
        item: ItemRef,
    ) -> Option<ItemRef> {
        let (new, seqno) = (ItemFigures::of(&item), item.seqno());
        let collection = item.key().collection;
        let replaced = self.index.put(hash, Some(place), item);
        debug_assert_eq!(
            replaced.as_ref().map(|replaced| replaced.seqno()),
            Some(seqno),
            "the same version takes the place"
        );
        let old = replaced.as_ref().map_or(ItemFigures::default(), ItemFigures::of);
        self.exchange(collection, &new, &old);
        replaced
    }

    /// [`super::shared_table::TableGuard::evict_whole`], which shows that documents leave.
    pub(super) fn evict_whole(&mut self, hash: KeyHash, item: &ItemRef) -> Option<ItemRef> {
        let removed = self.index.remove(hash, item.key());
        assert!(
            removed.as_ref().is_some_and(|removed| removed.same_block(item)),
            "the current version"
        );
        let share = ItemFigures::of(item);
        let left = ItemFigures { item_bytes: 0, evicted: 0, tombstones: 0, ..share };
        self.max_removed_seqno = self.max_removed_seqno.max(item.seqno());
        self.stored_only += share.items;
        self.exchange(item.key().collection, &left, &share).stored_only += share.items;
        debug_assert!(!item.is_deleted() || share.items == 0, "a tombstone is no document");
        removed
    }

    /// Adds a fetched version under a key that is not in the table.
    pub(super) fn install(&mut self, hash: KeyHash, item: ItemRef, is_loading: bool) {
        let (share, seqno) = (ItemFigures::of(&item), item.seqno());
        let collection = item.key().collection;
        let before = self.index.put(hash, None, item);
        debug_assert!(before.is_none(), "a document that was evicted whole has no place");
        // A document that was evicted whole is counted, one that is still to be loaded is not.
        let was_counted = if is_loading { 0 } else { share.items };
        let disk_bytes = if is_loading { 0 } else { share.disk_bytes };
        let datatype = share.datatype.filter(|_| !is_loading);
        let old =
            ItemFigures { items: was_counted, disk_bytes, datatype, ..ItemFigures::default() };
        assert!(self.stored_only >= was_counted, "a document that was evicted whole is counted");
        self.stored_only -= was_counted;
        let figures = self.exchange(collection, &share, &old);
        figures.stored_only -= was_counted;
        figures.stored(seqno);
    }

    /// Adds a document that was read from the store. Returns it instead if there is a version under
    /// its key. Only while loading.
    pub(super) fn load(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        let (new, seqno) = (ItemFigures::of(&item), item.seqno());
        let collection = item.key().collection;
        let place = self.index.locate(hash, item.key());
        if place.is_some() {
            self.collections.of(collection).stored(seqno);
            return Some(item);
        }
        let old = self
            .index
            .put(hash, place, item)
            .as_ref()
            .map_or(ItemFigures::default(), ItemFigures::of);
        self.exchange(collection, &new, &old).stored(seqno);
        None
    }

    /// Notes a tombstone that stays in the store. Only while loading.
    pub(super) fn load_tombstone(&mut self, record: &Record<'_>) {
        self.collections.of(record.key.collection).stored(record.seqno);
    }

    /// The newest versions of some collections have become durable. Those that were dropped
    /// concurrently are left alone.
    pub(super) fn persisted(&mut self, newest: &[(CollectionId, Seqno)]) {
        for (collection, seqno) in newest {
            if let Some(figures) = self.collections.get_mut(*collection) {
                figures.stored(*seqno);
            }
        }
    }

    /// The versions that `pick` takes out of the next `groups` groups after the cursor, and true
    /// when the scan is complete.
    pub(super) fn pick(
        &self,
        cursor: &mut ScanCursor,
        groups: usize,
        mut pick: impl FnMut(&ItemRef) -> bool,
    ) -> (Vec<ItemRef>, bool) {
        let mut picked = Vec::new();
        let is_complete = self.index.scan(cursor, groups, |item| {
            if pick(item) {
                picked.push(item.clone());
            }
        });
        (picked, is_complete)
    }

    /// True when this version is the current one.
    pub(super) fn has_same(&self, hash: KeyHash, item: &ItemRef) -> bool {
        self.index.get(hash, item.key()).is_some_and(|current| current.same_block(item))
    }

    /// Removes exactly this version, if it is still the current one.
    pub(super) fn remove_same(&mut self, hash: KeyHash, item: &ItemRef) {
        if self.has_same(hash, item) {
            self.index.remove(hash, item.key());
            self.max_removed_seqno = self.max_removed_seqno.max(item.seqno());
            self.exchange(item.key().collection, &ItemFigures::default(), &ItemFigures::of(item));
        }
    }

    /// Updates all sums after one version has taken the place of another; either may be nothing.
    fn exchange(
        &mut self,
        collection: CollectionId,
        new: &ItemFigures,
        old: &ItemFigures,
    ) -> &mut CollectionStats {
        debug_assert!(
            self.item_bytes + new.item_bytes >= old.item_bytes,
            "bytes leave that entered"
        );
        self.item_bytes = self.item_bytes + new.item_bytes - old.item_bytes;
        if !new.is_alike(old) {
            self.exchange_kinds(new, old);
        }
        let figures = self.collections.of(collection);
        figures.exchange(new, old);
        figures
    }

    fn exchange_kinds(&mut self, new: &ItemFigures, old: &ItemFigures) {
        debug_assert!(
            self.tombstones + new.tombstones >= old.tombstones,
            "a tombstone leaves once"
        );
        debug_assert!(self.evicted + new.evicted >= old.evicted, "an evicted version leaves once");
        self.tombstones = self.tombstones + new.tombstones - old.tombstones;
        self.evicted = self.evicted + new.evicted - old.evicted;
        if let Some(datatype) = new.datatype {
            self.datatypes[usize::from(datatype.0)] += 1;
        }
        if let Some(datatype) = old.datatype {
            debug_assert!(self.datatypes[usize::from(datatype.0)] > 0, "a document leaves once");
            self.datatypes[usize::from(datatype.0)] -= 1;
        }
    }

    /// Forgets the figures of every collection that `keep` refuses, after its versions were
    /// removed.
    pub(super) fn retain_collections(&mut self, keep: impl Fn(CollectionId) -> bool) {
        let gone = self.collections.retain(keep);
        assert!(self.stored_only >= gone, "a collection's documents are counted");
        self.stored_only -= gone;
    }

    /// Continues another history: deletions before it had revisions up to `max_deleted_rev`, and
    /// versions up to `high_seqno` may be in the store without being here.
    pub(super) fn continue_from(&mut self, max_deleted_rev: RevSeqno, high_seqno: Seqno) {
        (self.max_deleted_rev, self.max_removed_seqno) = (max_deleted_rev.0, high_seqno);
    }

    /// [`super::shared_table::TableGuard::clear`], which shows that nothing is in the store.
    pub(super) fn clear(&mut self) -> (HashTable, CollectionFigures) {
        let empty = HashTable::new(self.index.seed().clone());
        debug_assert_eq!(empty.len(), 0, "a new table is empty");
        self.locks.clear();
        (self.tombstones, self.item_bytes) = (0, 0);
        (self.evicted, self.stored_only) = (0, 0);
        self.datatypes = [0; DATATYPES];
        (std::mem::replace(&mut self.index, empty), std::mem::take(&mut self.collections))
    }
}
