//! Writes that become visible when the store has them.
//!
//! Owns: the pending versions of a vbucket. A write at a durability level that asks for the store
//! is queued with its seqno, CAS and revision like any other, and its version is held here instead
//! of in the table. Readers find the committed version in the table, so they never look here. The
//! version is committed, which means that it enters the table, when the store has it: when its
//! batch is flushed, or when a read of the store returns it earlier. It keeps its seqno, and the
//! store gets it once.
//!
//! Invariants:
//! 1. A key has one pending version at most; until that is committed, no other version of the key
//!    is queued, and the committed one is not evicted.
//! 2. A pending version is the newest one that is queued under its key, in its own checkpoint or
//!    with others: the queue never displaces the committed version in its favour, and streams read
//!    no checkpoint that has a pending version.
//! 3. A commit that failed leaves a version pending: the store may have it. The flusher writes it
//!    again.
//!
//! Called under the vbucket's table lock by [`super::committing`].

use std::collections::{HashMap, VecDeque};

use oribi_types::{CollectionId, Seqno};

use crate::hash_table::KeyHash;
use crate::item::ItemRef;

/// Memory of a pending version besides its block: its places in both collections.
pub(super) const PENDING_BYTES: usize = 64;

/// See the module text.
#[derive(Default)]
pub(super) struct PendingWrites {
    /// In order of seqno.
    versions: VecDeque<ItemRef>,
    /// Keys with the same hash count as one: the second one waits.
    by_key: HashMap<u64, Seqno>,
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
        at.is_some_and(|at| self.versions[at].same_block(item))
    }

    /// Seqno of the oldest pending version.
    pub(super) fn lowest(&self) -> Option<Seqno> {
        self.versions.front().map(|item| item.seqno())
    }

    /// The highest seqno up to `high` that is not a pending version's.
    pub(super) fn visible_seqno(&self, high: Seqno) -> Seqno {
        let mut visible = high.0;
        for item in self.versions.iter().rev() {
            if item.seqno().0 != visible {
                break;
            }
            visible -= 1;
        }
        Seqno(visible)
    }

    /// Seqno before the pending version of a key: what enters the table later has a higher one.
    pub(super) fn before(&self, hash: KeyHash) -> Option<Seqno> {
        self.by_key.get(&hash.0).map(|seqno| Seqno(seqno.0 - 1))
    }

    pub(super) fn hold(&mut self, hash: KeyHash, item: ItemRef) {
        assert!(!self.has(hash), "a key has one pending version (1)");
        let is_newest = self.versions.back().is_none_or(|last| last.seqno() < item.seqno());
        assert!(is_newest, "versions are held in order");
        self.by_key.insert(hash.0, item.seqno());
        self.versions.push_back(item);
        assert_eq!(self.versions.len(), self.by_key.len(), "a key has one pending version (1)");
    }

    /// Takes the oldest one if its seqno is at most `end`.
    pub(super) fn take_oldest(
        &mut self,
        end: Seqno,
        hash: impl Fn(&ItemRef) -> KeyHash,
    ) -> Option<ItemRef> {
        let item = self.versions.pop_front_if(|oldest| oldest.seqno() <= end)?;
        let key = self.by_key.remove(&hash(&item).0);
        assert_eq!(key, Some(item.seqno()), "a pending version is found by its key");
        self.shrink();
        Some(item)
    }

    /// All of them, in order of seqno.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ItemRef> {
        self.versions.iter()
    }

    /// Those of collections that `keep` refuses.
    pub(super) fn of_dropped(
        &self,
        keep: impl Fn(CollectionId) -> bool,
    ) -> impl Iterator<Item = &ItemRef> {
        self.versions.iter().filter(move |item| !keep(item.key().collection))
    }

    /// Takes the one of a key.
    pub(super) fn take(&mut self, hash: KeyHash) -> Option<ItemRef> {
        let seqno = self.by_key.remove(&hash.0)?;
        let item = self.place(seqno).and_then(|at| self.versions.remove(at));
        assert!(item.is_some(), "a key's version is in the list");
        self.shrink();
        item
    }

    fn place(&self, seqno: Seqno) -> Option<usize> {
        self.versions.binary_search_by_key(&seqno, |item| item.seqno()).ok()
    }

    /// Lets go of the memory of both collections when they are empty.
    fn shrink(&mut self) {
        if self.is_empty() {
            *self = PendingWrites::default();
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
        assert!(self.versions.iter().is_sorted_by_key(|item| item.seqno()), "versions in order");
        assert_eq!(self.versions.len(), self.by_key.len(), "a key has one pending version (1)");
        for item in &self.versions {
            assert!(self.has_version(hash(item), item.seqno()), "a pending version is lost");
            let is_newest = current(item).is_none_or(|current| current < item.seqno());
            assert!(is_newest, "a version was written over a pending one (1)");
        }
    }
}
