//! A store that fails when its plan says so, around any other store.
//!
//! Owns: [`FaultStore`], which consults a shared [`FaultPlan`] before each write, look-up and
//! record of a scan by seqno. Invariants: with an empty plan it is the inner store; an injected
//! failure is always reported as an error, so a caller that treats `Err` from `commit` as "not
//! durable" is never misled; scans by key and loads are never touched. Callers: tests of the
//! flusher, of background fetches, of durability answers and of shutdown. The plan is shared and
//! outlives the store, so it continues counting over a reopening.

mod plan;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use crate::counters::Counters;
use crate::{
    GetVisitor, KvStore, LoadPart, LoadValues, LoadVisitor, Ownership, PartVisitor, Record,
    RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange, SeqnoScan, SharedStore, SnapshotSeqnos,
    StoreError, StoreMaintenance, StoreStats, VbBatch, VbucketState, forward,
};

pub use plan::{FaultPlan, StoreFault};

/// A [`KvStore`] that fails by plan.
pub struct FaultStore<S> {
    inner: S,
    plan: Arc<FaultPlan>,
    /// Planned failures while this store was open.
    failed: Counters,
}

impl<S: KvStore> FaultStore<S> {
    /// Puts `plan` before the writes of `inner`.
    pub fn new(inner: S, plan: Arc<FaultPlan>) -> FaultStore<S> {
        FaultStore { inner, plan, failed: Counters::default() }
    }

    /// Does what `fault` leaves of a commit. Always an error.
    fn fail_commit(
        &self,
        batches: &[VbBatch<'_>],
        number: u64,
        fault: StoreFault,
    ) -> Result<(), StoreError> {
        assert!(number > 0, "commits are counted from 1");
        let what = match fault {
            StoreFault::BeforeCommit => "I/O error before the commit",
            StoreFault::NoSpace => "no space left on device",
            StoreFault::AfterCommit => {
                self.inner.commit(batches)?;
                "I/O error after the commit"
            }
            StoreFault::Torn { dropped } => {
                self.inner.commit(&batches[..batches.len().saturating_sub(dropped)])?;
                "torn group"
            }
        };
        Err(StoreError::Io(format!("injected: {what} at commit {number}")))
    }

    /// The inner store, to look at its real contents.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// A scan by seqno that fails by plan, between two records as well.
struct FaultScan {
    inner: Box<dyn SeqnoScan>,
    plan: Arc<FaultPlan>,
}

impl SeqnoScan for FaultScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        self.inner.snapshot()
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        let mut checked = Ok(());
        let progress = self.inner.resume(reserve, &mut |record| {
            checked = self.plan.check_scan(1);
            if checked.is_ok() { visit(record) } else { ControlFlow::Break(()) }
        });
        checked.and(progress)
    }
}

impl<S: KvStore> KvStore for FaultStore<S> {
    forward!(inner: properties, may_contain, scan_keys, scan_collection, plan_load);
    forward!(inner: vbucket_states, get_local);

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        let groups = self.properties().commit_groups;
        assert!(groups > 0, "a store has a commit group");
        let group = batches.first().map(|batch| usize::from(batch.vbid.0) % groups);
        let (number, fault) = self.plan.next_commit(group);
        let Some(fault) = fault else { return self.inner.commit(batches) };
        self.failed.commit(batches, self.fail_commit(batches, number, fault))
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.plan.check_get()?;
        self.inner.get(vbid, key, reserve, visit)
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.plan.check_get()?;
        self.inner.get_many(keys, record_bytes_max, visit)
    }

    fn load_part(
        &self,
        part: LoadPart,
        values: LoadValues,
        visit: &mut LoadVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.plan.check_load()?;
        self.inner.load_part(part, values, visit)
    }

    fn memory_bytes(&self) -> u64 {
        self.plan.memory_bytes() + self.inner.memory_bytes()
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        self.plan.check_scan(0)?;
        let inner = self.inner.begin_scan(vbid, range)?;
        Ok(Box::new(FaultScan { inner, plan: Arc::clone(&self.plan) }))
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.plan.check_other_write("put_local")?;
        self.inner.put_local(name, value)
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        self.inner.shared().map(|_| self as &dyn SharedStore)
    }
}

impl<S: KvStore> StoreMaintenance for FaultStore<S> {
    forward!(inner: request_compaction, finish);

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.plan.check_other_write("purge_collection")?;
        self.inner.purge_collection(vbid, collection)
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        self.plan.check_other_write("drop_vbucket")?;
        self.inner.drop_vbucket(vbid, next)
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        match self.plan.check_other_write("compact") {
            Ok(()) => self.inner.compact(vbid, purge_before),
            Err(error) => self.failed.compact(Err(error)),
        }
    }

    fn forget_prepares(&self, vbid: Vbid) -> Result<u64, StoreError> {
        self.plan.check_other_write("forget_prepares")?;
        self.inner.forget_prepares(vbid)
    }

    fn stats(&self) -> StoreStats {
        let (inner, failed) = (self.inner.stats(), self.failed.stats());
        StoreStats {
            // The plan counts over a reopening, the other counts are those of this store.
            commit_failures: inner.commit_failures + self.plan.injected_failures(),
            set_failures: inner.set_failures + failed.set_failures,
            delete_failures: inner.delete_failures + failed.delete_failures,
            vbucket_state_failures: inner.vbucket_state_failures + failed.vbucket_state_failures,
            compact_failures: inner.compact_failures + failed.compact_failures,
            ..inner
        }
    }
}

impl<S: KvStore> FaultStore<S> {
    /// The inner store, which [`KvStore::shared`] has shown to be shared.
    fn inner_shared(&self) -> &dyn SharedStore {
        self.inner.shared().expect("only a shared store is called as one")
    }
}

impl<S: KvStore> SharedStore for FaultStore<S> {
    fn take_over(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        self.plan.check_other_write("take_over")?;
        self.inner_shared().take_over(vbuckets, ready)
    }

    fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        self.inner_shared().set_ownership(ownership);
    }

    fn id(&self) -> Option<String> {
        self.inner_shared().id()
    }

    fn remove(&self) -> Result<(), StoreError> {
        self.inner_shared().remove()
    }

    fn end_waits(&self) {
        self.inner_shared().end_waits();
    }
}
