//! Clients' locks (GETL): lock and unlock.
//!
//! Owns: both operations. Each happens under one hold of the table's lock, so a version cannot be
//! replaced between the look-up and the lock. Called by the bucket.

use oribi_types::{Cas, DocKey};

use super::VBucket;
use super::context::Context;
use super::locks::Locks;
use crate::item::ItemRef;
use crate::outcome::{LOCKED_CAS, LockOutcome, OperationRejection, ReadTarget, UnlockOutcome};

impl VBucket {
    /// Reads a document and locks it for `timeout_s` or until it is unlocked: until then only
    /// writes with the lock's CAS change it.
    pub fn get_and_lock(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        timeout_s: u32,
    ) -> LockOutcome {
        let lock = |locks: &mut Locks, item: &ItemRef| {
            if item.is_in_store_only() {
                return Err(OperationRejection::NeedsFetch);
            }
            if locks.is_locked(item, context.now) {
                return Err(OperationRejection::Locked);
            }
            let cas = self.queue.lock().take_cas(context.now);
            debug_assert_ne!(
                cas, LOCKED_CAS,
                "readers tell the CAS of a lock from that of its mark"
            );
            locks.lock(item, cas, timeout_s, context.now);
            Ok(cas)
        };
        match self.with_locks(context, key, lock) {
            Ok(Some((item, Ok(cas)))) => match self.with_value(item) {
                Ok(item) => LockOutcome::Done { item, cas },
                Err(refused) => {
                    // The client repeats it, and must not meet its own lock.
                    self.unlock(context, key, cas);
                    LockOutcome::Refused(refused)
                }
            },
            Ok(None) => LockOutcome::Miss,
            Ok(Some((_, Err(refused)))) | Err(refused) => LockOutcome::Refused(refused),
        }
    }

    /// Ends the lock whose CAS is `cas`.
    pub fn unlock(&self, context: &Context<'_>, key: DocKey<'_>, cas: Cas) -> UnlockOutcome {
        let unlock = |locks: &mut Locks, item: &ItemRef| locks.unlock(item, cas, context.now);
        match self.with_locks(context, key, unlock) {
            Ok(Some((_, unlocked))) => unlocked,
            Ok(None) => UnlockOutcome::NotFound,
            Err(refused) => UnlockOutcome::Refused(refused),
        }
    }

    /// The document under a key, and what `act` does about its locks. An expired document is
    /// replaced by its tombstone.
    fn with_locks<T>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        act: impl FnOnce(&mut Locks, &ItemRef) -> T,
    ) -> Result<Option<(ItemRef, T)>, OperationRejection> {
        let (hash, now_s) = (self.table.seed().hash(key), context.now.unix_s());
        // One hold of the lock, so that no durable write begins between the question and the lock.
        let table = self.table.lock();
        if table.pending.has(hash) {
            return Err(self.pending_rejection(context, key));
        }
        let sought = ReadTarget::Document;
        let found = self.look_up_in(table, context, hash, key, sought, |locks, item| {
            (item.clone(), item.is_live(now_s).then(|| act(locks, item)))
        })?;
        if let Some((expired, _)) = found.as_ref().filter(|(item, _)| item.is_expired(now_s)) {
            self.expire(context, hash, expired);
        }
        Ok(found.and_then(|(item, done)| Some((item, done?))))
    }
}
