//! Taking records away: a dropped collection, a dropped vbucket, old tombstones.
//!
//! Owns: removals in bounded batches between which commits get their turn. fjall's own range and
//! keyspace removals are not used: they have lost data in past versions. Invariant: dropping a
//! vbucket survives a crash half-way, because the first batch leaves a note that the next open reads.

use std::ops::ControlFlow;

use fjall::{PersistMode, Readable, Slice};
use oribi_types::{CollectionId, Seqno, Vbid};

use super::failure::{guarded, store_error};
use super::{FjallStore, layout};
use crate::StoreError;

/// Keys that one batch removes. Bounds how long commits wait and how much memory a batch takes.
const REMOVALS_PER_BATCH: usize = 4096;

impl FjallStore {
    pub(super) fn remove_collection(
        &self,
        vbid: Vbid,
        collection: CollectionId,
    ) -> Result<(), StoreError> {
        match self.remove_prefix(&layout::collection_prefix(vbid, collection))? {
            0 => Ok(()),
            _ => self.settle(),
        }
    }

    /// Takes the state away first, durably and together with a note, then the records, then the
    /// note: at no time does a state stand beside some of its records.
    pub(super) fn remove_vbucket(&self, vbid: Vbid) -> Result<(), StoreError> {
        self.writer.write(PersistMode::SyncData, |batch| {
            batch.remove(layout::state_key(vbid));
            batch.insert(layout::drop_key(vbid), Vec::new());
            Ok(())
        })?;
        self.finish_drop(vbid)
    }

    /// Ends the drops that a crash interrupted.
    pub(super) fn finish_interrupted_drops(&self) -> Result<(), StoreError> {
        let mut vbids = Vec::new();
        self.scan_prefix(&layout::DROP_PREFIX, &mut |key, _| {
            vbids.push(layout::vbid_of_state_key(key)?);
            Ok(ControlFlow::Continue(()))
        })?;
        vbids.into_iter().try_for_each(|vbid| self.finish_drop(vbid))
    }

    fn finish_drop(&self, vbid: Vbid) -> Result<(), StoreError> {
        let removed = self.remove_prefix(&layout::vbucket_prefix(vbid))?;
        self.writer.write(PersistMode::SyncData, |batch| {
            batch.remove(layout::drop_key(vbid));
            Ok(())
        })?;
        if removed > 0 { self.settle() } else { Ok(()) }
    }

    /// Removes every key below `prefix` without reading values, which may be large. Returns how many.
    fn remove_prefix(&self, prefix: &[u8]) -> Result<usize, StoreError> {
        let snapshot = self.database.snapshot();
        let mut removed = 0;
        let mut keys = snapshot.prefix(&self.keyspace, prefix);
        loop {
            let some = keys.by_ref().take(REMOVALS_PER_BATCH);
            let some: Result<Vec<Slice>, StoreError> =
                guarded("scan", || some.map(|entry| entry.key().map_err(store_error)).collect());
            let some = some?;
            if some.is_empty() {
                return Ok(removed);
            }
            removed += some.len();
            self.writer.write(PersistMode::Buffer, |batch| {
                some.into_iter().for_each(|key| batch.remove(key));
                Ok(())
            })?;
        }
    }

    /// Removes tombstones older than `purge_before`. A record that a commit replaced since it was
    /// read stays: each batch looks again while it is the only writer. The purge seqno goes
    /// up in the same batch, so that no crash leaves a gap in the history without a mark.
    pub(super) fn purge_tombstones(
        &self,
        vbid: Vbid,
        purge_before: u32,
    ) -> Result<Option<Seqno>, StoreError> {
        let mut old: Vec<(Slice, Seqno)> = Vec::new();
        let mut highest = None;
        let mut purge = |old: &mut Vec<(Slice, Seqno)>| {
            let purged = self.purge_batch(vbid, old)?;
            highest = highest.max(purged);
            old.clear();
            Ok::<(), StoreError>(())
        };
        self.scan_prefix(&layout::vbucket_prefix(vbid), &mut |key, value| {
            let record = layout::decode_record(key, value)?;
            if record.deleted && record.expiry < purge_before {
                old.push((Slice::new(key), record.seqno));
            }
            if old.len() >= REMOVALS_PER_BATCH {
                purge(&mut old)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        purge(&mut old)?;
        if highest.is_some() {
            self.settle()?;
        }
        Ok(highest)
    }

    pub(super) fn purge_batch(
        &self,
        vbid: Vbid,
        old: &[(Slice, Seqno)],
    ) -> Result<Option<Seqno>, StoreError> {
        let mut highest = None;
        if old.is_empty() {
            return Ok(highest);
        }
        self.writer.write(PersistMode::Buffer, |batch| {
            for (key, seqno) in old {
                let Some(value) = self.keyspace.get(key).map_err(store_error)? else { continue };
                if layout::decode_record(key, &value)?.seqno == *seqno {
                    batch.remove(key.clone());
                    highest = highest.max(Some(*seqno));
                }
            }
            let state_key = layout::state_key(vbid);
            let state = self.keyspace.get(&state_key).map_err(store_error)?;
            if let (Some(highest), Some(state)) = (highest, state) {
                let mut state = layout::decode_state(&state)?;
                state.purge_seqno = state.purge_seqno.max(highest);
                batch.insert(state_key, layout::encode_state(&state));
            }
            Ok(())
        })?;
        Ok(highest)
    }

    /// Makes removals durable and hands them to the background thread: they give space back when
    /// the tables that they are in are merged with those below.
    fn settle(&self) -> Result<(), StoreError> {
        self.writer.write(PersistMode::SyncData, |_batch| Ok(()))?;
        self.writer.flush_memtable()
    }
}
