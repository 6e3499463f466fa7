//! Documents that clients have locked for a while.
//!
//! Owns: which version is locked, until when, and by which CAS. Invariants: a lock belongs to one
//! version and is found by its seqno, which no other version of the vbucket ever has. So the next
//! version ends the lock, and a version that is evicted and fetched again is still locked. Locks
//! are in memory only. While one holds, a write has to name its CAS, and readers are shown a CAS
//! that no write can name.
//!
//! A lock that has ended is remembered for a while: a late write that names its CAS is accepted as
//! long as the version is unchanged. Called under the vbucket's table lock.

use std::collections::HashMap;

use oribi_types::{Cas, Seqno, Timestamp};

use crate::item::ItemRef;
use crate::outcome::{LOCKED_CAS, OperationRejection, UnlockOutcome};

/// Shortest time for which an ended lock is remembered, in nanoseconds: one minute, twice the
/// longest lock.
const REMEMBERED_NS: u64 = 60_000_000_000;
/// Below this number of locks, forgotten ones are not looked for.
const PRUNE_AT_LEAST: usize = 64;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
struct Lock {
    cas: Cas,
    until_ns: u64,
}

/// A write's claim on the lock of the version that it replaces.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    /// A client's write: it names this CAS, 0 for none.
    Cas(Cas),
    /// It ignores locks: it is the server's own, or an add, which every document refuses.
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
    /// True when no lock is remembered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_version.is_empty()
    }

    /// True while a client has the version locked.
    #[inline]
    pub(super) fn is_locked(&self, item: &ItemRef, now: Timestamp) -> bool {
        self.latest_ns > now.unix_ns && self.holding(item, now).is_some()
    }

    /// No lock holds longer than this.
    #[inline]
    pub(super) fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The CAS of a version that may be shown.
    pub(super) fn shown_cas(&self, item: &ItemRef, now: Timestamp) -> Cas {
        if self.is_locked(item, now) { LOCKED_CAS } else { item.cas() }
    }

    #[cold]
    fn holding(&self, item: &ItemRef, now: Timestamp) -> Option<Lock> {
        self.by_version.get(&item.seqno()).copied().filter(|lock| lock.until_ns > now.unix_ns)
    }

    /// Whether a write with this claim may replace `live`. True: it names the CAS of a lock of that
    /// version, so the version's own does not matter.
    #[inline]
    pub(super) fn admit(
        &self,
        live: Option<&ItemRef>,
        claim: Claim,
        now: Timestamp,
    ) -> Result<bool, OperationRejection> {
        match (live, claim) {
            (Some(live), Claim::Cas(cas)) if !self.by_version.is_empty() => {
                self.admit_over(live, cas, now)
            }
            _ => Ok(false),
        }
    }

    #[cold]
    fn admit_over(
        &self,
        live: &ItemRef,
        cas: Cas,
        now: Timestamp,
    ) -> Result<bool, OperationRejection> {
        match self.by_version.get(&live.seqno()) {
            Some(lock) if lock.cas == cas => Ok(true),
            Some(lock) if lock.until_ns > now.unix_ns => Err(OperationRejection::Locked),
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

    /// Panics if a lock outlasts the bound that [`Locks::is_locked`] goes by.
    pub(super) fn check_invariants(&self) {
        let latest_ns = self.by_version.values().map(|lock| lock.until_ns).max();
        assert!(latest_ns.unwrap_or(0) <= self.latest_ns, "a lock that is taken for ended");
    }

    pub(super) fn clear(&mut self) {
        *self = Locks::default();
    }

    /// Locks a version that is not locked.
    pub(super) fn lock(&mut self, item: &ItemRef, cas: Cas, timeout_s: u32, now: Timestamp) {
        assert!(!self.is_locked(item, now), "a locked item is not locked again");
        debug_assert_ne!(cas, LOCKED_CAS, "a lock has a CAS of its holder only");
        let until_ns = now.unix_ns.saturating_add(u64::from(timeout_s) * NS_PER_S);
        if self.by_version.len() >= self.prune_at.max(PRUNE_AT_LEAST) {
            self.by_version.retain(|_, lock| lock.until_ns + REMEMBERED_NS > now.unix_ns);
            self.prune_at = self.by_version.len() * 2;
        }
        self.by_version.insert(item.seqno(), Lock { cas, until_ns });
        self.latest_ns = self.latest_ns.max(until_ns);
        debug_assert!(self.by_version.contains_key(&item.seqno()), "a lock is found by its seqno");
    }

    /// Ends the lock of a version if its CAS is `cas`.
    pub(super) fn unlock(&mut self, item: &ItemRef, cas: Cas, now: Timestamp) -> UnlockOutcome {
        let lock = self.by_version.get_mut(&item.seqno());
        match lock.filter(|lock| lock.until_ns > now.unix_ns) {
            None => UnlockOutcome::NotLocked,
            Some(lock) if lock.cas == cas => {
                lock.until_ns = now.unix_ns;
                debug_assert!(lock.until_ns <= self.latest_ns, "a lock ends before the latest");
                UnlockOutcome::Done
            }
            Some(_) => UnlockOutcome::Refused(OperationRejection::Locked),
        }
    }
}
