//! Figures of each collection in one vbucket: documents, bytes and seqnos.
//!
//! Owns: exact sums per collection, by adding and subtracting each version as it enters and leaves
//! the hash table, under the table lock that a write holds anyway. Invariants: the default
//! collection's figures stand in place and cost no search; a named collection takes memory only
//! from its first version in this vbucket on; a run of writes to one collection searches once. Ids
//! are kept apart from figures so that a search touches few cache lines. Called by the table only.

use std::mem::offset_of;

use oribi_types::{CollectionId, Datatype, Seqno};

use crate::item::ItemRef;

#[cfg(test)]
mod tests;

/// Figures of one collection in one vbucket. The fields that every write changes come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CollectionStats {
    /// Documents, including expired ones that were not touched since.
    pub items: u64,
    /// Bytes of the blocks in memory, those of tombstones included.
    pub item_bytes: u64,
    /// Bytes of keys and values of the documents: their size in the store before its own headers
    /// and compression. Runs ahead of the store by the changes that are not flushed yet.
    pub disk_bytes: u64,
    /// Seqno of the newest mutation, deletions included. After a restart it is the highest among
    /// what the store has: a tombstone that was purged no longer counts.
    pub high_seqno: Seqno,
    /// Of the items, documents that were evicted whole: memory has nothing of them.
    pub stored_only: u64,
    /// Always 0: figures begin with a collection's first version, not with the event of its
    /// creation.
    pub start_seqno: Seqno,
    /// The newest of these that is known to be durable.
    pub persisted_high_seqno: Seqno,
}

/// Figures of all collections that ever had a version in the vbucket, and of the default one.
#[derive(Default)]
#[repr(C)]
pub(super) struct CollectionFigures {
    default: CollectionStats,
    /// Ascending; `named` is parallel to it.
    ids: Vec<CollectionId>,
    named: Vec<CollectionStats>,
    /// Index of the collection that was written last; a guess that may be out of range.
    last: usize,
}

/// A version's share of the sums while it is in the table; zero by default.
#[derive(Clone, Copy, Default)]
pub(super) struct ItemFigures {
    pub(super) items: u64,
    pub(super) tombstones: u64,
    pub(super) item_bytes: u64,
    pub(super) evicted: u64,
    pub(super) disk_bytes: u64,
    pub(super) datatype: Option<Datatype>,
}

impl ItemFigures {
    /// Both are documents of one datatype, with their values, or both are tombstones.
    #[inline]
    pub(super) fn is_alike(&self, other: &ItemFigures) -> bool {
        let kind = |share: &ItemFigures| (share.tombstones, share.evicted, share.datatype);
        kind(self) == kind(other)
    }
}

impl ItemFigures {
    pub(super) fn of(item: &ItemRef) -> ItemFigures {
        let items = u64::from(!item.is_deleted());
        ItemFigures {
            items,
            tombstones: 1 - items,
            item_bytes: item.block_bytes() as u64,
            evicted: u64::from(item.is_in_store_only()),
            disk_bytes: item.document_bytes() as u64 * items,
            datatype: (items == 1).then(|| item.datatype()),
        }
    }
}

impl CollectionStats {
    /// Bytes of the default collection's figures that an overwrite changes.
    pub(super) const OVERWRITTEN_BYTES: usize = offset_of!(CollectionStats, stored_only);

    /// One version has taken the place of another in the table; either may be nothing.
    pub(super) fn exchange(&mut self, new: &ItemFigures, old: &ItemFigures) {
        debug_assert!(self.items + new.items >= old.items, "a document leaves once");
        debug_assert!(
            self.item_bytes + new.item_bytes >= old.item_bytes,
            "bytes leave that entered"
        );
        self.items = self.items + new.items - old.items;
        self.item_bytes = self.item_bytes + new.item_bytes - old.item_bytes;
        self.disk_bytes = self.disk_bytes + new.disk_bytes - old.disk_bytes;
    }

    /// A version with this seqno is in the store.
    pub(super) fn stored(&mut self, seqno: Seqno) {
        self.high_seqno = self.high_seqno.max(seqno);
        self.persisted_high_seqno = self.persisted_high_seqno.max(seqno);
        debug_assert!(
            self.persisted_high_seqno <= self.high_seqno,
            "the persisted seqno is at most the high seqno"
        );
    }
}

impl CollectionFigures {
    /// The figures of `id`, which begin at zero when it had none.
    #[inline(always)]
    pub(super) fn of(&mut self, id: CollectionId) -> &mut CollectionStats {
        if id == CollectionId::DEFAULT {
            return &mut self.default;
        }
        if self.ids.get(self.last) != Some(&id) {
            self.last = self.find_or_insert(id);
        }
        debug_assert_eq!(self.ids[self.last], id, "the figures are those of the collection");
        &mut self.named[self.last]
    }

    /// The figures of `id` if it has any.
    pub(super) fn get(&self, id: CollectionId) -> Option<&CollectionStats> {
        if id == CollectionId::DEFAULT {
            return Some(&self.default);
        }
        self.named.get(self.ids.binary_search(&id).ok()?)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: CollectionId) -> Option<&mut CollectionStats> {
        if id == CollectionId::DEFAULT {
            return Some(&mut self.default);
        }
        let at = self.ids.binary_search(&id).ok()?;
        Some(&mut self.named[at])
    }

    /// Forgets every collection that `keep` refuses and that has no version in the table. A loader
    /// may still add versions of another; it removes them and calls this again. Returns how many
    /// documents of the forgotten ones were in the store only.
    pub(super) fn retain(&mut self, keep: impl Fn(CollectionId) -> bool) -> u64 {
        let mut stored_only = 0;
        for at in (0..self.ids.len()).rev() {
            if !keep(self.ids[at]) && self.named[at].item_bytes == 0 {
                self.ids.remove(at);
                stored_only += self.named.remove(at).stored_only;
            }
        }
        debug_assert_eq!(self.ids.len(), self.named.len(), "every collection has figures");
        stored_only
    }

    /// Number of collections that [`CollectionFigures::copy_to`] writes.
    pub(super) fn len(&self) -> usize {
        1 + self.ids.len()
    }

    /// Appends all figures to `out` in order of id.
    pub(super) fn copy_to(&self, out: &mut Vec<(CollectionId, CollectionStats)>) {
        out.push((CollectionId::DEFAULT, self.default));
        out.extend(self.ids.iter().copied().zip(self.named.iter().copied()));
    }

    fn find_or_insert(&mut self, id: CollectionId) -> usize {
        match self.ids.binary_search(&id) {
            Ok(at) => at,
            Err(at) => {
                self.ids.insert(at, id);
                self.named.insert(at, CollectionStats::default());
                debug_assert!(self.ids.is_sorted(), "collections are found by their id");
                debug_assert_eq!(self.ids.len(), self.named.len(), "every collection has figures");
                at
            }
        }
    }
}
