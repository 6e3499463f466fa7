//! Where a bucket keeps its documents, as the settings name it.
//!
//! Owns: the names, and which store each of them opens. The engine knows only whether a bucket is
//! persistent. Called by settings, `bucket.json`, the admin HTTP, and by whoever opens a bucket.

use std::path::Path;
use std::sync::Arc;

use oribi_storage::{FjallOptions, FjallStore, KvStore, LogOptions, LogStore, StoreError};
use serde::{Deserialize, Serialize};

/// Smaller tables would be merged all the time.
const STORE_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BucketStorage {
    /// Memory and a store of sorted tables. What buckets were before they could be anything else.
    Embedded,
    /// Memory and the log store: written once, in order of arrival, with an index in memory.
    #[default]
    Log,
    /// Memory only, like memcached: a restart begins empty. Collections stay.
    Memory,
}

impl BucketStorage {
    /// Names in settings, in the order of the variants.
    pub const NAMES: [&'static str; 3] = ["embedded", "log", "memory"];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        BucketStorage::NAMES[self as usize]
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<BucketStorage> {
        let all = [BucketStorage::Embedded, BucketStorage::Log, BucketStorage::Memory];
        all.into_iter().find(|storage| storage.name() == name)
    }

    /// What a bucket is whose `bucket.json` does not say: it is older than the choice.
    pub(super) fn unnamed() -> BucketStorage {
        BucketStorage::Embedded
    }

    /// What the engine has to know of it.
    pub fn of_engine(self) -> oribi_engine::Storage {
        match self {
            BucketStorage::Embedded | BucketStorage::Log => oribi_engine::Storage::Persistent,
            BucketStorage::Memory => oribi_engine::Storage::Memory,
        }
    }

    /// Opens or creates the store in `path`. A bucket in memory keeps its collections in one, too. What the
    /// store has in memory itself is kept in proportion to the bucket's quota.
    ///
    /// # Errors
    /// The store's: the directory holds something else, or is damaged and that is not accepted.
    pub fn open(
        self,
        path: &Path,
        memory_quota_bytes: u64,
        accepts_damage: bool,
    ) -> Result<Arc<dyn KvStore>, StoreError> {
        Ok(match self {
            BucketStorage::Embedded | BucketStorage::Memory => {
                let options = FjallOptions {
                    accepts_damaged_journal: accepts_damage,
                    ..embedded_options(memory_quota_bytes)
                };
                Arc::new(FjallStore::open(path, options)?)
            }
            BucketStorage::Log => {
                let options = LogOptions { accepts_damage, ..LogOptions::default() };
                Arc::new(LogStore::open(path, options)?)
            }
        })
    }
}

/// The embedded store has a cache and, at times, several tables in memory. Together they may take a part of what the
/// process has beyond the quota, so small buckets get small ones.
fn embedded_options(memory_quota_bytes: u64) -> FjallOptions {
    let options = FjallOptions::default();
    let limit = |share: u64, most: u64| share.clamp(STORE_MEMORY_BYTES_MIN, most);
    FjallOptions {
        memtable_bytes: limit(memory_quota_bytes / 16, options.memtable_bytes),
        cache_bytes: limit(memory_quota_bytes / 32, options.cache_bytes),
        ..options
    }
}
