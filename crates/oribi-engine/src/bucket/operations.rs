//! What clients do to documents: each operation goes to the vbucket that has the key.
//!
//! Owns: routing, and the context that vbuckets run operations in. Invariant: a vbucket number beyond the bucket's map
//! is answered like one that another node has. Called by the dispatcher. What an operation does is in
//! `vbucket/operations.rs` and beside it.

use oribi_types::{Cas, DocKey, Timestamp, Vbid};

use super::Bucket;
use crate::item::FillingItem;
use crate::outcome::{
    ConcatRequest, CounterOutcome, CounterRequest, GetOutcome, LockOutcome, MetaOutcome,
    MutationOutcome, Refused, StoreRequest, UnlockOutcome, WithMetaRequest,
};
use crate::prefetch::KeyAhead;
use crate::vbucket::{Context, VBucket, store_fields};

impl Bucket {
    /// Reads a document.
    pub fn get(&self, vbid: Vbid, key: DocKey<'_>, now: Timestamp) -> GetOutcome {
        match self.vbucket(vbid) {
            Some(vbucket) => vbucket.get(&self.context(now), vbucket.hash_of(key), key),
            None => GetOutcome::Refused(Refused::NotMyVbucket),
        }
    }

    /// [`Bucket::get`] of a key that was announced.
    pub fn get_announced(&self, ahead: KeyAhead, key: DocKey<'_>, now: Timestamp) -> GetOutcome {
        match self.vbucket(ahead.vbid) {
            Some(vbucket) => vbucket.get(&self.context(now), ahead.hash, key),
            None => GetOutcome::Refused(Refused::NotMyVbucket),
        }
    }

    /// Reads a document's or tombstone's metadata.
    pub fn get_meta(&self, vbid: Vbid, key: DocKey<'_>, now: Timestamp) -> MetaOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return MetaOutcome::Refused(Refused::NotMyVbucket);
        };
        vbucket.get_meta(&self.context(now), key)
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

    /// A block for the value of a store request that is still being received, `value_bytes` long;
    /// `request.value` is not looked at. `None` when it would be refused anyway, which the caller learns
    /// by [`Bucket::store`]: no memory is taken for such a value.
    pub fn begin_store(
        &self,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        value_bytes: usize,
        now: Timestamp,
    ) -> Option<FillingItem> {
        let context = self.context(now);
        if value_bytes > context.value_bytes_max || context.memory.refuses(false).is_some() {
            return None;
        }
        Some(FillingItem::new(key, store_fields(&context, key, request), value_bytes))
    }

    /// Set, add or replace with a value that was received into its block; `request.value` is not
    /// looked at. The block is taken, unless the answer is [`Refused::NeedsFetch`]: it is needed again then.
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

    /// Append or prepend.
    pub fn concat(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &ConcatRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.concat(context, key, request))
    }

    /// Stores a version that was made elsewhere, with its own CAS and revision, if it is newer than what is there.
    /// [`MutationOutcome::Exists`] when it is not.
    pub fn store_with_meta(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &WithMetaRequest<'_>,
        now: Timestamp,
    ) -> MutationOutcome {
        self.mutate(vbid, now, |vbucket, context| vbucket.store_with_meta(context, key, request))
    }

    /// Delete.
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

    /// Increment or decrement.
    pub fn counter(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        request: &CounterRequest,
        now: Timestamp,
    ) -> CounterOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return CounterOutcome::Refused(Refused::NotMyVbucket);
        };
        vbucket.counter(&self.context(now), key, request)
    }

    /// Reads a document and locks it for `timeout_s`: until then, or until it is unlocked, only writes that name the
    /// lock's CAS change it.
    pub fn get_and_lock(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        timeout_s: u32,
        now: Timestamp,
    ) -> LockOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return LockOutcome::Refused(Refused::NotMyVbucket);
        };
        vbucket.get_and_lock(&self.context(now), key, timeout_s)
    }

    /// Ends the lock whose CAS is `cas`.
    pub fn unlock(&self, vbid: Vbid, key: DocKey<'_>, cas: Cas, now: Timestamp) -> UnlockOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return UnlockOutcome::Refused(Refused::NotMyVbucket);
        };
        vbucket.unlock(&self.context(now), key, cas)
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
            return GetOutcome::Refused(Refused::NotMyVbucket);
        };
        vbucket.get_and_touch(&self.context(now), key, expiry)
    }

    fn mutate(
        &self,
        vbid: Vbid,
        now: Timestamp,
        operation: impl FnOnce(&VBucket, &Context<'_>) -> MutationOutcome,
    ) -> MutationOutcome {
        let Some(vbucket) = self.vbucket(vbid) else {
            return MutationOutcome::Refused(Refused::NotMyVbucket);
        };
        operation(vbucket, &self.context(now))
    }
}
