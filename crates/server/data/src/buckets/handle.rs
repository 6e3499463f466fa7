//! An open bucket: the engine's bucket and the server's state for it.
//!
//! Owns: the bucket's threads until it is stopped, the mark that it was deleted, and the workers'
//! operation counters for it. Invariant: the clean-shutdown marker is written only after the
//! threads have flushed everything and ended. Connections hold a handle for as long as they have
//! the bucket selected, so it may outlive its place in the registry.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use oribi_config::BucketStorage;
use oribi_engine::{
    Bucket, BucketThreads, ConflictResolution, FetchOutcome, FlushAllError, WriteVisibility,
};
use oribi_storage::StoreError;
use oribi_system::data_file::write_atomically;
use oribi_types::{DurabilityLevel, Timestamp};
use parking_lot::Mutex;

use super::copies::FollowNode;
use super::durability::RequestGate;
use super::{BucketCopies, DurabilityMin};
use crate::buckets::dcp_registry::DcpProducers;
use crate::buckets::range_scans::RangeScans;
use crate::diagnostics::counters::bucket::BucketOperations;

/// The marker of a clean shutdown by the last server.
pub(crate) const CLEAN_SHUTDOWN_FILE: &str = "clean-shutdown";
const MARKER_MODE: u32 = 0o600;

/// After a bucket was emptied, clients have this long to learn of its new histories: twice the
/// interval in which client libraries ask for the configuration.
const SETTLING_NS: u64 = 5_000_000_000;

/// The time of emptying while it lasts.
const NOW_EMPTYING: u64 = u64::MAX;

pub struct BucketHandle {
    pub(super) bucket: Arc<Bucket>,
    pub(super) storage: BucketStorage,
    pub(super) threads: Mutex<Option<BucketThreads>>,
    pub(super) gate: RequestGate,
    /// True after a fetch from the store failed and that was logged.
    pub(super) fetches_fail: AtomicBool,
    pub(super) operations: BucketOperations,
    pub(super) range_scans: RangeScans,
    pub(super) producers: Arc<DcpProducers>,
    /// Set once, when the bucket is opened; resolution is by revision while it is unset.
    pub(super) conflict_resolution: OnceLock<ConflictResolution>,
    /// True for copies on several nodes: the record of each vbucket says for how many of them a
    /// durable write waits.
    pub(super) commits_by_copies: AtomicBool,
    /// The bucket has its own flush interval and does not follow the server's.
    pub(super) has_own_flush_interval: AtomicBool,
    /// When the bucket was last emptied, in nanoseconds of Unix time; 0 for never.
    pub(super) emptied_ns: AtomicU64,
    /// The copies here of a bucket whose vbuckets have some on several nodes.
    pub(super) copies: Option<BucketCopies>,
    /// `None` for a bucket in memory only.
    pub(super) directory: Option<PathBuf>,
}

impl BucketHandle {
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// The name that clients select.
    pub fn name(&self) -> &str {
        &self.bucket.config().name
    }

    /// The directory of the bucket's settings; none for a bucket of tests.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The copies here of a bucket whose vbuckets have some on several nodes.
    pub fn copies(&self) -> Option<&BucketCopies> {
        self.copies.as_ref()
    }

    /// Makes vbuckets of a bucket follow other nodes.
    pub(super) fn follow_through(handle: Weak<BucketHandle>) -> FollowNode {
        Box::new(move |links, vbid, source| {
            let Some(handle) = handle.upgrade() else { return false };
            links.follow(handle, vbid, source);
            true
        })
    }

    /// True when several nodes have the bucket: over a store that they share, or in copies.
    pub fn is_shared(&self) -> bool {
        self.copies.is_some() || self.bucket.shared_store().is_some()
    }

    /// Where documents are kept.
    pub fn storage(&self) -> &BucketStorage {
        &self.storage
    }

    /// Whether durable writes to a bucket of tests wait for copies.
    #[cfg(test)]
    pub(crate) fn set_commits_by_copies(&self, commits_by_copies: bool) {
        self.commits_by_copies.store(commits_by_copies, Ordering::Relaxed);
    }

    /// How the bucket resolves conflicts between versions from different clusters.
    pub fn conflict_resolution(&self) -> ConflictResolution {
        self.conflict_resolution.get().copied().unwrap_or_default()
    }

    /// The bucket's minimum durability.
    pub fn durability_min(&self) -> DurabilityMin {
        self.gate.durability_min()
    }

    /// Sets the minimum of an open bucket of tests.
    #[cfg(test)]
    pub(crate) fn set_durability_min(&self, level: DurabilityMin) {
        self.gate.set_durability_min(level);
    }

    /// When a write that asks for this level becomes visible: the bucket's minimum raises it.
    pub fn visibility(&self, asked: DurabilityLevel) -> WriteVisibility {
        match asked.max(self.durability_min().level()) {
            DurabilityLevel::None => WriteVisibility::AtOnce,
            level if self.commits_by_copies.load(Ordering::Relaxed) => {
                WriteVisibility::WhenCommitted(level)
            }
            // In memory nothing is ever stored, and one node is a majority of one.
            level if level.needs_persistence() && !self.is_in_memory() => {
                WriteVisibility::WhenStored
            }
            _ => WriteVisibility::AtOnce,
        }
    }

    /// Takes the server's flush interval, unless the bucket has its own.
    pub(crate) fn follow_flush_interval(&self, interval_ms: u64) {
        if !self.has_own_flush_interval.load(Ordering::Relaxed) {
            self.bucket.set_flush_interval_ms(interval_ms);
        }
    }

    /// Sets the resolution, once.
    pub(crate) fn set_conflict_resolution(&self, resolution: ConflictResolution) {
        let _ = self.conflict_resolution.set(resolution);
    }

    /// True when no document is ever durable.
    pub fn is_in_memory(&self) -> bool {
        self.storage == BucketStorage::Memory
    }

    /// The bucket type that clients see for this kind of storage.
    pub fn bucket_type(&self) -> &'static str {
        match &self.storage {
            BucketStorage::Log | BucketStorage::Kudu(_) => "membase",
            BucketStorage::Memory => "ephemeral",
        }
    }

    pub fn vbuckets(&self) -> u16 {
        self.bucket.config().vbuckets
    }

    /// The workers' operation counters for the bucket.
    pub fn operations(&self) -> &BucketOperations {
        &self.operations
    }

    pub(crate) fn range_scans(&self) -> &RangeScans {
        &self.range_scans
    }

    /// The connections that follow its changes.
    pub fn producers(&self) -> &DcpProducers {
        &self.producers
    }

    /// As [`Bucket::flush_all`], which begins at `now`.
    pub(crate) fn flush_all(&self, now: Timestamp) -> Result<(), FlushAllError> {
        if self.copies.is_some() && self.bucket.is_flush_enabled() {
            return Err(FlushAllError::NotAllHere);
        }
        let begun = Instant::now();
        let before = self.emptied_ns.swap(NOW_EMPTYING, Ordering::AcqRel);
        let result = self.bucket.flush_all();
        let elapsed_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let emptied_ns = match &result {
            // Another call is under way, or has ended since: the end is its to note.
            Err(error) if error.was_refused() && before == NOW_EMPTYING => return result,
            Err(error) if error.was_refused() => before,
            _ => now.unix_ns.saturating_add(elapsed_ns),
        };
        self.emptied_ns.store(emptied_ns, Ordering::Release);
        result
    }

    /// True while the bucket is being emptied and for some seconds after that: a client that still
    /// names an earlier history may not have heard of it.
    pub(crate) fn is_settling(&self, now: Timestamp) -> bool {
        now.unix_ns < self.emptied_ns.load(Ordering::Acquire).saturating_add(SETTLING_NS)
    }

    /// Detaches the bucket from connections that have it selected, and ends its scans and the
    /// connections that follow its changes.
    pub(super) fn mark_deleted(&self) {
        self.gate.delete();
        if let Some(copies) = &self.copies {
            copies.stop();
        }
        self.range_scans.stop();
        self.producers.wake_all();
    }

    /// True once the bucket was deleted; a connection that still has it selected has no bucket.
    pub fn is_deleted(&self) -> bool {
        self.gate.is_deleted()
    }

    /// True for a bucket that exists and raises no write; the test that each request makes.
    #[inline(always)]
    pub(crate) fn is_ordinary(&self) -> bool {
        self.gate.is_ordinary()
    }

    /// True while fetches from the store fail.
    #[cfg(test)]
    pub(crate) fn fetches_fail(&self) -> bool {
        self.fetches_fail.load(Ordering::Relaxed)
    }

    /// Logs when fetches from the store start to fail, and when they succeed again.
    pub(crate) fn note_fetch(&self, outcome: FetchOutcome) {
        let is_failure = outcome == FetchOutcome::Failed;
        if self.fetches_fail.load(Ordering::Relaxed) == is_failure {
            return;
        }
        let did_fail = self.fetches_fail.swap(is_failure, Ordering::Relaxed);
        let is_ending = self.is_deleted() || self.bucket.is_ending();
        if is_failure && !did_fail && !is_ending {
            tracing::error!(
                bucket = self.name(),
                "documents cannot be read from the store; requests for them get a temporary failure"
            );
        } else if !is_failure && did_fail {
            tracing::info!(bucket = self.name(), "documents can be read from the store again");
        }
    }

    /// Announces that the bucket will be stopped. From now on, waits for a store that does not
    /// answer are short.
    pub(super) fn end_waits(&self) {
        self.bucket.end_waits();
    }

    /// Flushes, stops the threads and, on success, marks the shutdown as clean.
    pub(super) fn stop(&self) -> Result<(), StoreError> {
        self.range_scans.stop();
        if let Some(copies) = &self.copies {
            copies.stop();
        }
        let Some(threads) = self.threads.lock().take() else { return Ok(()) };
        threads.stop()?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let marker = directory.join(CLEAN_SHUTDOWN_FILE);
        if let Err(error) = write_atomically(&marker, b"", MARKER_MODE) {
            tracing::warn!(path = %marker.display(), %error, "cannot mark the clean shutdown");
        }
        Ok(())
    }
}
