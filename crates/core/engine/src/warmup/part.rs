//! Loading one part: records become blocks and enter their tables in batches.
//!
//! Owns: the batch, and the switch from values to metadata when memory fills. With the dense tier
//! the loaders first make dense what they have loaded, so as many values come back as were in
//! memory before. When a record is
//! read, its block is built, its hash computed and its group of the table prefetched. The table's
//! lock is taken once for a batch of one vbucket, when all its groups have arrived. The block is
//! the only allocation per record.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_storage::Record;
use oribi_types::policy::EvictionPolicy;
use oribi_types::{CollectionId, Vbid};
use parking_lot::Mutex;

use crate::collections::BucketManifest;
use crate::core::Core;
use crate::hash_table::KeyHash;
use crate::item::ItemRef;
use crate::item_pager::ItemPager;
use crate::prefetch::load_line;
use crate::record;
use crate::vbucket::VBucket;

/// Most documents that enter a table under one hold of its lock: about two microseconds.
const BATCH: usize = 32;

/// Records between two reviews of the memory in use.
const REVIEW_EVERY: u64 = 1024;

/// A bucket that evicts nothing loads on when all is dense, and compresses again after this part of
/// its quota.
const COMPRESS_AGAIN_PART: u64 = 32;

/// How much of a document goes into memory: all of it, or key and metadata. One for all loaders of
/// a bucket.
#[derive(Default)]
pub(super) struct LoadExtent {
    is_metadata: AtomicBool,
    /// One loader compresses at a time; the others then see what it achieved.
    compression: Mutex<()>,
    /// Memory in use at which the loaders compress the next time.
    compress_at_bytes: AtomicU64,
}

impl LoadExtent {
    pub(super) fn keeps_values(&self) -> bool {
        !self.is_metadata.load(Ordering::Relaxed)
    }

    /// At the pager's target makes values dense. If that is not enough and the bucket evicts,
    /// values are left out from now on.
    pub(super) fn review(&self, core: &Core, pager: &ItemPager) {
        let memory = core.memory();
        let is_due = || {
            let again = self.compress_at_bytes.load(Ordering::Relaxed);
            self.keeps_values() && memory.used_bytes() >= memory.pager_target_bytes().max(again)
        };
        if !is_due() {
            return;
        }
        let _one_at_a_time = self.compression.lock();
        if !is_due() {
            return;
        }
        if pager.compress(core, core.latest_time()) {
            return;
        }
        match memory.policy() {
            EvictionPolicy::None | EvictionPolicy::Nru => {
                let more = memory.quota_bytes() / COMPRESS_AGAIN_PART;
                self.compress_at_bytes.store(memory.used_bytes() + more, Ordering::Relaxed);
            }
            EvictionPolicy::Value | EvictionPolicy::Full => {
                self.is_metadata.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A load begins anew.
    pub(super) fn reset(&self) {
        self.is_metadata.store(false, Ordering::Relaxed);
        self.compress_at_bytes.store(0, Ordering::Relaxed);
    }
}

/// Counts of one part.
#[derive(Clone, Copy, Default)]
pub(super) struct PartCounts {
    pub(super) items: u64,
    pub(super) values: u64,
    pub(super) tombstones: u64,
    pub(super) overtaken: u64,
}

/// A part that is being loaded.
pub(super) struct PartLoad<'b> {
    core: &'b Core,
    pager: &'b ItemPager,
    extent: &'b LoadExtent,
    /// The newest manifest that a record needed so far.
    manifest: Arc<BucketManifest>,
    keeps_values: bool,
    counts: PartCounts,
    /// Collections that are not in the manifest.
    unknown: Vec<CollectionId>,
    vbid: Vbid,
    batch: Vec<(KeyHash, ItemRef)>,
    /// The incarnation of the part's vbucket; `None` for a part of several, which only a store of
    /// this node alone has.
    incarnation: Option<u64>,
}

impl<'b> PartLoad<'b> {
    pub(super) fn new(
        (core, pager): (&'b Core, &'b ItemPager),
        extent: &'b LoadExtent,
        incarnation: Option<u64>,
    ) -> PartLoad<'b> {
        PartLoad {
            core,
            pager,
            extent,
            manifest: core.collections().manifest(),
            keeps_values: extent.keeps_values(),
            counts: PartCounts::default(),
            unknown: Vec::new(),
            vbid: Vbid(0),
            batch: Vec::with_capacity(BATCH),
            incarnation,
        }
    }

    /// Whether the load takes values. A part that begins without them may leave them out.
    pub(super) fn keeps_values(&self) -> bool {
        self.keeps_values
    }

    /// Takes a record; with `left_out` it came without its value, which has so many bytes. Skips a
    /// record of a vbucket outside the map; opening refuses such a store.
    pub(super) fn take(
        &mut self,
        vbid: Vbid,
        record: &Record<'_>,
        left_out: Option<usize>,
    ) -> ControlFlow<()> {
        let collection = record.key.collection;
        let Some(vbucket) = self.core.vbucket(vbid) else { return ControlFlow::Continue(()) };
        if vbucket.incarnation() != self.incarnation_of(vbucket) {
            return ControlFlow::Break(());
        }
        if collection == CollectionId::SYSTEM || collection == CollectionId::PREPARES {
            return ControlFlow::Continue(());
        }
        if !self.knows(collection) {
            if !self.unknown.contains(&collection) {
                self.unknown.push(collection);
            }
            return ControlFlow::Continue(());
        }
        if record.deleted {
            self.counts.tombstones += 1;
            vbucket.load_tombstone(self.incarnation_of(vbucket), record);
            return ControlFlow::Continue(());
        }
        self.counts.items += 1;
        if self.counts.items.is_multiple_of(REVIEW_EVERY) {
            self.extent.review(self.core, self.pager);
            self.keeps_values = self.extent.keeps_values();
        }
        if vbid != self.vbid || self.batch.len() == BATCH {
            self.insert();
            self.vbid = vbid;
        }
        let hash = vbucket.hash_of(record.key);
        load_line(vbucket.group_hint(hash));
        let item = self.block(record, left_out);
        debug_assert!(self.batch.len() < BATCH, "a batch is bounded");
        self.batch.push((hash, item));
        ControlFlow::Continue(())
    }

    /// Whether the collection exists now, also when it is younger than the load.
    fn knows(&mut self, collection: CollectionId) -> bool {
        if !self.manifest.contains(collection) {
            self.manifest = self.core.collections().manifest();
        }
        self.manifest.contains(collection)
    }

    fn incarnation_of(&self, vbucket: &VBucket) -> u64 {
        self.incarnation.unwrap_or_else(|| vbucket.incarnation())
    }

    fn block(&mut self, record: &Record<'_>, left_out: Option<usize>) -> ItemRef {
        match left_out.or((!self.keeps_values).then_some(record.value.len())) {
            Some(value_bytes) => record::to_evicted_item(record, value_bytes),
            None => {
                self.counts.values += 1;
                debug_assert!(self.counts.values <= self.counts.items, "a value is a document's");
                record::to_item(record)
            }
        }
    }

    fn insert(&mut self) {
        if let Some(vbucket) = self.core.vbucket(self.vbid) {
            let incarnation = self.incarnation_of(vbucket);
            let memory = self.core.memory();
            self.counts.overtaken += vbucket.load(memory, incarnation, &mut self.batch);
        }
        debug_assert!(self.counts.overtaken <= self.counts.items, "an overtaken document was read");
        self.batch.clear();
    }

    /// Inserts the rest; the counts, and the collections that no manifest had.
    pub(super) fn finish(mut self) -> (PartCounts, Vec<CollectionId>) {
        self.insert();
        debug_assert!(self.batch.is_empty(), "every record was inserted");
        (self.counts, self.unknown)
    }
}
