//! Live documents of a collection, as a walk over the table shows them.
//!
//! Owns: the walk, in slices with the lock released in between, so that writes continue. A document
//! that is written or removed concurrently may be missing or shown. Called by the bucket, which
//! sorts.

use oribi_types::{CollectionId, DocKey, Timestamp};

use super::VBucket;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;

/// Groups under one hold of the table's lock: some hundred items, some microseconds.
const GROUPS_PER_SLICE: usize = 64;

/// Groups of one step of a walk by a caller that writes a line for each document.
const GROUPS_PER_STEP: usize = 8;
const _: () = assert!(GROUPS_PER_STEP <= GROUPS_PER_SLICE);

/// How far a walk over a vbucket's documents is. The default is its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkCursor(ScanCursor);

/// The version in memory under a key.
pub(crate) enum InMemory {
    /// A document that a reader may see.
    Live(ItemRef),
    /// A tombstone or an expired document.
    Gone,
    /// Nothing: the store decides.
    Nothing,
}

impl VBucket {
    /// True when every document of the vbucket is in its table, with or without its value.
    pub(crate) fn has_every_key(&self) -> bool {
        let _table_is_steady = self.table.lock();
        !self.is_absence_uncertain()
    }

    /// Visits the live documents of a collection. False when `may_continue`, asked before each
    /// slice, ended the walk.
    pub(crate) fn visit_live(
        &self,
        collection: CollectionId,
        now: Timestamp,
        may_continue: &mut dyn FnMut() -> bool,
        visit: &mut dyn FnMut(&ItemRef),
    ) -> bool {
        let now_s = now.unix_s();
        let mut cursor = ScanCursor::default();
        let mut is_complete = false;
        while !is_complete {
            if !may_continue() {
                return false;
            }
            let table = self.table.lock();
            if !self.serves_clients() {
                return true;
            }
            is_complete = table.index.scan(&mut cursor, GROUPS_PER_SLICE, |item| {
                if item.key().collection == collection && item.is_live(now_s) {
                    visit(item);
                }
            });
        }
        true
    }

    /// Visits some of the live documents of a collection that are in memory, in no order, under the
    /// lock of the table. True when the walk is complete, and when this node does not serve the
    /// vbucket. A document may be visited twice when the table grows.
    pub fn walk_documents(
        &self,
        collection: CollectionId,
        cursor: &mut WalkCursor,
        now: Timestamp,
        visit: &mut dyn FnMut(&ItemRef),
    ) -> bool {
        let table = self.table.lock();
        !self.serves_clients()
            || table.index.scan(&mut cursor.0, GROUPS_PER_STEP, |item| {
                if item.key().collection == collection && item.is_live(now.unix_s()) {
                    visit(item);
                }
            })
    }

    /// The version in memory under a key.
    pub(crate) fn in_memory(&self, key: DocKey<'_>, now: Timestamp) -> InMemory {
        let hash = self.table.seed().hash(key);
        match self.table.lock().index.get(hash, key) {
            None => InMemory::Nothing,
            Some(item) if item.is_live(now.unix_s()) => InMemory::Live(item.clone()),
            Some(_) => InMemory::Gone,
        }
    }
}
