//! The cache of tablet locations of each table.
//!
//! It owns the ordered tablets of every table in use, with the gaps between them. All users share
//! the replicas inside, so they follow a leader that moves. Invariant: an entry is used no longer
//! than the master allows. `table/tablets.rs` queries the master and fills the cache. The cache
//! does not choose replicas.

mod decode;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod harness;
mod locations;
mod tablet;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub(crate) use decode::located_tablets;
pub(crate) use locations::{Location, TableLocations};
#[cfg(test)]
pub(crate) use tablet::tests::replicas as test_replicas;
pub(crate) use tablet::{Replica, ReplicaSet, Tablet};

/// Concurrent questions to the master, over all tables.
const LOOKUPS_MAX: usize = 50;

/// Known tablets of all tables.
#[derive(Debug)]
pub(crate) struct MetaCache {
    /// By table id. An entry is small and lives as long as the client.
    tables: Mutex<HashMap<String, Arc<CachedTable>>>,
    /// Held by each question to the master.
    pub(crate) permits: Semaphore,
}

/// Known tablets of one table.
#[derive(Debug, Default)]
pub(crate) struct CachedTable {
    pub(crate) locations: Mutex<TableLocations>,
    /// Held during a question to the master about this table.
    pub(crate) question: tokio::sync::Mutex<()>,
}

impl MetaCache {
    /// An empty cache.
    pub(crate) fn new() -> MetaCache {
        MetaCache { tables: Mutex::default(), permits: Semaphore::new(LOOKUPS_MAX) }
    }

    /// The part of the cache about one table.
    pub(crate) fn table(&self, table_id: &str) -> Arc<CachedTable> {
        self.tables.lock().entry(table_id.to_owned()).or_default().clone()
    }

    /// Forgets an altered or deleted table.
    pub(crate) fn forget_table(&self, table_id: &str) {
        if let Some(table) = self.tables.lock().get(table_id) {
            *table.locations.lock() = TableLocations::default();
        }
    }
}

impl CachedTable {
    /// Forgets the ranges that no tablet covers; another client may have added partitions.
    pub(crate) fn forget_gaps(&self) {
        self.locations.lock().forget_gaps();
    }

    /// Makes the client ask the master again before the next call to each tablet.
    pub(crate) fn mark_stale(&self) {
        self.locations.lock().tablets().for_each(Tablet::mark_stale);
    }
}
