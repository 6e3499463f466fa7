//! The core of a bucket: what each operation and each piece of background work needs.
//!
//! Owns: the vbuckets, the collections, the store, the account of memory, and the records of
//! failures, tasks and timings. Background work (flusher, warmup, fetcher, pagers, purge) stands
//! above it: each piece keeps its own state and is handed a `&Core` for a step. The core knows none
//! of them and starts nothing by itself. [`crate::Bucket`] holds it and is the facade for the
//! server. Ownership of vbuckets is in [`ownership`].

mod ownership;
mod ownership_changes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use oribi_storage::{KvStore, Ownership, StoreError};
use oribi_types::{Timestamp, Vbid};
use parking_lot::{Mutex, MutexGuard};

use crate::collections::{BucketManifest, CollectionsInForce};
use crate::compression::CompressionSwitch;
use crate::config::BucketConfig;
use crate::failure::{FailedOperations, Failures, StoreOperation};
use crate::flusher_signal::FlusherSignals;
use crate::memory::Memory;
use crate::tasks::Tasks;
use crate::timings::BucketTimings;
use crate::vbucket::{Context, VBucket, WriteVisibility};

use ownership_changes::OwnershipChanges;

/// See the module text.
pub(crate) struct Core {
    config: BucketConfig,
    vbuckets: Box<[VBucket]>,
    collections: CollectionsInForce,
    store: Arc<dyn KvStore>,
    signals: FlusherSignals,
    compression: CompressionSwitch,
    /// Longest life of documents whose collection has no rule, in seconds; 0 for any.
    max_ttl_s: AtomicU32,
    memory: Memory,
    failures: Failures,
    /// Held during a review of what refuses writes.
    review: Mutex<()>,
    tasks: Tasks,
    timings: Mutex<BucketTimings>,
    /// The time of the latest step of flusher or pager, in nanoseconds of UNIX time.
    latest_ns: AtomicU64,
    /// Knows how long this node owns vbuckets of a shared store.
    ownership: ArcSwapOption<Arc<dyn Ownership>>,
    ownership_changes: OwnershipChanges,
}

impl Core {
    pub(crate) fn new(
        config: BucketConfig,
        vbuckets: Box<[VBucket]>,
        manifest: BucketManifest,
        store: Arc<dyn KvStore>,
    ) -> Core {
        assert_eq!(vbuckets.len(), usize::from(config.vbuckets), "a vbucket for each id");
        let memory = Memory::new(&config, Arc::clone(&store));
        let signals = FlusherSignals::new(store.properties().commit_groups);
        debug_assert!(
            vbuckets.iter().zip(0..).all(|(vbucket, id)| vbucket.id() == Vbid(id)),
            "ids in order"
        );
        Core {
            config,
            vbuckets,
            collections: CollectionsInForce::new(manifest),
            store,
            signals,
            compression: CompressionSwitch::default(),
            max_ttl_s: AtomicU32::new(0),
            memory,
            failures: Failures::default(),
            review: Mutex::new(()),
            tasks: Tasks::default(),
            timings: Mutex::new(BucketTimings::default()),
            latest_ns: AtomicU64::new(0),
            ownership: ArcSwapOption::empty(),
            ownership_changes: OwnershipChanges::default(),
        }
    }

    #[inline]
    pub(crate) fn config(&self) -> &BucketConfig {
        &self.config
    }

    /// The bucket's name, for the log.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// All vbuckets, by id.
    #[inline]
    pub(crate) fn vbuckets(&self) -> &[VBucket] {
        &self.vbuckets
    }

    /// One vbucket, or `None` outside the map.
    #[inline]
    pub(crate) fn vbucket(&self, vbid: Vbid) -> Option<&VBucket> {
        self.vbuckets.get(usize::from(vbid.0))
    }

    /// The context of an operation at `now`.
    #[inline]
    pub(crate) fn context(&self, now: Timestamp) -> Context<'_> {
        Context {
            manifest: self.collections.in_force(),
            signals: &self.signals,
            now,
            value_bytes_max: self.config.value_bytes_max,
            memory: &self.memory,
            compression: &self.compression,
            max_ttl_s: &self.max_ttl_s,
            visibility: WriteVisibility::AtOnce,
        }
    }

    pub(crate) fn collections(&self) -> &CollectionsInForce {
        &self.collections
    }

    pub(crate) fn store(&self) -> &dyn KvStore {
        self.store.as_ref()
    }

    pub(crate) fn signals(&self) -> &FlusherSignals {
        &self.signals
    }

    pub(crate) fn compression(&self) -> &CompressionSwitch {
        &self.compression
    }

    pub(crate) fn max_ttl_s(&self) -> &AtomicU32 {
        &self.max_ttl_s
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(crate) fn ownership_changes(&self) -> &OwnershipChanges {
        &self.ownership_changes
    }

    /// Notes the time, for work that is not handed any.
    pub(crate) fn note_time(&self, now: Timestamp) {
        self.latest_ns.fetch_max(now.unix_ns, Ordering::Relaxed);
    }

    /// The time that was noted last. The pager runs often enough that it is seconds ago at most.
    pub(crate) fn latest_time(&self) -> Timestamp {
        Timestamp { unix_ns: self.latest_ns.load(Ordering::Relaxed) }
    }

    pub(crate) fn timings(&self) -> MutexGuard<'_, BucketTimings> {
        self.timings.lock()
    }

    /// The operations that fail in the store now.
    pub(crate) fn failing(&self) -> FailedOperations {
        self.failures.now()
    }

    /// True when only a commit of this group of vbuckets can show that the store works again.
    pub(crate) fn needs_a_probe(&self, group: usize) -> bool {
        debug_assert!(group < self.signals.all().len(), "a group has a flusher");
        self.failures.need_a_probe(group)
    }

    /// The store has refused `operation`, which is of no group of vbuckets.
    pub(crate) fn store_failed(&self, operation: StoreOperation, error: &StoreError) {
        self.store_failed_in(0, operation, error);
    }

    /// The store has refused `operation` of the group.
    pub(crate) fn store_failed_in(
        &self,
        group: usize,
        operation: StoreOperation,
        error: &StoreError,
    ) {
        debug_assert!(group < self.signals.all().len(), "a group has a flusher");
        self.failures.failed(self.name(), (operation, group), error);
    }

    /// `operation`, which is of no group of vbuckets, has succeeded. True when that ends a failure.
    pub(crate) fn store_succeeded(&self, operation: StoreOperation) -> bool {
        self.store_succeeded_in(0, operation)
    }

    /// `operation` of the group has succeeded. True when that ends a failure.
    pub(crate) fn store_succeeded_in(&self, group: usize, operation: StoreOperation) -> bool {
        debug_assert!(group < self.signals.all().len(), "a group has a flusher");
        self.failures.succeeded(self.name(), (operation, group))
    }

    /// Decides from store and vbuckets which writes are refused.
    pub(crate) fn review_pressure(&self) {
        // A failure that one flusher saw never replaces a later one of another flusher.
        let _one_at_a_time = self.review.lock();
        let context = self.context(Timestamp::default());
        for vbucket in self.vbuckets() {
            vbucket.report_memory(&context);
        }
        self.memory.review(self.failing().refuse_writes());
    }
}
