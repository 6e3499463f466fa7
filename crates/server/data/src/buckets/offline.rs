//! Reads a bucket's documents from the data directory while no server runs.
//!
//! Owns: finding a bucket and a collection on disk without starting the engine, and streaming the
//! live documents of one vbucket at a time. Invariants: the data directory is locked as long as the
//! bucket is open, so opening fails while a server runs, and no server can start while the bucket
//! is open. This module creates no bucket and no store, writes and removes no document, and leaves
//! the clean-shutdown marker unchanged. Opening a store touches its files: as at any start of the
//! server, it truncates records that a crash left half written. Called by `oribi doc export` and
//! `oribi query`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oribi_config::BucketStorage;
use oribi_config::is_bucket_name;
use oribi_engine::collections::{BucketManifest, LookupError, ManifestError};
use oribi_engine::compression::inflate_into;
use oribi_engine::limits::VALUE_BYTES_MAX;
use oribi_storage::{
    KvStore, ScanProgress, SeqnoRange, SeqnoScan, StoreError, VBUCKETS_MAX, VbucketPhase, unlimited,
};
use oribi_subdoc::xattr;
use oribi_system::data_dir::{DataDir, DataDirError};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, Vbid};

use crate::buckets::{
    BUCKETS_DIR, BucketError, STORE_DIR, StorePlace, names_in, open_store, storage_in,
};

pub use oribi_storage::Record as StoredRecord;

/// Name under which the engine keeps the collections manifest in a store.
const MANIFEST: &str = "manifest";

/// Why documents could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// The data directory is missing, in use or unreadable.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The directory has no such bucket.
    #[error("there is no bucket {name:?} in {data_dir}")]
    UnknownBucket { name: String, data_dir: PathBuf },
    /// The bucket's documents are not in the data directory.
    #[error(
        "bucket {name:?} keeps its documents in {storage}: read them through a running server, or there"
    )]
    Remote {
        name: String,
        /// The storage of its documents.
        storage: String,
    },
    /// The bucket has no such collection.
    #[error("collection {path:?}: {reason}")]
    UnknownCollection { path: String, reason: LookupError },
    /// The manifest in the store cannot be read.
    #[error("stored collections manifest: {0}")]
    Manifest(ManifestError),
    /// The directory of buckets cannot be read.
    #[error(transparent)]
    Buckets(BucketError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A stored document; its bytes are borrowed from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredDocument<'a> {
    pub key: &'a [u8],
    /// Value, without extended attributes, inflated.
    pub value: &'a [u8],
    /// Block of the extended attributes as it is stored; empty without any.
    pub attributes: &'a [u8],
    pub cas: Cas,
    /// Flags that the writer set.
    pub flags: u32,
    /// Expiry in UNIX seconds, 0 for none.
    pub expiry: u32,
}

/// A bucket of a stopped server.
pub struct OfflineBucket {
    // The store is closed before the lock of the directory is released.
    store: Arc<dyn KvStore>,
    manifest: BucketManifest,
    _data_dir: Arc<DataDir>,
}

/// The data directory of a stopped server.
pub struct OfflineDirectory {
    path: PathBuf,
    locked: Arc<DataDir>,
}

impl OfflineDirectory {
    pub fn open(data_dir: &Path) -> Result<OfflineDirectory, OfflineError> {
        let locked = Arc::new(DataDir::open_existing(data_dir)?);
        Ok(OfflineDirectory { path: data_dir.to_owned(), locked })
    }

    /// Names of its buckets, in order.
    pub fn buckets(&self) -> Result<Vec<String>, OfflineError> {
        names_in(&self.path.join(BUCKETS_DIR)).map_err(OfflineError::Buckets)
    }

    pub fn bucket(&self, name: &str) -> Result<OfflineBucket, OfflineError> {
        OfflineBucket::within(&self.path, Arc::clone(&self.locked), name)
    }
}

/// All versions of a vbucket at one moment, tombstones and events included, in seqno order.
pub struct OfflineScan(Box<dyn SeqnoScan>);

impl OfflineScan {
    /// Visits the next versions until `visit` breaks; false when none is left.
    pub fn resume(
        &mut self,
        visit: &mut dyn FnMut(StoredRecord<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OfflineError> {
        Ok(self.0.resume(&mut unlimited, visit)? == ScanProgress::Paused)
    }
}

impl OfflineBucket {
    /// Locks the data directory and opens a bucket in it.
    pub fn open(data_dir: &Path, name: &str) -> Result<OfflineBucket, OfflineError> {
        OfflineDirectory::open(data_dir)?.bucket(name)
    }

    fn within(
        data_dir: &Path,
        locked: Arc<DataDir>,
        name: &str,
    ) -> Result<OfflineBucket, OfflineError> {
        let bucket_dir = data_dir.join(BUCKETS_DIR).join(name);
        let store_dir = bucket_dir.join(STORE_DIR);
        if let Some(url) = is_bucket_name(name)
            .then(|| storage_in(&bucket_dir))
            .as_ref()
            .and_then(BucketStorage::remote)
        {
            let (name, storage) = (name.to_owned(), url.to_string());
            return Err(OfflineError::Remote { name, storage });
        }
        if !is_bucket_name(name) || !store_dir.is_dir() {
            let (name, data_dir) = (name.to_owned(), data_dir.to_owned());
            return Err(OfflineError::UnknownBucket { name, data_dir });
        }
        let place = StorePlace {
            path: &store_dir,
            bucket: name,
            vbuckets: VBUCKETS_MAX,
            accepts_damage: false,
            // The store exists, so nothing depends on it.
            logs: None,
            memory_quota_bytes: 0,
            many_keys_memory_bytes: None,
            waits: false,
        };
        let store = open_store(&storage_in(&bucket_dir), &place)?;
        let manifest = match store.get_local(MANIFEST)? {
            None => BucketManifest::initial(),
            Some(bytes) => BucketManifest::from_stored_json(&String::from_utf8_lossy(&bytes))
                .map_err(OfflineError::Manifest)?,
        };
        Ok(OfflineBucket { store, manifest, _data_dir: locked })
    }

    /// Id of the collection `scope.collection`.
    pub fn collection(&self, path: &str) -> Result<CollectionId, OfflineError> {
        let (scope, collection) = path.split_once('.').unwrap_or(("", path));
        self.manifest
            .collection_id(scope, collection)
            .map_err(|reason| OfflineError::UnknownCollection { path: path.to_owned(), reason })
    }

    /// Paths of all collections, as `scope.collection`.
    pub fn collections(&self) -> Vec<String> {
        let scopes = self.manifest.scopes().iter();
        let paths = scopes.flat_map(|scope| {
            let names = scope.collections.iter().map(|collection| &collection.name);
            names.map(move |name| format!("{}.{name}", scope.name))
        });
        paths.collect()
    }

    /// Vbuckets that the server would serve, ascending.
    pub fn vbuckets(&self) -> Result<Vec<Vbid>, OfflineError> {
        let states = self.store.vbucket_states()?.into_iter();
        let served = states.filter(|(_, state)| state.phase == VbucketPhase::Active);
        let mut vbids: Vec<Vbid> = served.map(|(vbid, _)| vbid).collect();
        vbids.sort_unstable_by_key(|vbid| vbid.0);
        Ok(vbids)
    }

    /// Begins a scan of a vbucket.
    pub fn begin_scan(&self, vbid: Vbid) -> Result<OfflineScan, OfflineError> {
        Ok(OfflineScan(self.store.begin_scan(vbid, SeqnoRange::ALL)?))
    }

    /// Visits the version of a key, tombstones included, if there is one.
    pub fn read(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(StoredRecord<'_>),
    ) -> Result<(), OfflineError> {
        Ok(self.store.get(vbid, key, &mut unlimited, visit).map(|_| ())?)
    }

    /// Visits a vbucket's documents of one collection that are neither deleted nor expired at
    /// `now_s` (UNIX seconds), in order of key, until `visit` breaks.
    pub fn visit(
        &self,
        vbid: Vbid,
        collection: CollectionId,
        now_s: u32,
        visit: &mut dyn FnMut(StoredDocument<'_>) -> ControlFlow<()>,
    ) -> Result<(), OfflineError> {
        let scanned = self.store.scan_keys(vbid, &mut |record| {
            let is_expired = record.expiry != 0 && record.expiry <= now_s;
            if record.key.collection.0 > collection.0 {
                // Records come in order of collection, so no more of this collection follow.
                return ControlFlow::Break(());
            }
            if record.key.collection != collection || record.deleted || is_expired {
                return ControlFlow::Continue(());
            }
            let value = match record.datatype.contains(Datatype::XATTR) {
                // As for a client that reads the document. A malformed block leaves no value to
                // show.
                true => xattr::body_of(record.value).unwrap_or_default(),
                false => record.value,
            };
            debug_assert!(value.len() <= record.value.len(), "a body is a part of its value");
            let attributes = &record.value[..record.value.len() - value.len()];
            let mut plain = Vec::new();
            let value = match record.datatype.contains(Datatype::SNAPPY) {
                // The same for a damaged stream.
                true => match inflate_into(value, VALUE_BYTES_MAX, &mut plain) {
                    Ok(()) => &plain[..],
                    Err(_) => &[],
                },
                false => value,
            };
            visit(StoredDocument {
                key: record.key.key,
                value,
                attributes,
                cas: record.cas,
                flags: record.flags,
                expiry: record.expiry,
            })
        });
        Ok(scanned?)
    }
}

#[cfg(test)]
mod tests {
    //! Documents on disk are returned, limited to those that a client could read.

    use oribi_engine::collections::ManifestChange;
    use oribi_storage::{LogOptions, LogStore, Record, VbBatch, VbucketState};
    use oribi_types::{DocKey, RevSeqno, Seqno};

    use super::*;

    const NOW_S: u32 = 1000;

    fn record(collection: CollectionId, key: &'static [u8], seqno: u64) -> Record<'static> {
        Record {
            key: DocKey { collection, key },
            value: b"value",
            cas: Cas(seqno + 100),
            seqno: Seqno(seqno),
            rev_seqno: RevSeqno(1),
            flags: 7,
            expiry: 0,
            datatype: Datatype::RAW,
            deleted: false,
            expired: false,
        }
    }

    fn state(phase: VbucketPhase) -> VbucketState {
        VbucketState { phase, high_seqno: Seqno(9), max_cas: Cas(1000), ..VbucketState::empty() }
    }

    /// A data directory with a bucket `b`, whose store has two logs and is left to `fill`.
    fn data_dir(fill: impl FnOnce(&LogStore)) -> tempfile::TempDir {
        let scratch = tempfile::tempdir().unwrap();
        drop(DataDir::open(scratch.path()).unwrap());
        let store_dir = scratch.path().join(BUCKETS_DIR).join("b").join(STORE_DIR);
        std::fs::create_dir_all(store_dir.parent().unwrap()).unwrap();
        let options = LogOptions { logs: 2, ..LogOptions::default() };
        fill(&LogStore::open(&store_dir, options).unwrap());
        scratch
    }

    fn keys(bucket: &OfflineBucket, vbid: Vbid, collection: CollectionId) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let visited = bucket.visit(vbid, collection, NOW_S, &mut |document| {
            assert_eq!((document.value, document.flags), (&b"value"[..], 7));
            let attributes: &[u8] = b"\0\0\0\x08\0\0\0\x04k\x001\0";
            let is_attributed = document.key == b"attributed";
            assert_eq!(document.attributes, if is_attributed { attributes } else { &[] });
            keys.push(document.key.to_vec());
            ControlFlow::Continue(())
        });
        visited.unwrap();
        keys
    }

    #[test]
    fn only_live_documents_of_the_collection_are_visited() {
        let manifest = BucketManifest::initial();
        let change = ManifestChange::CreateScope { name: "s".to_owned() };
        let manifest = manifest.apply(&change).unwrap();
        let change = ManifestChange::CreateCollection {
            scope: "s".to_owned(),
            name: "c".to_owned(),
            max_ttl_s: None,
        };
        let manifest = manifest.apply(&change).unwrap();
        let other = manifest.collection_id("s", "c").unwrap();
        let default = CollectionId::DEFAULT;
        let scratch = data_dir(|store| {
            store.put_local(MANIFEST, manifest.to_stored_json().as_bytes()).unwrap();
            let records = vec![
                record(default, b"live", 1),
                Record {
                    value: b"\0\0\0\x08\0\0\0\x04k\x001\0value",
                    datatype: Datatype::XATTR,
                    ..record(default, b"attributed", 6)
                },
                Record {
                    value: b"\x05\x10value",
                    datatype: Datatype::SNAPPY,
                    ..record(default, b"compressed", 7)
                },
                Record { deleted: true, value: b"", ..record(default, b"deleted", 2) },
                Record { expiry: NOW_S, ..record(default, b"expired", 3) },
                Record { expiry: NOW_S + 1, ..record(default, b"expires", 4) },
                record(other, b"other", 5),
            ];
            let batch = VbBatch { vbid: Vbid(3), records, state: state(VbucketPhase::Active) };
            let replica = VbBatch {
                vbid: Vbid(2),
                records: vec![record(default, b"copy", 1)],
                state: state(VbucketPhase::Replica),
            };
            store.commit(&[batch, replica]).unwrap();
        });
        let bucket = OfflineBucket::open(scratch.path(), "b").unwrap();
        assert_eq!(bucket.vbuckets().unwrap(), [Vbid(3)]);
        assert_eq!(bucket.collection("_default._default").unwrap(), default);
        assert_eq!(bucket.collections(), ["_default._default", "s.c"]);
        assert_eq!(
            keys(&bucket, Vbid(3), default),
            [&b"attributed"[..], b"compressed", b"expires", b"live"]
        );
        assert_eq!(keys(&bucket, Vbid(3), bucket.collection("s.c").unwrap()), [&b"other"[..]]);
        let error = bucket.collection("s.nope").unwrap_err();
        assert!(error.to_string().contains("collection \"s.nope\""), "{error}");

        let error = OfflineBucket::open(scratch.path(), "b").err().expect("it is locked");
        assert!(matches!(error, OfflineError::DataDir(DataDirError::Locked { .. })), "{error}");
    }

    #[test]
    fn a_bucket_whose_documents_are_elsewhere_says_where() {
        let scratch = tempfile::tempdir().unwrap();
        drop(DataDir::open(scratch.path()).unwrap());
        let bucket = scratch.path().join(BUCKETS_DIR).join("b");
        std::fs::create_dir_all(&bucket).unwrap();
        let file = r#"{"version":1,"name":"b","uuid":"u","storage":"kudu://a/db","vbuckets":64,
            "memory_quota_mib":100,"eviction":"value","flush_enabled":false}"#;
        std::fs::write(bucket.join("bucket.json"), file).unwrap();
        let error = OfflineBucket::open(scratch.path(), "b").err().expect("it is not here");
        assert!(error.to_string().contains("kudu://a:7051/db"), "{error}");
    }

    #[test]
    fn absent_files_are_not_created() {
        let scratch = data_dir(|_| ());
        for name in ["nope", "", "..", "b/../b"] {
            let error = OfflineBucket::open(scratch.path(), name).err().expect("no such bucket");
            assert!(matches!(error, OfflineError::UnknownBucket { .. }), "{error}");
        }
        assert_eq!(std::fs::read_dir(scratch.path().join(BUCKETS_DIR)).unwrap().count(), 1);

        let nowhere = scratch.path().join("nowhere");
        let error = OfflineBucket::open(&nowhere, "b").err().expect("no data directory");
        assert!(matches!(error, OfflineError::DataDir(DataDirError::Absent { .. })), "{error}");
        assert!(!nowhere.exists());
    }
}
