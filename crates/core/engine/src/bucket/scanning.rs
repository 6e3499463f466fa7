//! Scans of persisted versions, past the documents in memory. In a bucket without a store, scans of
//! what is in memory.
//!
//! Called by their own threads, above all those of range scans. Invariant: a scan holds no lock of
//! the engine, so the visitor may take its time.

use oribi_storage::{
    LoadValues, Record, RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange, SeqnoScan,
    StoreError, reserve_for, unlimited,
};
use oribi_types::policy::Storage;
use oribi_types::{CollectionId, DocKey, Seqno, Timestamp, Vbid};

use super::Bucket;
use crate::item::ItemRef;
use crate::record;

/// All versions of a vbucket at one moment, tombstones and events included, in seqno order: what is
/// persisted, or what is in memory in a bucket without a store.
pub struct SnapshotScan(Moment);

enum Moment {
    Store(Box<dyn SeqnoScan>),
    Memory { items: Vec<ItemRef>, at: usize, values: LoadValues },
}

impl SnapshotScan {
    /// Visits the next versions until `visit` breaks or none is left.
    ///
    /// # Errors
    /// The store's.
    pub fn resume(&mut self, visit: &mut RecordVisitor<'_>) -> Result<ScanProgress, StoreError> {
        self.resume_reserving(&mut unlimited, visit)
    }

    /// As [`SnapshotScan::resume`]; reserves memory before a large record.
    ///
    /// # Errors
    /// The store's.
    pub fn resume_reserving(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        match &mut self.0 {
            Moment::Store(scan) => scan.resume(reserve, visit),
            Moment::Memory { items, at, values } => {
                while let Some(item) = items.get(*at) {
                    let item = plain(item)?;
                    let mut record = record::of(&item);
                    if *values == LoadValues::Skip {
                        record.value = &[];
                    }
                    if reserve_for(&record, reserve).is_break() {
                        return Ok(ScanProgress::Paused);
                    }
                    *at += 1;
                    debug_assert!(*at <= items.len(), "a scan ends at its last item");
                    if visit(record).is_break() {
                        return Ok(ScanProgress::Paused);
                    }
                }
                Ok(ScanProgress::Ended)
            }
        }
    }
}

/// A version of a snapshot of memory with its value.
fn plain(item: &ItemRef) -> Result<ItemRef, StoreError> {
    item.to_plain().map_err(|error| StoreError::Corrupt(error.to_string()))
}

impl Bucket {
    /// Visits the persisted versions of one collection from a key on, tombstones included, in key
    /// order; in a bucket without a store, those in memory. It sees them as they are now, however
    /// long it takes.
    ///
    /// # Errors
    /// The store's, and [`StoreError::Away`] when memory is too short for a moment.
    pub fn scan_persisted(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_persisted_reserving(vbid, from, &mut unlimited, visit)
    }

    /// As [`Bucket::scan_persisted`]; reserves memory before a large record.
    ///
    /// # Errors
    /// As there.
    pub fn scan_persisted_reserving(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        if self.config().storage != Storage::Memory {
            return self.core.store().scan_collection(vbid, from, reserve, visit);
        }
        let Some(mut items) = self.items_now(vbid) else {
            return Err(StoreError::Away(format!("{vbid} has no moment to be scanned at")));
        };
        let is_wanted = |key: DocKey<'_>| key.collection == from.collection && key.key >= from.key;
        items.retain(|item| is_wanted(item.key()));
        items.sort_unstable_by(|left, right| left.key().key.cmp(right.key().key));
        debug_assert!(
            items.windows(2).all(|two| two[0].key() != two[1].key()),
            "a table has a key once"
        );
        for item in &items {
            let item = plain(item)?;
            let record = record::of(&item);
            if reserve_for(&record, reserve).is_break() || visit(record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All versions of a vbucket in memory, in seqno order. `None` when it serves no longer, or
    /// when memory is too short.
    fn items_now(&self, vbid: Vbid) -> Option<Vec<ItemRef>> {
        let context = self.core.context(Timestamp::default());
        let vbucket = self.scannable_vbucket(vbid).ok()?;
        Some(vbucket.memory_snapshot(&context, Seqno(0))?.items)
    }

    /// Visits the persisted versions with these seqnos, tombstones included, in seqno order.
    ///
    /// # Errors
    /// The store's.
    pub fn scan_persisted_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let range = SeqnoRange::seqnos(from, to);
        self.core.store().begin_scan(vbid, range)?.resume(&mut unlimited, visit).map(drop)
    }

    /// Begins a scan of a vbucket as it is now, of one collection or of all; with one, versions of
    /// others may come, too. Values that are not wanted may come as well. `None` when there is no
    /// such vbucket, when it serves no longer, or when memory is too short for a moment.
    ///
    /// # Errors
    /// The store's.
    pub fn begin_moment(
        &self,
        vbid: Vbid,
        only: Option<CollectionId>,
        values: LoadValues,
    ) -> Result<Option<SnapshotScan>, StoreError> {
        if self.config().storage == Storage::Memory {
            let items = self.items_now(vbid);
            return Ok(items.map(|items| SnapshotScan(Moment::Memory { items, at: 0, values })));
        }
        let range = SeqnoRange { collection: only, values, ..SeqnoRange::ALL };
        let scan = self.core.store().begin_scan(vbid, range)?;
        Ok(Some(SnapshotScan(Moment::Store(scan))))
    }

    /// Visits the persisted version of a key, tombstones included. Reserves memory before a large
    /// one, which is not visited without it. False when there is none.
    ///
    /// # Errors
    /// The store's.
    pub fn read_persisted_reserving(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.core.store().get(vbid, key, reserve, visit)
    }
}
