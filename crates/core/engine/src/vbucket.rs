//! A vbucket: one partition of a bucket, with its index, its queue and its history.
//!
//! Owns: the hash table and the checkpoint manager of the partition, each under its own lock, the
//! failover table, the persisted seqno and the waiters for it.
//!
//! Invariants:
//! 1. Lock order: table, then queue. The waiters' lock is never held together with either.
//! 2. A key's versions enter the queue in the order in which they enter the table, because both
//!    happen under the table lock.
//! 3. The table keeps an item or its tombstone at least until its slot has left the queue.
//! 4. Nothing is freed, copied or parsed under a lock where it can be done before or after it.
//!
//! The vbuckets, 64 to 1024 of them, are the lock stripes of a bucket: a write needs the queue lock
//! anyway, so a finer stripe would save nothing. Called by the bucket. It never reads a clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_storage::{FailoverEntry, VbucketPhase, VbucketState};
use oribi_types::policy::Storage;
use oribi_types::{CopiesEpoch, DocKey, Seqno, VbUuid, Vbid};
use parking_lot::Mutex;

use crate::cache_padded::{CachePadded, LINE_BYTES};
use crate::checkpoint::{CheckpointManager, CursorId, IncompleteSnapshot, StreamWaker};
use crate::grace_period::ReadSection;
use crate::hash_table::{HashSeed, HashTable, KeyHash};
use crate::limits::FAILOVER_ENTRIES_MAX;
use crate::persistence::Waiters;
use crate::system_event::ManifestEvent;
use crate::vbucket_lock::VbucketLock;

mod backfilling;
mod collection_figures;
mod committing;
mod compressed;
mod context;
mod copy_epochs;
mod copy_state;
mod event_list;
mod events;
mod expiring;
mod fetching;
mod flushing;
mod inflating;
mod invariants;
mod listing;
mod loading;
mod locking;
mod locks;
mod measuring;
mod moving;
mod next_version;
mod operations;
mod owning;
mod paging;
mod pending;
mod prepare_log;
mod prepare_paging;
mod preparing;
mod reading;
mod removing;
mod replica;
mod replica_reading;
mod sampling;
mod shared_table;
mod stats;
mod streaming;
mod table;
mod with_meta;
mod write_quorum;
mod writing;

pub use collection_figures::CollectionStats;
pub use context::{Context, WriteVisibility};
pub use copy_epochs::CopyStanding;
use copy_state::{copy_state_of, incomplete_of};
use event_list::EventList;
pub(crate) use fetching::{FetchBegun, InstallOutcome};
pub(crate) use flushing::FlushRead;
pub(crate) use listing::InMemory;
pub use listing::WalkCursor;
pub use next_version::{CurrentVersion, NextVersion, Stamp, VersionFields};
pub use operations::counter_value;
pub(crate) use operations::store_fields;
pub(crate) use paging::{Densify, Sweep, SweepReport};
pub(crate) use prepare_log::PrepareLog;
pub(crate) use preparing::OwnedPrepare;
pub(crate) use replica::Promotion;
pub use replica::{ApplyError, ReplicaPosition, ReplicatedDocument, SnapshotChanges};
use shared_table::SharedTable;
pub(crate) use stats::HistoryEnds;
pub use stats::{KeyStats, VbucketStats};
pub(crate) use streaming::{StreamCursor, StreamRead};
use table::VbucketTable;
use write_quorum::CopyAcknowledgements;
pub use write_quorum::WriteQuorum;

/// Phase values beyond [`VbucketPhase`]: the documents of an active vbucket are still being loaded.
const LOADING: u8 = 0;
/// The documents could not be loaded, so nothing is served.
const FAILED: u8 = u8::MAX;
/// This node has taken the vbucket over and does not serve it yet.
const STARTING: u8 = u8::MAX - 1;
/// Serves nothing any more; the flusher still writes its queue.
const RETIRING: u8 = u8::MAX - 2;
/// The documents of a replica are still being loaded.
const REPLICA_LOADING: u8 = u8::MAX - 3;
/// Active for the copies that follow it; clients are sent to another node already.
const HANDING_OVER: u8 = u8::MAX - 4;
/// Active for the copies that follow it; clients wait until the durable writes are committed that
/// an earlier active may have shown.
const RECOMMITTING: u8 = u8::MAX - 5;
/// A copy of another node's vbucket.
const REPLICA: u8 = VbucketPhase::Replica as u8;
// Phases of the store's states and those of memory differ.
const _: () = assert!(LOADING != VbucketPhase::Active as u8 && LOADING != VbucketPhase::Dead as u8);
const _: () = assert!((VbucketPhase::Dead as u8) < RECOMMITTING);

/// One partition of a bucket.
pub struct VBucket {
    id: Vbid,
    /// Raised whenever ownership begins or ends, so that work of an earlier ownership is recognised
    /// as stale. Changes only while table and queue are locked.
    incarnation: AtomicU64,
    /// How often all streams were ended: one of an earlier time never continues, whatever role the
    /// vbucket has had since. Changes only while the queue is locked.
    stream_generation: AtomicU64,
    table: SharedTable,
    queue: CachePadded<VbucketLock<CheckpointManager>>,
    /// `None` when documents are kept in memory only.
    persistence_cursor: Option<CursorId>,
    failover_table: Mutex<Vec<FailoverEntry>>,
    /// The stored state of copies. Its other fields are those of the start.
    copy_state: Mutex<VbucketState>,
    /// Of a replica, the snapshot of which the store has a part.
    persisted_incomplete: Mutex<Option<IncompleteSnapshot>>,
    uuid: AtomicU64,
    persisted_seqno: AtomicU64,
    purge_seqno: AtomicU64,
    /// Tombstones up to here may have been purged before the figures of collections counted them.
    purged_before: AtomicU64,
    /// The store may have records up to here by a commit that failed.
    doubtful_seqno: AtomicU64,
    /// Its documents are in the store and could not be loaded.
    is_unreadable: AtomicBool,
    /// Of a vbucket in memory only; otherwise the store has them.
    events: Mutex<EventList>,
    /// Something may be waiting in the queue for the flusher.
    dirty: AtomicBool,
    /// Items persisted, and expired documents removed, since open.
    drained: AtomicU64,
    expired: AtomicU64,
    waiters: Waiters,
    /// Wait for the outcome of a prepare, and not for the store.
    commit_waiters: Waiters,
    /// A write is not visible yet. Changes under the table's lock.
    has_pending: AtomicBool,
    /// The commit of a prepare waits for its value, which is in the store.
    wants_value: AtomicBool,
    /// Of an active copy. Never held while table or queue are being locked by its holder, except
    /// in the order table, this, queue.
    durability: Mutex<CopyAcknowledgements>,
}

// The lock is the first byte and the manager follows, aligned.
const _: () =
    assert!(align_of::<CheckpointManager>() + CheckpointManager::ENQUEUED_BYTES <= LINE_BYTES);

impl VBucket {
    /// A vbucket in its stored state. With `loading` it answers "try again" until
    /// [`VBucket::finish_loading`].
    pub(crate) fn new(
        id: Vbid,
        state: &VbucketState,
        seed: HashSeed,
        storage: Storage,
        loading: bool,
    ) -> VBucket {
        let mut queue = CheckpointManager::new(state.high_seqno, state.max_cas);
        let is_copy = state.phase != VbucketPhase::Active;
        let incomplete = incomplete_of(state).filter(|_| is_copy);
        queue.resume_incomplete(incomplete);
        let persistence_cursor = (storage == Storage::Persistent)
            .then(|| queue.register_cursor("persistence", state.high_seqno).id);
        let uuid = state.failover_table.first().map_or(VbUuid(0), |entry| entry.uuid);
        assert_eq!(queue.high_seqno(), state.high_seqno, "the queue continues from the store");
        assert!(queue.max_cas() >= state.max_cas, "the clock continues from the store");
        VBucket {
            id,
            incarnation: AtomicU64::new(0),
            stream_generation: AtomicU64::new(0),
            table: SharedTable::new(
                VbucketTable::new(HashTable::new(seed.clone()), state.max_deleted_rev_seqno),
                phase_at_start(state.phase, loading),
                seed,
            ),
            queue: CachePadded(VbucketLock::new(queue)),
            persistence_cursor,
            failover_table: Mutex::new(state.failover_table.clone()),
            copy_state: Mutex::new(copy_state_of(state)),
            persisted_incomplete: Mutex::new(incomplete),
            uuid: AtomicU64::new(uuid.0),
            persisted_seqno: AtomicU64::new(state.high_seqno.0),
            purge_seqno: AtomicU64::new(state.purge_seqno.0),
            purged_before: AtomicU64::new(state.purge_seqno.0),
            doubtful_seqno: AtomicU64::new(0),
            is_unreadable: AtomicBool::new(false),
            events: Mutex::default(),
            dirty: AtomicBool::new(false),
            drained: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            waiters: Waiters::default(),
            commit_waiters: Waiters::default(),
            has_pending: AtomicBool::new(false),
            wants_value: AtomicBool::new(false),
            durability: Mutex::default(),
        }
    }

    /// Number of the vbucket.
    pub fn id(&self) -> Vbid {
        self.id
    }

    /// Where the group of a hash was a moment ago, for a prefetch.
    #[inline]
    pub(crate) fn group_hint(&self, hash: KeyHash) -> *const u8 {
        self.table.groups().group_address(hash)
    }

    /// Where the item is that a hash most likely belongs to, for a prefetch.
    #[inline]
    pub(crate) fn candidate_address(
        &self,
        section: &ReadSection,
        hash: KeyHash,
    ) -> Option<*const u8> {
        self.table.groups().item_address(section, hash)
    }

    /// The hash of a key in this vbucket's table.
    #[inline]
    pub fn hash_of(&self, key: DocKey<'_>) -> KeyHash {
        self.table.seed().hash(key)
    }

    /// Identity of the current history.
    pub fn uuid(&self) -> VbUuid {
        VbUuid(self.uuid.load(Ordering::Relaxed))
    }

    /// Last seqno known to be durable.
    pub fn persisted_seqno(&self) -> Seqno {
        Seqno(self.persisted_seqno.load(Ordering::Acquire))
    }

    /// True when what `history` had at this seqno is part of the vbucket: a promotion begins
    /// another history, and ends none of the writes before it.
    pub(crate) fn continues(&self, history: VbUuid, seqno: Seqno) -> bool {
        let table = self.failover_table.lock();
        let at = table.iter().position(|entry| entry.uuid == history);
        // The newest is first; a history ends where the next one begins.
        at.is_some_and(|at| at.checked_sub(1).is_none_or(|next| table[next].seqno >= seqno))
    }

    pub fn failover_table(&self) -> Vec<FailoverEntry> {
        self.failover_table.lock().clone()
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub(crate) fn commit_waiters(&self) -> &Waiters {
        &self.commit_waiters
    }

    /// Ends every wait for a write: its outcome is not known here.
    pub(crate) fn fail_waits(&self) {
        self.waiters.fail_all();
        self.commit_waiters.fail_all();
    }

    /// The state with which the store takes the removal of every document now. Seqno and CAS
    /// continue; no history before `uuid` is known.
    pub(crate) fn emptied_state(&self, uuid: VbUuid) -> VbucketState {
        self.state_without_documents(&self.table.lock(), &self.queue.lock(), uuid)
    }

    /// What copies have promised and recorded outlives the documents, and so does the epoch that
    /// copies name when they ask to follow.
    fn state_without_documents(
        &self,
        table: &VbucketTable,
        queue: &CheckpointManager,
        uuid: VbUuid,
    ) -> VbucketState {
        let newest = self.failover_table.lock().first().copied();
        let epoch = newest.map_or(CopiesEpoch(0), |newest| newest.epoch);
        let kept = self.copy_state.lock();
        let state = VbucketState {
            max_cas: queue.max_cas(),
            max_deleted_rev_seqno: table.max_deleted_rev(),
            purge_seqno: queue.high_seqno(),
            promised_epoch: kept.promised_epoch,
            recorded_epoch: kept.recorded_epoch,
            is_intact: kept.is_intact,
            failover_table: vec![FailoverEntry { uuid, seqno: queue.high_seqno(), epoch }],
            ..VbucketState::empty()
        }
        .complete_at(queue.high_seqno());
        assert_eq!(state.purge_seqno, state.high_seqno, "no change is left");
        state
    }

    /// Forgets every document in memory, and every history before `uuid`: a reader of an earlier
    /// one has documents that are gone. The new history begins with `events`. Returns the state to
    /// persist, in which these are not yet.
    pub(crate) fn clear(
        &self,
        context: &Context<'_>,
        uuid: VbUuid,
        events: &[ManifestEvent<'_>],
    ) -> VbucketState {
        let (streams, dropped, pending, expelled, state) = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let streams = self.end_streams(&mut queue);
            let pending = self.clear_pending(&mut table, &mut queue);
            let (dropped, expelled) = (table.clear(), queue.clear());
            // A fetch in progress reads the version before.
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            let state = self.state_without_documents(&table, &queue, uuid);
            let high_seqno = state.high_seqno;
            self.failover_table.lock().clone_from(&state.failover_table);
            self.uuid.store(uuid.0, Ordering::Relaxed);
            self.raise_purge_seqno(high_seqno);
            assert!(self.purge_seqno() >= high_seqno, "nothing before the new history is left");
            assert_eq!(table.items(), 0, "an emptied vbucket has no document");
            self.persisted_seqno.store(high_seqno.0, Ordering::Release);
            self.events.lock().clear();
            self.queue_events(context, &mut queue, events);
            (streams, dropped, pending, expelled, state)
        };
        drop((dropped, pending));
        self.settle(expelled);
        streams.iter().for_each(StreamWaker::wake);
        self.commit_waiters.fail_all();
        self.waiters.persisted(state.high_seqno);
        self.mark_dirty(context.signals);
        state
    }
}

/// The phase of a vbucket that a bucket is opened with.
fn phase_at_start(phase: VbucketPhase, loading: bool) -> u8 {
    match (phase, loading) {
        (VbucketPhase::Active, true) => LOADING,
        (VbucketPhase::Replica | VbucketPhase::Pending, true) => REPLICA_LOADING,
        (VbucketPhase::Pending, false) => REPLICA,
        (phase, _) => phase as u8,
    }
}

/// Puts a history, or the epoch in which the newest one continues, in front of a failover table,
/// dropping the oldest beyond the limit. Histories that began above it are void: nothing of them is
/// here. Of the epochs in which a history continued only the newest matters.
pub(crate) fn push_history(table: &mut Vec<FailoverEntry>, entry: FailoverEntry) {
    table.retain(|older| older.seqno <= entry.seqno);
    if table.first().is_some_and(|newest| is_continuation(table, newest)) {
        table.remove(0);
    }
    table.insert(0, entry);
    table.truncate(FAILOVER_ENTRIES_MAX);
    assert!((1..=FAILOVER_ENTRIES_MAX).contains(&table.len()), "a failover table is bounded");
}

/// The histories of a failover table, newest first, as readers know them: an epoch in which a
/// history continues is not another one.
pub fn histories(table: &[FailoverEntry]) -> impl Iterator<Item = &FailoverEntry> {
    table.iter().filter(|entry| !is_continuation(table, entry))
}

/// True for an entry that says in which epoch the history before it continues.
fn is_continuation(table: &[FailoverEntry], entry: &FailoverEntry) -> bool {
    let same = table.iter().rev().find(|older| older.uuid == entry.uuid);
    same.is_some_and(|oldest| oldest != entry)
}
