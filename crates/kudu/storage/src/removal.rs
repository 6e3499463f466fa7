//! Removal of rows: dropped collections, dropped vbuckets, old tombstones.
//!
//! Kudu removes rows by key only, so the keys are read first. Invariants:
//! - The caller holds the writer, so no commit happens between the read and the removal, and no
//!   newer version is removed.
//! - The Write that removes tombstones also records the purge in the state of their vbucket. No
//!   later state takes the purge back, whatever its sender knew.
//! - No caller waits long for an unreachable Kudu: each step has a time limit, and every step may
//!   be repeated.

use oribi_kudu::{Predicate, Row};
use oribi_storage::{StoreError, VbucketState};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
use tokio::time::Instant;

use crate::chunk_index::ChunkIndex;
use crate::failure::of_cell;
use crate::layout::{COLUMNS, STATE_COLLECTION, column};
use crate::patience::Attempts;
use crate::pieces::corrupt;
use crate::rows::{RowKey, Unit};
use crate::scan::Bounds;
use crate::shared::StoreState;
use crate::store::TURN;
use crate::writer::Writer;

/// Rows that are removed in one Write.
const ROWS_AT_A_TIME: usize = 20_000;

const KEY_NAMES: [&str; 3] =
    [COLUMNS[column::COLLECTION], COLUMNS[column::KEY], COLUMNS[column::CHUNK]];

/// The time limit of a step that begins now.
fn step_limit() -> Option<Instant> {
    Some(Instant::now() + TURN)
}

fn row_key(row: &Row<'_>) -> Result<RowKey, StoreError> {
    Ok(RowKey {
        collection: row.get(0).map_err(of_cell)?,
        key: row.get::<&[u8]>(1).map_err(of_cell)?.to_vec(),
        chunk: row.get(2).map_err(of_cell)?,
    })
}

impl StoreState {
    pub(crate) async fn purge_collection(
        &self,
        writer: &mut Writer,
        vbid: Vbid,
        collection: CollectionId,
    ) -> Result<(), StoreError> {
        self.remove_all(writer, vbid, &Bounds::collection(vbid, collection)).await?;
        writer.chunks.forget_collection(vbid, collection);
        Ok(())
    }

    pub(crate) async fn drop_vbucket(
        &self,
        writer: &mut Writer,
        vbid: Vbid,
        next: Option<&VbucketState>,
    ) -> Result<(), StoreError> {
        self.remove_all(writer, vbid, &Bounds::documents(vbid)).await?;
        // The state is last, so that a half-dropped vbucket is still visible, and is dropped
        // again.
        let state = [RowKey { collection: STATE_COLLECTION, key: Vec::new(), chunk: 0 }];
        let rows = if next.is_none() { &state[..] } else { &[] };
        // The next state is of another history, in which nothing was purged.
        writer.purged.remove(&vbid);
        let unit = Unit::Removal { vbid, rows, state: next };
        self.write(writer, &[unit], step_limit()).await?;
        writer.chunks.forget_vbucket(vbid);
        Ok(())
    }

    async fn remove_all(
        &self,
        writer: &mut Writer,
        vbid: Vbid,
        bounds: &Bounds,
    ) -> Result<(), StoreError> {
        loop {
            let limits = (ROWS_AT_A_TIME, Attempts::until(step_limit()));
            let rows = self.scan_rows(bounds, &[], &KEY_NAMES, limits, row_key).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let unit = Unit::Removal { vbid, rows: &rows, state: None };
            self.write(writer, &[unit], step_limit()).await?;
        }
    }

    pub(crate) async fn compact(
        &self,
        writer: &mut Writer,
        vbid: Vbid,
        purge_before: u32,
    ) -> Result<Option<Seqno>, StoreError> {
        self.settle_take_over(writer, Attempts::until(step_limit())).await?;
        let mut tombstones = self.old_tombstones(vbid, purge_before).await?;
        if tombstones.is_empty() {
            return Ok(None);
        }
        tombstones.sort_unstable_by_key(|(seqno, _)| *seqno);
        let known = self.states(&[vbid], Attempts::until(step_limit())).await?;
        let mut state = known.into_iter().next().map(|(_, state)| state);
        let mut highest = None;
        for part in tombstones.chunks(ROWS_AT_A_TIME) {
            highest = part.last().map(|(seqno, _)| *seqno);
            let rows = rows_of(part, &writer.chunks, vbid)?;
            if let (Some(VbucketState { purge_seqno, .. }), Some(highest)) = (&mut state, highest) {
                *purge_seqno = (*purge_seqno).max(highest);
            }
            let unit = Unit::Removal { vbid, rows: &rows, state: state.as_ref() };
            self.write(writer, &[unit], step_limit()).await?;
        }
        Ok(highest)
    }

    async fn old_tombstones(
        &self,
        vbid: Vbid,
        purge_before: u32,
    ) -> Result<Vec<(Seqno, RowKey)>, StoreError> {
        let predicates = [
            Predicate::equal(COLUMNS[column::DELETED], true),
            Predicate::less(COLUMNS[column::EXPIRY], i64::from(purge_before)),
        ];
        let [collection, key, chunk] = KEY_NAMES;
        let columns = [collection, key, chunk, COLUMNS[column::SEQNO]];
        let read = |row: &Row<'_>| {
            let seqno: i64 = row.get(3).map_err(of_cell)?;
            Ok((Seqno(seqno.cast_unsigned()), row_key(row)?))
        };
        let limits = (usize::MAX, Attempts::until(step_limit()));
        self.scan_rows(&Bounds::documents(vbid), &predicates, &columns, limits, read).await
    }
}

/// All rows of these tombstones, given their first rows.
fn rows_of(
    tombstones: &[(Seqno, RowKey)],
    chunks: &ChunkIndex,
    vbid: Vbid,
) -> Result<Vec<RowKey>, StoreError> {
    let mut rows = Vec::with_capacity(tombstones.len());
    for (_, first) in tombstones {
        let collection = u32::try_from(first.collection)
            .map_err(|_| corrupt("a tombstone in an unknown collection"))?;
        let key = DocKey { collection: CollectionId(collection), key: &first.key };
        for chunk in 0..chunks.rows(vbid, key) {
            rows.push(RowKey { chunk: chunk.cast_signed(), ..first.clone() });
        }
    }
    Ok(rows)
}
