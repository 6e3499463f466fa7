//! The storage of a bucket, as settings and `bucket.json` name it.
//!
//! Owns: the names. The server opens the store; the engine knows only whether a bucket is
//! persistent.

#[cfg(feature = "kudu")]
use oribi_storage_kudu::KuduUrl;
use oribi_types::policy::Storage;
use serde::{Deserialize, Serialize};

#[cfg(not(feature = "kudu"))]
use super::no_kudu::KuduUrl;

/// The storage of a bucket. Files and settings hold its name, and for Kudu the URL.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BucketStorage {
    /// Memory and the log store, which writes each document once, in order of arrival, with an
    /// index in memory.
    #[default]
    Log,
    /// Memory only, like memcached: a restart begins empty. Collections stay.
    Memory,
    /// Memory and a table of Apache Kudu.
    Kudu(KuduUrl),
}

impl BucketStorage {
    /// Name of the kind in stats.
    pub fn kind(&self) -> &'static str {
        match self {
            BucketStorage::Log => "log",
            BucketStorage::Memory => "memory",
            BucketStorage::Kudu(_) => "kudu",
        }
    }

    pub fn name(&self) -> String {
        match self {
            BucketStorage::Kudu(url) => url.to_string(),
            other => other.kind().to_owned(),
        }
    }

    /// The storage of this name or URL.
    ///
    /// # Errors
    /// Reason why the text is invalid.
    pub fn from_name(name: &str) -> Result<BucketStorage, String> {
        if KuduUrl::is_meant_by(name) {
            return name.parse().map(BucketStorage::Kudu).map_err(|error| error.to_string());
        }
        let found = [BucketStorage::Log, BucketStorage::Memory]
            .into_iter()
            .find(|storage| storage.kind() == name);
        found.ok_or_else(|| {
            format!("{name:?} is not one of log, memory, and no kudu://HOST:PORT/DATABASE")
        })
    }

    /// The Kudu table, if documents are not in the data directory.
    pub fn remote(&self) -> Option<&KuduUrl> {
        match self {
            BucketStorage::Kudu(url) => Some(url),
            _ => None,
        }
    }

    /// The engine's view of the storage.
    pub fn of_engine(&self) -> Storage {
        match self {
            BucketStorage::Log | BucketStorage::Kudu(_) => Storage::Persistent,
            BucketStorage::Memory => Storage::Memory,
        }
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
