//! Writing a version: the one critical section that publishes, and the one loop around it.
//!
//! Owns: the checks before a write (phase, memory, collection, certainty about the store, locks),
//! and the effects of a write on table, queue and accounts. An operation builds its version outside
//! the locks and gives its verdict under them: write it, refuse ([`WriteError::Refused`]), or build
//! it again because it does not fit the current version ([`WriteError::Rebase`]).
//!
//! [`VBucket::write`] is the loop: look up, build from what was found, publish if that is still
//! current. An operation that can build without looking, as SET does, calls [`VBucket::publish`]
//! first and enters the loop only to rebase. Under the lock nothing moves but pointers; what a
//! write displaces is freed after it.

use std::sync::atomic::Ordering;

use oribi_types::{Cas, DocKey, RevSeqno, Timestamp};

use super::VBucket;
use super::context::{Context, WriteVisibility};
use super::fetching::is_absence_marker;
use super::locks::Claim;
use super::next_version::{NextVersion, stamp};
use super::table::VbucketTable;
use crate::attributes::expiration_of;
use crate::hash_table::{KeyHash, TablePlace};
use crate::item::{ItemRef, NewItem, drop_both};
use crate::outcome::{AppliedMutation, OperationRejection, ReadTarget};
use crate::prefetch::load_line_to_write;

/// Why a block does not become the next version.
pub(super) enum WriteError<R> {
    /// The operation is answered by this.
    Refused(R),
    /// The version was not built from the current one, so it has to be built again.
    Rebase,
}

impl<R> From<R> for WriteError<R> {
    fn from(answer: R) -> WriteError<R> {
        WriteError::Refused(answer)
    }
}

/// The terms of a write: everything about it but its block.
#[derive(Clone, Copy)]
pub(super) struct WriteTerms {
    pub(super) claim: Claim,
    /// The CAS of a version that was made elsewhere; `None`: it gets one of this vbucket's.
    pub(super) cas: Option<Cas>,
    /// The revision of a version that was made elsewhere.
    pub(super) rev_seqno: Option<RevSeqno>,
    /// When the version becomes visible.
    pub(super) visibility: WriteVisibility,
}

impl WriteTerms {
    /// Of a client's write that names the CAS that it replaces.
    #[inline]
    pub(super) fn of(claim: Claim, context: &Context<'_>) -> WriteTerms {
        WriteTerms { visibility: context.visibility, ..claim.into() }
    }
}

impl From<Claim> for WriteTerms {
    fn from(claim: Claim) -> WriteTerms {
        WriteTerms { claim, cas: None, rev_seqno: None, visibility: WriteVisibility::AtOnce }
    }
}

/// Base of the next version; a version that does not count is the same as none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The document, with its value.
    Document,
    /// The document or its tombstone, with its value. An expired document becomes its tombstone
    /// first.
    Settled(ReadTarget),
    /// The metadata of a document, expired or not, or of a tombstone.
    Metadata(ReadTarget),
}

impl Basis {
    fn sought(self) -> ReadTarget {
        match self {
            Basis::Document => ReadTarget::Document,
            Basis::Settled(sought) | Basis::Metadata(sought) => sought,
        }
    }

    fn counts(self, item: &ItemRef, now_s: u32) -> bool {
        match self {
            Basis::Document => item.is_live(now_s),
            Basis::Settled(_) => !item.is_expired(now_s) && !is_absence_marker(item),
            Basis::Metadata(_) => !is_absence_marker(item),
        }
    }
}

/// Version under a write's key.
pub(super) struct FoundVersion<'a> {
    /// Whatever is there; while the next version is built, only what counts for the [`Basis`].
    pub(super) version: Option<&'a ItemRef>,
    /// The same if it is a document.
    pub(super) live: Option<&'a ItemRef>,
    /// The request names the CAS of a lock of the document, so the document's own does not matter.
    pub(super) is_lock_cas: bool,
}

impl FoundVersion<'_> {
    /// True when a request that names `cas`, 0 for none, may replace the present version.
    #[inline]
    pub(super) fn admits(&self, cas: Cas) -> bool {
        cas == Cas(0) || self.is_lock_cas || self.live.is_some_and(|live| live.cas() == cas)
    }
}

/// The place and the version of a write that passed every check.
struct AdmittedWrite<'a> {
    place: Option<TablePlace>,
    previous: Option<&'a ItemRef>,
    rev_seqno: RevSeqno,
}

impl VBucket {
    /// Writes what `build` makes of the current version. `build` runs outside the locks, and again
    /// when another write came in between.
    pub(super) fn write<R: From<OperationRejection>, N: Into<NextVersion>>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        basis: Basis,
        terms: WriteTerms,
        mut build: impl FnMut(&FoundVersion<'_>) -> Result<N, R>,
    ) -> Result<(AppliedMutation, ItemRef), R> {
        let (hash, now_s) = (self.table.seed().hash(key), context.now.unix_s());
        let terms = WriteTerms { visibility: context.visibility, ..terms };
        loop {
            // Before the look-up, so that whatever it misses is younger; before the question about
            // pending writes, because those enter the table later than their seqno says.
            let looked_at = (basis.sought() == ReadTarget::Tombstone).then(|| self.high_seqno());
            if self.is_pending(hash) {
                return Err(self.pending_rejection(context, key).into());
            }
            let seen = self.see(context, hash, key, basis, terms.claim)?;
            let version = seen.as_ref().map(|(item, _)| item);
            let live = version.filter(|item| item.is_live(now_s));
            let is_lock_cas = seen.as_ref().is_some_and(|(_, is_lock_cas)| *is_lock_cas);
            let NextVersion { item, stamps } =
                build(&FoundVersion { version, live, is_lock_cas })?.into();
            let decide = |table: &VbucketTable, found: &FoundVersion<'_>, new: &mut NewItem| {
                let current = found.version.filter(|item| basis.counts(item, now_s));
                let is_current = match (version, current) {
                    (Some(seen), Some(current)) => seen.same_block(current),
                    (None, None) if found.version.is_some() => true,
                    // A version that came and left concurrently is in the store only.
                    (None, None) => looked_at.is_none_or(|at| table.max_removed_seqno() <= at),
                    _ => false,
                };
                if is_current && !stamps.is_empty() {
                    // The table is locked, so the next enqueue is that of this version.
                    stamp(new, &stamps, self.queue.lock().next_version(context.now));
                }
                if is_current { Ok(()) } else { Err(WriteError::Rebase) }
            };
            match self.publish(context, hash, terms, item, decide, ItemRef::clone) {
                Ok(written) => return Ok(written),
                Err((WriteError::Refused(answer), _)) => return Err(answer),
                Err((WriteError::Rebase, _)) => {}
            }
        }
    }

    /// The version that the next one is built from, and whether the claim is the CAS of its lock.
    fn see(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        basis: Basis,
        claim: Claim,
    ) -> Result<Option<(ItemRef, bool)>, OperationRejection> {
        let now_s = context.now.unix_s();
        let find = || {
            let found = self.look_up(context, hash, key, basis.sought(), |locks, item| {
                let live = Some(item).filter(|item| item.is_live(now_s));
                (item.clone(), locks.admit(live, claim, context.now))
            })?;
            found.map(|(item, admitted)| Ok((item, admitted?))).transpose()
        };
        loop {
            let found = match basis {
                Basis::Settled(_) => self.settled(context, hash, find)?,
                Basis::Document | Basis::Metadata(_) => find()?,
            };
            let seen = found.filter(|(item, _)| basis.counts(item, now_s));
            match (&seen, basis) {
                // The version that is built upon has to be the one in the table.
                (Some((item, _)), Basis::Document | Basis::Settled(_)) if item.is_evicted() => {
                    // A write that will be refused must not take memory first.
                    if item.is_dense()
                        && let Some(refused) = context.memory.refuses(false)
                    {
                        return Err(refused);
                    }
                    self.inflate_in_place(context, hash, item)?;
                }
                _ => return Ok(seen),
            }
        }
    }

    /// Replaces an expired document by its tombstone, unless it was changed concurrently or writes
    /// are refused; true when it did.
    pub(super) fn expire(&self, context: &Context<'_>, hash: KeyHash, expired: &ItemRef) -> bool {
        debug_assert!(expired.is_expired(context.now.unix_s()), "only an expired document expires");
        let new = expiration_of(expired, context.now);
        debug_assert!(new.as_item().is_deleted(), "an expired document becomes a tombstone");
        let is_written = self
            .publish_over(context, hash, new, Claim::Any, |current| current.same_block(expired));
        // A refusal is fine: readers go by the expiry time, and a later one tries again.
        if is_written {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        is_written
    }

    /// Publishes `new` if `is_same` accepts the current version; true when it did.
    pub(super) fn publish_over(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        claim: Claim,
        is_same: impl FnOnce(&ItemRef) -> bool,
    ) -> bool {
        let decide = |_: &VbucketTable, found: &FoundVersion<'_>, _: &mut NewItem| {
            if found.version.is_some_and(is_same) { Ok(()) } else { Err(WriteError::Rebase) }
        };
        self.publish::<OperationRejection, ()>(context, hash, claim.into(), new, decide, |_| ())
            .is_ok()
    }

    /// Publishes `new` if every check and `decide` let it pass; `decide` may complete it. Otherwise
    /// returns it. What `keep` takes of the new version is returned with the answer. Most callers
    /// need none: a reference would be written by this core when others read the version already.
    #[inline]
    pub(super) fn publish<R: From<OperationRejection>, K>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        terms: WriteTerms,
        mut new: NewItem,
        decide: impl FnOnce(&VbucketTable, &FoundVersion<'_>, &mut NewItem) -> Result<(), WriteError<R>>,
        keep: impl FnOnce(&ItemRef) -> K,
    ) -> Result<(AppliedMutation, K), (WriteError<R>, NewItem)> {
        // Asked here first, so that a write that will be refused does not count as pressure on
        // memory.
        if let Err(refused) = self.check_phase() {
            return Err((denied(refused), new));
        }
        if let Some(refused) = context.memory.refuses(new.as_item().is_deleted()) {
            return Err((denied(refused), new));
        }
        let report_bytes = context.memory.report_bytes();
        let (written, garbage, change, queued_bytes, has_idle_stream) = {
            let mut table = self.table.lock();
            // The core that had the table's line has this one as well. It arrives during the
            // look-up.
            load_line_to_write((&raw const self.queue).cast());
            let admitted = self.admit(context, &table, hash, terms, &mut new, decide);
            let AdmittedWrite { place, previous, rev_seqno } = match admitted {
                Ok(admitted) => admitted,
                Err(denied) => return Err((denied, new)),
            };
            if terms.visibility != WriteVisibility::AtOnce && self.persistence_cursor.is_some() {
                let previous = previous.map(|item| item.seqno());
                if let WriteVisibility::WhenCommitted(level) = terms.visibility {
                    let versions = (rev_seqno, terms.cas, level);
                    return Ok(self.prepare(context, table, (hash, new), versions, keep));
                }
                let versions = (previous, rev_seqno, terms.cas);
                return Ok(self.hold_back(context, table, (hash, new), versions, keep));
            }
            let mut queue = self.queue.lock();
            let queued = queue.enqueue_with_cas(new, previous, rev_seqno, terms.cas, context.now);
            debug_assert_eq!(
                queued.item.seqno(),
                queue.high_seqno(),
                "a version has the highest seqno"
            );
            let queue_bytes = queue.own_bytes();
            let queued_bytes = queue.growth(report_bytes);
            let has_idle_stream = queue.has_idle_stream();
            drop(queue);
            let item = queued.item;
            let (cas, seqno, vb_uuid) = (item.cas(), item.seqno(), self.uuid());
            debug_assert!(
                seqno > self.persisted_seqno(),
                "a version is published before it is durable"
            );
            let written = (AppliedMutation { cas, seqno, vb_uuid }, keep(&item));
            let unkept = (!self.keeps(&item)).then(|| item.clone());
            let replaced = table.write(hash, place, item);
            debug_assert_eq!(
                replaced.is_some(),
                place.is_some(),
                "the version at the place is replaced"
            );
            if let Some(replaced) = &replaced {
                table.locks.end(replaced);
            }
            if let Some(unkept) = &unkept {
                self.purge_unqueued(&mut table, hash, unkept);
            }
            let change = table.unreported(queue_bytes, report_bytes);
            let garbage = (queued.displaced, replaced, unkept, table.index.take_retired());
            (written, garbage, change, queued_bytes, has_idle_stream)
        };
        match garbage {
            (Some(displaced), Some(replaced), ..) => drop_both(displaced, replaced),
            other => drop(other),
        }
        self.note_queued(context, change, queued_bytes, has_idle_stream);
        Ok(written)
    }

    /// Reports what a queued version has changed, once no lock is held: memory of the vbucket and
    /// of its queue where that is due, work for the flusher, and a change for an idle stream.
    #[inline(always)]
    pub(super) fn note_queued(
        &self,
        context: &Context<'_>,
        change: Option<i64>,
        queued_bytes: Option<i64>,
        has_idle_stream: bool,
    ) {
        if let Some(bytes) = change {
            context.memory.report(bytes);
        }
        if let Some(bytes) = queued_bytes {
            context.memory.report_queued(bytes);
        }
        self.mark_dirty(context.signals);
        if has_idle_stream {
            self.wake_streams();
        }
    }

    /// Makes every check of a write under the table's lock.
    #[inline]
    fn admit<'a, R: From<OperationRejection>>(
        &self,
        context: &Context<'_>,
        table: &'a VbucketTable,
        hash: KeyHash,
        terms: WriteTerms,
        new: &mut NewItem,
        decide: impl FnOnce(&VbucketTable, &FoundVersion<'_>, &mut NewItem) -> Result<(), WriteError<R>>,
    ) -> Result<AdmittedWrite<'a>, WriteError<R>> {
        // Ownership ends under this lock, so nothing is written after it.
        self.check_phase().map_err(denied)?;
        let key = new.as_item().key();
        debug_assert_eq!(hash, self.table.seed().hash(key), "the hash is that of the key");
        if !context.knows(key.collection) {
            return Err(denied(OperationRejection::UnknownCollection));
        }
        let place = table.index.locate(hash, key);
        let version = place.and_then(|place| table.index.at(place));
        debug_assert!(place.is_none() || version.is_some(), "a place has an item");
        // The write depends on revision, CAS and count of what may be in the store.
        if version.is_none()
            && self.is_absence_uncertain()
            && !table.pending.has(hash)
            && context.memory.may_be_stored(self.id, key)
        {
            return Err(denied(OperationRejection::NeedsFetch));
        }
        let live = version.filter(|item| item.is_live(context.now.unix_s()));
        let is_lock_cas = match table.has_exceptions() {
            false => false,
            true => admit_exception(table, hash, live, terms.claim, context.now).map_err(denied)?,
        };
        decide(table, &FoundVersion { version, live, is_lock_cas }, new)?;
        let (previous, rev_seqno) = match version {
            Some(previous) if !is_absence_marker(previous) => {
                new.inherit_frequency(previous);
                (Some(previous), previous.rev_seqno().0 + 1)
            }
            _ => (None, table.max_deleted_rev().0 + 1),
        };
        debug_assert!(
            previous.is_none_or(|previous| !is_absence_marker(previous)),
            "a marker is no version"
        );
        Ok(AdmittedWrite {
            place,
            previous,
            rev_seqno: terms.rev_seqno.unwrap_or(RevSeqno(rev_seqno)),
        })
    }

    /// False for a tombstone of a vbucket in memory only: no flush needs it or would remove it.
    /// With attributes it stays until it is purged, because a transaction may have staged them.
    pub(super) fn keeps(&self, item: &ItemRef) -> bool {
        self.persistence_cursor.is_some() || !item.is_deleted() || item.has_attributes()
    }

    /// Removes a tombstone that the table does not keep, unless it is queued for streams. Then it
    /// leaves the table when it leaves the queue.
    fn purge_unqueued(&self, table: &mut VbucketTable, hash: KeyHash, item: &ItemRef) {
        debug_assert!(
            item.is_deleted() && self.persistence_cursor.is_none(),
            "memory has no store"
        );
        if self.queue.lock().lowest_needed() > item.seqno() {
            self.raise_purge_seqno(item.seqno());
            table.remove_same(hash, item);
        }
    }
}

/// The checks against a client's lock and against a write that waits for the store.
#[cold]
fn admit_exception(
    table: &VbucketTable,
    hash: KeyHash,
    live: Option<&ItemRef>,
    claim: Claim,
    now: Timestamp,
) -> Result<bool, OperationRejection> {
    let is_lock_cas = table.locks.admit(live, claim, now)?;
    if table.pending.has(hash) {
        return Err(OperationRejection::DurableWriteInProgress);
    }
    Ok(is_lock_cas)
}

fn denied<R: From<OperationRejection>>(refused: OperationRejection) -> WriteError<R> {
    WriteError::Refused(refused.into())
}
