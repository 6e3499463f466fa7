//! An open bucket: the engine's part and what the server keeps beside it.
//!
//! Owns: the bucket's threads until it is stopped, the mark that it was deleted, and the counters of what
//! workers did to it. Invariant: the clean-shutdown marker is written only after the threads have flushed
//! everything and ended. Connections hold a handle for as long as they have the bucket selected, so it
//! may outlive its place in the registry.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use oribi_engine::{Bucket, BucketThreads, ConflictResolution, FetchOutcome};
use oribi_storage::StoreError;
use parking_lot::Mutex;

use super::file::BUCKET_FILE_MODE;
use super::{BucketStorage, CLEAN_SHUTDOWN_FILE};
use crate::counters::bucket::BucketOperations;
use crate::data_dir::write_atomically;
use crate::range_scans::RangeScans;

/// An open bucket.
pub struct BucketHandle {
    pub(super) bucket: Arc<Bucket>,
    pub(super) storage: BucketStorage,
    pub(super) threads: Mutex<Option<BucketThreads>>,
    pub(super) is_deleted: AtomicBool,
    /// Fetches from the store fail, and that was logged.
    pub(super) fetches_fail: AtomicBool,
    pub(super) operations: BucketOperations,
    pub(super) range_scans: RangeScans,
    /// Set once, when the bucket is opened; by revision if it is not.
    pub(super) conflict_resolution: OnceLock<ConflictResolution>,
    /// `None` for a bucket that lives in memory only.
    pub(super) directory: Option<PathBuf>,
}

impl BucketHandle {
    /// The engine's bucket.
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Name that clients select.
    pub fn name(&self) -> &str {
        &self.bucket.config().name
    }

    /// Where documents are kept.
    pub fn storage(&self) -> &BucketStorage {
        &self.storage
    }

    /// What decides which of two versions from different clusters stays.
    pub fn conflict_resolution(&self) -> ConflictResolution {
        self.conflict_resolution.get().copied().unwrap_or_default()
    }

    /// Says so, once.
    pub(crate) fn set_conflict_resolution(&self, resolution: ConflictResolution) {
        let _ = self.conflict_resolution.set(resolution);
    }

    /// True when no document is ever durable.
    pub fn is_in_memory(&self) -> bool {
        self.storage == BucketStorage::Memory
    }

    /// What clients call a bucket of this kind of storage.
    pub fn bucket_type(&self) -> &'static str {
        match &self.storage {
            BucketStorage::Embedded | BucketStorage::Log | BucketStorage::Kudu(_) => "membase",
            BucketStorage::Memory => "ephemeral",
        }
    }

    /// Number of vbuckets.
    pub fn vbuckets(&self) -> u16 {
        self.bucket.config().vbuckets
    }

    /// What the workers did to it.
    pub fn operations(&self) -> &BucketOperations {
        &self.operations
    }

    /// Its range scans.
    pub(crate) fn range_scans(&self) -> &RangeScans {
        &self.range_scans
    }

    /// Takes the bucket from connections that have it selected, and ends its scans.
    pub(super) fn mark_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
        self.range_scans.stop();
    }

    /// True once the bucket was deleted; a connection that still has it selected has no bucket.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Logs when fetches from the store begin to fail, and when they succeed again.
    pub(crate) fn note_fetch(&self, outcome: FetchOutcome) {
        let is_failure = outcome == FetchOutcome::Failed;
        if self.fetches_fail.load(Ordering::Relaxed) == is_failure {
            return;
        }
        let did_fail = self.fetches_fail.swap(is_failure, Ordering::Relaxed);
        if is_failure && !did_fail && !self.is_deleted() {
            tracing::error!(
                bucket = self.name(),
                "documents cannot be read from the store; requests for them get a temporary failure"
            );
        } else if !is_failure && did_fail {
            tracing::info!(bucket = self.name(), "documents can be read from the store again");
        }
    }

    /// Flushes, stops the threads and, if all went well, marks the shutdown as clean.
    pub(super) fn stop(&self) -> Result<(), StoreError> {
        self.range_scans.stop();
        let Some(threads) = self.threads.lock().take() else { return Ok(()) };
        threads.stop()?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let marker = directory.join(CLEAN_SHUTDOWN_FILE);
        if let Err(error) = write_atomically(&marker, b"", BUCKET_FILE_MODE) {
            tracing::warn!(path = %marker.display(), %error, "cannot mark the clean shutdown");
        }
        Ok(())
    }
}
