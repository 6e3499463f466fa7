//! Counters of one worker for the documents of each collection of one bucket.
//!
//! Owns: a list of counters ordered by collection id. A connection caches the counters of the
//! collection it used last, and searches the list only when it switches to another one.
//!
//! Invariants: only operations that the engine admitted are counted, so a collection that never
//! existed never gets an entry. Entries of dropped collections are removed when the list is read,
//! or when it exceeds what a manifest can hold. Ids are never reused, so a count lost with a
//! removed entry does not matter.

use std::sync::Arc;

use oribi_engine::collections::{BucketManifest, COLLECTIONS_MAX};
use oribi_types::CollectionId;
use parking_lot::Mutex;

use super::Counter;

/// Operations on one collection by one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CollectionCounters {
    id: CollectionId,
    /// Reads that found their document.
    pub gets: Counter,
    /// Writes that stored a document.
    pub stores: Counter,
    /// Deletions that removed a document.
    pub deletes: Counter,
}

impl CollectionCounters {
    /// The collection that the counters belong to.
    pub fn id(&self) -> CollectionId {
        self.id
    }
}

/// Operations on one collection, summed over the workers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CollectionOperations {
    /// Reads that found their document.
    pub gets: u64,
    /// Writes that stored a document.
    pub stores: u64,
    /// Deletions that removed a document.
    pub deletes: u64,
}

/// All collections of one worker in one bucket, ascending by id.
#[derive(Debug, Default)]
pub struct CollectionTable(Mutex<Vec<Arc<CollectionCounters>>>);

impl CollectionTable {
    /// The counters of a collection that exists, created on first use.
    pub fn of(
        &self,
        id: CollectionId,
        manifest: impl FnOnce() -> Arc<BucketManifest>,
    ) -> Arc<CollectionCounters> {
        let mut table = self.0.lock();
        let at = match table.binary_search_by_key(&id, |counters| counters.id) {
            Ok(at) => return Arc::clone(&table[at]),
            Err(at) => at,
        };
        let counters = Arc::new(CollectionCounters { id, ..Default::default() });
        table.insert(at, Arc::clone(&counters));
        debug_assert!(table.is_sorted_by(|one, next| one.id < next.id), "a search needs the order");
        if table.len() > 2 * COLLECTIONS_MAX {
            let manifest = manifest();
            table.retain(|counters| manifest.contains(counters.id));
        }
        counters
    }

    /// Calls `visit` for each collection of `manifest` that was used, ascending by id, and removes
    /// the entries of collections that are not in it.
    pub fn visit(
        &self,
        manifest: &BucketManifest,
        mut visit: impl FnMut(CollectionId, CollectionOperations),
    ) {
        let mut table = self.0.lock();
        table.retain(|counters| manifest.contains(counters.id));
        for counters in table.iter() {
            let operations = CollectionOperations {
                gets: counters.gets.get(),
                stores: counters.stores.get(),
                deletes: counters.deletes.get(),
            };
            visit(counters.id, operations);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oribi_engine::collections::{BucketManifest, COLLECTIONS_MAX};
    use oribi_types::CollectionId;

    use super::CollectionTable;

    #[test]
    fn entries_of_dropped_collections_are_removed() {
        let manifest = Arc::new(BucketManifest::initial());
        let table = CollectionTable::default();
        table.of(CollectionId(9), || Arc::clone(&manifest)).gets.add(1);
        table.of(CollectionId::DEFAULT, || Arc::clone(&manifest)).stores.add(2);
        let mut seen = Vec::new();
        table.visit(&manifest, |id, operations| seen.push((id, operations.stores)));
        assert_eq!(seen, [(CollectionId::DEFAULT, 2)]);
        for id in 8..9 + 2 * COLLECTIONS_MAX as u32 {
            table.of(CollectionId(id), || Arc::clone(&manifest));
            assert!(table.0.lock().len() <= 2 * COLLECTIONS_MAX);
        }
    }
}
