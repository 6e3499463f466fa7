//! A store in memory, for tests of everything above the seam.
//!
//! Owns: nothing durable. The bytes live in a [`MemoryMedium`] outside the store object, so a test
//! can drop the store as a crash would, open another one on the same medium and look at what was
//! committed. Invariant: a commit is applied under one lock, so a reader sees all of it or none.
//! Callers: tests of the engine and the server, and the conformance suite, to which it is the
//! simplest backend. It does not bound its memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
use parking_lot::Mutex;

use crate::counters::{Counters, ReadCount};
use crate::{
    KvStore, Medium, OwnedRecord, Record, RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange,
    SeqnoScan, SnapshotSeqnos, StoreError, StoreMaintenance, StoreProperties, StoreStats, VbBatch,
    VbucketState, reserve_for,
};

/// Collection and key, in the order of `scan_keys`.
type OwnedKey = (CollectionId, Vec<u8>);

/// One vbucket. Shared with running scans, so a writer copies it (not its records) when one is
/// under way.
#[derive(Clone, Debug, Default)]
struct VbucketData {
    records: BTreeMap<OwnedKey, Arc<OwnedRecord>>,
    by_seqno: BTreeMap<Seqno, Arc<OwnedRecord>>,
    state: Option<VbucketState>,
}

impl VbucketData {
    fn put(&mut self, record: &Record<'_>) {
        let key = (record.key.collection, record.key.key.to_vec());
        let record = Arc::new(OwnedRecord::of(record));
        if let Some(replaced) = self.records.insert(key, Arc::clone(&record)) {
            self.by_seqno.remove(&replaced.seqno());
        }
        self.by_seqno.insert(record.seqno(), record);
        debug_assert!(self.by_seqno.len() <= self.records.len(), "a replaced record leaves both");
    }

    fn retain(&mut self, mut is_kept: impl FnMut(Record<'_>) -> bool) {
        let by_seqno = &mut self.by_seqno;
        self.records.retain(|_, record| {
            let is_kept = is_kept(record.borrow());
            if !is_kept {
                by_seqno.remove(&record.seqno());
            }
            is_kept
        });
        debug_assert!(self.by_seqno.len() <= self.records.len(), "a removed record leaves both");
    }
}

/// See [`SeqnoScan`]: the vbucket as it was.
struct MemoryScan {
    vbucket: Arc<VbucketData>,
    counters: Arc<Counters>,
    /// Where it continues; `None` at the end.
    next: Option<Seqno>,
    to: Seqno,
}

impl SeqnoScan for MemoryScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        SnapshotSeqnos::of(self.vbucket.state.as_ref())
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        let mut count = ReadCount::default();
        let next = self.next.take().filter(|next| *next <= self.to);
        let mut records = next.map(|next| self.vbucket.by_seqno.range(next..=self.to));
        for (seqno, record) in records.iter_mut().flatten() {
            debug_assert_eq!(*seqno, record.seqno(), "a record is found by its own seqno");
            debug_assert!(*seqno <= self.to, "a scan stays in its range");
            let record = record.borrow();
            count.add(&record);
            if reserve_for(&record, reserve).is_break() || visit(record).is_break() {
                self.next = seqno.0.checked_add(1).map(Seqno);
                return self.counters.read(&count, Ok(ScanProgress::Paused));
            }
        }
        self.counters.read(&count, Ok(ScanProgress::Ended))
    }
}

#[derive(Debug, Default)]
struct MediumData {
    vbuckets: BTreeMap<Vbid, Arc<VbucketData>>,
    locals: BTreeMap<String, Vec<u8>>,
}

/// The bytes that outlive a [`MemoryStore`].
#[derive(Debug, Default)]
pub struct MemoryMedium {
    data: Mutex<MediumData>,
}

impl Medium for Arc<MemoryMedium> {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        Ok(Box::new(MemoryStore::on(Arc::clone(self))))
    }
}

/// A [`KvStore`] over a [`MemoryMedium`].
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    medium: Arc<MemoryMedium>,
    counters: Arc<Counters>,
    /// Its [`StoreProperties::commit_groups`], if more than one.
    groups: usize,
}

impl MemoryStore {
    /// An empty store on its own medium.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// An empty store that says that it commits so many groups side by side.
    pub fn in_groups(groups: usize) -> MemoryStore {
        MemoryStore { groups, ..MemoryStore::default() }
    }

    /// Opens the data of an earlier store on the medium.
    pub fn on(medium: Arc<MemoryMedium>) -> MemoryStore {
        MemoryStore { medium, ..MemoryStore::default() }
    }

    /// The bytes of this store, to open another one on them.
    pub fn medium(&self) -> Arc<MemoryMedium> {
        Arc::clone(&self.medium)
    }

    /// The vbucket as it is now; later commits do not change the returned state.
    fn vbucket(&self, vbid: Vbid) -> Arc<VbucketData> {
        self.medium.data.lock().vbuckets.get(&vbid).cloned().unwrap_or_default()
    }

    fn visit_all<'r>(
        &self,
        records: impl Iterator<Item = &'r Arc<OwnedRecord>>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        for record in records {
            let record = record.borrow();
            count.add(&record);
            if visit(record).is_break() {
                break;
            }
        }
        self.counters.read(&count, Ok(()))
    }
}

impl KvStore for MemoryStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        let mut data = self.medium.data.lock();
        for batch in batches {
            let vbucket = Arc::make_mut(data.vbuckets.entry(batch.vbid).or_default());
            batch.records.iter().for_each(|record| vbucket.put(record));
            let known = vbucket.state.as_ref();
            vbucket.state = Some(batch.state.knowing_purges_of(known));
            debug_assert!(vbucket.state.is_some(), "a committed vbucket has a state");
        }
        self.counters.commit(batches, Ok(()))
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties { commit_groups: self.groups.max(1), ..StoreProperties::default() }
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let key = (key.collection, key.key.to_vec());
        let vbucket = self.vbucket(vbid);
        let found = vbucket.records.get(&key).map(|record| record.borrow());
        let mut count = ReadCount::default();
        if let Some(record) = found {
            count.add(&record);
            if reserve_for(&record, reserve).is_continue() {
                visit(record);
            }
        }
        self.counters.read(&count, Ok(found.is_some()))
    }

    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let data = self.medium.data.lock();
        let key = (key.collection, key.key.to_vec());
        data.vbuckets.get(&vbid).is_some_and(|vbucket| vbucket.records.contains_key(&key))
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        self.visit_all(self.vbucket(vbid).records.values(), visit)
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        let (vbucket, counters) = (self.vbucket(vbid), Arc::clone(&self.counters));
        Ok(Box::new(MemoryScan { vbucket, counters, next: Some(range.from), to: range.to }))
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let data = self.medium.data.lock();
        let states = data.vbuckets.iter().filter_map(|(vbid, vbucket)| {
            vbucket.state.as_ref().map(|state| (*vbid, state.clone()))
        });
        Ok(states.collect())
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.medium.data.lock().locals.get(name).cloned())
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.medium.data.lock().locals.insert(name.to_owned(), value.to_vec());
        Ok(())
    }
}

impl StoreMaintenance for MemoryStore {
    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        let mut data = self.medium.data.lock();
        if let Some(vbucket) = data.vbuckets.get_mut(&vbid) {
            Arc::make_mut(vbucket).retain(|record| record.key.collection != collection);
        }
        Ok(())
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        let mut data = self.medium.data.lock();
        data.vbuckets.remove(&vbid);
        if let Some(next) = next {
            Arc::make_mut(data.vbuckets.entry(vbid).or_default()).state = Some(next.clone());
        }
        Ok(())
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        let mut data = self.medium.data.lock();
        let Some(vbucket) = data.vbuckets.get_mut(&vbid) else {
            return self.counters.compact(Ok(None));
        };
        let vbucket = Arc::make_mut(vbucket);
        let mut highest = None;
        vbucket.retain(|record| {
            let purge = record.deleted && record.expiry < purge_before;
            highest = if purge { highest.max(Some(record.seqno)) } else { highest };
            !purge
        });
        if let (Some(highest), Some(state)) = (highest, vbucket.state.as_mut()) {
            state.purge_seqno = state.purge_seqno.max(highest);
        }
        self.counters.compact(Ok(highest))
    }

    fn forget_prepares(&self, vbid: Vbid) -> Result<u64, StoreError> {
        let mut data = self.medium.data.lock();
        let Some(vbucket) = data.vbuckets.get_mut(&vbid) else { return Ok(0) };
        let completed = vbucket.state.as_ref().map_or(Seqno(0), |it| it.high_completed_seqno);
        let before = vbucket.records.len();
        Arc::make_mut(vbucket).retain(|record| {
            let is_prepare = record.key.collection == CollectionId::PREPARES && !record.deleted;
            !is_prepare || record.seqno > completed
        });
        Ok((before - vbucket.records.len()) as u64)
    }

    fn stats(&self) -> StoreStats {
        let data = self.medium.data.lock();
        let records = data.vbuckets.values().flat_map(|vbucket| vbucket.records.values());
        let records = records.map(|record| record.borrow());
        let bytes = records.map(|record| record.key.key.len() + record.value.len()).sum::<usize>();
        StoreStats { disk_bytes: bytes as u64, ..self.counters.stats() }
    }
}

#[cfg(test)]
mod tests;
