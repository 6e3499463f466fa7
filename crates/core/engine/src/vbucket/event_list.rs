//! The system events of a vbucket that lives in memory only.
//!
//! Owns: the newest event of each collection and scope. Guarded by the vbucket.

use oribi_types::{CollectionId, Seqno};

use crate::item::ItemRef;

/// The newest event of each collection and scope, for a vbucket that has no store.
#[derive(Default)]
pub(super) struct EventList(Vec<ItemRef>);

impl EventList {
    pub(super) fn put(&mut self, event: ItemRef) {
        debug_assert_eq!(event.key().collection, CollectionId::SYSTEM, "an event is no document");
        self.0.retain(|known| known.key() != event.key());
        self.0.push(event);
    }

    /// All of them, in no particular order.
    pub(super) fn all(&self) -> Vec<ItemRef> {
        self.0.clone()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes ends that are older than `purge_before`, in UNIX seconds; the highest seqno of them.
    pub(super) fn purge(&mut self, purge_before: u32, lowest_queued: Seqno) -> Option<Seqno> {
        let is_old = |item: &ItemRef| {
            item.is_deleted() && item.expiry() < purge_before && item.seqno() < lowest_queued
        };
        let highest = self.0.iter().filter(|item| is_old(item)).map(|item| item.seqno()).max();
        self.0.retain(|item| !is_old(item));
        debug_assert!(
            highest.is_none_or(|highest| highest < lowest_queued),
            "a queued event is not purged"
        );
        highest
    }
}
