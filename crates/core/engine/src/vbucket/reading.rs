//! Looking up the version under a key: the first step of every operation.
//!
//! Owns: the critical section of the table lock that reads, and when a miss is certain. A caller
//! takes a reference and the state of the version's lock out of it; no value is copied there.

use std::sync::atomic::Ordering;

use oribi_storage::VbucketPhase;
use oribi_types::{Cas, DocKey, RevSeqno};

use super::context::Context;
use super::fetching::is_absence_marker;
use super::locks::Locks;
use super::shared_table::TableGuard;
use super::table::VbucketTable;
use super::{FAILED, LOADING, RECOMMITTING, VBucket};
use crate::grace_period::ReadSection;
use crate::hash_table::{KeyHash, TableLookup};
use crate::item::{ItemRef, SharedItem};
use crate::outcome::{
    GetOutcome, MetaOutcome, OperationRejection, ReadTarget, SharedOutcome, VersionOutcome,
};

impl VBucket {
    pub fn get(&self, context: &Context<'_>, key: DocKey<'_>) -> GetOutcome {
        self.get_hashed(context, self.hash_of(key), key)
    }

    /// [`VBucket::get`] of a key whose hash is known.
    pub fn get_hashed(&self, context: &Context<'_>, hash: KeyHash, key: DocKey<'_>) -> GetOutcome {
        debug_assert!(hash == self.hash_of(key), "another key's hash");
        let refer = |locks: &mut Locks, item: &ItemRef| {
            (item.clone_for_use(), locks.is_locked(item, context.now))
        };
        match self.look_up(context, hash, key, ReadTarget::Document, refer) {
            Err(refused) => GetOutcome::Refused(refused),
            Ok(Some((item, is_locked))) if item.is_live(context.now.unix_s()) => {
                match (item.is_evicted(), is_locked) {
                    (false, false) => GetOutcome::Hit(item),
                    (false, true) => GetOutcome::HitLocked(item),
                    (true, _) => match self.inflated(context, hash, item) {
                        Ok(item) if is_locked => GetOutcome::HitLocked(item),
                        Ok(item) => GetOutcome::Hit(item),
                        Err(refused) => GetOutcome::Refused(refused),
                    },
                }
            }
            Ok(Some((item, _))) => {
                if item.is_expired(context.now.unix_s()) {
                    self.expire(context, hash, &item);
                }
                GetOutcome::Miss
            }
            Ok(None) => GetOutcome::Miss,
        }
    }

    /// The live document under a key, if that is decided without the lock: it is in memory, not
    /// expired, and not locked by a client, or there certainly is none. Nothing shared is written,
    /// but for the frequency of use while it rises.
    #[inline]
    pub fn get_shared<'s>(
        &self,
        section: &'s ReadSection,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
    ) -> SharedOutcome<'s> {
        // The look-up may miss a document that is loaded concurrently.
        let was_active = self.table.phase().load(Ordering::Acquire) == VbucketPhase::Active as u8;
        let found = self.table.groups().find(section, hash, key);
        // Asked after the look-up: what holds now held during it.
        if self.check_phase().is_err() || !context.knows(key.collection) {
            return SharedOutcome::Undecided;
        }
        match found {
            TableLookup::Found(item) => self.share(context, item),
            // A document that was evicted concurrently has left the table after this was shown.
            TableLookup::Nothing if was_active && !self.is_absence_uncertain() => {
                SharedOutcome::Miss
            }
            TableLookup::Nothing | TableLookup::Unsettled => SharedOutcome::Undecided,
        }
    }

    #[inline]
    fn share<'s>(&self, context: &Context<'_>, item: SharedItem<'s>) -> SharedOutcome<'s> {
        if item.is_deleted() {
            return SharedOutcome::Miss;
        }
        let is_expired = item.is_expired(context.now.unix_s());
        if is_expired || self.table.may_have_locks(context.now) || item.is_evicted() {
            return SharedOutcome::Undecided;
        }
        debug_assert!(!item.is_deleted() && !item.is_evicted(), "a reader gets a document's value");
        debug_assert!(item.is_live(context.now.unix_s()), "a reader gets a live document");
        item.note_use();
        SharedOutcome::Hit(item)
    }

    /// Reads a document's or tombstone's metadata.
    pub fn get_meta(&self, context: &Context<'_>, key: DocKey<'_>) -> MetaOutcome {
        // An expired document is shown like a deleted one: by its tombstone.
        match self.find_settled_shown(context, key, ReadTarget::Tombstone) {
            Ok(Some((item, cas))) => MetaOutcome::Found(item, cas),
            Ok(None) => MetaOutcome::Miss,
            Err(refused) => MetaOutcome::Refused(refused),
        }
    }

    /// Reads a document or its tombstone.
    pub fn read_version(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: ReadTarget,
    ) -> VersionOutcome {
        match self.find_settled_shown(context, key, sought) {
            Ok(Some((item, cas))) => match self.with_value(item) {
                Ok(item) => VersionOutcome::Found(item, cas),
                Err(refused) => VersionOutcome::Refused(refused),
            },
            Ok(None) => VersionOutcome::Miss,
            Err(refused) => VersionOutcome::Refused(refused),
        }
    }

    /// The version under a key as [`VBucket::settled`] has it, with the CAS that may be shown.
    fn find_settled_shown(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: ReadTarget,
    ) -> Result<Option<(ItemRef, Cas)>, OperationRejection> {
        let hash = self.table.seed().hash(key);
        let shown =
            |locks: &mut Locks, item: &ItemRef| (item.clone(), locks.shown_cas(item, context.now));
        self.settled(context, hash, || self.look_up(context, hash, key, sought, shown))
    }

    /// The version that `find` looks up, after an expired document has become its tombstone. A
    /// marker of absence counts as nothing, and so does an expired document that had to stay.
    pub(super) fn settled<T>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        find: impl Fn() -> Result<Option<(ItemRef, T)>, OperationRejection>,
    ) -> Result<Option<(ItemRef, T)>, OperationRejection> {
        let now_s = context.now.unix_s();
        let mut found = find()?;
        if let Some((expired, _)) = found.as_ref().filter(|(item, _)| item.is_expired(now_s)) {
            debug_assert!(!expired.is_deleted(), "a tombstone does not expire");
            self.expire(context, hash, expired);
            found = find()?;
        }
        Ok(found.filter(|(item, _)| !item.is_expired(now_s) && !is_absence_marker(item)))
    }

    /// Result of `refer` for the version under a key, dead or alive, evicted or not. `None` only
    /// when it is certain that no such version exists.
    #[inline]
    pub(super) fn look_up<T>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: ReadTarget,
        refer: impl FnOnce(&mut Locks, &ItemRef) -> T,
    ) -> Result<Option<T>, OperationRejection> {
        self.look_up_in(self.table.lock(), context, hash, key, sought, refer)
    }

    /// The same, of a table that the caller has locked.
    #[inline]
    pub(super) fn look_up_in<T>(
        &self,
        mut guard: TableGuard<'_>,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: ReadTarget,
        refer: impl FnOnce(&mut Locks, &ItemRef) -> T,
    ) -> Result<Option<T>, OperationRejection> {
        debug_assert_eq!(hash, self.table.seed().hash(key), "the hash is that of the key");
        let table = &mut *guard;
        self.check_phase()?;
        if !context.knows(key.collection) {
            return Err(OperationRejection::UnknownCollection);
        }
        if let Some(item) = table.index.get(hash, key) {
            return Ok(Some(refer(&mut table.locks, item)));
        }
        let is_uncertain = match sought {
            ReadTarget::Document => self.is_absence_uncertain(),
            ReadTarget::Tombstone => self.may_be_in_store_only(table),
        };
        drop(guard);
        if is_uncertain && context.memory.may_be_stored(self.id, key) {
            return Err(OperationRejection::NeedsFetch);
        }
        Ok(None)
    }

    /// True when the store may have a document whose key is not in the table. Asked under the
    /// table's lock, or after a look-up without it.
    #[inline]
    pub(crate) fn is_absence_uncertain(&self) -> bool {
        self.table.has_left_any() || self.is_loading()
    }

    /// True when the store may have a document or a tombstone whose key is not in the table:
    /// tombstones leave it once they are durable.
    pub(super) fn may_be_in_store_only(&self, table: &VbucketTable) -> bool {
        let has_stored_tombstones =
            self.persistence_cursor.is_some() && table.max_deleted_rev() > RevSeqno(0);
        has_stored_tombstones || self.is_absence_uncertain()
    }

    /// The phase changes under the table's lock.
    pub(super) fn check_phase(&self) -> Result<(), OperationRejection> {
        match self.table.phase().load(Ordering::Acquire) {
            phase if phase == VbucketPhase::Active as u8 => Ok(()),
            // A fetch finds documents that are not loaded yet.
            LOADING => Ok(()),
            FAILED => Err(OperationRejection::TemporaryFailure),
            RECOMMITTING => Err(OperationRejection::Recommitting),
            _ => Err(OperationRejection::NotMyVbucket),
        }
    }
}
