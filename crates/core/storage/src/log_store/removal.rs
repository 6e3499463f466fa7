//! Taking records away, and local documents: each one small frame.
//!
//! Owns: what a removal writes. Nothing is overwritten: a dropped vbucket, a purged collection and
//! purged tombstones are bounds (see `bounds.rs`), whatever they cover. Space comes back when
//! segments are compacted. Invariant: a bound is set for exactly what the catalog shows as gone
//! afterwards; the bound of a purge of tombstones and the purge seqno are one frame.

use std::ops::ControlFlow;

use oribi_types::{CollectionId, Seqno, Vbid};

use super::bounds::TombstonePurge;
use super::catalog::{Catalog, Segment, TableKey};
use super::index::{Entry, Mark};
use super::layout::{Kind, StoredRecord};
use super::log::{Log, check_lengths};
use super::planted::Bug;
use super::read::{read_record, seqno_at};
use super::writer::{bound_record, write_error};
use crate::state_layout::encode_state;
use crate::{StoreError, VbucketState};

/// Room for a frame of a bound and a state.
const CONTROL_BYTES: u64 = 1024;

/// Prepares that are looked at while no record moves, and leave the index under one hold of its
/// lock.
const FORGOTTEN_AT_ONCE: usize = 256;

/// A tombstone that a purge has found.
struct Candidate {
    table: TableKey,
    entry: Entry,
    seqno: Seqno,
}

impl Candidate {
    /// True when nothing has superseded it since.
    fn is_current(&self, catalog: &Catalog) -> bool {
        let fingerprint = self.entry.fingerprint();
        catalog.points_at(self.table, fingerprint, self.entry.place()).is_some()
    }

    /// Hides the tombstone. It stays where it is, because older versions may still be on disk.
    fn purge(&self, catalog: &mut Catalog) {
        debug_assert_eq!(self.entry.mark(), Mark::Tombstone, "only a tombstone is purged");
        let entry = self.entry.marked(Mark::Purged);
        catalog.repoint(self.table, entry.fingerprint(), entry.place(), entry);
    }
}

impl Log {
    pub(super) fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        check_lengths(name.as_bytes(), value)?;
        let record = StoredRecord::control(Kind::Local, Vbid(0), name.as_bytes(), value);
        self.control(
            record.stored_bytes(),
            |_| vec![record],
            |_, _, catalog| {
                catalog.locals.insert(name.to_owned(), value.to_vec());
            },
        )
    }

    pub(super) fn drop_vbucket(
        &self,
        vbid: Vbid,
        next: Option<&VbucketState>,
    ) -> Result<(), StoreError> {
        let is_known = {
            let catalog = self.catalog.read();
            catalog.states.contains_key(&vbid) || catalog.tables_of(vbid).next().is_some()
        };
        if !is_known && next.is_none() {
            return Ok(());
        }
        let encoded = next.map(encode_state);
        // One frame: between two of them the vbucket would be unknown, and so active and empty.
        self.control(
            CONTROL_BYTES,
            |position| {
                let state = encoded.as_deref();
                let state = state.map(|it| StoredRecord::control(Kind::State, vbid, b"", it));
                let bound = bound_record(Kind::DropVbucket, vbid, position);
                std::iter::once(bound).chain(state).collect()
            },
            |position, bounds, catalog| {
                bounds.drop_vbucket(vbid, position);
                catalog.drop_vbucket(vbid);
                if let Some(next) = next {
                    catalog.states.insert(vbid, next.clone());
                }
            },
        )
    }

    /// A collection without a table has no record that counts, and needs no bound.
    pub(super) fn purge_collection(
        &self,
        vbid: Vbid,
        collection: CollectionId,
    ) -> Result<(), StoreError> {
        if !self.catalog.read().tables.contains_key(&(vbid, collection)) {
            return Ok(());
        }
        self.control(
            CONTROL_BYTES,
            |position| {
                let mut record = bound_record(Kind::PurgeCollection, vbid, position);
                record.record.key.collection = collection;
                vec![record]
            },
            |position, bounds, catalog| {
                bounds.purge_collection(vbid, collection, position);
                catalog.drop_table((vbid, collection));
            },
        )
    }

    /// Purges tombstones that were deleted before `purge_before` and returns the highest seqno
    /// among them. The bound is where the log ended before the search, so that an opening finds the
    /// same tombstones: later ones come after the bound, and none moves until then.
    pub(super) fn purge_tombstones(
        &self,
        vbid: Vbid,
        purge_before: u32,
    ) -> Result<Option<Seqno>, StoreError> {
        let _none_moves = self.moves.read();
        // Copies that are shown later would take the tombstones from where the search finds them.
        let position = self.exclusive(|writer| {
            if !writer.unsynced_moves.is_empty() {
                writer.sync().map_err(|error| write_error(writer, &error))?;
            }
            assert!(
                writer.unsynced_moves.is_empty(),
                "a copy is shown before its tombstone is searched for"
            );
            Ok(writer.position())
        })?;
        let mut candidates = self.old_tombstones(vbid, purge_before)?;
        if candidates.is_empty() {
            return Ok(None);
        }
        let mut highest = None;
        let mut state = None;
        let mut encoded = Vec::new();
        self.exclusive(|writer| {
            self.begin_segment_if_full(writer, CONTROL_BYTES)?;
            let catalog = self.catalog.read();
            candidates.retain(|candidate| candidate.is_current(&catalog));
            highest = candidates.iter().map(|candidate| candidate.seqno).max();
            let Some(highest) = highest else { return Ok(()) };
            debug_assert!(!candidates.is_empty(), "the highest is one of them");
            state = catalog.states.get(&vbid).cloned();
            drop(catalog);
            let mut bound = bound_record(Kind::PurgeTombstones, vbid, position);
            bound.record.expiry = purge_before;
            let mut records = vec![bound];
            if let Some(state) = &mut state {
                state.purge_seqno = state.purge_seqno.max(highest);
                debug_assert!(state.purge_seqno <= state.high_seqno,);
                encoded = encode_state(state);
                records.push(StoredRecord::control(Kind::State, vbid, b"", &encoded));
            }
            if self.planted.has(Bug::PurgesBeforeItSaysSo) {
                self.write_and_sync(writer, &records[..1])?;
                self.write_and_sync(writer, &records[1..])?;
            } else {
                self.write_and_sync(writer, &records)?;
            }
            writer.bounds.purge_tombstones(vbid, TombstonePurge { purge_before, position });
            let mut catalog = self.catalog.write();
            candidates.iter().for_each(|candidate| candidate.purge(&mut catalog));
            if let Some(state) = state.take() {
                catalog.states.insert(vbid, state);
            }
            Ok(())
        })?;
        Ok(highest)
    }

    /// Takes completed prepares out of the index, so that compaction does not move them. Nothing is
    /// written: an opening finds those again whose segments are still there. That is no harm, for
    /// whatever is completed stays so.
    pub(super) fn forget_prepares(&self, vbid: Vbid) -> Result<u64, StoreError> {
        let table = (vbid, CollectionId::PREPARES);
        let (completed, mut prepares) = {
            let catalog = self.catalog.read();
            let completed = catalog.states.get(&vbid).map(|state| state.high_completed_seqno);
            let Some(completed) = completed.filter(|completed| *completed > Seqno(0)) else {
                return Ok(0);
            };
            let entries = catalog.tables.get(&table).into_iter().flat_map(|table| table.iter());
            let entries = entries.filter(|entry| entry.mark() == Mark::Document);
            let of_segment = |entry: Entry| (catalog.segment(entry.place().slot).id, entry);
            (completed, entries.map(of_segment).collect::<Vec<(u32, Entry)>>())
        };
        prepares.sort_by_key(|(segment, entry)| (*segment, entry.place().offset()));
        let mut forgotten = 0;
        for slice in prepares.chunks(FORGOTTEN_AT_ONCE) {
            forgotten += self.forget_completed(table, slice, completed)?;
        }
        assert!(forgotten <= prepares.len() as u64, "only prepares are forgotten");
        Ok(forgotten)
    }

    /// Forgets the prepares of a slice that are completed. Nothing moves until it returns; what
    /// has moved since the slice was made, or was superseded, waits for the next call.
    fn forget_completed(
        &self,
        table: TableKey,
        slice: &[(u32, Entry)],
        completed: Seqno,
    ) -> Result<u64, StoreError> {
        let _none_moves = self.moves.read();
        let current: Vec<(Entry, Segment)> = {
            let catalog = self.catalog.read();
            let current = slice.iter().filter_map(|(id, entry)| {
                catalog.points_at(table, entry.fingerprint(), entry.place())?;
                let segment = catalog.segment(entry.place().slot);
                (segment.id == *id).then(|| (*entry, segment.clone()))
            });
            current.collect()
        };
        let mut done = Vec::new();
        for (entry, segment) in current {
            if seqno_at(&segment, entry.place().offset(), table)? <= completed {
                done.push(entry);
            }
        }
        let mut catalog = self.catalog.write();
        let before = catalog.entries().0;
        for entry in &done {
            // One that a commit has replaced since is not found.
            catalog.remove_at(table, entry.fingerprint(), entry.place());
        }
        Ok(before - catalog.entries().0)
    }

    /// Tombstones of the vbucket that are shown and were deleted before `purge_before`.
    fn old_tombstones(&self, vbid: Vbid, purge_before: u32) -> Result<Vec<Candidate>, StoreError> {
        let mut tombstones: Vec<(TableKey, Entry, Segment)> = Vec::new();
        {
            let catalog = self.catalog.read();
            for (key, table) in catalog.tables_of(vbid) {
                let found = table.iter().filter(|entry| entry.mark() == Mark::Tombstone);
                tombstones.extend(
                    found.map(|entry| (*key, entry, catalog.segment(entry.place().slot).clone())),
                );
            }
        }
        tombstones.sort_by_key(|(_, entry, segment)| (segment.id, entry.place().offset()));
        let mut buffer = Vec::new();
        let mut candidates = Vec::new();
        for (table, entry, segment) in tombstones {
            let mut room = |_| ControlFlow::Continue(());
            let offset = entry.place().offset();
            let Some(stored) = read_record(&segment, offset, &mut buffer, &mut room)? else {
                continue;
            };
            let record = stored.record;
            if record.expiry < purge_before {
                debug_assert_eq!(entry.mark(), Mark::Tombstone, "only a tombstone is purged");
                candidates.push(Candidate { table, entry, seqno: record.seqno });
            }
        }
        Ok(candidates)
    }
}
