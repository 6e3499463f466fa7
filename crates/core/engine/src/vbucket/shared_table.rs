//! The table under its lock, and the state that readers see without the lock.
//!
//! Owns: the lock, and the published state next to it: the phase, which changes under the lock,
//! where the groups are, until when some version is locked by a client, and whether documents have
//! left the table. Invariants:
//! 1. The published state is that of the table when its lock was last released; a writer publishes
//!    it just before the release. So memory that a writer takes out of the table and drops after
//!    the lock can no longer be found, and a lock that a client has been given is seen by every
//!    reader that begins later.
//! 2. That documents have left the table is shown before the first one leaves it. So a reader that
//!    does not find it sees why.
//!
//! The shown part has its own cache lines. They change when the table grows, when a client locks a
//! document, when the first document is evicted whole, and when the vbucket changes hands.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use oribi_types::Timestamp;

use super::collection_figures::CollectionFigures;
use super::table::{OVERWRITTEN_BYTES, VbucketTable};
use crate::cache_padded::{CachePadded, LINE_BYTES};
use crate::hash_table::{GroupView, HashSeed, HashTable, KeyHash};
use crate::item::ItemRef;
use crate::vbucket_lock::{VbucketGuard, VbucketLock};

/// See the top of the file.
pub(super) struct SharedTable {
    shown: PublishedState,
    table: CachePadded<VbucketLock<VbucketTable>>,
}

/// Aligned to the pairs in which cache lines are loaded.
#[repr(align(128))]
struct PublishedState {
    groups: GroupView,
    /// A `VbucketPhase`, or a value beyond.
    phase: AtomicU8,
    seed: HashSeed,
    /// No client's lock of a version holds longer than this.
    locked_until_ns: AtomicU64,
    /// A document was evicted whole, so a key that is not in the table may be in the store.
    has_left_any: AtomicBool,
}

// The lock is the first byte and the table follows, aligned.
const _: () = assert!(align_of::<VbucketTable>() + OVERWRITTEN_BYTES <= LINE_BYTES);

impl SharedTable {
    pub(super) fn new(table: VbucketTable, phase: u8, seed: HashSeed) -> SharedTable {
        let shown = PublishedState {
            groups: GroupView::default(),
            phase: AtomicU8::new(phase),
            seed,
            locked_until_ns: AtomicU64::new(0),
            has_left_any: AtomicBool::new(false),
        };
        SharedTable { shown, table: CachePadded(VbucketLock::new(table)) }
    }

    #[inline]
    pub(super) fn lock(&self) -> TableGuard<'_> {
        TableGuard { table: self.table.lock(), shown: &self.shown }
    }

    /// The phase; stored under the lock.
    #[inline]
    pub(super) fn phase(&self) -> &AtomicU8 {
        &self.shown.phase
    }

    /// The hash function's seed.
    #[inline]
    pub(super) fn seed(&self) -> &HashSeed {
        &self.shown.seed
    }

    /// Where the groups are.
    #[inline]
    pub(super) fn groups(&self) -> &GroupView {
        &self.shown.groups
    }

    /// True when a document may be in the store whose key is not in the table.
    #[inline]
    pub(super) fn has_left_any(&self) -> bool {
        self.shown.has_left_any.load(Ordering::Acquire)
    }

    /// True when a client may have locked a version.
    #[inline]
    pub(super) fn may_have_locks(&self, now: Timestamp) -> bool {
        self.shown.locked_until_ns.load(Ordering::Acquire) > now.unix_ns
    }
}

/// The table, for as long as its lock is held.
pub(super) struct TableGuard<'a> {
    table: VbucketGuard<'a, VbucketTable>,
    shown: &'a PublishedState,
}

impl TableGuard<'_> {
    /// Shows where the groups are now. Between two inserts under one lock: the second may move what
    /// the first has made room for.
    #[inline]
    pub(super) fn show(&mut self) {
        self.table.index.show_to(&self.shown.groups);
    }

    /// Takes out a clean version that the store has, or a marker of absence. A document stays
    /// counted.
    pub(super) fn evict_whole(&mut self, hash: KeyHash, item: &ItemRef) -> Option<ItemRef> {
        debug_assert!(self.table.has_same(hash, item), "the version is the current one");
        if !item.is_deleted() {
            self.shown.has_left_any.store(true, Ordering::Release);
        }
        self.table.evict_whole(hash, item)
    }

    /// Empties the table and returns its content, to be dropped after the lock.
    pub(super) fn clear(&mut self) -> (HashTable, CollectionFigures) {
        self.shown.has_left_any.store(false, Ordering::Release);
        let cleared = self.table.clear();
        assert_eq!(self.table.index.len(), 0, "a table that was emptied has nothing");
        cleared
    }
}

impl Deref for TableGuard<'_> {
    type Target = VbucketTable;

    #[inline]
    fn deref(&self) -> &VbucketTable {
        &self.table
    }
}

impl DerefMut for TableGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut VbucketTable {
        &mut self.table
    }
}

impl Drop for TableGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.show();
        let latest_ns = self.table.locks.latest_ns();
        if self.shown.locked_until_ns.load(Ordering::Relaxed) != latest_ns {
            self.shown.locked_until_ns.store(latest_ns, Ordering::Release);
        }
    }
}
