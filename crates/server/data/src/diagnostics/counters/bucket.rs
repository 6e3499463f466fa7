//! Operation counters of one bucket, per worker, and their sums.
//!
//! Owns: one [`WorkerOperations`] for each worker that has selected the bucket, created on the
//! first selection. Invariant: a worker writes only its own counters; `reset` of the recorded times
//! is the exception. Connections call it (once per SELECT_BUCKET, then increments), and stats and
//! metrics (sums). It uses the manifest only to remove counters of dropped collections.

use std::collections::BTreeMap;
use std::sync::Arc;

use hdrhistogram::Histogram;
use oribi_engine::collections::BucketManifest;
use oribi_types::CollectionId;
use parking_lot::Mutex;

use super::collections::{CollectionCounters, CollectionOperations, CollectionTable};
use super::timings::{CommandKind, CommandTimings, empty_histogram};
use super::{OperationCounters, OperationTotals};

/// Operations of one worker on one bucket.
#[derive(Debug, Default)]
pub struct WorkerOperations {
    /// Counters of all documents.
    pub counters: OperationCounters,
    pub timings: CommandTimings,
    pub collections: CollectionTable,
}

/// All workers' operations on one bucket.
#[derive(Debug, Default)]
pub struct BucketOperations {
    workers: Mutex<Vec<Arc<WorkerOperations>>>,
    baseline: Mutex<OperationTotals>,
}

impl BucketOperations {
    /// Operations of worker `index`, which that worker alone may write.
    pub fn worker(&self, index: usize) -> Arc<WorkerOperations> {
        let mut workers = self.workers.lock();
        if workers.len() <= index {
            workers.resize_with(index + 1, Arc::default);
        }
        Arc::clone(&workers[index])
    }

    /// Sums since the bucket was opened.
    pub fn totals(&self) -> OperationTotals {
        let workers = self.all();
        workers.iter().fold(OperationTotals::default(), |sum, worker| sum.plus(&worker.counters))
    }

    /// Sums since the last reset, for STAT.
    pub fn totals_since_reset(&self) -> OperationTotals {
        self.totals().since(*self.baseline.lock())
    }

    /// STAT `reset`: counts restart for STAT only, recorded times for all readers.
    pub fn reset(&self) {
        *self.baseline.lock() = self.totals();
        for worker in self.all() {
            worker.timings.reset();
        }
    }

    /// Operations on each collection of `manifest` that was used.
    pub fn collections(
        &self,
        manifest: &BucketManifest,
    ) -> BTreeMap<CollectionId, CollectionOperations> {
        let mut sums: BTreeMap<CollectionId, CollectionOperations> = BTreeMap::new();
        for worker in self.all() {
            worker.collections.visit(manifest, |id, operations| {
                let sum = sums.entry(id).or_default();
                sum.gets = sum.gets.wrapping_add(operations.gets);
                sum.stores = sum.stores.wrapping_add(operations.stores);
                sum.deletes = sum.deletes.wrapping_add(operations.deletes);
            });
        }
        sums
    }

    /// Sampled times of one kind of command, in microseconds.
    pub fn timings(&self, kind: CommandKind) -> Histogram<u64> {
        let mut sum = empty_histogram();
        for worker in self.all() {
            worker.timings.add_to(kind, &mut sum);
        }
        sum
    }

    fn all(&self) -> Vec<Arc<WorkerOperations>> {
        self.workers.lock().clone()
    }
}

/// One worker's operations, as held by a connection that has selected the bucket.
pub struct SelectedOperations {
    worker: Arc<WorkerOperations>,
    /// Counters of the last collection used.
    last: Option<Arc<CollectionCounters>>,
}

impl SelectedOperations {
    /// For a connection of the worker that owns `worker`.
    pub fn new(worker: Arc<WorkerOperations>) -> SelectedOperations {
        SelectedOperations { worker, last: None }
    }

    /// Counters of documents in general.
    pub fn counters(&self) -> &OperationCounters {
        &self.worker.counters
    }

    pub fn timings(&self) -> &CommandTimings {
        &self.worker.timings
    }

    /// Counters of a collection that exists.
    #[inline]
    pub fn collection(
        &mut self,
        id: CollectionId,
        manifest: impl FnOnce() -> Arc<BucketManifest>,
    ) -> &CollectionCounters {
        if self.last.as_ref().is_none_or(|last| last.id() != id) {
            self.last = Some(self.worker.collections.of(id, manifest));
        }
        let last = self.last.as_ref().expect("it was just put there");
        debug_assert_eq!(last.id(), id, "counters are of their collection");
        last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oribi_engine::collections::BucketManifest;
    use oribi_types::CollectionId;

    use super::{BucketOperations, CommandKind, SelectedOperations};

    #[test]
    fn sums_are_over_workers_and_reset_forgets_times() {
        let bucket = BucketOperations::default();
        let manifest = Arc::new(BucketManifest::initial());
        for index in [0, 2] {
            let mut selected = SelectedOperations::new(bucket.worker(index));
            selected.counters().cmd_get.add(2);
            selected.collection(CollectionId::DEFAULT, || Arc::clone(&manifest)).gets.add(1);
            selected.timings().record(CommandKind::Get, 7_000, 3);
        }
        assert_eq!(bucket.totals().cmd_get, 4);
        assert_eq!(bucket.collections(&manifest)[&CollectionId::DEFAULT].gets, 2);
        assert_eq!(bucket.timings(CommandKind::Get).len(), 6);
        bucket.reset();
        assert_eq!((bucket.totals().cmd_get, bucket.totals_since_reset().cmd_get), (4, 0));
        assert_eq!(bucket.timings(CommandKind::Get).len(), 0);
    }
}
