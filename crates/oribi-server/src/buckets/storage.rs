//! Where a bucket keeps its documents, as the settings name it.
//!
//! Owns: the names, and which store each of them opens. The engine knows only whether a bucket is
//! persistent. Called by settings, `bucket.json`, the admin HTTP, and by whoever opens a bucket.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_storage::{FjallOptions, FjallStore, KvStore, LogOptions, LogStore, StoreError};
use oribi_storage_kudu::{KuduStore, KuduUrl};
use serde::{Deserialize, Serialize};

/// Smaller tables would be merged all the time.
const STORE_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// How long a command waits for a store behind a network. A start of the server waits for as long as it takes.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// See the module text. In files and settings it is the name, and for Kudu the URL.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BucketStorage {
    /// Memory and a store of sorted tables. What buckets were before they could be anything else.
    Embedded,
    /// Memory and the log store: written once, in order of arrival, with an index in memory.
    #[default]
    Log,
    /// Memory only, like memcached: a restart begins empty. Collections stay.
    Memory,
    /// Memory and a table of Apache Kudu.
    Kudu(KuduUrl),
}

/// What a bucket's store is opened with.
pub struct StorePlace<'a> {
    /// The store's directory.
    pub path: &'a Path,
    /// Name of the bucket.
    pub bucket: &'a str,
    /// Its vbuckets.
    pub vbuckets: u16,
    /// Its quota, to which what the store has in memory is kept in proportion.
    pub memory_quota_bytes: u64,
    /// Whether damage in its files is accepted.
    pub accepts_damage: bool,
    /// Whether to wait for as long as a store behind a network cannot be reached.
    pub waits: bool,
}

impl BucketStorage {
    /// Name in stats: that of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            BucketStorage::Embedded => "embedded",
            BucketStorage::Log => "log",
            BucketStorage::Memory => "memory",
            BucketStorage::Kudu(_) => "kudu",
        }
    }

    /// Text in settings.
    pub fn name(&self) -> String {
        match self {
            BucketStorage::Kudu(url) => url.to_string(),
            other => other.kind().to_owned(),
        }
    }

    /// The storage of this name or URL.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_name(name: &str) -> Result<BucketStorage, String> {
        if KuduUrl::is_meant_by(name) {
            return name.parse().map(BucketStorage::Kudu).map_err(|error| error.to_string());
        }
        let all = [BucketStorage::Embedded, BucketStorage::Log, BucketStorage::Memory];
        let found = all.into_iter().find(|storage| storage.kind() == name);
        found.ok_or_else(|| {
            format!(
                "{name:?} is not one of embedded, log, memory, and no kudu://HOST:PORT/DATABASE"
            )
        })
    }

    /// Where documents are if not in the data directory, for those who look there.
    pub fn remote(&self) -> Option<&KuduUrl> {
        match self {
            BucketStorage::Kudu(url) => Some(url),
            _ => None,
        }
    }

    /// What a bucket is whose `bucket.json` does not say: it is older than the choice.
    pub(super) fn unnamed() -> BucketStorage {
        BucketStorage::Embedded
    }

    /// What the engine has to know of it.
    pub fn of_engine(&self) -> oribi_engine::Storage {
        match self {
            BucketStorage::Embedded | BucketStorage::Log | BucketStorage::Kudu(_) => {
                oribi_engine::Storage::Persistent
            }
            BucketStorage::Memory => oribi_engine::Storage::Memory,
        }
    }

    /// Opens or creates the store. A bucket in memory keeps its collections in one, too.
    ///
    /// # Errors
    /// The store's: its place holds something else, or is damaged and that is not accepted.
    pub fn open(&self, place: &StorePlace<'_>) -> Result<Arc<dyn KvStore>, StoreError> {
        Ok(match self {
            BucketStorage::Embedded | BucketStorage::Memory => {
                let options = FjallOptions {
                    accepts_damaged_journal: place.accepts_damage,
                    ..embedded_options(place.memory_quota_bytes)
                };
                Arc::new(FjallStore::open(place.path, options)?)
            }
            BucketStorage::Log => {
                let options =
                    LogOptions { accepts_damage: place.accepts_damage, ..LogOptions::default() };
                Arc::new(LogStore::open(place.path, options)?)
            }
            BucketStorage::Kudu(url) => {
                let begun = Instant::now();
                let goes_on = || place.waits || begun.elapsed() < COMMAND_PATIENCE;
                Arc::new(KuduStore::open(url, place.bucket, place.vbuckets, &goes_on)?)
            }
        })
    }
}

impl BucketStorage {
    /// Removes what a deleted bucket has outside of its directory, by the name that its store gave it
    /// ([`KvStore::shared_id`]).
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn remove_shared(&self, id: &str) -> Result<(), StoreError> {
        self.remote().map_or(Ok(()), |url| KuduStore::remove(url, id))
    }
}

impl TryFrom<String> for BucketStorage {
    type Error = String;

    fn try_from(name: String) -> Result<BucketStorage, String> {
        BucketStorage::from_name(&name)
    }
}

impl From<BucketStorage> for String {
    fn from(storage: BucketStorage) -> String {
        storage.name()
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
