//! Operations of clients on documents: each goes to the vbucket that has the key.
//!
//! Owns: routing. Invariant: a vbucket number beyond the bucket's map is answered like one that
//! another node has. Called by the dispatcher. What an operation does is in `vbucket/operations.rs`
//! and next to it.

use oribi_types::{Cas, DocKey, Timestamp, Vbid};

use super::Bucket;
use super::key_ahead::KeyAhead;
use crate::grace_period::ReadSection;
use crate::item::FillingItem;
use crate::outcome::{
    ConcatRequest, CounterOutcome, CounterRequest, GetOutcome, LockOutcome, MetaOutcome,
    MutationOutcome, OperationRejection, ReadTarget, RewriteOutcome, SharedOutcome, StoreRequest,
    UnlockOutcome, VersionOutcome, WithMetaRequest,
};
use crate::prefetch::{load_line, load_lines};
use crate::vbucket::{Context, CurrentVersion, NextVersion, VBucket, store_fields};

impl Bucket {
    /// Hashes a key and starts loading where the table would have it; `None` outside the vbucket
    /// map.
    #[inline]
    pub fn announce(&self, vbid: Vbid, key: DocKey<'_>) -> Option<KeyAhead> {
        let vbucket = self.vbucket(vbid)?;
        let hash = vbucket.hash_of(key);
        load_line(vbucket.group_hint(hash));
        Some(KeyAhead { vbid, hash })
    }

    /// [`Bucket::locate`] for a write. For a key that is not in memory, the store loads where it
    /// would have it. No line is loaded to be written this early: until the write is served, other
    /// cores may need the lines again, which then move twice more.
    #[inline]
    pub fn locate_to_write(
        &self,
        section: &ReadSection,
        ahead: &KeyAhead,
        key: Option<DocKey<'_>>,
        bytes: usize,
    ) {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return };
        debug_assert!(key.is_none_or(|key| vbucket.hash_of(key) == ahead.hash), "another key");
        let Some(item) = vbucket.candidate_address(section, ahead.hash) else {
            if let Some(key) = key.filter(|_| vbucket.is_absence_uncertain()) {
                self.core.store().look_ahead(ahead.vbid, key);
            }
            return;
        };
        load_lines(item, bytes);
    }

    /// Starts loading the first `bytes` of the item that an announced key most likely has. A
    /// processor core has about a dozen lines in flight, so a line that no request needs costs as
    /// much as a missing one.
    #[inline]
    pub fn locate(&self, section: &ReadSection, ahead: &KeyAhead, bytes: usize) {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return };
        let Some(item) = vbucket.candidate_address(section, ahead.hash) else { return };
        load_lines(item, bytes);
    }

    pub fn get(&self, vbid: Vbid, key: DocKey<'_>, now: Timestamp) -> GetOutcome {
        match self.vbucket(vbid) {
            Some(vbucket) => vbucket.get(&self.core.context(now), vbucket.hash_of(key), key),
            None => GetOutcome::Refused(OperationRejection::NotMyVbucket),
        }
    }

    /// [`Bucket::get`] of a key that was announced.
    pub fn get_announced(&self, ahead: KeyAhead, key: DocKey<'_>, now: Timestamp) -> GetOutcome {
        match self.vbucket(ahead.vbid) {
            Some(vbucket) => vbucket.get(&self.core.context(now), ahead.hash, key),
            None => GetOutcome::Refused(OperationRejection::NotMyVbucket),
        }
    }

    /// A document whose key was announced, if that takes no lock. It stays readable while the
    /// section is open.
    #[inline]
    pub fn get_shared<'s>(
        &self,
        section: &'s ReadSection,
        ahead: KeyAhead,
        key: DocKey<'_>,
        now: Timestamp,
    ) -> SharedOutcome<'s> {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return SharedOutcome::Undecided };
        vbucket.get_shared(section, &self.core.context(now), ahead.hash, key)
    }

    /// The key as [`Bucket::announce`] has it, without loading anything.
    #[inline]
    pub fn hash(&self, vbid: Vbid, key: DocKey<'_>) -> Option<KeyAhead> {
        let vbucket = self.vbucket(vbid)?;
        Some(KeyAhead { vbid, hash: vbucket.hash_of(key) })
    }

    /// Reads a document's or tombstone's metadata.
    pub fn get_meta(&self, vbid: Vbid, key: DocKey<'_>, now: Timestamp) -> MetaOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return MetaOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        vbucket.get_meta(&self.core.context(now), key)
    }

    /// Set, add or replace.
    pub fn store(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| {
            vbucket.store(context, vbucket.hash_of(key), key, request)
        })
    }

    /// [`Bucket::store`] of a key that was announced.
    #[inline]
    pub fn store_announced(
        &self,
        ahead: KeyAhead,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        let hash = ahead.hash;
        self.mutate(ahead.vbid, now, |vbucket, context| vbucket.store(context, hash, key, request))
    }

    /// A block for a value of `value_bytes` that is still being received; `request.value` is
    /// ignored. `None` when the request would be refused: no memory is taken then, and
    /// [`Bucket::store`] tells the caller why.
    pub fn begin_store(
        &self,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        value_bytes: usize,
        now: Timestamp,
    ) -> Option<FillingItem> {
        let context = self.core.context(now);
        if value_bytes > context.value_bytes_max || context.memory.refuses(false).is_some() {
            return None;
        }
        Some(FillingItem::new(key, store_fields(&context, key, request), value_bytes))
    }

    /// Set, add or replace with a value that was received into its block; `request.value` is
    /// ignored. Takes the block, unless the answer is [`OperationRejection::NeedsFetch`] or
    /// [`OperationRejection::TemporaryFailure`]: the caller may need it again then.
    ///
    /// # Panics
    /// When there is no block, or some of the value is missing.
    pub fn store_received(
        &self,
        vbid: Vbid,
        received: &mut Option<FillingItem>,
        request: &StoreRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| {
            vbucket.store_received(context, received, request)
        })
    }

    pub fn concat(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &ConcatRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.concat(context, key, request))
    }

    /// Stores a version from elsewhere, with its own CAS and revision, if it is newer than the
    /// current one; otherwise [`MutationOutcome::Exists`].
    pub fn store_with_meta(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &WithMetaRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.store_with_meta(context, key, request))
    }

    pub fn delete(&self, vbid: Vbid, key: DocKey<'_>, cas: Cas, now: Timestamp) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.delete(context, key, cas))
    }

    /// Changes the expiry; `expiry` as on the wire.
    pub fn touch(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        expiry: u32,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.touch(context, key, expiry))
    }

    pub fn counter(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &CounterRequest,
        now: Timestamp,
    ) -> CounterOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return CounterOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        vbucket.counter(&self.core.context(now), key, request)
    }

    /// Reads a document and locks it for `timeout_s` or until it is unlocked: until then only
    /// writes with the lock's CAS change it.
    pub fn get_and_lock(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        timeout_s: u32,
        now: Timestamp,
    ) -> LockOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return LockOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        vbucket.get_and_lock(&self.core.context(now), key, timeout_s)
    }

    /// Ends the lock whose CAS is `cas`.
    pub fn unlock(&self, vbid: Vbid, key: DocKey<'_>, cas: Cas, now: Timestamp) -> UnlockOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return UnlockOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        vbucket.unlock(&self.core.context(now), key, cas)
    }

    /// Reads a document and changes its expiry; `expiry` as on the wire.
    pub fn get_and_touch(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        expiry: u32,
        now: Timestamp,
    ) -> GetOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return GetOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        vbucket.get_and_touch(&self.core.context(now), key, expiry)
    }

    /// Reads a document or its tombstone.
    pub fn read_version(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        sought: ReadTarget,
        now: Timestamp,
    ) -> VersionOutcome {
        match self.vbucket(vbid) {
            Some(vbucket) => vbucket.read_version(&self.core.context(now), key, sought),
            None => VersionOutcome::Refused(OperationRejection::NotMyVbucket),
        }
    }

    /// Writes the version that `build` makes from the current one. `expiry` is as on the wire.
    /// `cas` is the request's, 0 for none: it opens a lock; `build` checks it against the version.
    /// `build` may run more than once; the last result counts.
    pub fn rewrite<E>(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        sought: ReadTarget,
        (expiry, cas): (u32, Cas),
        now: Timestamp,
        build: impl FnMut(CurrentVersion<'_>) -> Result<NextVersion, E>,
    ) -> RewriteOutcome<E> {
        match self.vbucket(vbid) {
            Some(vbucket) => {
                vbucket.rewrite(&self.core.context(now), key, sought, (expiry, cas), build)
            }
            None => RewriteOutcome::Refused(OperationRejection::NotMyVbucket),
        }
    }

    /// Longest value of a document, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.core.context(Timestamp::default()).value_bytes_max
    }

    fn mutate(
        &self,
        vbid: Vbid,
        now: Timestamp,
        operation: impl FnOnce(&VBucket, &Context<'_>) -> MutationOutcome,
    ) -> MutationOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return MutationOutcome::Refused(OperationRejection::NotMyVbucket);
        };
        operation(vbucket, &self.core.context(now))
    }
}
