//! Look-ups by primary key: documents and states of vbuckets.
//!
//! Owns: the two prepared look-ups and how many of them are under way at a time. A document is one look-up; one
//! that has more rows is read again by a scan, which sees all of them at one moment. Invariant: the leading replica
//! is asked, and for the rows as of now: a replica that led until lately answers only when it has heard from its
//! successor what it missed. Reading "the latest" it would answer with what it has. A look-up that Kudu does not
//! answer in time is an error: whoever fetches for clients has to tell them.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::StreamExt;
use oribi_kudu::{FoundRow, PointLookup, ReadMode, Table, Value};
use oribi_storage::{
    GetVisitor, ReadCount, Record, StoreError, VBUCKETS_MAX, VbucketState, decode_state,
};
use oribi_types::{DocKey, Vbid};

use crate::failure::{of_cell, of_kudu, passes};
use crate::layout::{COLUMNS, STATE_COLLECTION, column, vbucket_cell};
use crate::patience::Attempts;
use crate::pieces::Piece;
use crate::scan::Bounds;
use crate::store::Shared;

/// Look-ups that are under way at a time. Servers have a queue of 50 calls by default, and other work.
const LOOKUPS_AT_A_TIME: usize = 32;

/// How long the reading of a document with several rows takes at most: as long as a look-up.
const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(10);

/// The look-ups of a table.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// Everything of a document but its key.
    document: PointLookup,
    /// The body of a row that is no document.
    named: PointLookup,
}

impl Lookups {
    pub(crate) fn of(table: &Table) -> Result<Lookups, StoreError> {
        let of_columns = |columns: &[&str]| {
            let lookup = table.point_lookup().columns(columns.iter().copied());
            lookup.read_mode(ReadMode::AtSnapshot(None)).build().map_err(|error| of_kudu(&error))
        };
        Ok(Lookups {
            document: of_columns(&COLUMNS[column::CAS..])?,
            named: of_columns(&[COLUMNS[column::BODY]])?,
        })
    }
}

fn key_values<'a>(vbid: Vbid, key: &DocKey<'a>) -> [Value<'a>; 4] {
    let collection = i64::from(key.collection.0);
    [
        Value::Int16(vbucket_cell(vbid)),
        Value::Int64(collection),
        Value::Binary(key.key),
        Value::Int16(0),
    ]
}

impl Shared {
    /// See [`oribi_storage::KvStore::get`].
    pub(crate) async fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        count: &mut ReadCount,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let found = self.lookups.document.get(&key_values(vbid, &key)).await;
        let Some(row) = found.map_err(|error| of_kudu(&error))? else { return Ok(false) };
        self.show(vbid, key, &row, &mut |record| {
            count.add(&record);
            visit(record);
        })
        .await
    }

    /// See [`oribi_storage::KvStore::get_many`].
    pub(crate) async fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        count: &mut ReadCount,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let values = keys.iter().map(|(vbid, key)| key_values(*vbid, key)).collect::<Vec<_>>();
        let found = self.lookups.document.get_many(values, LOOKUPS_AT_A_TIME);
        let mut found = std::pin::pin!(found);
        let mut index = 0;
        while let Some(row) = found.next().await {
            let (vbid, key) = keys[index];
            let is_there = match row.map_err(|error| of_kudu(&error))? {
                None => false,
                Some(row) => {
                    let mut show = |record: Record<'_>| {
                        count.add(&record);
                        visit(index, Some(record));
                    };
                    self.show(vbid, key, &row, &mut show).await?
                }
            };
            if !is_there {
                visit(index, None);
            }
            index += 1;
        }
        Ok(())
    }

    /// Shows the document that begins with a row.
    async fn show(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        row: &FoundRow,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let piece = Piece::of(row.row(), 0)?;
        if !piece.is_whole() {
            return self.get_by_scan(vbid, key, DOCUMENT_TIME_MAX, visit).await;
        }
        let head = piece.head()?;
        match piece.xattrs {
            [] => visit(head.record(key, piece.bytes)),
            xattrs => visit(head.record(key, &[xattrs, piece.bytes].concat())),
        }
        Ok(true)
    }

    /// Reads all rows of a document at one moment. It is a few scans' work and no more is waited for it: other
    /// documents that clients ask for wait behind it.
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
            // There is one, so an end of the scan that does not come is not waited for.
            ControlFlow::Break(())
        };
        let scan = self.scan_documents(vbid, Bounds::document(vbid, key), &[], &mut show);
        match tokio::time::timeout(time_max, scan).await {
            Ok(scanned) => scanned.map(|()| is_there),
            Err(_) => Err(StoreError::Io("Kudu: no answer about a document in time".into())),
        }
    }

    /// The states of these vbuckets, as far as there are any. When Kudu is away it waits like `attempts`.
    pub(crate) async fn states(
        &self,
        vbids: &[Vbid],
        mut attempts: Attempts,
    ) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        loop {
            let keys = vbids.iter().map(|vbid| {
                let vbucket = Value::Int16(vbucket_cell(*vbid));
                [vbucket, Value::Int64(STATE_COLLECTION), Value::Binary(b""), Value::Int16(0)]
            });
            let found = self.lookups.named.get_many(keys.collect::<Vec<_>>(), LOOKUPS_AT_A_TIME);
            let found: Vec<_> = found.collect().await;
            match found.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(rows) => return states_of(vbids, &rows),
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

fn states_of(
    vbids: &[Vbid],
    rows: &[Option<FoundRow>],
) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
    let there = vbids.iter().zip(rows).filter_map(|(vbid, row)| Some((*vbid, row.as_ref()?)));
    let state = |(vbid, row): (Vbid, &FoundRow)| {
        Ok((vbid, decode_state(row.get::<&[u8]>(0).map_err(of_cell)?)?))
    };
    there.map(state).collect()
}
