//! A vbucket: one partition of a bucket, with its index, its queue and its history.
//!
//! Owns: the hash table and the checkpoint manager of the partition, each behind its own lock, the
//! failover table, the persisted seqno and whoever waits for it.
//!
//! Invariants:
//! 1. Lock order: table, then queue. The waiters' lock is never held together with either.
//! 2. A key's versions enter the queue in the order in which they enter the table, because both
//!    happen under the table lock.
//! 3. The table keeps an item or its tombstone at least until its slot has left the queue.
//! 4. Nothing is freed, copied or parsed under a lock where it can be done before or after it.
//!
//! Sixty-four vbuckets (up to 1024) are the lock stripes of a bucket; a finer stripe inside one would
//! have to be taken together with the queue lock anyway. Callers: the bucket. It never reads a clock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use oribi_storage::{FailoverEntry, VbucketPhase, VbucketState};
use oribi_types::{CollectionId, DocKey, Seqno, VbUuid, Vbid};
use parking_lot::Mutex;

use crate::bucket::Storage;
use crate::checkpoint::{CheckpointManager, CursorId};
use crate::hash_table::{GroupHint, HashSeed, HashTable, KeyHash};
use crate::item::ItemRef;
use crate::limits::FAILOVER_ENTRIES_MAX;
use crate::persistence::Waiters;

mod collection_figures;
mod compressed;
mod expiring;
mod fetching;
mod flushing;
mod loading;
mod locks;
mod operations;
mod owning;
mod paging;
mod sampling;
mod stats;
mod sub_document;
mod table;
mod versions;
mod with_meta;

pub use collection_figures::CollectionStats;
pub(crate) use fetching::{FetchBegun, Installed};
pub(crate) use flushing::FlushRead;
pub(crate) use operations::{Context, store_fields};
pub(crate) use paging::{Sweep, SweepReport};
pub use stats::{KeyStats, VbucketStats};
pub use sub_document::{
    Current, NextVersion, RewriteOutcome, Sought, Stamp, VersionFields, VersionOutcome,
};
use table::Table;

/// Phase values beyond [`VbucketPhase`]: the documents of an active vbucket are still being loaded.
const LOADING: u8 = 0;
/// They could not be loaded: nothing is served.
const FAILED: u8 = u8::MAX;
/// This node has taken the vbucket over and does not serve it yet.
const STARTING: u8 = u8::MAX - 1;
/// Serves nothing any more, but what is queued is still flushed.
const RETIRING: u8 = u8::MAX - 2;

/// One partition of a bucket.
pub struct VBucket {
    id: Vbid,
    phase: AtomicU8,
    /// Raised whenever ownership begins or ends, so that what was begun before is known not to belong to
    /// what is there now. Changes only while table and queue are locked.
    incarnation: AtomicU64,
    /// Where the table's groups are, for who prefetches.
    groups: GroupHint,
    table: Mutex<Table>,
    queue: Mutex<CheckpointManager>,
    /// `None` when documents are kept in memory only.
    persistence_cursor: Option<CursorId>,
    failover_table: Mutex<Vec<FailoverEntry>>,
    uuid: AtomicU64,
    persisted_seqno: AtomicU64,
    purge_seqno: AtomicU64,
    /// Something may be waiting in the queue for the flusher.
    dirty: AtomicBool,
    /// Items persisted, and expired documents removed, since open.
    drained: AtomicU64,
    expired: AtomicU64,
    waiters: Waiters,
    seed: HashSeed,
}

impl VBucket {
    /// A vbucket as the store knows it. With `loading` it answers "try again" until
    /// [`VBucket::finish_loading`].
    pub(crate) fn new(
        id: Vbid,
        state: &VbucketState,
        seed: HashSeed,
        storage: Storage,
        loading: bool,
    ) -> VBucket {
        let mut queue = CheckpointManager::new(state.high_seqno, state.max_cas);
        let persistence_cursor = (storage == Storage::Persistent)
            .then(|| queue.register_cursor("persistence", state.high_seqno, false).id);
        let uuid = state.failover_table.first().map_or(VbUuid(0), |entry| entry.uuid);
        VBucket {
            id,
            phase: AtomicU8::new(if loading { LOADING } else { state.phase as u8 }),
            incarnation: AtomicU64::new(0),
            groups: GroupHint::default(),
            table: Mutex::new(Table::new(
                HashTable::new(seed.clone()),
                state.max_deleted_rev_seqno,
            )),
            queue: Mutex::new(queue),
            persistence_cursor,
            failover_table: Mutex::new(state.failover_table.clone()),
            uuid: AtomicU64::new(uuid.0),
            persisted_seqno: AtomicU64::new(state.high_seqno.0),
            purge_seqno: AtomicU64::new(state.purge_seqno.0),
            dirty: AtomicBool::new(false),
            drained: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            waiters: Waiters::default(),
            seed,
        }
    }

    /// Number of the vbucket.
    pub fn id(&self) -> Vbid {
        self.id
    }

    /// Where the group of a hash was a moment ago, for a prefetch.
    #[inline]
    pub(crate) fn group_hint(&self, hash: KeyHash) -> *const u8 {
        self.groups.address(hash)
    }

    /// Where the item is that a hash most likely belongs to, for a prefetch.
    #[inline]
    pub(crate) fn candidate_address(&self, hash: KeyHash) -> Option<*const u8> {
        self.table.lock().index.candidate(hash).map(ItemRef::address)
    }

    /// The hash of a key in this vbucket's table.
    pub(crate) fn hash_of(&self, key: DocKey<'_>) -> KeyHash {
        self.seed.hash(key)
    }

    /// Identity of the current history.
    pub fn uuid(&self) -> VbUuid {
        VbUuid(self.uuid.load(Ordering::Relaxed))
    }

    /// Last seqno known to be durable.
    pub fn persisted_seqno(&self) -> Seqno {
        Seqno(self.persisted_seqno.load(Ordering::Acquire))
    }

    /// Histories, newest first.
    pub fn failover_table(&self) -> Vec<FailoverEntry> {
        self.failover_table.lock().clone()
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Starts a new history, because the one before may have lost its end.
    pub(crate) fn begin_history(&self, uuid: VbUuid) {
        let mut table = self.failover_table.lock();
        let seqno = self.queue.lock().high_seqno();
        push_history(&mut table, FailoverEntry { uuid, seqno });
        self.uuid.store(uuid.0, Ordering::Relaxed);
    }

    /// Forgets every document; seqno and CAS go on. Returns the state to persist.
    pub(crate) fn clear(&self, uuid: VbUuid) -> VbucketState {
        let (dropped, expelled, high_seqno, max_cas) = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let (dropped, expelled) = (table.clear(), queue.clear());
            // What is being fetched was there before, and is not any more.
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            table.index.show_to(&self.groups);
            (dropped, expelled, queue.high_seqno(), queue.max_cas())
        };
        drop(dropped);
        self.settle(expelled);
        self.begin_history(uuid);
        self.persisted_seqno.store(high_seqno.0, Ordering::Release);
        VbucketState {
            phase: VbucketPhase::Active,
            high_seqno,
            max_cas,
            max_deleted_rev_seqno: self.table.lock().max_deleted_rev(),
            purge_seqno: high_seqno,
            failover_table: self.failover_table(),
        }
    }

    /// Removes from memory every collection that `keep` refuses, some groups at a time so that other
    /// operations on the vbucket get in between. Nobody can write to such a collection any more.
    pub(crate) fn retain_collections(&self, keep: impl Fn(CollectionId) -> bool) {
        const GROUPS_PER_SLICE: usize = 256;
        let mut next = 0;
        let mut seen_count = self.table.lock().index.group_count();
        loop {
            let mut table = self.table.lock();
            let count = table.index.group_count();
            if count != seen_count {
                // The table grew or finished growing meanwhile, and groups have new numbers.
                (next, seen_count) = (0, count);
            }
            if next >= count {
                return table.retain_collections(keep);
            }
            let mut gone = Vec::new();
            for group in next..(next + GROUPS_PER_SLICE).min(count) {
                table.index.visit_group(group, |item| {
                    if !keep(item.key().collection) {
                        gone.push(item.clone());
                    }
                });
            }
            let mut queue = self.queue.lock();
            for item in &gone {
                table.remove_same(self.seed.hash(item.key()), item);
                queue.orphaned(item);
            }
            drop(queue);
            next += GROUPS_PER_SLICE;
            drop(table);
            drop(gone);
        }
    }
}

/// Puts a history in front of a failover table, dropping the oldest beyond the limit.
pub(crate) fn push_history(table: &mut Vec<FailoverEntry>, entry: FailoverEntry) {
    table.insert(0, entry);
    table.truncate(FAILOVER_ENTRIES_MAX);
}
