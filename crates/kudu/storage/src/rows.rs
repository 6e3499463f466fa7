//! Conversion of records to rows of the table.
//!
//! Owns: the division of a value into cells, and the rows of one atomic unit (a batch, a removal, a
//! local document). The bytes of a value go from the record straight into the request of its
//! tablet. Invariants:
//! - Joining the output of [`Parts::of`] gives the value back byte for byte. The exception is a
//!   compressed body, which is inflated for SQL as far as the batch still fits one Write.
//! - A text column holds only the text of a document.
//! - A document that loses rows loses them in the same Write.
//! - The state of a vbucket is in the Write of its records.
//!
//! `pieces` converts rows back.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use oribi_kudu::{Session, SessionError};
use oribi_storage::{Record, VbBatch, VbucketState, encode_state};
use oribi_types::{Datatype, DocKey, Seqno, Vbid};

use crate::chunk_index::ChunkIndex;
use crate::layout::{
    EXPIRED_BIT, LOCAL_COLLECTION, LOCAL_VBUCKET, STATE_COLLECTION, column, vbucket_cell,
};

/// Most bytes of a value in one row. A cell of Kudu has up to 64 KiB, and readers may lay a row out
/// again.
pub(crate) const PIECE_BYTES_MAX: usize = 60 << 10;
/// A piece of text may be shorter by this much, so that no character is divided.
const CHARACTER_BYTES_MAX: usize = 4;
/// Most bytes of the rows of one Write. A request of Kudu has up to 50 MiB, and the engine's
/// checkpoints up to 28.
pub(crate) const WRITE_BYTES_MAX: usize = 40 << 20;
/// Bytes of several units in flight at a time: the memory that a commit takes in addition to the
/// items. A single unit may have more, up to a Write.
pub(crate) const ROUND_BYTES_MAX: usize = 16 << 20;
const _: () = assert!(ROUND_BYTES_MAX <= WRITE_BYTES_MAX);
/// Most bytes that a compressed body may inflate to; a larger one stays compressed.
const INFLATED_BYTES_MAX: usize = 32 << 20;
/// Length of the total length in front of extended attributes, big-endian.
const XATTRS_LENGTH_BYTES: usize = 4;
/// Approximate size of a row besides key and value.
const ROW_OVERHEAD_BYTES: usize = 200;
/// Approximate size of a state row.
const STATE_ROW_BYTES: usize = 800;

/// A value, divided into cells.
#[derive(Debug, PartialEq)]
pub(crate) struct Parts<'a> {
    /// Datatype of the joined value.
    pub(crate) datatype: Datatype,
    /// The block of extended attributes with its length, as it precedes the body.
    pub(crate) xattrs: Option<&'a [u8]>,
    pub(crate) body: Cow<'a, [u8]>,
    /// The body is valid text with the JSON datatype.
    pub(crate) is_json: bool,
}

impl<'a> Parts<'a> {
    /// Divides a record's value; `inflates` says whether to inflate a compressed body.
    pub(crate) fn of(record: &Record<'a>, inflates: bool) -> Parts<'a> {
        let (xattrs, body) = split_xattrs(record.datatype, record.value);
        // A block that could not be split off precedes the body, which then is neither text nor
        // compressed.
        let is_alone = xattrs.is_some() || !record.datatype.contains(Datatype::XATTR);
        let (body, datatype) = match inflates && is_alone {
            true => inflated(record.datatype, body),
            false => (Cow::Borrowed(body), record.datatype),
        };
        let is_json = is_alone
            && datatype.contains(Datatype::JSON)
            && !datatype.contains(Datatype::SNAPPY)
            && !body.is_empty()
            && std::str::from_utf8(&body).is_ok();
        Parts { datatype, xattrs, body, is_json }
    }

    /// The bodies of its rows, at least one.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(&*self.body);
        let is_text = self.is_json;
        std::iter::from_fn(move || {
            let body = rest?;
            let (piece, after) = body.split_at(piece_bytes(body, is_text));
            rest = (!after.is_empty()).then_some(after);
            Some(piece)
        })
    }
}

/// How many of the remaining bytes of a body go into one row. Text is not divided within a
/// character.
fn piece_bytes(body: &[u8], is_text: bool) -> usize {
    if body.len() <= PIECE_BYTES_MAX {
        return body.len();
    }
    let is_boundary = |at: &usize| !is_text || (body[*at] & 0xc0) != 0x80;
    let lowest = PIECE_BYTES_MAX - CHARACTER_BYTES_MAX;
    (lowest..=PIECE_BYTES_MAX).rev().find(is_boundary).unwrap_or(PIECE_BYTES_MAX)
}

/// Most rows of a document with a body of `body_bytes` bytes.
pub(crate) fn rows_max(body_bytes: usize) -> u16 {
    let rows = body_bytes.div_ceil(PIECE_BYTES_MAX - CHARACTER_BYTES_MAX).max(1);
    u16::try_from(rows).unwrap_or(i16::MAX as u16)
}

/// Divides a value into the block of extended attributes and the body. A block that is malformed,
/// or too large for a cell, stays in the body.
fn split_xattrs(datatype: Datatype, value: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let whole = (None, value);
    if !datatype.contains(Datatype::XATTR) {
        return whole;
    }
    let Some(length) = value.first_chunk::<XATTRS_LENGTH_BYTES>() else { return whole };
    let block = u32::from_be_bytes(*length) as usize;
    let end = block.saturating_add(XATTRS_LENGTH_BYTES);
    match value.split_at_checked(end) {
        Some((xattrs, body)) if end <= PIECE_BYTES_MAX => (Some(xattrs), body),
        _ => whole,
    }
}

/// The inflated body. A body that cannot be inflated stays as it is, with its datatype.
fn inflated(datatype: Datatype, body: &[u8]) -> (Cow<'_, [u8]>, Datatype) {
    if !datatype.contains(Datatype::SNAPPY) {
        return (Cow::Borrowed(body), datatype);
    }
    let fits = snap::raw::decompress_len(body).is_ok_and(|bytes| bytes <= INFLATED_BYTES_MAX);
    match fits.then(|| snap::raw::Decoder::new().decompress_vec(body)) {
        Some(Ok(inflated)) => (Cow::Owned(inflated), Datatype(datatype.0 & !Datatype::SNAPPY.0)),
        _ => (Cow::Borrowed(body), datatype),
    }
}

/// The primary key of a row, without its vbucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowKey {
    pub(crate) collection: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) chunk: i16,
}

/// An atomic unit of writing.
pub(crate) enum Unit<'a> {
    /// Records and the state after them.
    Batch(&'a VbBatch<'a>),
    /// Rows to remove, and the state without them.
    Removal { vbid: Vbid, rows: &'a [RowKey], state: Option<&'a VbucketState> },
    /// A local document, which had `rows_before` rows before.
    Local { name: &'a str, value: &'a [u8], rows_before: u16 },
}

impl Unit<'_> {
    /// The vbucket; none for a local document.
    pub(crate) fn vbid(&self) -> Option<Vbid> {
        match self {
            Unit::Batch(batch) => Some(batch.vbid),
            Unit::Removal { vbid, .. } => Some(*vbid),
            Unit::Local { .. } => None,
        }
    }

    /// The cell of its rows' vbucket.
    pub(crate) fn vbucket_cell(&self) -> i16 {
        self.vbid().map_or(LOCAL_VBUCKET, vbucket_cell)
    }

    /// The purged seqno: the tombstones up to it are gone once the unit is written.
    pub(crate) fn purges(&self) -> Option<(Vbid, Seqno)> {
        match self {
            Unit::Removal { vbid, state: Some(state), .. } => Some((*vbid, state.purge_seqno)),
            Unit::Batch(VbBatch { vbid, state, .. }) => Some((*vbid, state.purge_seqno)),
            _ => None,
        }
        .filter(|(_, seqno)| seqno.0 > 0)
    }

    /// Approximate size of its rows.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Unit::Batch(batch) => batch_bytes(batch),
            Unit::Removal { rows, .. } => {
                let bytes = |row: &RowKey| row.key.len() + ROW_OVERHEAD_BYTES;
                STATE_ROW_BYTES + rows.iter().map(bytes).sum::<usize>()
            }
            Unit::Local { name, value, .. } => {
                let rows = 1 + value.len() / PIECE_BYTES_MAX;
                value.len() + rows * (name.len() + ROW_OVERHEAD_BYTES)
            }
        }
    }

    /// Hands its rows to the session. After an error some of them may be there. The state says that
    /// tombstones up to `purged` are gone, whatever it said before.
    pub(crate) async fn put(
        &self,
        session: &mut Session,
        chunks: &mut ChunkIndex,
        purged: Seqno,
    ) -> Result<(), SessionError> {
        match self {
            Unit::Batch(batch) => {
                for (record, inflates) in batch.records.iter().zip(inflations(batch)) {
                    put_record(session, chunks, (batch.vbid, record), inflates).await?;
                }
                put_state(session, batch.vbid, &batch.state, purged).await
            }
            Unit::Removal { vbid, rows, state } => {
                for row in *rows {
                    remove_row(session, vbucket_cell(*vbid), row.collection, &row.key, row.chunk)
                        .await?;
                }
                match state {
                    Some(state) => put_state(session, *vbid, state, purged).await,
                    None => mark_removal(session, *vbid).await,
                }
            }
            Unit::Local { name, value, rows_before } => {
                put_local(session, name.as_bytes(), value, *rows_before).await
            }
        }
    }

    /// Makes the index of chunks exact again, because the rows are in the table.
    pub(crate) fn settle(&self, chunks: &mut ChunkIndex) {
        let Unit::Batch(batch) = self else { return };
        for (record, inflates) in batch.records.iter().zip(inflations(batch)) {
            if chunks.rows(batch.vbid, record.key) > 1 {
                let rows = Parts::of(record, inflates).pieces().count();
                let rows = u16::try_from(rows).unwrap_or(u16::MAX);
                chunks.settle(batch.vbid, record.key, rows);
            }
        }
    }
}

/// The records of a batch to inflate if they are compressed: the first ones, for as long as the
/// batch fits one Write.
fn inflations(batch: &VbBatch<'_>) -> impl Iterator<Item = bool> {
    let mut room = WRITE_BYTES_MAX.saturating_sub(bytes_as_they_are(batch));
    batch.records.iter().map(move |record| {
        let more = record_bytes(record, true) - record_bytes(record, false);
        let fits = more <= room;
        room -= if fits { more } else { 0 };
        fits
    })
}

/// Approximate size of the rows of a batch.
fn batch_bytes(batch: &VbBatch<'_>) -> usize {
    let records = batch.records.iter().zip(inflations(batch));
    STATE_ROW_BYTES
        + records.map(|(record, inflates)| record_bytes(record, inflates)).sum::<usize>()
}

fn bytes_as_they_are(batch: &VbBatch<'_>) -> usize {
    let records = batch.records.iter().map(|record| record_bytes(record, false));
    STATE_ROW_BYTES + records.sum::<usize>()
}

/// Approximate size of the rows of a record, at least as large inflated as not.
fn record_bytes(record: &Record<'_>, inflates: bool) -> usize {
    let (_, body) = split_xattrs(record.datatype, record.value);
    // The length in front of a compressed body is untrusted, and is checked again before use.
    let larger = match inflates && record.datatype.contains(Datatype::SNAPPY) {
        true => snap::raw::decompress_len(body).map_or(0, |bytes| bytes.min(INFLATED_BYTES_MAX)),
        false => 0,
    };
    let value = record.value.len() + larger;
    value + (1 + value / PIECE_BYTES_MAX) * (record.key.key.len() + ROW_OVERHEAD_BYTES)
}

/// Hands the rows of a record to the session, and the removal of its surplus rows.
async fn put_record(
    session: &mut Session,
    chunks: &mut ChunkIndex,
    (vbid, record): (Vbid, &Record<'_>),
    inflates: bool,
) -> Result<(), SessionError> {
    let parts = Parts::of(record, inflates);
    let DocKey { collection, key } = record.key;
    let (vbucket, collection) = (vbucket_cell(vbid), i64::from(collection.0));
    let mut rows = 0_u16;
    for piece in parts.pieces() {
        let mut row = session.upsert();
        row.set_i16(column::VBUCKET, vbucket)?
            .set_i64(column::COLLECTION, collection)?
            .set_bytes(column::KEY, key)?
            .set_i16(column::CHUNK, rows.cast_signed())?
            .set_i64(column::SEQNO, record.seqno.0.cast_signed())?
            .set_i64(column::BODY_BYTES, parts.body.len() as i64)?;
        let (with, without) = match parts.is_json {
            true => (column::JSON, column::BODY),
            false => (column::BODY, column::JSON),
        };
        row.set_bytes(with, piece)?.set_null(without)?;
        if rows == 0 {
            row.set_i64(column::CAS, record.cas.0.cast_signed())?
                .set_i64(column::REV, record.rev_seqno.0.cast_signed())?
                .set_i64(column::FLAGS, record.flags.into())?
                .set_i64(column::EXPIRY, record.expiry.into())?
                .set_i16(column::DATATYPE, datatype_cell(&parts, record))?
                .set_bool(column::DELETED, record.deleted)?;
            match parts.xattrs {
                Some(xattrs) => row.set_binary(column::XATTRS, xattrs)?,
                None => row.set_null(column::XATTRS)?,
            };
        }
        row.apply().await?;
        rows += 1;
    }
    let before = chunks.rows(vbid, record.key);
    for stale in rows..before {
        remove_row(session, vbucket, collection, key, stale.cast_signed()).await?;
    }
    chunks.at_least(vbid, record.key, rows);
    Ok(())
}

fn datatype_cell(parts: &Parts<'_>, record: &Record<'_>) -> i16 {
    let expired = if record.expired { EXPIRED_BIT } else { 0 };
    i16::from(parts.datatype.0) | expired
}

async fn put_state(
    session: &mut Session,
    vbid: Vbid,
    state: &VbucketState,
    purged: Seqno,
) -> Result<(), SessionError> {
    let place = (vbucket_cell(vbid), STATE_COLLECTION);
    let body = match state.purge_seqno < purged {
        true => encode_state(&VbucketState { purge_seqno: purged, ..state.clone() }),
        false => encode_state(state),
    };
    put_named(session, place, (b"", 0), state.high_seqno.0, (&body, body.len())).await
}

/// Changes the row of a state, if there is one, without its state: the next owner finds out that
/// rows were removed.
async fn mark_removal(session: &mut Session, vbid: Vbid) -> Result<(), SessionError> {
    let mut row = session.update_ignore();
    row.set_i16(column::VBUCKET, vbucket_cell(vbid))?
        .set_i64(column::COLLECTION, STATE_COLLECTION)?
        .set_bytes(column::KEY, b"")?
        .set_i16(column::CHUNK, 0)?
        .set_i64(column::CAS, RandomState::new().hash_one(vbid).cast_signed())?;
    row.apply().await
}

async fn put_local(
    session: &mut Session,
    name: &[u8],
    value: &[u8],
    rows_before: u16,
) -> Result<(), SessionError> {
    let place = (LOCAL_VBUCKET, LOCAL_COLLECTION);
    let mut rows = 0_u16;
    // An empty document has a row, too.
    for piece in value.chunks(PIECE_BYTES_MAX).chain(value.is_empty().then_some(&[][..])) {
        put_named(session, place, (name, rows.cast_signed()), 0, (piece, value.len())).await?;
        rows += 1;
    }
    for stale in rows..rows_before {
        remove_row(session, place.0, place.1, name, stale.cast_signed()).await?;
    }
    Ok(())
}

/// Hands over a row that is not a document.
async fn put_named(
    session: &mut Session,
    (vbucket, collection): (i16, i64),
    (key, chunk): (&[u8], i16),
    seqno: u64,
    (piece, body_bytes): (&[u8], usize),
) -> Result<(), SessionError> {
    let mut row = session.upsert();
    row.set_i16(column::VBUCKET, vbucket)?
        .set_i64(column::COLLECTION, collection)?
        .set_bytes(column::KEY, key)?
        .set_i16(column::CHUNK, chunk)?
        .set_i64(column::SEQNO, seqno.cast_signed())?
        .set_i64(column::BODY_BYTES, body_bytes as i64)?
        .set_binary(column::BODY, piece)?;
    row.apply().await
}

async fn remove_row(
    session: &mut Session,
    vbucket: i16,
    collection: i64,
    key: &[u8],
    chunk: i16,
) -> Result<(), SessionError> {
    let mut row = session.delete_ignore();
    row.set_i16(column::VBUCKET, vbucket)?
        .set_i64(column::COLLECTION, collection)?
        .set_bytes(column::KEY, key)?
        .set_i16(column::CHUNK, chunk)?;
    row.apply().await
}

#[cfg(test)]
mod tests;
