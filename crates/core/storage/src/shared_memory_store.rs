//! A store in memory that several owners open at once, for tests of several nodes.
//!
//! Owns: the epoch that distinguishes owners. A [`SharedMemoryStore`] stands for one process; the
//! [`SharedMedium`] outlives and connects them. A take-over raises the medium's epoch. A write with
//! an older epoch checks whether its own process still owns the vbuckets: if so it continues in the
//! new epoch, otherwise it fails as a whole. Stores behave like this when each write names the
//! fence. Invariant: epoch, check and write are one step under one lock, so no write of an earlier
//! owner follows a take-over. It does not bound its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use oribi_types::{CollectionId, Seqno, Vbid};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    KvStore, MemoryMedium, MemoryStore, Ownership, PartVisitor, SharedStore, StoreError,
    StoreMaintenance, VbBatch, VbucketState, forward,
};

/// The data that all processes share.
#[derive(Debug, Default)]
pub struct SharedMedium {
    medium: Arc<MemoryMedium>,
    epoch: Mutex<u64>,
}

/// One process's [`KvStore`] over a [`SharedMedium`].
pub struct SharedMemoryStore {
    shared: Arc<SharedMedium>,
    inner: MemoryStore,
    epoch: AtomicU64,
    ownership: Mutex<Option<Arc<dyn Ownership>>>,
    /// Vbuckets that the process did not own when it entered the epoch.
    not_owned: Mutex<Vec<Vbid>>,
    /// Held while the process does not reach the data.
    way: Mutex<()>,
    /// Calls that wait for it.
    waiting: AtomicUsize,
}

impl SharedMemoryStore {
    /// Opens the data for one more process, which owns nothing yet.
    pub fn on(shared: Arc<SharedMedium>) -> SharedMemoryStore {
        let inner = MemoryStore::on(Arc::clone(&shared.medium));
        SharedMemoryStore {
            shared,
            inner,
            epoch: AtomicU64::new(0),
            ownership: Mutex::default(),
            not_owned: Mutex::default(),
            way: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// While the guard lives this process does not reach the data: what it writes, and what it
    /// takes over, waits.
    pub fn cut_off(&self) -> MutexGuard<'_, ()> {
        self.way.lock()
    }

    /// Calls that wait for the way to the data.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn await_way(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        drop(self.way.lock());
        let before = self.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a call that waited was counted");
    }

    /// Does `write` unless some of `vbuckets` are another owner's.
    fn fenced<R>(
        &self,
        vbuckets: impl Iterator<Item = Vbid>,
        write: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.await_way();
        let current = self.shared.epoch.lock();
        let vbuckets: Vec<Vbid> = vbuckets.collect();
        debug_assert!(
            self.epoch.load(Ordering::Acquire) <= *current,
            "an epoch is assigned before it is entered"
        );
        if let Some(vbid) = vbuckets.iter().find(|vbid| self.not_owned.lock().contains(vbid)) {
            return Err(StoreError::Fenced(format!("{vbid} was not owned at the take-over")));
        }
        if self.epoch.load(Ordering::Acquire) != *current {
            let ownership = self.ownership.lock().clone();
            let owns = |vbid| ownership.as_ref().is_some_and(|ownership| ownership.owns(vbid));
            for vbid in vbuckets {
                if !owns(vbid) {
                    return Err(StoreError::Fenced(format!("{vbid} in epoch {current}")));
                }
            }
            self.epoch.store(*current, Ordering::Release);
        }
        write()
    }
}

impl KvStore for SharedMemoryStore {
    forward!(inner: get, scan_keys, begin_scan, get_local);

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        self.fenced(batches.iter().map(|batch| batch.vbid), || self.inner.commit(batches))
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        self.await_way();
        self.inner.vbucket_states()
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.await_way();
        self.inner.put_local(name, value)
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }
}

impl StoreMaintenance for SharedMemoryStore {
    forward!(inner: stats);

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.fenced([vbid].into_iter(), || self.inner.purge_collection(vbid, collection))
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        self.fenced([vbid].into_iter(), || self.inner.drop_vbucket(vbid, next))
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        self.fenced([vbid].into_iter(), || self.inner.compact(vbid, purge_before))
    }
}

impl SharedStore for SharedMemoryStore {
    fn take_over(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        self.await_way();
        let states = {
            let mut epoch = self.shared.epoch.lock();
            *epoch += 1;
            self.epoch.store(*epoch, Ordering::Release);
            let ownership = self.ownership.lock().clone();
            let is_lost =
                |vbid: &Vbid| ownership.as_ref().is_some_and(|ownership| !ownership.owns(*vbid));
            *self.not_owned.lock() = vbuckets.iter().copied().filter(is_lost).collect();
            self.inner.vbucket_states()?
        };
        ready(vbuckets, states.into_iter().filter(|(vbid, _)| vbuckets.contains(vbid)).collect());
        Ok(Vec::new())
    }

    fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        *self.ownership.lock() = Some(ownership);
    }
}
