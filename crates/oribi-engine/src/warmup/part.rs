//! Loading one part: records become blocks and enter their tables in batches.
//!
//! Owns: the batch. A record's block is built, its hash computed and its group of the table prefetched when
//! the record is read; the table's lock is taken once for a batch of one vbucket, when all its groups
//! have arrived. Nothing is allocated per record but the block.

use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::{CollectionId, Vbid};

use crate::bucket::Bucket;
use crate::collections::Manifest;
use crate::hash_table::KeyHash;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::prefetch::load_line;
use crate::vbucket::VBucket;

/// Most documents that enter a table under one hold of its lock: about two microseconds.
const BATCH: usize = 32;

/// Records between two looks at the memory that is used.
const REVIEW_EVERY: u64 = 1024;

/// How much of a document goes into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Extent {
    /// All of it.
    Values = 0,
    /// Key and metadata.
    Metadata = 1,
}

impl Extent {
    pub(super) fn of(number: u8) -> Extent {
        match number {
            0 => Extent::Values,
            _ => Extent::Metadata,
        }
    }
}

/// What a part had.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) items: u64,
    pub(super) values: u64,
    pub(super) tombstones: u64,
    pub(super) overtaken: u64,
}

/// A part that is being loaded.
pub(super) struct PartLoad<'b> {
    bucket: &'b Bucket,
    /// The newest that was needed so far.
    manifest: Arc<Manifest>,
    extent: Extent,
    counts: Counts,
    /// Collections that are not in the manifest.
    unknown: Vec<CollectionId>,
    vbid: Vbid,
    batch: Vec<(KeyHash, ItemRef)>,
    /// That of the one vbucket of the part; `None` for a part of several, whose store is this node's alone.
    incarnation: Option<u64>,
}

impl<'b> PartLoad<'b> {
    pub(super) fn new(bucket: &'b Bucket, incarnation: Option<u64>) -> PartLoad<'b> {
        PartLoad {
            bucket,
            manifest: bucket.manifest(),
            extent: bucket.warmup.extent(),
            counts: Counts::default(),
            unknown: Vec::new(),
            vbid: Vbid(0),
            batch: Vec::with_capacity(BATCH),
            incarnation,
        }
    }

    /// Whether values are worth reading. Records of a part that begins without them may come without.
    pub(super) fn keeps_values(&self) -> bool {
        self.extent == Extent::Values
    }

    /// Takes a record up; with `left_out` it came without its value, which has so many bytes. A record of a vbucket that
    /// the bucket does not have is passed over; opening has refused such a store.
    pub(super) fn take(
        &mut self,
        vbid: Vbid,
        record: &Record<'_>,
        left_out: Option<usize>,
    ) -> ControlFlow<()> {
        let collection = record.key.collection;
        let Some(vbucket) = self.bucket.vbucket(vbid) else { return ControlFlow::Continue(()) };
        if vbucket.incarnation() != self.incarnation_of(vbucket) {
            return ControlFlow::Break(());
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
            self.bucket.review_extent();
            self.extent = self.bucket.warmup.extent();
        }
        if vbid != self.vbid || self.batch.len() == BATCH {
            self.insert();
            self.vbid = vbid;
        }
        let hash = vbucket.hash_of(record.key);
        load_line(vbucket.group_hint(hash));
        let item = self.block(record, left_out);
        self.batch.push((hash, item));
        ControlFlow::Continue(())
    }

    /// False for a collection that is not there right now; one that came after the load had begun is.
    fn knows(&mut self, collection: CollectionId) -> bool {
        if !self.manifest.contains(collection) {
            self.manifest = self.bucket.manifest();
        }
        self.manifest.contains(collection)
    }

    fn incarnation_of(&self, vbucket: &VBucket) -> u64 {
        self.incarnation.unwrap_or_else(|| vbucket.incarnation())
    }

    fn block(&mut self, record: &Record<'_>, left_out: Option<usize>) -> ItemRef {
        let evicted = left_out.is_some() || self.extent == Extent::Metadata;
        let fields = ItemFields {
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            evicted,
            ..ItemFields::default()
        };
        self.counts.values += u64::from(!evicted);
        let mut new = match left_out {
            Some(value_bytes) => NewItem::evicted(record.key, fields, value_bytes),
            None => NewItem::new(record.key, fields, &[record.value]),
        };
        new.set_version(record.cas, record.seqno, record.rev_seqno);
        new.publish()
    }

    fn insert(&mut self) {
        if let Some(vbucket) = self.bucket.vbucket(self.vbid) {
            let incarnation = self.incarnation_of(vbucket);
            let memory = &self.bucket.memory;
            self.counts.overtaken += vbucket.load(memory, incarnation, &mut self.batch);
        }
        self.batch.clear();
    }

    /// Puts in what is left and tells what there was.
    pub(super) fn finish(mut self) -> (Counts, Vec<CollectionId>) {
        self.insert();
        (self.counts, self.unknown)
    }
}
