//! Counts of a store's operations since it was opened.
//!
//! Owns: the counters of [`StoreStats`], one relaxed addition per batch, read or scan and none
//! per record. Called by the stores, in this crate and in others; sizes on disk are theirs to fill
//! in.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Record, StoreError, StoreStats, VbBatch};

/// Counters of one store. Each is exact; together they are no snapshot.
#[derive(Debug, Default)]
pub struct Counters {
    commits: AtomicU64,
    records_committed: AtomicU64,
    deletions_committed: AtomicU64,
    bytes_committed: AtomicU64,
    last_commit_records: AtomicU64,
    commit_failures: AtomicU64,
    set_failures: AtomicU64,
    delete_failures: AtomicU64,
    vbucket_state_failures: AtomicU64,
    records_read: AtomicU64,
    bytes_read: AtomicU64,
    read_failures: AtomicU64,
    compactions: AtomicU64,
    compact_failures: AtomicU64,
}

/// Records that one read or scan has seen, counted where no other thread looks.
#[derive(Default)]
pub struct ReadCount {
    records: u64,
    bytes: u64,
}

impl ReadCount {
    /// The read has seen `record`.
    pub fn add(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.bytes += document_bytes(record);
    }
}

impl Counters {
    /// Counts a commit by how it ended and passes its result on.
    pub fn commit(
        &self,
        batches: &[VbBatch<'_>],
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (mut records, mut deletions, mut bytes) = (0, 0, 0);
        for batch in batches {
            records += batch.records.len() as u64;
            deletions += batch.records.iter().filter(|record| record.deleted).count() as u64;
            bytes += batch.records.iter().map(document_bytes).sum::<u64>();
        }
        debug_assert!(deletions <= records, "a deletion is a record");
        if result.is_ok() {
            add(&self.commits, 1);
            add(&self.records_committed, records);
            add(&self.deletions_committed, deletions);
            add(&self.bytes_committed, bytes);
            self.last_commit_records.store(records, Ordering::Relaxed);
        } else {
            add(&self.commit_failures, 1);
            add(&self.set_failures, records - deletions);
            add(&self.delete_failures, deletions);
            add(&self.vbucket_state_failures, batches.len() as u64);
        }
        result
    }

    /// Counts a read or scan that has seen `count`, and passes its result on.
    pub fn read<T>(
        &self,
        count: &ReadCount,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        debug_assert!(count.records > 0 || count.bytes == 0, "bytes are of records");
        add(&self.records_read, count.records);
        add(&self.bytes_read, count.bytes);
        add(&self.read_failures, u64::from(result.is_err()));
        result
    }

    /// Counts a purge of tombstones by how it ended and passes its result on.
    pub fn compact<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let count = if result.is_ok() { &self.compactions } else { &self.compact_failures };
        add(count, 1);
        result
    }

    /// All counts, without the size on disk and compaction in the background.
    pub fn stats(&self) -> StoreStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            disk_bytes: 0,
            records_committed: load(&self.records_committed),
            deletions_committed: load(&self.deletions_committed),
            bytes_committed: load(&self.bytes_committed),
            last_commit_records: load(&self.last_commit_records),
            commits: load(&self.commits),
            commit_failures: load(&self.commit_failures),
            set_failures: load(&self.set_failures),
            delete_failures: load(&self.delete_failures),
            vbucket_state_failures: load(&self.vbucket_state_failures),
            records_read: load(&self.records_read),
            bytes_read: load(&self.bytes_read),
            read_failures: load(&self.read_failures),
            compactions: load(&self.compactions),
            compact_failures: load(&self.compact_failures),
            compaction_fails: false,
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    debug_assert!(count <= i64::MAX as u64, "a counter never falls");
    counter.fetch_add(count, Ordering::Relaxed);
}

fn document_bytes(record: &Record<'_>) -> u64 {
    (record.key.key.len() + record.value.len()) as u64
}
