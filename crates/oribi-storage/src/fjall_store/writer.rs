//! The one way to write: fjall write batches under one lock, a sync, and the flush of the memtable.
//!
//! Owns: the order of writes, back-pressure, and the memory of a failure. Invariants: after a failed
//! write every later one is refused; writers wait while tables queue up to be written, but never
//! for a background thread that has died. Callers: commits, local documents and removals.

use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, OwnedWriteBatch, PersistMode, Slice};
use parking_lot::{Mutex, MutexGuard};

use super::failure::{guarded, store_error};
use super::layout;
use crate::counters::Counters;
use crate::{StoreError, VbBatch};

/// Memtables that may wait to be written as tables. Below fjall's own limit of four, at which it
/// would wait without looking whether its background thread still lives.
const SEALED_MEMTABLES_MAX: usize = 3;

/// Sorted runs in the topmost level from which on writers wait. fjall itself stops at thirty.
const TOP_RUNS_MAX: usize = 20;

/// How often a waiting writer looks again.
const ROOM_POLL: Duration = Duration::from_millis(1);

/// A wait for room longer than this is worth a line in the log.
const ROOM_WARNING_AFTER: Duration = Duration::from_secs(5);

/// Serialises writes to the keyspace.
pub(super) struct Writer {
    database: Database,
    keyspace: Keyspace,
    memtable_bytes: u64,
    /// Text of the failure after which nothing more is written.
    failure: Mutex<Option<String>>,
    counters: Counters,
}

/// One fjall write batch that is being filled.
pub(super) struct Batch<'w> {
    batch: OwnedWriteBatch,
    keyspace: &'w Keyspace,
}

impl Batch<'_> {
    pub(super) fn insert(&mut self, key: Slice, value: impl Into<Slice>) {
        self.batch.insert(self.keyspace, key, value.into());
    }

    pub(super) fn remove(&mut self, key: Slice) {
        self.batch.remove(self.keyspace, key);
    }
}

impl Writer {
    pub(super) fn new(database: Database, keyspace: Keyspace, memtable_bytes: u64) -> Writer {
        Writer {
            database,
            keyspace,
            memtable_bytes,
            failure: Mutex::new(None),
            counters: Counters::default(),
        }
    }

    /// Writes one fjall batch per vbucket and syncs once behind all of them.
    pub(super) fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        batches.iter().for_each(layout::assert_fits);
        let committed = self.exclusive(|writer| {
            for batch in batches {
                writer.apply(batch.records.len() + 1, |out| {
                    for record in &batch.records {
                        let key = layout::document_key(batch.vbid, record.key);
                        out.insert(key, layout::encode_record(record));
                    }
                    out.insert(layout::state_key(batch.vbid), layout::encode_state(&batch.state));
                    Ok(())
                })?;
            }
            writer.database.persist(PersistMode::SyncData).map_err(store_error)
        });
        self.counters.commit(batches, committed)
    }

    /// Writes one fjall batch that `fill` makes while no other write is under way, and makes it as
    /// durable as `mode` says.
    pub(super) fn write(
        &self,
        mode: PersistMode,
        fill: impl FnOnce(&mut Batch<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.exclusive(|writer| {
            writer.apply(1, fill)?;
            writer.database.persist(mode).map_err(store_error)
        })
    }

    /// Writes the memtable out, so that what was removed can leave the disk.
    pub(super) fn flush_memtable(&self) -> Result<(), StoreError> {
        self.exclusive(|writer| {
            writer.keyspace.rotate_memtable().map(|_rotated| ()).map_err(store_error)
        })
    }

    /// What the store did since it was opened.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Runs `work` as the only writer. Its failure is the last thing that this writer does.
    fn exclusive(
        &self,
        work: impl FnOnce(&Writer) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut failure: MutexGuard<'_, Option<String>> = self.failure.lock();
        if let Some(text) = failure.as_ref() {
            return Err(StoreError::Poisoned(text.clone()));
        }
        let outcome = guarded("write", || {
            self.wait_for_room()?;
            work(self)?;
            self.flush_large_memtable()
        });
        if let Err(error) = &outcome {
            tracing::error!(%error, "the store refuses writes until it is reopened");
            *failure = Some(error.to_string());
        }
        outcome
    }

    fn apply(
        &self,
        entries: usize,
        fill: impl FnOnce(&mut Batch<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let batch = OwnedWriteBatch::with_capacity(self.database.clone(), entries);
        let mut batch = Batch { batch, keyspace: &self.keyspace };
        fill(&mut batch)?;
        batch.batch.commit().map_err(store_error)
    }

    /// Waits until the background thread has caught up. Asking fjall to persist nothing costs a
    /// lock, and tells whether that thread has failed.
    fn wait_for_room(&self) -> Result<(), StoreError> {
        let is_full = || {
            self.keyspace.sealed_memtable_count() >= SEALED_MEMTABLES_MAX
                || self.keyspace.tree.l0_run_count() >= TOP_RUNS_MAX
        };
        let mut waits_since = None;
        while is_full() {
            self.database.persist(PersistMode::Buffer).map_err(store_error)?;
            let since = *waits_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= ROOM_WARNING_AFTER {
                tracing::warn!("writes wait for tables to be written and merged");
                waits_since = Some(Instant::now());
            }
            std::thread::sleep(ROOM_POLL);
        }
        Ok(())
    }

    fn flush_large_memtable(&self) -> Result<(), StoreError> {
        if self.keyspace.tree.active_memtable().size() < self.memtable_bytes {
            return Ok(());
        }
        self.keyspace.rotate_memtable().map(|_rotated| ()).map_err(store_error)
    }
}
