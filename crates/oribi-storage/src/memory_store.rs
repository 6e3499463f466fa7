//! A store in memory, for tests of everything above the seam.
//!
//! Owns: nothing durable. The bytes live in a [`MemoryMedium`] outside the store object, so a test
//! can drop the store as a crash would, open another one on the same medium and look at what was
//! committed. Invariant: a commit is applied under one lock, so a reader sees all of it or none.
//! Callers: tests of the engine and the server, and the conformance suite, to which it is the
//! simplest backend. It does not bound its memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};
use parking_lot::Mutex;

use crate::counters::{Counters, ReadCount};
use crate::{
    KvStore, Medium, Record, RecordVisitor, StoreError, StoreStats, VbBatch, VbucketState,
};

/// Collection and key, in the order of `scan_keys`.
type OwnedKey = (CollectionId, Vec<u8>);

/// Everything of a record but its key.
#[derive(Clone, Debug)]
struct OwnedRecord {
    value: Vec<u8>,
    cas: Cas,
    seqno: Seqno,
    rev_seqno: RevSeqno,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
    deleted: bool,
}

impl OwnedRecord {
    fn of(record: &Record<'_>) -> OwnedRecord {
        OwnedRecord {
            value: record.value.to_vec(),
            cas: record.cas,
            seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            deleted: record.deleted,
        }
    }

    fn borrow<'a>(&'a self, key: &'a OwnedKey) -> Record<'a> {
        Record {
            key: DocKey { collection: key.0, key: &key.1 },
            value: &self.value,
            cas: self.cas,
            seqno: self.seqno,
            rev_seqno: self.rev_seqno,
            flags: self.flags,
            expiry: self.expiry,
            datatype: self.datatype,
            deleted: self.deleted,
        }
    }
}

/// One vbucket. Shared with running scans, so a writer copies it when one is under way.
#[derive(Clone, Debug, Default)]
struct VbucketData {
    records: BTreeMap<OwnedKey, OwnedRecord>,
    state: Option<VbucketState>,
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
#[derive(Debug, Default)]
pub struct MemoryStore {
    medium: Arc<MemoryMedium>,
    counters: Counters,
}

impl MemoryStore {
    /// An empty store on a medium of its own.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Opens what an earlier store left on the medium.
    pub fn on(medium: Arc<MemoryMedium>) -> MemoryStore {
        MemoryStore { medium, ..MemoryStore::default() }
    }

    /// The bytes of this store, to open another one on them.
    pub fn medium(&self) -> Arc<MemoryMedium> {
        Arc::clone(&self.medium)
    }

    /// The vbucket as it is now; later commits do not change what was returned.
    fn vbucket(&self, vbid: Vbid) -> Arc<VbucketData> {
        self.medium.data.lock().vbuckets.get(&vbid).cloned().unwrap_or_default()
    }

    fn visit_all<'r>(
        &self,
        records: impl Iterator<Item = (&'r OwnedKey, &'r OwnedRecord)>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        for (key, record) in records {
            let record = record.borrow(key);
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
            for record in &batch.records {
                let key = (record.key.collection, record.key.key.to_vec());
                vbucket.records.insert(key, OwnedRecord::of(record));
            }
            vbucket.state = Some(batch.state.clone());
        }
        self.counters.commit(batches, Ok(()))
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let key = (key.collection, key.key.to_vec());
        let vbucket = self.vbucket(vbid);
        let found = vbucket.records.get(&key).map(|record| record.borrow(&key));
        let mut count = ReadCount::default();
        if let Some(record) = found {
            count.add(&record);
            visit(record);
        }
        self.counters.read(&count, Ok(found.is_some()))
    }

    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let data = self.medium.data.lock();
        let key = (key.collection, key.key.to_vec());
        data.vbuckets.get(&vbid).is_some_and(|vbucket| vbucket.records.contains_key(&key))
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        self.visit_all(self.vbucket(vbid).records.iter(), visit)
    }

    fn scan_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let vbucket = self.vbucket(vbid);
        let in_range = |(_, record): &(_, &OwnedRecord)| from <= record.seqno && record.seqno <= to;
        let mut found: Vec<_> = vbucket.records.iter().filter(in_range).collect();
        found.sort_by_key(|(_, record)| record.seqno);
        self.visit_all(found.into_iter(), visit)
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

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        let mut data = self.medium.data.lock();
        if let Some(vbucket) = data.vbuckets.get_mut(&vbid) {
            Arc::make_mut(vbucket).records.retain(|key, _| key.0 != collection);
        }
        Ok(())
    }

    fn drop_vbucket(&self, vbid: Vbid) -> Result<(), StoreError> {
        self.medium.data.lock().vbuckets.remove(&vbid);
        Ok(())
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        let mut data = self.medium.data.lock();
        let Some(vbucket) = data.vbuckets.get_mut(&vbid) else {
            return self.counters.compact(Ok(None));
        };
        let vbucket = Arc::make_mut(vbucket);
        let mut highest = None;
        vbucket.records.retain(|_, record| {
            let purge = record.deleted && record.expiry < purge_before;
            highest = if purge { highest.max(Some(record.seqno)) } else { highest };
            !purge
        });
        if let (Some(highest), Some(state)) = (highest, vbucket.state.as_mut()) {
            state.purge_seqno = state.purge_seqno.max(highest);
        }
        self.counters.compact(Ok(highest))
    }

    fn stats(&self) -> StoreStats {
        let data = self.medium.data.lock();
        let records = data.vbuckets.values().flat_map(|vbucket| vbucket.records.iter());
        let bytes = records.map(|(key, record)| key.1.len() + record.value.len()).sum::<usize>();
        StoreStats { disk_bytes: bytes as u64, ..self.counters.stats() }
    }
}

#[cfg(test)]
mod tests;
