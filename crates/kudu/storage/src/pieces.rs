//! Conversion of rows back to records.
//!
//! Owns: reading one row's cells, and joining the rows of documents that have several. Invariants:
//! a record is shown only if all its pieces are present, of one version and in order; a record with
//! a single row and without attributes is a view of the server's answer. Callers: look-ups and
//! scans.

use std::ops::ControlFlow;

use oribi_kudu::Row;
use oribi_storage::{Record, StoreError};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use crate::failure::of_cell;
use crate::layout::{EXPIRED_BIT, column};

/// Longest body for which memory is reserved as soon as the first row is there.
const VALUE_BYTES_MAX: usize = 32 << 20;

/// The document fields in the first row of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    cas: u64,
    seqno: u64,
    rev_seqno: u64,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
    deleted: bool,
    expired: bool,
}

impl Head {
    pub(crate) fn record<'a>(&self, key: DocKey<'a>, value: &'a [u8]) -> Record<'a> {
        Record {
            key,
            value,
            cas: Cas(self.cas),
            seqno: Seqno(self.seqno),
            rev_seqno: RevSeqno(self.rev_seqno),
            flags: self.flags,
            expiry: self.expiry,
            datatype: self.datatype,
            deleted: self.deleted,
            expired: self.expired,
        }
    }
}

/// One row of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) seqno: u64,
    /// Bytes of the whole body.
    pub(crate) body_bytes: usize,
    /// Bytes of this row.
    pub(crate) bytes: &'a [u8],
    pub(crate) xattrs: &'a [u8],
    row: Row<'a>,
    base: usize,
}

impl<'a> Piece<'a> {
    /// Reads a row whose columns from CAS on begin at `base` of the projection.
    pub(crate) fn of(row: Row<'a>, base: usize) -> Result<Piece<'a>, StoreError> {
        let bytes = |column: usize| {
            row.get::<Option<&'a [u8]>>(base + column - column::CAS).map_err(of_cell)
        };
        let number = |column: usize| row.get::<i64>(base + column - column::CAS).map_err(of_cell);
        let json = bytes(column::JSON)?;
        let body_bytes = number(column::BODY_BYTES)?;
        Ok(Piece {
            seqno: number(column::SEQNO)?.cast_unsigned(),
            body_bytes: usize::try_from(body_bytes).map_err(|_| corrupt("a negative length"))?,
            bytes: json.or(bytes(column::BODY)?).unwrap_or_default(),
            xattrs: bytes(column::XATTRS)?.unwrap_or_default(),
            row,
            base,
        })
    }

    /// The document fields in the first row.
    pub(crate) fn head(&self) -> Result<Head, StoreError> {
        head_of(&self.row, self.base)
    }

    /// Bytes of the whole document's value.
    pub(crate) fn document_bytes(&self) -> usize {
        self.xattrs.len() + self.body_bytes
    }

    /// True when the document has one row.
    pub(crate) fn is_whole(&self) -> bool {
        self.bytes.len() == self.body_bytes
    }
}

/// Reads the document fields from a document's first row, whose columns from CAS on begin at
/// `base`.
fn head_of(row: &Row<'_>, base: usize) -> Result<Head, StoreError> {
    let at = |column: usize| base + column - column::CAS;
    let number = |column: usize| row.get::<i64>(at(column)).map_err(of_cell);
    let small = |column: usize| {
        u32::try_from(number(column)?).map_err(|_| corrupt("a number beyond 32 bits"))
    };
    let cell = row.get::<i16>(at(column::DATATYPE)).map_err(of_cell)?;
    let deleted = row.get::<bool>(at(column::DELETED)).map_err(of_cell)?;
    let (datatype, expired) = datatype_of(cell, deleted)?;
    Ok(Head {
        cas: number(column::CAS)?.cast_unsigned(),
        seqno: number(column::SEQNO)?.cast_unsigned(),
        rev_seqno: number(column::REV)?.cast_unsigned(),
        flags: small(column::FLAGS)?,
        expiry: small(column::EXPIRY)?,
        datatype,
        deleted,
        expired,
    })
}

/// The datatype in its cell, and whether expiry made the tombstone.
fn datatype_of(cell: i16, deleted: bool) -> Result<(Datatype, bool), StoreError> {
    let expired = deleted && cell & EXPIRED_BIT != 0;
    let datatype = if expired { cell & !EXPIRED_BIT } else { cell };
    let datatype = u8::try_from(datatype).map_err(|_| corrupt("an unknown datatype"))?;
    Ok((Datatype(datatype), expired))
}

/// The same, and the size of the document's whole value in bytes. It needs no column after the
/// attributes.
pub(crate) fn metadata_of(row: Row<'_>, base: usize) -> Result<(Head, usize), StoreError> {
    let at = |column: usize| base + column - column::CAS;
    let body_bytes: i64 = row.get(at(column::BODY_BYTES)).map_err(of_cell)?;
    let body_bytes = usize::try_from(body_bytes).map_err(|_| corrupt("a negative length"))?;
    let xattrs: Option<&[u8]> = row.get(at(column::XATTRS)).map_err(of_cell)?;
    let value_bytes = body_bytes.saturating_add(xattrs.map_or(0, <[u8]>::len));
    match u32::try_from(value_bytes) {
        Ok(_) => Ok((head_of(&row, base)?, value_bytes)),
        Err(_) => Err(corrupt("a length beyond 32 bits")),
    }
}

/// Joins the rows of documents, which arrive in the order of their keys and chunks.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    collection: CollectionId,
    key: Vec<u8>,
    /// Fields of the incomplete document.
    head: Option<Head>,
    value: Vec<u8>,
    body_bytes: usize,
    /// Missing bytes of the body.
    missing: usize,
    next_chunk: i16,
    /// The last document that was shown, if there is one.
    shown: (CollectionId, Vec<u8>),
    has_shown: bool,
}

impl Assembler {
    /// The last document that was shown, where an interrupted scan continues.
    pub(crate) fn last_shown(&self) -> Option<DocKey<'_>> {
        self.has_shown.then_some(DocKey { collection: self.shown.0, key: &self.shown.1 })
    }

    /// Takes the next row; shows the document if that was its last one.
    pub(crate) fn take(
        &mut self,
        key: DocKey<'_>,
        chunk: i16,
        piece: &Piece<'_>,
        visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        match chunk {
            0 if self.head.is_none() => self.begin(key, piece)?,
            0 => return Err(corrupt("a document without its last rows")),
            _ => self.go_on(key, chunk, piece)?,
        }
        if self.missing != 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(head) = self.head.take() else { return Ok(ControlFlow::Continue(())) };
        self.has_shown = true;
        self.shown.0 = self.collection;
        self.shown.1.clone_from(&self.key);
        let value = if self.value.is_empty() { piece.bytes } else { &self.value };
        Ok(visit(head.record(DocKey { collection: self.collection, key: &self.key }, value)))
    }

    fn begin(&mut self, key: DocKey<'_>, piece: &Piece<'_>) -> Result<(), StoreError> {
        self.collection = key.collection;
        self.key.clear();
        self.key.extend_from_slice(key.key);
        self.value.clear();
        self.head = Some(piece.head()?);
        self.body_bytes = piece.body_bytes;
        self.next_chunk = 1;
        let missing = piece.body_bytes.checked_sub(piece.bytes.len());
        self.missing = missing.ok_or_else(|| corrupt("a row that is longer than its document"))?;
        if self.missing != 0 || !piece.xattrs.is_empty() {
            // A vector that grows by doubling would take up to twice as much.
            let bytes = piece.body_bytes.min(VALUE_BYTES_MAX) + piece.xattrs.len();
            self.value.reserve_exact(bytes);
            self.value.extend_from_slice(piece.xattrs);
            self.value.extend_from_slice(piece.bytes);
        }
        Ok(())
    }

    fn go_on(&mut self, key: DocKey<'_>, chunk: i16, piece: &Piece<'_>) -> Result<(), StoreError> {
        let is_next = self.head.is_some_and(|head| head.seqno == piece.seqno)
            && self.collection == key.collection
            && self.key == key.key
            && self.next_chunk == chunk
            && self.body_bytes == piece.body_bytes
            && !piece.bytes.is_empty();
        let missing = self.missing.checked_sub(piece.bytes.len());
        let (true, Some(missing)) = (is_next, missing) else {
            return Err(corrupt("a row that does not continue the one before it"));
        };
        self.missing = missing;
        self.next_chunk += 1;
        self.value.extend_from_slice(piece.bytes);
        Ok(())
    }

    /// Checks at the end of a scan that no document is incomplete.
    pub(crate) fn end(&self) -> Result<(), StoreError> {
        match self.head {
            None => Ok(()),
            Some(_) => Err(corrupt("a document without its last rows")),
        }
    }
}

pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(format!("the table of Kudu has {what}"))
}
