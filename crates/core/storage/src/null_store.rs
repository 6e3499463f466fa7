//! A store that takes every commit and keeps nothing, for measuring the layers above it.
//!
//! Invariants: no key is ever found in it, so a bench may ask for new keys only; it allocates
//! nothing. Callers: benches and tests of the engine, with the feature `testing`.

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use crate::{
    KvStore, Record, RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange, SeqnoScan,
    SnapshotSeqnos, StoreError, StoreMaintenance, StoreStats, VbBatch, VbucketState,
};

#[derive(Clone, Copy, Debug, Default)]
pub struct NullStore;

struct EmptyScan;

impl SeqnoScan for EmptyScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        SnapshotSeqnos::default()
    }

    fn resume(
        &mut self,
        _: &mut ReserveMemory<'_>,
        _: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        Ok(ScanProgress::Ended)
    }
}

impl KvStore for NullStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        std::hint::black_box(batches);
        Ok(())
    }

    fn get(
        &self,
        _: Vbid,
        _: DocKey<'_>,
        _: &mut ReserveMemory<'_>,
        _: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn may_contain(&self, _: Vbid, _: DocKey<'_>) -> bool {
        false
    }

    fn scan_keys(&self, _: Vbid, _: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin_scan(&self, _: Vbid, _: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        Ok(Box::new(EmptyScan))
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        Ok(Vec::new())
    }

    fn get_local(&self, _: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn put_local(&self, _: &str, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl StoreMaintenance for NullStore {
    fn purge_collection(&self, _: Vbid, _: CollectionId) -> Result<(), StoreError> {
        Ok(())
    }

    fn drop_vbucket(&self, _: Vbid, _: Option<&VbucketState>) -> Result<(), StoreError> {
        Ok(())
    }

    fn compact(&self, _: Vbid, _: u32) -> Result<Option<Seqno>, StoreError> {
        Ok(None)
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}
