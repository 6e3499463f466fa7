//! Part of a segment in memory, for reading records in the order in which they lie.
//!
//! Owns: the buffer and how far it reads ahead. Invariants: every record is checked before it is
//! shown; a length is compared with what is left of the segment before it is used. Callers: the
//! load of all records, look-ups of many keys, and scans by seqno.

use super::catalog::Segment;
use super::layout::{RECORD_HEADER_BYTES, Stored, decode_record, stored_bytes_of};
use super::read::{damaged, io_error};
use crate::StoreError;

/// Bytes of one segment.
pub(super) struct Window {
    id: u32,
    /// Offset of the first byte.
    offset: u64,
    bytes: Vec<u8>,
    /// Bytes that are read at least, where the segment has them.
    ahead: u64,
}

impl Window {
    /// Nothing yet; `ahead` bytes will be read at a time.
    pub(super) fn ahead(ahead: u64) -> Window {
        Window { id: 0, offset: 0, bytes: Vec::new(), ahead }
    }

    /// Reads and checks the record at `offset` of the segment.
    pub(super) fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<Stored<'_>, StoreError> {
        let stored_bytes = stored_bytes_of(self.head(segment, offset)?);
        if offset + stored_bytes > segment.bytes {
            return Err(damaged(segment.id, offset, "a record that is longer than its segment"));
        }
        self.cover(segment, offset, stored_bytes)?;
        let begin = (offset - self.offset) as usize;
        let cut_off = || damaged(segment.id, offset, "a record that is cut off");
        let raw = self.bytes.get(begin..begin + stored_bytes as usize).ok_or_else(cut_off)?;
        let decoded = decode_record(raw);
        decoded.map(|(stored, _)| stored).map_err(|what| damaged(segment.id, offset, what))
    }

    /// True when the header of the record at `offset` is here.
    pub(super) fn has_head(&self, segment: &Segment, offset: u64) -> bool {
        let end = self.offset + self.bytes.len() as u64;
        self.id == segment.id && self.offset <= offset && offset + RECORD_HEADER_BYTES as u64 <= end
    }

    /// The header of the record at `offset`, unchecked.
    pub(super) fn head(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<&[u8; RECORD_HEADER_BYTES], StoreError> {
        self.cover(segment, offset, RECORD_HEADER_BYTES as u64)?;
        let begin = (offset - self.offset) as usize;
        let head = self.bytes.get(begin..).and_then(|bytes| bytes.first_chunk());
        head.ok_or_else(|| damaged(segment.id, offset, "a record that is cut off"))
    }

    /// Gives its memory back when that is more than `bytes`.
    pub(super) fn keep_at_most(&mut self, bytes: u64) {
        if self.bytes.len() as u64 > bytes {
            self.bytes = Vec::new();
        }
    }

    /// Has `wanted` bytes from `offset` on, as far as the segment goes.
    pub(super) fn cover(
        &mut self,
        segment: &Segment,
        offset: u64,
        wanted: u64,
    ) -> Result<(), StoreError> {
        let end = self.offset + self.bytes.len() as u64;
        if self.id == segment.id && self.offset <= offset && offset + wanted <= end {
            return Ok(());
        }
        let left = segment.bytes.saturating_sub(offset);
        let length = wanted.max(self.ahead).min(left) as usize;
        self.bytes.reserve_exact(length.saturating_sub(self.bytes.len()));
        self.bytes.resize(length, 0);
        (self.id, self.offset) = (segment.id, offset);
        let read = segment.file.read_at(&mut self.bytes, offset);
        self.bytes.truncate(read.map_err(|error| io_error(segment.id, &error))?);
        Ok(())
    }
}
