//! Look-ups by primary key: documents and states of vbuckets.
//!
//! Owns: the two prepared look-ups and the number of concurrent look-ups. A document takes one
//! look-up. A scan reads a document with more rows again, and sees all of them at one moment.
//!
//! Invariant: the reader reads the rows as of now from the leading replica. A replica that led
//! until recently answers only when its successor has sent it the missed rows. Reading "the
//! latest", it would answer with stale rows. A look-up that Kudu does not answer in time is an
//! error, because clients wait for it.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use oribi_kudu::{FoundRow, Value};
use oribi_storage::{
    GetVisitor, LookupResult, ReadCount, Record, StoreError, VBUCKETS_MAX, VbucketState,
    decode_state,
};
use oribi_types::{DocKey, Seqno, Vbid};

use crate::failure::{of_cell, of_kudu, passes};
use crate::layout::{STATE_COLLECTION, vbucket_cell};
use crate::lookups::Lookups;
use crate::patience::Attempts;
use crate::pieces::Piece;
use crate::scan::Bounds;
use crate::shared::StoreState;

/// The row of a vbucket's state. Every Write to the vbucket's documents changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredState {
    pub(crate) state: VbucketState,
    /// A random number of the last removal of rows that left the state as it was.
    removal: Option<i64>,
}

/// Concurrent look-ups. Servers have a queue of 50 calls by default, and other work.
pub(crate) const LOOKUPS_AT_A_TIME: usize = 32;

/// Longest time for reading documents that clients wait for, however many there are.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(10);

fn key_values<'a>(vbid: Vbid, key: &DocKey<'a>) -> [Value<'a>; 4] {
    let collection = i64::from(key.collection.0);
    [
        Value::Int16(vbucket_cell(vbid)),
        Value::Int64(collection),
        Value::Binary(key.key),
        Value::Int16(0),
    ]
}

/// The primary key of a vbucket's state.
pub(crate) fn state_key(vbid: Vbid) -> [Value<'static>; 4] {
    let vbucket = Value::Int16(vbucket_cell(vbid));
    [vbucket, Value::Int64(STATE_COLLECTION), Value::Binary(b""), Value::Int16(0)]
}

impl StoreState {
    pub(crate) async fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        count: &mut ReadCount,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let Some(row) = self.look_up(vbid, &key).await? else { return Ok(false) };
        self.show(vbid, key, &row, &mut |record| {
            count.add(&record);
            visit(record);
        })
        .await
    }

    pub(crate) async fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        count: &mut ReadCount,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let look_up = async |index: usize| {
            let (vbid, key) = &keys[index];
            (index, self.look_up(*vbid, key).await)
        };
        // In the order of the answers, so that a tablet that does not answer delays its own
        // documents only.
        let found = stream::iter(0..keys.len()).map(look_up).buffer_unordered(LOOKUPS_AT_A_TIME);
        let mut found = std::pin::pin!(found);
        while let Some((index, row)) = found.next().await {
            let (vbid, key) = keys[index];
            let mut flow = None;
            let mut absent = LookupResult::Absent;
            match row? {
                None => {}
                Some(row) if Piece::of(row.row(), 0)?.document_bytes() > record_bytes_max => {
                    absent = LookupResult::Large;
                }
                Some(row) => {
                    let mut show = |record: Record<'_>| {
                        count.add(&record);
                        flow = Some(visit(index, LookupResult::Record(record)));
                    };
                    self.show(vbid, key, &row, &mut show).await?;
                }
            }
            if flow.unwrap_or_else(|| visit(index, absent)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The first row of a document.
    async fn look_up(&self, vbid: Vbid, key: &DocKey<'_>) -> Result<Option<FoundRow>, StoreError> {
        let key = key_values(vbid, key);
        let found = match self.readable.snapshot(vbid) {
            None => self.lookups.document.get(&key).await,
            at => Lookups::document_at(&self.table, at)?.get(&key).await,
        };
        found.map_err(|error| of_kudu(&error))
    }

    /// Shows the document whose first row is given.
    async fn show(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        row: &FoundRow,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let piece = Piece::of(row.row(), 0)?;
        self.readable.check(vbid, Seqno(piece.seqno))?;
        if !piece.is_whole() {
            return self.get_by_scan(vbid, key, READ_TIME_MAX, visit).await;
        }
        let head = piece.head()?;
        match piece.xattrs {
            [] => visit(head.record(key, piece.bytes)),
            xattrs => visit(head.record(key, &[xattrs, piece.bytes].concat())),
        }
        Ok(true)
    }

    /// Reads all rows of a document at one moment. It waits for no more than the work of a few
    /// scans, because other documents' reads wait for it.
    pub(crate) async fn get_by_scan(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        time_max: Duration,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let mut is_there = false;
        let mut show = |record: Record<'_>| {
            is_there = true;
            visit(record);
            // The document is complete, so there is no need to wait for the end of the scan.
            ControlFlow::Break(())
        };
        let scan = self.scan_documents(vbid, Bounds::document(vbid, key), &[], &mut show);
        match tokio::time::timeout(time_max, scan).await {
            Ok(scanned) => scanned.map(|()| is_there),
            Err(_) => Err(StoreError::Io("Kudu: no answer about a document in time".into())),
        }
    }

    /// The existing states of these vbuckets. While Kudu is unreachable it waits like `attempts`.
    pub(crate) async fn states(
        &self,
        vbids: &[Vbid],
        attempts: Attempts,
    ) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let stored = self.stored(vbids, attempts).await?;
        Ok(stored.into_iter().map(|(vbid, stored)| (vbid, stored.state)).collect())
    }

    /// The same with what else changes with the documents.
    pub(crate) async fn stored(
        &self,
        vbids: &[Vbid],
        mut attempts: Attempts,
    ) -> Result<Vec<(Vbid, StoredState)>, StoreError> {
        loop {
            let keys = vbids.iter().map(|vbid| state_key(*vbid));
            let found = self.lookups.state.get_many(keys.collect::<Vec<_>>(), LOOKUPS_AT_A_TIME);
            match found.collect().await {
                Ok(rows) => return stored_of(vbids, &rows),
                Err(error) if passes(&error) => {
                    let what = "states of vbuckets are to be read";
                    self.patience.pause(&mut attempts, what, &error).await?;
                }
                Err(error) => return Err(of_kudu(&error)),
            }
        }
    }

    /// Every vbucket that can have a state.
    pub(crate) fn all_vbuckets(&self) -> Vec<Vbid> {
        (0..self.vbuckets.min(VBUCKETS_MAX)).map(Vbid).collect()
    }
}

/// The cells of a state's row: its body, and the rest of a removal.
pub(crate) fn stored(body: &[u8], removal: Option<i64>) -> Result<StoredState, StoreError> {
    Ok(StoredState { state: decode_state(body)?, removal })
}

fn stored_of(
    vbids: &[Vbid],
    rows: &[Option<FoundRow>],
) -> Result<Vec<(Vbid, StoredState)>, StoreError> {
    let there = vbids.iter().zip(rows).filter_map(|(vbid, row)| Some((*vbid, row.as_ref()?)));
    let state = |(vbid, row): (Vbid, &FoundRow)| {
        Ok((vbid, stored(row.get(0).map_err(of_cell)?, row.get(1).map_err(of_cell)?)?))
    };
    there.map(state).collect()
}
