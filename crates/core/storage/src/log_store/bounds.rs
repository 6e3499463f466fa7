//! Places in the log before which records count as gone: the lasting effect of removals.
//!
//! Owns: [`LogBounds`]. Dropping a vbucket, purging a collection or purging tombstones does not
//! touch the records; it sets a bound. Every segment begins with all bounds that still matter, so
//! no compaction can lose one. A bound matters while a segment is left that has records from before
//! it.

use std::collections::BTreeMap;

use oribi_types::{CollectionId, Vbid};

/// A place in the log. Later records have greater positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LogPosition {
    pub(super) segment: u32,
    pub(super) offset: u64,
}

/// A purge of tombstones: those whose deletion was before `purge_before` and that stand before
/// `position` are purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TombstonePurge {
    pub(super) purge_before: u32,
    pub(super) position: LogPosition,
}

/// All bounds of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LogBounds {
    pub(super) vbuckets: BTreeMap<Vbid, LogPosition>,
    pub(super) collections: BTreeMap<(Vbid, CollectionId), LogPosition>,
    pub(super) tombstones: BTreeMap<Vbid, Vec<TombstonePurge>>,
}

impl LogBounds {
    /// The vbucket was dropped. Removes the bounds of its earlier purges.
    pub(super) fn drop_vbucket(&mut self, vbid: Vbid, position: LogPosition) {
        self.vbuckets.insert(vbid, position);
        self.collections.retain(|key, bound| key.0 != vbid || *bound > position);
        self.tombstones.remove(&vbid);
    }

    /// The collection was purged from the vbucket.
    pub(super) fn purge_collection(
        &mut self,
        vbid: Vbid,
        collection: CollectionId,
        position: LogPosition,
    ) {
        self.collections.insert((vbid, collection), position);
    }

    /// Tombstones were purged. Earlier purges that purged no younger ones say nothing new.
    pub(super) fn purge_tombstones(&mut self, vbid: Vbid, purge: TombstonePurge) {
        let purges = self.tombstones.entry(vbid).or_default();
        purges.retain(|earlier| earlier.purge_before > purge.purge_before);
        purges.push(purge);
        debug_assert!(
            purges.is_sorted_by(|left, right| left.purge_before > right.purge_before),
            "a later purge of older tombstones adds nothing"
        );
    }

    /// True when nothing of a record of this vbucket and collection at this place counts.
    pub(super) fn is_gone(
        &self,
        vbid: Vbid,
        collection: CollectionId,
        position: LogPosition,
    ) -> bool {
        let of_vbucket = self.vbuckets.get(&vbid);
        of_vbucket.is_some_and(|bound| position < *bound)
            || (!self.collections.is_empty()
                && self.collections.get(&(vbid, collection)).is_some_and(|bound| position < *bound))
    }

    /// True when a tombstone of this vbucket, time of deletion and place is purged.
    pub(super) fn is_purged(&self, vbid: Vbid, deleted_at: u32, position: LogPosition) -> bool {
        let purges = self.tombstones.get(&vbid).into_iter().flatten();
        purges.into_iter().any(|purge| deleted_at < purge.purge_before && position < purge.position)
    }

    /// Drops bounds that no longer cover a segment, when `oldest` is the first segment.
    pub(super) fn forget_before(&mut self, oldest: u32) {
        let matters = |position: &LogPosition| position.segment >= oldest;
        self.vbuckets.retain(|_, position| matters(position));
        self.collections.retain(|_, position| matters(position));
        self.tombstones.retain(|_, purges| {
            purges.retain(|purge| matters(&purge.position));
            !purges.is_empty()
        });
    }
}
