//! Durable writes that are not visible yet.
//!
//! Owns: the pending versions of a vbucket. Readers find the committed version in the table, so
//! they never look here. There are two kinds, by whether the bucket has replicas:
//!
//! - Without, a write at a level that asks for the store is queued with its seqno, CAS and revision
//!   like any other, and held here instead of in the table. It is committed, which means that it
//!   enters the table, when the store has it: when its batch is flushed, or when a read of the
//!   store returns it earlier. It keeps its seqno, and the store gets it once. The invariants 2 and
//!   3 are about this kind.
//! - With replicas, the queue holds a prepare ([`crate::prepare`]), and the version of the document
//!   is held here. Its commit is another version with its own seqno ([`super::preparing`]).
//!
//! Invariants:
//! 1. A key has one pending version at most; until that is committed, no other version of the key
//!    is queued. The committed one stays in the table: of one below a prepare only the value may be
//!    evicted, of another nothing.
//! 2. A pending version is the newest one that is queued under its key, in its own checkpoint or
//!    with others: the queue never displaces the committed version in its favour, and streams read
//!    no checkpoint that has a pending version.
//! 3. A commit that failed leaves a version pending: the store may have it. The flusher writes it
//!    again.
//!
//! Called under the vbucket's table lock by [`super::committing`].

use std::collections::{HashMap, VecDeque};

use oribi_types::{CollectionId, DurabilityLevel, Seqno};

use super::prepare_log::PrepareLog;
use crate::hash_table::KeyHash;
use crate::item::{ItemRef, NewItem};

/// Memory of a pending version besides its block: its places in both collections.
pub(super) const PENDING_BYTES: usize = 64;

/// The metadata of a prepare in addition to its document.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrepareStatus {
    pub(super) level: DurabilityLevel,
    /// Bytes of the block in the queue; 0 once the queue counts them with its checkpoint.
    pub(super) queued_bytes: usize,
    /// Its client has stopped to wait, so it is aborted unless it can be committed.
    pub(super) is_overdue: bool,
    /// Its client wrote here and is promised a majority of the configured copies. One of an earlier
    /// epoch may have had that.
    pub(super) needs_majority: bool,
}

/// A version that is not visible yet.
pub(super) struct PendingWrite {
    pub(super) item: ItemRef,
    /// `None` for a version that waits for the store only.
    pub(super) prepare: Option<PrepareStatus>,
}

impl PendingWrite {
    /// What the queue counts for it.
    pub(super) fn counted_bytes(&self) -> usize {
        let queued_bytes = self.prepare.map_or(0, |prepare| prepare.queued_bytes);
        self.item.block_bytes() + PENDING_BYTES + queued_bytes
    }

    /// True for a prepare that would take less memory once it is in the store only.
    pub(super) fn can_shrink(&self) -> bool {
        let is_value_here = self.item.block_bytes_evicted() < self.item.block_bytes();
        self.prepare.is_some_and(|prepare| prepare.queued_bytes > 0 || is_value_here)
    }
}

/// The version without its value, if that takes less memory.
pub(super) fn without_value(item: &ItemRef) -> ItemRef {
    debug_assert!(!item.is_dense(), "no pending version is dense");
    match item.block_bytes_evicted() < item.block_bytes() {
        true => NewItem::copy_of(item, true).publish(),
        false => item.clone(),
    }
}

/// See the module text.
#[derive(Default)]
pub(super) struct PendingWrites {
    /// In order of seqno.
    versions: VecDeque<PendingWrite>,
    /// Keys with the same hash count as one: the second one waits.
    by_key: HashMap<u64, Seqno>,
    /// Prepares whose completion the store does not have.
    pub(super) log: PrepareLog,
}

impl PendingWrites {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    #[inline]
    pub(super) fn has(&self, hash: KeyHash) -> bool {
        !self.is_empty() && self.by_key.contains_key(&hash.0)
    }

    /// True when this version of the key is pending.
    #[inline]
    pub(super) fn has_version(&self, hash: KeyHash, seqno: Seqno) -> bool {
        !self.is_empty() && self.by_key.get(&hash.0) == Some(&seqno)
    }

    /// True for the block of a pending version.
    pub(super) fn has_block(&self, hash: KeyHash, item: &ItemRef) -> bool {
        let at = self.place(item.seqno()).filter(|_| self.has_version(hash, item.seqno()));
        at.is_some_and(|at| self.versions[at].item.same_block(item))
    }

    /// Seqno of the oldest pending version.
    pub(super) fn lowest(&self) -> Option<Seqno> {
        self.versions.front().map(|oldest| oldest.item.seqno())
    }

    /// Seqno of the oldest version that streams wait for: they read past prepares.
    pub(super) fn lowest_held(&self) -> Option<Seqno> {
        self.versions.front().filter(|oldest| oldest.prepare.is_none())?;
        self.lowest()
    }

    /// Seqno of the newest pending version, and whether it is a prepare.
    pub(super) fn newest(&self) -> Option<(Seqno, bool)> {
        let newest = self.versions.back()?;
        Some((newest.item.seqno(), newest.prepare.is_some()))
    }

    /// True while a version of this seqno is pending.
    pub(super) fn has_seqno(&self, seqno: Seqno) -> bool {
        self.place(seqno).is_some()
    }

    /// The oldest version, if it is a prepare.
    pub(super) fn oldest_prepare(&self) -> Option<(Seqno, PrepareStatus)> {
        let oldest = self.versions.front()?;
        Some((oldest.item.seqno(), oldest.prepare?))
    }

    /// True while a prepare of this seqno is open.
    pub(super) fn has_prepare(&self, seqno: Seqno) -> bool {
        self.place(seqno).is_some_and(|at| self.versions[at].prepare.is_some())
    }

    /// Notes that no client waits for a prepare any more.
    pub(super) fn set_overdue(&mut self, seqno: Seqno) {
        if let Some(at) = self.place(seqno)
            && let Some(prepare) = &mut self.versions[at].prepare
        {
            prepare.is_overdue = true;
        }
    }

    /// Prepares of an earlier epoch have no time limit: they may be visible already.
    pub(super) fn forget_limits(&mut self) {
        self.versions.iter_mut().filter_map(|pending| pending.prepare.as_mut()).for_each(
            |prepare| {
                prepare.is_overdue = false;
                prepare.needs_majority = false;
            },
        );
    }

    /// The oldest prepare that has to be stored before anything from it on is acknowledged.
    pub(super) fn fence(&self, persisted: Seqno) -> Option<Seqno> {
        let waits = |pending: &&PendingWrite| {
            let level = pending.prepare.map(|prepare| prepare.level);
            level == Some(DurabilityLevel::PersistToMajority) && pending.item.seqno() > persisted
        };
        let fence = self.versions.iter().find(waits).map(|pending| pending.item.seqno());
        debug_assert!(fence.is_none_or(|fence| fence > persisted), "a fence is not stored");
        fence
    }

    /// The highest seqno up to `high` that is not a pending version's.
    pub(super) fn visible_seqno(&self, high: Seqno) -> Seqno {
        let mut visible = high.0;
        for pending in self.versions.iter().rev() {
            if pending.item.seqno().0 != visible {
                break;
            }
            visible -= 1;
        }
        Seqno(visible)
    }

    /// Seqno before the pending version of a key that enters the table with its own seqno. The
    /// commit of a prepare has a later one, which is not given out yet.
    pub(super) fn before(&self, hash: KeyHash) -> Option<Seqno> {
        let seqno = *self.by_key.get(&hash.0)?;
        debug_assert!(seqno > Seqno(0), "a pending version has a seqno");
        (!self.has_prepare(seqno)).then(|| Seqno(seqno.0 - 1))
    }

    /// Prepares up to `stored` whose memory can be freed.
    pub(super) fn stored_prepares(
        &mut self,
        stored: Seqno,
    ) -> impl Iterator<Item = &mut PendingWrite> {
        let end = self.versions.partition_point(|pending| pending.item.seqno() <= stored);
        self.versions.range_mut(..end).filter(|pending| pending.can_shrink())
    }

    /// The oldest version, if it is a prepare whose value is in the store only.
    pub(super) fn oldest_without_value(&mut self) -> Option<&mut PendingWrite> {
        let oldest = self.versions.front_mut()?;
        (oldest.prepare.is_some() && oldest.item.is_evicted()).then_some(oldest)
    }

    pub(super) fn hold(&mut self, hash: KeyHash, pending: PendingWrite) {
        assert!(!self.has(hash), "a key has one pending version (1)");
        let seqno = pending.item.seqno();
        let is_newest = self.versions.back().is_none_or(|last| last.item.seqno() < seqno);
        assert!(is_newest, "versions are held in order");
        self.by_key.insert(hash.0, seqno);
        if pending.prepare.is_some() {
            self.log.prepared(seqno);
        }
        self.versions.push_back(pending);
        assert_eq!(self.versions.len(), self.by_key.len(), "a key has one pending version (1)");
    }

    /// Takes the oldest one if its seqno is at most `end` and it waits for the store only.
    pub(super) fn take_oldest(
        &mut self,
        end: Seqno,
        hash: impl Fn(&ItemRef) -> KeyHash,
    ) -> Option<PendingWrite> {
        let oldest = self.versions.front()?;
        let is_stored = oldest.prepare.is_none() && oldest.item.seqno() <= end;
        if is_stored { self.take_first(hash) } else { None }
    }

    /// Takes the oldest one.
    pub(super) fn take_first(
        &mut self,
        hash: impl Fn(&ItemRef) -> KeyHash,
    ) -> Option<PendingWrite> {
        let pending = self.versions.pop_front()?;
        let key = self.by_key.remove(&hash(&pending.item).0);
        assert_eq!(key, Some(pending.item.seqno()), "a pending version is found by its key");
        self.shrink();
        Some(pending)
    }

    /// All of them, in order of seqno.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingWrite> {
        self.versions.iter()
    }

    /// Those of collections that `keep` refuses.
    pub(super) fn of_dropped(
        &self,
        keep: impl Fn(CollectionId) -> bool,
    ) -> impl Iterator<Item = &ItemRef> {
        let items = self.versions.iter().map(|pending| &pending.item);
        items.filter(move |item| !keep(item.key().collection))
    }

    /// Takes the one of a key.
    pub(super) fn take(&mut self, hash: KeyHash) -> Option<PendingWrite> {
        let seqno = self.by_key.remove(&hash.0)?;
        let pending = self.place(seqno).and_then(|at| self.versions.remove(at));
        assert!(pending.is_some(), "a key's version is in the list");
        self.shrink();
        pending
    }

    fn place(&self, seqno: Seqno) -> Option<usize> {
        self.versions.binary_search_by_key(&seqno, |pending| pending.item.seqno()).ok()
    }

    /// Lets go of the memory of both collections when they are empty.
    fn shrink(&mut self) {
        if self.is_empty() {
            (self.versions, self.by_key) = (VecDeque::new(), HashMap::new());
        }
    }
}

impl PendingWrites {
    /// Panics unless both collections have the same versions, in order, and each is newer than the
    /// `current` one.
    pub(super) fn check_invariants(
        &self,
        hash: impl Fn(&ItemRef) -> KeyHash,
        current: impl Fn(&ItemRef) -> Option<Seqno>,
    ) {
        let is_sorted = self.versions.iter().is_sorted_by_key(|pending| pending.item.seqno());
        assert!(is_sorted, "versions in order");
        assert_eq!(self.versions.len(), self.by_key.len(), "a key has one pending version (1)");
        for PendingWrite { item, .. } in &self.versions {
            assert!(self.has_version(hash(item), item.seqno()), "a pending version is lost");
            let is_newest = current(item).is_none_or(|current| current < item.seqno());
            assert!(is_newest, "a version was written over a pending one (1)");
        }
    }
}
