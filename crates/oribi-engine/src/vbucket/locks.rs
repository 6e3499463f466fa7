//! Documents that clients have locked for a while.
//!
//! Owns: which version is locked, until when, and by which CAS. Invariants: a lock belongs to one version and is found by
//! its seqno, which no other version of the vbucket ever has; so whatever takes a version's place ends its lock, and a
//! version that is evicted and fetched again is still locked. Locks are in memory only. While one holds, a write has to
//! name its CAS, and readers are not shown a CAS that they could write with.
//!
//! A lock that has ended is remembered for a while: whoever finishes late and names its CAS has a right to it as long as
//! nobody has changed the version. Called under the vbucket's table lock.

use std::collections::HashMap;

use oribi_types::{Cas, DocKey, Seqno, Timestamp};

use super::VBucket;
use super::operations::Context;
use super::sub_document::Sought;
use crate::item::ItemRef;
use crate::outcome::{LockOutcome, Refused, UnlockOutcome};

/// How long an ended lock is remembered at least, in nanoseconds: one minute, twice the longest lock.
const REMEMBERED_NS: u64 = 60_000_000_000;
/// Locks below this number are not looked through for those that can be forgotten.
const PRUNE_AT_LEAST: usize = 64;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
struct Lock {
    cas: Cas,
    until_ns: u64,
}

/// What a write says about the lock of the version that it takes the place of.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    /// A client's write: it names this CAS, 0 for none.
    Cas(Cas),
    /// No lock stands in its way: it is the server's own, or it is refused wherever there is a document.
    Any,
}

/// Locks of one vbucket.
#[derive(Default)]
pub(super) struct Locks {
    by_version: HashMap<Seqno, Lock>,
    /// No lock holds longer than this.
    latest_ns: u64,
    prune_at: usize,
}

impl Locks {
    /// True while somebody has the version locked.
    #[inline]
    pub(super) fn is_locked(&self, item: &ItemRef, now: Timestamp) -> bool {
        self.latest_ns > now.unix_ns && self.holding(item, now).is_some()
    }

    #[cold]
    fn holding(&self, item: &ItemRef, now: Timestamp) -> Option<Lock> {
        self.by_version.get(&item.seqno()).copied().filter(|lock| lock.until_ns > now.unix_ns)
    }

    /// Whether a write that names `cas` may take the place of `live`. True: it names the CAS of a lock of that version,
    /// so that the version's own does not matter.
    #[inline]
    pub(super) fn admit(
        &self,
        live: Option<&ItemRef>,
        claim: Claim,
        now: Timestamp,
    ) -> Result<bool, Refused> {
        match (live, claim) {
            (Some(live), Claim::Cas(cas)) if !self.by_version.is_empty() => {
                self.admit_over(live, cas, now)
            }
            _ => Ok(false),
        }
    }

    #[cold]
    fn admit_over(&self, live: &ItemRef, cas: Cas, now: Timestamp) -> Result<bool, Refused> {
        match self.by_version.get(&live.seqno()) {
            Some(lock) if lock.cas == cas => Ok(true),
            Some(lock) if lock.until_ns > now.unix_ns => Err(Refused::Locked),
            _ => Ok(false),
        }
    }

    /// The version is being replaced.
    #[inline]
    pub(super) fn end(&mut self, replaced: &ItemRef) {
        if !self.by_version.is_empty() {
            self.by_version.remove(&replaced.seqno());
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Locks::default();
    }

    fn insert(&mut self, item: &ItemRef, lock: Lock, now: Timestamp) {
        if self.by_version.len() >= self.prune_at.max(PRUNE_AT_LEAST) {
            self.by_version.retain(|_, lock| lock.until_ns + REMEMBERED_NS > now.unix_ns);
            self.prune_at = self.by_version.len() * 2;
        }
        self.by_version.insert(item.seqno(), lock);
        self.latest_ns = self.latest_ns.max(lock.until_ns);
    }

    fn unlock(&mut self, item: &ItemRef, cas: Cas, now: Timestamp) -> UnlockOutcome {
        let lock = self.by_version.get_mut(&item.seqno());
        match lock.filter(|lock| lock.until_ns > now.unix_ns) {
            None => UnlockOutcome::NotLocked,
            Some(lock) if lock.cas == cas => {
                lock.until_ns = now.unix_ns;
                UnlockOutcome::Done
            }
            Some(_) => UnlockOutcome::Refused(Refused::Locked),
        }
    }
}

impl VBucket {
    pub(crate) fn get_and_lock(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        timeout_s: u32,
    ) -> LockOutcome {
        loop {
            let item = match self.live(context, key) {
                Err(refused) => return LockOutcome::Refused(refused),
                Ok(None) => return LockOutcome::Miss,
                Ok(Some(item)) if item.is_evicted() => {
                    return LockOutcome::Refused(Refused::NeedsFetch);
                }
                Ok(Some(item)) => item,
            };
            let mut table = self.table.lock();
            let current = table.index.get(self.seed.hash(key), key);
            if !current.is_some_and(|current| current.same_block(&item)) {
                continue;
            }
            if table.locks.is_locked(&item, context.now) {
                return LockOutcome::Refused(Refused::Locked);
            }
            let cas = self.queue.lock().take_cas(context.now);
            let until_ns = context.now.unix_ns.saturating_add(u64::from(timeout_s) * NS_PER_S);
            table.locks.insert(&item, Lock { cas, until_ns }, context.now);
            return LockOutcome::Done { item, cas };
        }
    }

    pub(crate) fn unlock(&self, context: &Context<'_>, key: DocKey<'_>, cas: Cas) -> UnlockOutcome {
        match self.live(context, key) {
            Err(refused) => UnlockOutcome::Refused(refused),
            Ok(None) => UnlockOutcome::NotFound,
            // If it was overwritten meanwhile, its lock has ended: it is not locked.
            Ok(Some(item)) => self.table.lock().locks.unlock(&item, cas, context.now),
        }
    }

    /// The document under a key; one that has expired is replaced by its tombstone.
    fn live(&self, context: &Context<'_>, key: DocKey<'_>) -> Result<Option<ItemRef>, Refused> {
        let hash = self.seed.hash(key);
        let found = self.find(context, hash, key, Sought::Document)?;
        if let Some(expired) = found.as_ref().filter(|item| item.is_expired(context.now.unix_s())) {
            self.expire(context, hash, expired);
        }
        Ok(found.filter(|item| item.is_live(context.now.unix_s())))
    }
}
