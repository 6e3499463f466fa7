//! Documents that need more than the row in a scan.
//!
//! Kudu stores a body that is too long for one cell in pieces under the same key, numbered from 0.
//! Attributes that are too long for their cell precede the body. The scan that finds documents
//! returns only first rows and requested columns. This module reads such a document again, all rows
//! and columns at one moment. That moment is later than the scan's: the document may have another
//! version by then, or be gone. Invariants: a store writes the pieces of a version in one Write, so
//! a read at one moment sees all of them or none. The module still compares their version and total
//! length, and a mismatch is an error.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use oribi_kudu::{Operand, ReadMode, Row, ScanBatch, Table};
use oribi_query::QueryDocument;

use super::cluster::{KuduRows, QueryCluster};
use super::document::{self, JoinedBody};
use super::layout::ScanLayout;

/// True when the row is not the whole document, and the statement needs the missing part.
pub fn is_long(row: Row<'_>, layout: &ScanLayout) -> Result<bool> {
    if !layout.needs_body {
        return Ok(false);
    }
    let whole = layout.get::<i64>(row, "body_bytes")?;
    for column in ["json", "body"] {
        if let Some(piece) = layout.get::<Option<&[u8]>>(row, column)? {
            return Ok((piece.len() as i64) < whole);
        }
    }
    Ok(false)
}

/// A piece of a document: its number, and where its row is.
struct Piece {
    number: i16,
    seqno: i64,
    batch: ScanBatch,
    at: usize,
}

/// The whole document, or `None` when it was deleted since.
pub fn read(
    cluster: &Arc<QueryCluster>,
    table: &Table,
    row: Row<'_>,
    layout: &ScanLayout,
    now: i64,
) -> Result<Option<QueryDocument>> {
    let layout = &layout.with_attributes();
    let key = layout.get::<&[u8]>(row, "key")?;
    let shown = || String::from_utf8_lossy(key).into_owned();
    let pieces = pieces_of(cluster, table, row, layout)
        .with_context(|| format!("reading the pieces of document {:?}", shown()))?;
    let Some(first) = pieces.first() else { return Ok(None) };
    let first_row = first.batch.row(first.at).context("a row of the batch")?;
    let expiry = layout.get::<i64>(first_row, "expiry")?;
    if layout.get::<bool>(first_row, "deleted")? || (expiry != 0 && expiry <= now) {
        return Ok(None);
    }
    let in_order = (0_i16..).zip(&pieces).all(|(number, piece)| number == piece.number);
    if !in_order || pieces.iter().any(|piece| piece.seqno != first.seqno) {
        bail!("the pieces of document {:?} are not of one version", shown());
    }
    let joined = match (joined(&pieces, layout, "json")?, joined(&pieces, layout, "body")?) {
        (Some(json), _) => JoinedBody::Json(json),
        (None, body) => JoinedBody::Body(body.unwrap_or_default()),
    };
    let (JoinedBody::Json(bytes) | JoinedBody::Body(bytes)) = &joined;
    let bytes = bytes.len();
    if bytes as i64 != layout.get::<i64>(first_row, "body_bytes")? {
        bail!("document {:?} has pieces of {bytes} bytes, which is not its length", shown());
    }
    document::of_rows(first_row, joined, layout).map(Some)
}

/// All rows of a document, sorted.
fn pieces_of(
    cluster: &Arc<QueryCluster>,
    table: &Table,
    row: Row<'_>,
    layout: &ScanLayout,
) -> Result<Vec<Piece>> {
    let key = |chunk: i16| -> Result<[Operand; 4]> {
        Ok([
            layout.get::<i16>(row, "vbucket")?.into(),
            layout.get::<i64>(row, "collection")?.into(),
            layout.get::<&[u8]>(row, "key")?.into(),
            chunk.into(),
        ])
    };
    let scan = table
        .scan()
        .columns(layout.names.iter().copied())
        .read_mode(ReadMode::AtSnapshot(None))
        .lower_bound(key(0)?)
        .upper_bound(key(i16::MAX)?);
    let mut rows = KuduRows::start(cluster, scan)?;
    let mut pieces = Vec::new();
    while rows.advance()? {
        let Some((batch, at)) = rows.place() else { break };
        let row = batch.row(at).context("a row of the batch")?;
        pieces.push(Piece {
            number: layout.get(row, "chunk")?,
            seqno: layout.get(row, "seqno")?,
            batch,
            at,
        });
    }
    pieces.sort_by_key(|piece| piece.number);
    Ok(pieces)
}

/// The pieces of a column one after the other; none where it is NULL.
fn joined(pieces: &[Piece], layout: &ScanLayout, column: &str) -> Result<Option<Vec<u8>>> {
    let mut whole = None;
    for piece in pieces {
        let row = piece.batch.row(piece.at).context("a row of the batch")?;
        if let Some(bytes) = layout.get::<Option<&[u8]>>(row, column)? {
            whole.get_or_insert_with(Vec::new).extend_from_slice(bytes);
        }
    }
    Ok(whole)
}
