//! Buckets in tables of Apache Kudu.
//!
//! Owns: how long a command waits for such a store. A build without the feature `kudu` has
//! `no_kudu` instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_storage::{KvStore, StoreError};
use oribi_storage_kudu::{KuduStore, KuduUrl};

use super::store_place::StorePlace;

/// Longest time that a command waits for a remote store. A starting server waits without limit.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// Opens or creates the table of a bucket.
pub(super) fn open(url: &KuduUrl, place: &StorePlace<'_>) -> Result<Arc<dyn KvStore>, StoreError> {
    let begun = Instant::now();
    let may_continue = || place.waits || begun.elapsed() < COMMAND_PATIENCE;
    Ok(Arc::new(KuduStore::open(url, place.bucket, place.vbuckets, &may_continue)?))
}

/// Removes the table that a bucket's store has named by `id`.
pub(super) fn remove(url: &KuduUrl, id: &str) -> Result<(), StoreError> {
    KuduStore::remove_table(url, id)
}
