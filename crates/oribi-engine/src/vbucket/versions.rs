//! Reading the version under a key, and publishing the next one: what every operation is made of.
//!
//! Owns: the two critical sections of the table lock, one that reads and one that writes, and which locks, conditions
//! and doubts stand before a write. A write builds its block before and frees what it displaced after; nothing but
//! pointers moves in between.

use std::sync::atomic::Ordering;

use oribi_storage::VbucketPhase;
use oribi_types::{Cas, DocKey, RevSeqno};

use super::fetching::is_absence_marker;
use super::locks::Claim;
use super::operations::Context;
use super::sub_document::Sought;
use super::{FAILED, LOADING, Table, VBucket};
use crate::attributes::tombstone_of;
use crate::hash_table::KeyHash;
use crate::item::{ItemRef, NewItem};
use crate::outcome::{LOCKED_CAS, Mutation, MutationOutcome, Refused};

/// Why a write did not happen: refused before its condition, or by its condition.
pub(super) enum Denied<R> {
    Refused(Refused),
    /// Refused because the store has to be asked; the block is needed again.
    NeedsFetch(NewItem),
    Condition(R),
}

impl From<Denied<MutationOutcome>> for MutationOutcome {
    fn from(denied: Denied<MutationOutcome>) -> MutationOutcome {
        match denied {
            Denied::Refused(refused) => MutationOutcome::Refused(refused),
            Denied::NeedsFetch(_) => MutationOutcome::Refused(Refused::NeedsFetch),
            Denied::Condition(outcome) => outcome,
        }
    }
}

/// What a version that was made elsewhere brings along.
#[derive(Clone, Copy)]
pub(super) struct GivenVersion {
    /// `None`: it gets one of this vbucket's.
    pub(super) cas: Option<Cas>,
    pub(super) rev_seqno: RevSeqno,
}

/// The version that a new value was built from is not the current one any more.
pub(super) struct Overtaken;

impl VBucket {
    /// Replaces a document that has expired by its tombstone, if nobody else changed it meanwhile and
    /// writes are not refused; true when it did.
    pub(super) fn expire(&self, context: &Context<'_>, hash: KeyHash, expired: &ItemRef) -> bool {
        let new = tombstone_of(expired, context.now);
        let written =
            self.write_version(context, hash, new, Claim::Any, |current, _, _| match current {
                Some(current) if current.same_block(expired) => Ok(()),
                _ => Err(Overtaken),
            });
        // Refusal is fine: readers go by the expiry time, and a later one will try again.
        if written.is_ok() {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        written.is_ok()
    }

    pub(super) fn find(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: Sought,
    ) -> Result<Option<ItemRef>, Refused> {
        self.look_up(context, hash, key, sought, |_, item| item.clone())
    }

    /// As [`VBucket::find`], with the CAS that may be shown.
    pub(super) fn find_shown(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: Sought,
    ) -> Result<Option<(ItemRef, Cas)>, Refused> {
        self.look_up(context, hash, key, sought, |table, item| {
            let is_locked = table.locks.is_locked(item, context.now);
            (item.clone(), if is_locked { LOCKED_CAS } else { item.cas() })
        })
    }

    /// As [`VBucket::find`], for a write that names `cas`: with whether that is the CAS of a lock.
    pub(super) fn find_to_write(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: Sought,
        cas: Cas,
    ) -> Result<Option<(ItemRef, bool)>, Refused> {
        let now = context.now;
        let found = self.look_up(context, hash, key, sought, |table, item| {
            let live = Some(item).filter(|item| item.is_live(now.unix_s()));
            (item.clone(), table.locks.admit(live, Claim::Cas(cas), now))
        })?;
        found.map(|(item, admitted)| Ok((item, admitted?))).transpose()
    }

    /// The version under a key, dead or alive, evicted or not; nothing only when it is certain that there is
    /// nothing of what is sought.
    #[inline]
    pub(super) fn look_up<T>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        sought: Sought,
        refer: impl FnOnce(&Table, &ItemRef) -> T,
    ) -> Result<Option<T>, Refused> {
        let table = self.table.lock();
        self.check_phase()?;
        if !context.knows(key.collection) {
            return Err(Refused::UnknownCollection);
        }
        if let Some(item) = table.index.get(hash, key) {
            return Ok(Some(refer(&table, item)));
        }
        let is_uncertain = match sought {
            Sought::Document => self.is_absence_uncertain(context, &table),
            Sought::Tombstone => self.may_be_in_store_only(context, &table),
        };
        drop(table);
        if is_uncertain && context.memory.may_be_stored(self.id, key) {
            return Err(Refused::NeedsFetch);
        }
        Ok(None)
    }

    /// True when the store may have a document whose key is not in the table.
    #[inline]
    pub(super) fn is_absence_uncertain(&self, context: &Context<'_>, table: &Table) -> bool {
        (context.memory.is_full_eviction() && table.has_left_any()) || self.is_loading()
    }

    /// True when the store may have a document or a tombstone whose key is not in the table: tombstones leave it
    /// once they are durable.
    pub(super) fn may_be_in_store_only(&self, context: &Context<'_>, table: &Table) -> bool {
        let has_stored_tombstones =
            self.persistence_cursor.is_some() && table.max_deleted_rev() > RevSeqno(0);
        has_stored_tombstones || self.is_absence_uncertain(context, table)
    }

    /// Asked under the table's lock, under which the phase changes.
    fn check_phase(&self) -> Result<(), Refused> {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == VbucketPhase::Active as u8 => Ok(()),
            // What is not loaded yet can be fetched.
            LOADING => Ok(()),
            FAILED => Err(Refused::TemporaryFailure),
            _ => Err(Refused::NotMyVbucket),
        }
    }

    /// Reads, builds the next version from what was read, value and all, and writes it unless overtaken. `build` is
    /// told whether `cas`, which the request names, is that of a lock.
    pub(super) fn update<R>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        cas: Cas,
        mut build: impl FnMut(Option<&ItemRef>, bool) -> Result<NewItem, R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        let hash = self.seed.hash(key);
        let now_s = context.now.unix_s();
        loop {
            let found = self
                .find_to_write(context, hash, key, Sought::Document, cas)
                .map_err(Denied::Refused)?;
            let (live, is_lock_cas) = match found {
                Some((item, is_lock_cas)) if item.is_live(now_s) => (Some(item), is_lock_cas),
                _ => (None, false),
            };
            if live.as_ref().is_some_and(ItemRef::is_evicted) {
                return Err(Denied::Refused(Refused::NeedsFetch));
            }
            let new = build(live.as_ref(), is_lock_cas).map_err(Denied::Condition)?;
            let claim = Claim::Cas(cas);
            let written =
                self.write_if(context, hash, new, claim, |current, _, _| match (current, &live) {
                    (None, None) => Ok(()),
                    (Some(current), Some(live)) if current.same_block(live) => Ok(()),
                    _ => Err(Overtaken),
                });
            match written {
                Ok(done) => return Ok(done),
                Err(Denied::Refused(refused)) => return Err(Denied::Refused(refused)),
                Err(Denied::NeedsFetch(new)) => return Err(Denied::NeedsFetch(new)),
                Err(Denied::Condition(Overtaken)) => {}
            }
        }
    }

    /// Publishes `new` if `condition` holds for the live version under the same key.
    pub(super) fn write_if<R>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        claim: Claim,
        condition: impl FnOnce(Option<&ItemRef>, bool, &mut NewItem) -> Result<(), R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        let now_s = context.now.unix_s();
        self.write_version(context, hash, new, claim, |current, is_lock_cas, new| {
            condition(current.filter(|item| item.is_live(now_s)), is_lock_cas, new)
        })
    }

    /// Publishes `new` if no lock is in its way and `condition` holds for the version under the same key, dead or
    /// alive; the condition is told whether the CAS of the claim is that of a lock.
    pub(super) fn write_version<R>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        claim: Claim,
        condition: impl FnOnce(Option<&ItemRef>, bool, &mut NewItem) -> Result<(), R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        self.write_given(context, hash, new, (claim, None), condition)
    }

    /// As [`VBucket::write_version`], of a version whose revision and perhaps CAS are given.
    #[inline]
    pub(super) fn write_given<R>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        mut new: NewItem,
        (claim, given): (Claim, Option<GivenVersion>),
        condition: impl FnOnce(Option<&ItemRef>, bool, &mut NewItem) -> Result<(), R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        // A first look, so that a write which will be refused counts as no pressure on memory.
        self.check_phase().map_err(Denied::Refused)?;
        if let Some(refused) = context.memory.refuses(new.as_item().is_deleted()) {
            return Err(Denied::Refused(refused));
        }
        let key_collection = new.as_item().key().collection;
        let (item, garbage, change) = {
            let mut table = self.table.lock();
            // Under the lock, under which ownership ends: nothing is written after that.
            self.check_phase().map_err(Denied::Refused)?;
            if !context.knows(key_collection) {
                return Err(Denied::Refused(Refused::UnknownCollection));
            }
            let place = table.index.locate(hash, new.as_item().key());
            let current = place.and_then(|place| table.index.at(place));
            if current.is_none() && self.is_absence_uncertain(context, &table) {
                // Revision, CAS and count of what may be there decide what is to become of the write.
                let key = new.as_item().key();
                if context.memory.may_be_stored(self.id, key) {
                    return Err(Denied::NeedsFetch(new));
                }
            }
            let live = current.filter(|item| item.is_live(context.now.unix_s()));
            let is_lock_cas =
                table.locks.admit(live, claim, context.now).map_err(Denied::Refused)?;
            condition(current, is_lock_cas, &mut new).map_err(Denied::Condition)?;
            let (previous, rev) = match current {
                Some(current) if !is_absence_marker(current) => {
                    new.inherit_frequency(current);
                    (Some(current), current.rev_seqno().0 + 1)
                }
                _ => (None, table.max_deleted_rev().0 + 1),
            };
            let rev = given.map_or(RevSeqno(rev), |given| given.rev_seqno);
            let cas = given.and_then(|given| given.cas);
            let mut queue = self.queue.lock();
            let queued = queue.enqueue_given(new, previous, rev, cas, context.now);
            let queue_bytes = queue.own_bytes();
            drop(queue);
            let replaced = table.write(hash, place, queued.item.clone());
            if let Some(replaced) = &replaced {
                table.locks.end(replaced);
            }
            if self.persistence_cursor.is_none() && queued.item.is_deleted() {
                // No flush will come to remove it, and nothing on disk needs to be told.
                table.remove_same(hash, &queued.item);
            }
            table.index.show_to(&self.groups);
            let change = table.unreported(queue_bytes, context.memory.report_bytes());
            (queued.item, (queued.displaced, replaced, table.index.take_retired()), change)
        };
        drop(garbage);
        if let Some(bytes) = change {
            context.memory.report(bytes);
        }
        self.mark_dirty(context.signal);
        let mutation = Mutation { cas: item.cas(), seqno: item.seqno(), vb_uuid: self.uuid() };
        Ok((mutation, item))
    }
}
