//! Where a bucket keeps its documents, as the settings name it.
//!
//! Owns: the names, and which store each of them opens. The engine knows only whether a bucket is
//! persistent. Called by settings, `bucket.json`, the admin HTTP, and by whoever opens a bucket.

use std::path::Path;
use std::sync::Arc;

use oribi_storage::{FjallOptions, FjallStore, KvStore, LogOptions, LogStore, StoreError};
use serde::{Deserialize, Serialize};

/// See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BucketStorage {
    /// Memory and the embedded store, a tree of sorted tables.
    #[default]
    Embedded,
    /// Memory and the log store: written once, in order of arrival, with an index in memory.
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

    /// What the engine has to know of it.
    pub fn of_engine(self) -> oribi_engine::Storage {
        match self {
            BucketStorage::Embedded | BucketStorage::Log => oribi_engine::Storage::Persistent,
            BucketStorage::Memory => oribi_engine::Storage::Memory,
        }
    }

    /// Opens or creates the store in `path`. A bucket in memory keeps its collections in one, too.
    ///
    /// # Errors
    /// The store's: the directory holds something else, or is damaged and that is not accepted.
    pub fn open(self, path: &Path, accepts_damage: bool) -> Result<Arc<dyn KvStore>, StoreError> {
        Ok(match self {
            BucketStorage::Embedded | BucketStorage::Memory => {
                let accepts_damaged_journal = accepts_damage;
                let options = FjallOptions { accepts_damaged_journal, ..FjallOptions::default() };
                Arc::new(FjallStore::open(path, options)?)
            }
            BucketStorage::Log => {
                let options = LogOptions { accepts_damage, ..LogOptions::default() };
                Arc::new(LogStore::open(path, options)?)
            }
        })
    }
}
