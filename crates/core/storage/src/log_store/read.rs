//! Reading documents back by their keys.
//!
//! Owns: what a reader is shown. Invariants: every record is checked before it is shown; a reader
//! works on a copy of the entries or segments that it began with, whose files stay readable for it
//! even when compaction removes their names; purged tombstones are never shown.

use std::io;

use oribi_types::{DocKey, Seqno, Vbid};

use super::catalog::{Segment, TableKey};
use super::layout::{
    Kind, RECORD_HEADER_BYTES, StoredRecord, decode_parts, decode_record, stored_bytes_of,
};
use super::log::Log;
use super::reader::ReadFault;
use super::writer::segment_name;
use crate::counters::ReadCount;
use crate::{LARGE_RECORD_BYTES, Record, ReserveMemory, StoreError};

/// First read of a record of unknown length: one read is enough for most.
pub(super) const FIRST_READ_BYTES: usize = 1024;

/// Says which bytes are damaged.
pub(super) fn damaged(id: u32, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt(format!("{}: {what} at offset {offset}", segment_name(id)))
}

/// The error for a segment that cannot be read.
pub(super) fn read_error(id: u32, fault: &ReadFault) -> StoreError {
    match fault {
        ReadFault::Io(error) => io_error(id, error),
        ReadFault::Bad { offset, what } => damaged(id, *offset, what),
        ReadFault::Foreign(text) => StoreError::Foreign(format!("{}: {text}", segment_name(id))),
    }
}

pub(super) fn io_error(id: u32, error: &io::Error) -> StoreError {
    StoreError::Io(format!("{}: {error}", segment_name(id)))
}

/// Reads and checks the record at `offset` of the segment. `None` when it is large and there is no
/// room for it.
pub(super) fn read_record<'b>(
    segment: &Segment,
    offset: u64,
    buffer: &'b mut Vec<u8>,
    reserve: &mut ReserveMemory<'_>,
) -> Result<Option<StoredRecord<'b>>, StoreError> {
    buffer.resize(buffer.len().max(FIRST_READ_BYTES), 0);
    let file = &segment.file;
    let first = file.read_at(&mut buffer[..FIRST_READ_BYTES], offset);
    let first = first.map_err(|error| io_error(segment.id, &error))?;
    let cut_off = || damaged(segment.id, offset, "a record that is cut off");
    let head = buffer[..first].first_chunk::<RECORD_HEADER_BYTES>().ok_or_else(cut_off)?;
    let stored_bytes = stored_bytes_of(head);
    if offset + stored_bytes > segment.bytes {
        return Err(damaged(segment.id, offset, "a record that is longer than its segment"));
    }
    let stored_bytes = stored_bytes as usize;
    if stored_bytes > LARGE_RECORD_BYTES && reserve(stored_bytes).is_break() {
        return Ok(None);
    }
    if stored_bytes > first {
        buffer.resize(buffer.len().max(stored_bytes), 0);
        let rest = &mut buffer[first..stored_bytes];
        let read = file.read_at(rest, offset + first as u64);
        if read.map_err(|error| io_error(segment.id, &error))? < stored_bytes - first {
            return Err(cut_off());
        }
    }
    let decoded = decode_record(&buffer[..stored_bytes]);
    decoded.map(|(stored, _)| Some(stored)).map_err(|what| damaged(segment.id, offset, what))
}

/// Seqno of the document at `offset` of the segment, which is in this table. Only the header is
/// read, and its checksum covers the value as well: so the seqno must not decide about a record
/// that an opening would accept with another one.
pub(super) fn seqno_at(
    segment: &Segment,
    offset: u64,
    table: TableKey,
) -> Result<Seqno, StoreError> {
    let mut head = [0; RECORD_HEADER_BYTES];
    let read = segment.file.read_at(&mut head, offset);
    if read.map_err(|error| io_error(segment.id, &error))? < head.len() {
        return Err(damaged(segment.id, offset, "a record that is cut off"));
    }
    let decoded = decode_parts(&head, b"", b"");
    let (stored, _) = decoded.map_err(|what| damaged(segment.id, offset, what))?;
    let of_table = (stored.vbid, stored.record.key.collection);
    match stored.kind == Kind::Document && of_table == table && stored.record.seqno > Seqno(0) {
        true => Ok(stored.record.seqno),
        false => Err(damaged(segment.id, offset, "another record than the index has")),
    }
}

impl Log {
    pub(super) fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let mut count = ReadCount::default();
        let result = self.get_counted(vbid, key, reserve, &mut |record| {
            count.add(&record);
            visit(record);
        });
        self.has_read(&count, result)
    }

    fn get_counted(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let candidates: Vec<(Segment, u64)> = {
            let catalog = self.catalog.read();
            let places = catalog.candidates(vbid, key).map(|entry| entry.place());
            places.map(|place| (catalog.segment(place.slot).clone(), place.offset())).collect()
        };
        let mut buffer = Vec::new();
        for (segment, offset) in candidates {
            let Some(stored) = read_record(&segment, offset, &mut buffer, reserve)? else {
                return Ok(true);
            };
            if stored.vbid == vbid && stored.record.key == key {
                visit(stored.record);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
