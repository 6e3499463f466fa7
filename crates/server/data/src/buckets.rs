//! The buckets of a server: the registry, and their place on disk.
//!
//! Owns: the registry by name, and `DATA_DIR/buckets/NAME/` with `bucket.json` (the settings), the
//! `store` directory and the `clean-shutdown` marker. Invariants:
//! - a bucket's name, uuid and number of vbuckets never change; over a shared store the uuid is the
//!   store's;
//! - `bucket.json` is complete before the store is created; a store without that file is reported,
//!   never cleared;
//! - a deleted bucket is renamed to a name that no bucket can have before anything in it is
//!   removed;
//! - the marker exists only while no server has the bucket open and the last one stopped cleanly.
//!
//! Callers: the server (open, stop), the dispatcher (look-up, once per SELECT_BUCKET), the admin
//! HTTP (create, delete, list).

mod change;
mod clustered;
mod copies;
mod copy_links;
pub mod dcp_registry;
mod durability;
mod durable_wait;
mod error;
mod file;
mod handle;
#[cfg(feature = "kudu")]
mod kudu;
mod memcached;
#[cfg(not(feature = "kudu"))]
mod no_kudu;
pub mod offline;
mod options;
pub(crate) mod range_scans;
pub mod snapshot;
mod storage;
mod store_place;
mod uuid;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use oribi_config::{BucketStorage, Settings, is_bucket_name};
use oribi_engine::{Bucket, BucketConfig, BucketThreads, EvictionPolicy, ReaderMemory, VBucket};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_storage::{KvStore, SharedStore, StoreError};
use oribi_system::data_file::DataFileError;
use oribi_types::Vbid;
use parking_lot::{Mutex, RwLock};

use crate::diagnostics::counters::OperationTotals;
use crate::diagnostics::counters::bucket::BucketOperations;

use durability::RequestGate;
use file::{BUCKET_FILE, BucketFile, MIB};
pub(crate) use handle::CLEAN_SHUTDOWN_FILE;
use uuid::{is_uuid, new_uuid, random_u64};

pub use change::{BucketChange, changed_settings};
pub use clustered::ClusteredBuckets;
pub use copies::BucketCopies;
use copies::{CopyNumbers, LinksCell};
pub use copy_links::{CopyLinks, ReplicaSource};
pub use durability::{DURABILITY_MIN_NAMES, DurabilityMin};
pub(crate) use durable_wait::PrepareGuard;
pub use durable_wait::{DURABLE_WAIT, DurableWait};
pub use error::BucketError;
use error::io_error;
pub(crate) use file::storage_in;
pub use handle::BucketHandle;
pub use memcached::MemcachedPlace;
pub use options::{BucketOptions, Watermarks};
use storage::open_store;
pub use store_place::StorePlace;

pub(crate) const BUCKETS_DIR: &str = "buckets";
pub(crate) const STORE_DIR: &str = "store";
const COPIES_WITHOUT_CLUSTER: &str = "the bucket has copies on other nodes, and this node is in no \
    cluster: its documents are not served; set cluster_etcd and cluster_secret_file as before";
/// Prefix of the directory of a deleted bucket. Bucket names never begin with a dot.
const DELETED_PREFIX: &str = ".deleted-";

/// See the module text.
pub struct Buckets {
    /// `None` when buckets live in memory only (tests, fuzzing).
    directory: Option<PathBuf>,
    by_name: RwLock<BTreeMap<String, Arc<BucketHandle>>>,
    /// Held while the set of buckets changes, which involves disk I/O.
    changes: Mutex<()>,
    /// Operations on deleted buckets, so that sums never decrease.
    deleted_operations: Mutex<OperationTotals>,
    /// In a cluster, the cluster decides which vbuckets of shared buckets this node owns; alone,
    /// the node owns all.
    is_clustered: bool,
    /// The budget for large records on their way to readers.
    reader_memory: OnceLock<Arc<dyn ReaderMemory>>,
    /// What the copies of all buckets follow other nodes by.
    links: LinksCell,
}

impl Buckets {
    /// Opens every bucket of the data directory, and creates those of the settings that are
    /// missing.
    ///
    /// # Errors
    /// The first bucket that cannot be opened; nothing is overwritten.
    pub fn open_all(data_dir: &Path, settings: &Settings) -> Result<Buckets, BucketError> {
        Buckets::open_with(data_dir, settings, &[])
    }

    /// Like [`Buckets::open_all`]; also creates the given buckets, with their own options, when
    /// they are missing.
    ///
    /// # Errors
    /// As [`Buckets::open_all`].
    pub(crate) fn open_with(
        data_dir: &Path,
        settings: &Settings,
        more: &[(String, BucketOptions)],
    ) -> Result<Buckets, BucketError> {
        let directory = data_dir.join(BUCKETS_DIR);
        std::fs::create_dir_all(&directory).map_err(|e| io_error("create", &directory, e))?;
        let buckets = Buckets {
            directory: Some(directory.clone()),
            by_name: RwLock::default(),
            changes: Mutex::default(),
            deleted_operations: Mutex::default(),
            is_clustered: settings.is_clustered(),
            reader_memory: OnceLock::new(),
            links: LinksCell::default(),
        };
        let options = BucketOptions::from_settings(settings);
        for name in names_in(&directory)? {
            buckets.open_existing(&directory, &name, &options)?;
        }
        for (name, options) in more {
            if buckets.get(name).is_none() {
                buckets.create(name, options)?;
            }
        }
        for name in &settings.buckets {
            if buckets.get(name).is_none() {
                buckets.create(name, &options)?;
            }
        }
        Ok(buckets)
    }

    /// Sets the budget for large records that backfills read, of all buckets.
    pub(crate) fn set_reader_memory(&self, memory: Arc<dyn ReaderMemory>) {
        let memory = self.reader_memory.get_or_init(|| memory);
        for handle in self.by_name.read().values() {
            handle.bucket.set_reader_memory(Arc::clone(memory));
        }
    }

    /// A registry whose buckets use the caller's stores and leave no trace on disk.
    #[doc(hidden)]
    pub fn in_memory() -> Buckets {
        Buckets {
            directory: None,
            by_name: RwLock::default(),
            changes: Mutex::default(),
            deleted_operations: Mutex::default(),
            is_clustered: false,
            reader_memory: OnceLock::new(),
            links: LinksCell::default(),
        }
    }

    /// Sets what the copies of all buckets follow other nodes by.
    pub(crate) fn set_links(&self, links: Arc<dyn CopyLinks>) {
        self.links.get_or_init(|| links);
    }

    /// The bucket of this name.
    pub fn get(&self, name: &str) -> Option<Arc<BucketHandle>> {
        self.by_name.read().get(name).cloned()
    }

    /// All buckets by name.
    pub fn list(&self) -> Vec<Arc<BucketHandle>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Memory that all buckets may use together.
    pub fn quota_bytes(&self) -> u64 {
        self.by_name.read().values().map(|handle| handle.bucket.memory_quota_bytes()).sum()
    }

    /// Operations on all buckets since the start, deleted ones included.
    pub fn operation_totals(&self) -> OperationTotals {
        let by_name = self.by_name.read();
        let deleted = *self.deleted_operations.lock();
        by_name.values().fold(deleted, |sum, handle| sum.and(handle.operations.totals()))
    }

    /// Creates a bucket. Durable when it returns.
    ///
    /// # Errors
    /// A bad or taken name, or the disk's.
    pub fn create(
        &self,
        name: &str,
        options: &BucketOptions,
    ) -> Result<Arc<BucketHandle>, BucketError> {
        let _one_at_a_time = self.changes.lock();
        if !is_bucket_name(name) {
            return Err(BucketError::BadName(name.to_owned()));
        }
        if self.get(name).is_some() {
            return Err(BucketError::Exists(name.to_owned()));
        }
        let Some(buckets) = &self.directory else {
            return Err(BucketError::BadName(name.to_owned()));
        };
        let directory = buckets.join(name);
        if directory.join(STORE_DIR).exists() {
            return Err(missing_beside_store(&BucketFile::path(&directory)).into());
        }
        // The directory may exist without a store after an interrupted creation.
        std::fs::create_dir_all(&directory).map_err(|e| io_error("create", &directory, e))?;
        sync_directory(buckets)?;
        let mut file = BucketFile::new(name, new_uuid(), options);
        match options.storage.remote() {
            None => file.write(&directory)?,
            // The store determines the uuid; it is written afterwards.
            Some(_) => file.uuid.clear(),
        }
        let opened = self.open_directory(directory.clone(), file, options);
        if opened.is_err() && options.storage.remote().is_some() {
            // Only the bucket's name is here, and the next start would wait for its store.
            std::fs::remove_dir_all(&directory).map_err(|e| io_error("remove", &directory, e))?;
        }
        opened
    }

    /// The settings of a bucket as its file holds them, or would hold them.
    ///
    /// # Errors
    /// An unknown name, or an I/O error.
    pub(crate) fn settings_text(&self, name: &str) -> Result<Vec<u8>, BucketError> {
        let handle = self.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        let Some(directory) = &handle.directory else {
            return Ok(BucketFile::of_open(&handle).to_json());
        };
        let path = BucketFile::path(directory);
        std::fs::read(&path).map_err(|e| io_error("read", &path, e))
    }

    /// Opens a bucket that another node has created, with the settings it has there.
    ///
    /// # Errors
    /// Settings that this version cannot read, a taken name, or an I/O error.
    pub(crate) fn adopt(
        &self,
        name: &str,
        settings: &[u8],
        options: &BucketOptions,
    ) -> Result<Arc<BucketHandle>, BucketError> {
        let _one_at_a_time = self.changes.lock();
        let Some(buckets) = self.directory.as_ref().filter(|_| is_bucket_name(name)) else {
            return Err(BucketError::BadName(name.to_owned()));
        };
        if self.get(name).is_some() {
            return Err(BucketError::Exists(name.to_owned()));
        }
        let directory = buckets.join(name);
        let file = BucketFile::parse(settings, name, &directory)?;
        if directory.join(STORE_DIR).exists() {
            let detail = "the bucket's directory holds a store that is not the cluster's";
            return Err(DataFileError::corrupt(&directory, detail).into());
        }
        std::fs::create_dir_all(&directory).map_err(|e| io_error("create", &directory, e))?;
        sync_directory(buckets)?;
        file.write(&directory)?;
        self.open_directory(directory, file, options)
    }

    /// Deletes a bucket and its documents. Connections that have it selected lose it.
    ///
    /// # Errors
    /// An unknown name, or an I/O error.
    pub fn delete(&self, name: &str) -> Result<(), BucketError> {
        let handle = self.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        self.delete_open(&handle)
    }

    /// [`Buckets::delete`] for exactly this bucket, even if another one has its name by now.
    ///
    /// # Errors
    /// The bucket is closed already, or an I/O error.
    pub fn delete_open(&self, handle: &Arc<BucketHandle>) -> Result<(), BucketError> {
        self.close_for_good(handle, true)
    }

    /// Closes a shared bucket that is no longer in the cluster, and removes its settings. The
    /// documents remain.
    ///
    /// # Errors
    /// The bucket is closed already, or an I/O error.
    pub(crate) fn forget(&self, handle: &Arc<BucketHandle>) -> Result<(), BucketError> {
        self.close_for_good(handle, false)
    }

    /// Waits until no bucket is being created or closed.
    pub(crate) fn wait_for_changes(&self) {
        drop(self.changes.lock());
    }

    fn close_for_good(
        &self,
        handle: &Arc<BucketHandle>,
        with_documents: bool,
    ) -> Result<(), BucketError> {
        let _one_at_a_time = self.changes.lock();
        let name = handle.name();
        self.unlist(handle)?;
        handle.mark_deleted();
        if let Some(threads) = handle.threads.lock().take()
            && let Err(error) = threads.stop()
        {
            tracing::warn!(bucket = name, %error, "the deleted bucket could not be flushed");
        }
        if with_documents && let Err(error) = handle.bucket.remove_shared_data() {
            return Err(BucketError::Store { name: name.to_owned(), error });
        }
        let Some(directory) = &handle.directory else { return Ok(()) };
        let deleted = format!("{DELETED_PREFIX}{name}-{}", handle.bucket.config().uuid);
        let deleted = directory.with_file_name(deleted);
        std::fs::rename(directory, &deleted).map_err(|e| io_error("rename", directory, e))?;
        if let Some(buckets) = &self.directory {
            sync_directory(buckets)?;
        }
        std::fs::remove_dir_all(&deleted).map_err(|e| io_error("remove", &deleted, e))
    }

    /// Removes a bucket from the registry; its operations stay in the sums.
    fn unlist(&self, handle: &Arc<BucketHandle>) -> Result<(), BucketError> {
        let (mut by_name, name) = (self.by_name.write(), handle.name());
        // Another bucket may have the name by now.
        if !by_name.get(name).is_some_and(|listed| Arc::ptr_eq(listed, handle)) {
            return Err(BucketError::Unknown(name.to_owned()));
        }
        by_name.remove(name);
        let mut deleted = self.deleted_operations.lock();
        *deleted = deleted.and(handle.operations.totals());
        Ok(())
    }

    /// Announces that the buckets will be stopped. From now on, waits for a store that does not
    /// answer are short.
    pub fn end_waits(&self) {
        self.list().iter().for_each(|handle| handle.end_waits());
    }

    /// Flushes and stops all buckets in parallel. Stops every bucket even after an error, and
    /// returns the first error.
    pub fn stop_all(&self) -> Result<(), BucketError> {
        let handles = self.list();
        let died = |_| Err(StoreError::Poisoned("the stop of the bucket panicked".to_owned()));
        let stopped: Vec<Result<(), StoreError>> = std::thread::scope(|scope| {
            let stops: Vec<_> = handles.iter().map(|one| scope.spawn(|| one.stop())).collect();
            stops.into_iter().map(|stop| stop.join().unwrap_or_else(died)).collect()
        });
        assert_eq!(stopped.len(), handles.len(), "each bucket was stopped");
        let mut first = Ok(());
        for (handle, stopped) in handles.iter().zip(stopped) {
            if let Err(error) = stopped {
                let error = BucketError::Store { name: handle.name().to_owned(), error };
                tracing::error!(%error, "a bucket could not be flushed at the end");
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Opens a bucket over the caller's store, with its threads if `runs` is set.
    #[doc(hidden)]
    pub fn open_over(
        &self,
        config: BucketConfig,
        store: Arc<dyn KvStore>,
        was_clean: bool,
        runs: bool,
    ) -> Result<Arc<BucketHandle>, BucketError> {
        self.register(config, (store, BucketStorage::Log), (None, None), was_clean, runs)
    }

    fn open_existing(
        &self,
        buckets: &Path,
        name: &str,
        options: &BucketOptions,
    ) -> Result<(), BucketError> {
        let directory = buckets.join(name);
        let path = BucketFile::path(&directory);
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // An interrupted creation: there was no store yet, and so no document.
                if !directory.join(STORE_DIR).exists() {
                    tracing::warn!(path = %directory.display(), "directory without {BUCKET_FILE} is ignored");
                    return Ok(());
                }
                return Err(missing_beside_store(&path).into());
            }
            Err(error) => return Err(io_error("read", &path, error)),
        };
        let file = BucketFile::parse(&json, name, &directory)?;
        self.open_directory(directory, file, options)?;
        Ok(())
    }

    fn open_directory(
        &self,
        directory: PathBuf,
        mut file: BucketFile,
        options: &BucketOptions,
    ) -> Result<Arc<BucketHandle>, BucketError> {
        let corrupt = |detail: String| DataFileError::corrupt(&directory.join(BUCKET_FILE), detail);
        let eviction = file.eviction().map_err(corrupt)?;
        let compression = file.compression().map_err(corrupt)?;
        let memory_tier = file.memory_tier().map_err(corrupt)?;
        let conflict_resolution = file.conflict_resolution().map_err(corrupt)?;
        let (durability_min, max_ttl_s) = (file.durability_min, file.max_ttl_s);
        let has_own_flush_interval = file.flush_interval_ms.is_some();
        // A store that does not exist yet has no history to lose.
        let marker = directory.join(CLEAN_SHUTDOWN_FILE);
        let store_dir = directory.join(STORE_DIR);
        let was_clean = marker.exists() || !store_dir.exists();
        let memory_quota_bytes = file.memory_quota_mib.saturating_mul(MIB);
        let place = StorePlace {
            path: &store_dir,
            bucket: &file.name,
            vbuckets: file.vbuckets,
            accepts_damage: options.accepts_damaged_log,
            logs: options.logs,
            memory_quota_bytes,
            many_keys_memory_bytes: (eviction == EvictionPolicy::Full)
                .then_some(memory_quota_bytes),
            waits: options.waits_for_store,
        };
        let store = open_store(&file.storage, &place)
            .map_err(|error| BucketError::Store { name: file.name.clone(), error })?;
        let is_whole = store.properties().ended_in_order;
        // The losses of an accepted damage were logged already.
        if marker.exists() && !is_whole && !options.accepts_damaged_log {
            tracing::error!(
                bucket = file.name,
                "the bucket was stopped in order, but its log does not end where it was closed: \
                 what was written last is gone. Was a file replaced, cut off or restored? Compare \
                 with a backup; every vbucket begins a new history"
            );
        }
        let was_clean = was_clean && (is_whole || !marker.exists());
        if file.uuid.is_empty() {
            // Nodes that create a bucket at the same time, over one table, have to agree on its
            // uuid.
            file.uuid = store
                .shared()
                .and_then(SharedStore::id)
                .filter(|id| is_uuid(id))
                .unwrap_or_else(new_uuid);
            file.write(&directory)?;
        }
        if marker.exists() {
            std::fs::remove_file(&marker).map_err(|e| io_error("remove", &marker, e))?;
            sync_directory(&directory)?;
        }
        let config = BucketConfig {
            name: file.name,
            uuid: file.uuid,
            vbuckets: file.vbuckets,
            memory_quota_bytes,
            flush_enabled: file.flush_enabled,
            value_bytes_max: VALUE_BYTES_MAX,
            flush_interval_ms: file.flush_interval_ms.unwrap_or(options.flush_interval_ms),
            storage: file.storage.of_engine(),
            eviction,
            high_watermark_percent: options.watermarks_percent.high,
            low_watermark_percent: options.watermarks_percent.low,
            upkeep: options.upkeep,
        };
        let kind = file.storage;
        if file.replicas.is_some() && !self.is_clustered {
            tracing::error!(bucket = config.name, "{COPIES_WITHOUT_CLUSTER}");
        }
        let place = (Some(directory), file.replicas);
        let handle = self.register(config, (store, kind), place, was_clean, true)?;
        handle.bucket.set_compression_mode(compression);
        handle.bucket.set_memory_tier(memory_tier);
        handle.set_conflict_resolution(conflict_resolution);
        handle.gate.set_durability_min(durability_min);
        handle.bucket.set_max_ttl_s(max_ttl_s);
        handle.has_own_flush_interval.store(has_own_flush_interval, Ordering::Relaxed);
        Ok(handle)
    }

    fn register(
        &self,
        config: BucketConfig,
        (store, storage): (Arc<dyn KvStore>, BucketStorage),
        (directory, replicas): (Option<PathBuf>, Option<u8>),
        was_clean: bool,
        runs: bool,
    ) -> Result<Arc<BucketHandle>, BucketError> {
        let name = config.name.clone();
        let open = match replicas {
            Some(_) => Bucket::open_copies,
            None => Bucket::open,
        };
        let numbers = replicas.map(|_| CopyNumbers::open(directory.as_deref())).transpose()?;
        let bucket = open(config, store, Box::new(random_u64), was_clean)
            .map_err(|error| BucketError::Open { name: name.clone(), error })?;
        if bucket.shared_store().is_some() && !self.is_clustered {
            // This node is alone, so it owns all vbuckets and fences an earlier owner.
            let all: Vec<Vbid> = bucket.vbuckets().iter().map(VBucket::id).collect();
            bucket
                .take_over(&all)
                .map_err(|error| BucketError::Store { name: name.clone(), error })?;
        }
        let threads = match runs {
            true => Some(
                BucketThreads::start(Arc::clone(&bucket))
                    .map_err(|error| BucketError::Threads { name: name.clone(), error })?,
            ),
            false => None,
        };
        let links = Arc::clone(&self.links);
        let producers = Arc::<dcp_registry::DcpProducers>::default();
        let handle = Arc::new_cyclic(|handle| BucketHandle {
            copies: replicas.zip(numbers).map(|numbered| {
                let follow = BucketHandle::follow_through(Weak::clone(handle));
                let reached = (links, Arc::clone(&producers));
                BucketCopies::new(&bucket, follow, reached, numbered)
            }),
            bucket,
            storage,
            threads: Mutex::new(threads),
            gate: RequestGate::default(),
            fetches_fail: AtomicBool::new(false),
            operations: BucketOperations::default(),
            range_scans: Default::default(),
            producers,
            conflict_resolution: OnceLock::new(),
            commits_by_copies: AtomicBool::new(replicas.is_some()),
            has_own_flush_interval: AtomicBool::new(false),
            emptied_ns: AtomicU64::new(0),
            directory,
        });
        if let Some(memory) = self.reader_memory.get() {
            handle.bucket.set_reader_memory(Arc::clone(memory));
        }
        let before = self.by_name.write().insert(name, Arc::clone(&handle));
        debug_assert!(before.is_none(), "a name is of one bucket");
        Ok(handle)
    }
}

fn missing_beside_store(path: &Path) -> DataFileError {
    DataFileError::corrupt(path, "the file is missing next to a store with documents")
}

/// Names of the bucket directories, in order.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, BucketError> {
    let entries = std::fs::read_dir(directory).map_err(|e| io_error("read", directory, e))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| io_error("read", directory, e))?;
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if is_bucket_name(name) => names.push(name.to_owned()),
            Some(name) if name.starts_with(DELETED_PREFIX) => {
                // The deletion was either acknowledged or interrupted; in both cases the bucket is
                // gone.
                let path = entry.path();
                std::fs::remove_dir_all(&path).map_err(|e| io_error("remove", &path, e))?;
            }
            _ => tracing::warn!(path = %entry.path().display(), "not a bucket; ignored"),
        }
    }
    names.sort();
    Ok(names)
}

/// Makes created and removed entries of a directory durable.
fn sync_directory(path: &Path) -> Result<(), BucketError> {
    let synced = std::fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|e| io_error("sync", path, e))
}

#[cfg(test)]
mod tests;
