//! Part of a segment in memory, for reading records in the order in which they lie.
//!
//! Owns: the buffer and how far it reads ahead. Large reads bypass the page cache, which would
//! otherwise fill with bytes that are read once. Invariants: every record is checked before it is
//! shown; a length is compared with the rest of the segment before it is used. Callers: the load of
//! all records, look-ups of many keys, and scans.

use super::blocks::Blocks;
use super::catalog::Segment;
use super::layout::{
    PiecewiseCheck, RECORD_HEADER_BYTES, RECORD_KEY_BYTES_AT, StoredRecord, decode_record,
    stored_bytes_of,
};
use super::read::{damaged, io_error};
use crate::StoreError;
use crate::state_layout::take;

/// Reads from this length on pass the page cache.
const DIRECT_BYTES_MIN: u64 = 256 << 10;
/// Pieces in which a record is checked that is not kept.
const PIECE_BYTES: u64 = 256 << 10;
const _: () = assert!(RECORD_HEADER_BYTES as u64 <= PIECE_BYTES);
const _: () = assert!(PIECE_BYTES <= DIRECT_BYTES_MIN);

/// Bytes of one segment.
pub(super) struct Window {
    id: u32,
    /// Offset of the first byte.
    offset: u64,
    memory: Blocks,
    /// Bytes that are here.
    len: usize,
    /// Bytes that are read at least, where the segment has them.
    ahead: u64,
}

impl Window {
    /// Nothing yet; `ahead` bytes will be read at a time.
    pub(super) fn ahead(ahead: u64) -> Window {
        Window { id: 0, offset: 0, memory: Blocks::default(), len: 0, ahead }
    }

    fn bytes(&self) -> &[u8] {
        self.memory.first(self.len)
    }

    /// Reads and checks the record at `offset` of the segment.
    pub(super) fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<StoredRecord<'_>, StoreError> {
        let decoded = decode_record(self.raw(segment, offset)?);
        decoded.map(|(stored, _)| stored).map_err(|what| damaged(segment.id, offset, what))
    }

    /// Reads the record at `offset` of the segment, with its padding, unchecked.
    pub(super) fn raw(&mut self, segment: &Segment, offset: u64) -> Result<&[u8], StoreError> {
        let stored_bytes = stored_bytes_of(self.head(segment, offset)?);
        if offset + stored_bytes > segment.bytes {
            return Err(damaged(segment.id, offset, "a record that is longer than its segment"));
        }
        self.piece(segment, offset, stored_bytes)
    }

    /// Checks the record at `offset` of the segment without having it here as a whole, and returns
    /// its key.
    pub(super) fn check_by_pieces(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let head = *self.head(segment, offset)?;
        let stored_bytes = stored_bytes_of(&head);
        if offset + stored_bytes > segment.bytes {
            return Err(damaged(segment.id, offset, "a record that is longer than its segment"));
        }
        let mut at = offset + RECORD_HEADER_BYTES as u64;
        let key_bytes = u16::from_le_bytes(take(&head, RECORD_KEY_BYTES_AT));
        let key = self.piece(segment, at, key_bytes.into())?.to_vec();
        at += u64::from(key_bytes);
        let mut check = PiecewiseCheck::begin(&head, &key);
        while check.left() > 0 {
            let bytes = check.left().min(PIECE_BYTES);
            check.add(self.piece(segment, at, bytes)?);
            at += bytes;
        }
        debug_assert!(at <= offset + stored_bytes, "a check ends with its record");
        match check.is_right() {
            true => Ok(key),
            false => Err(damaged(segment.id, offset, "a record with a wrong checksum")),
        }
    }

    /// Bytes from `offset` of the segment on.
    fn piece(&mut self, segment: &Segment, offset: u64, bytes: u64) -> Result<&[u8], StoreError> {
        self.cover(segment, offset, bytes)?;
        debug_assert!(
            self.offset <= offset && self.id == segment.id,
            "the window covers the place"
        );
        let begin = (offset - self.offset) as usize;
        let cut_off = || damaged(segment.id, offset, "a record that is cut off");
        self.bytes().get(begin..begin + bytes as usize).ok_or_else(cut_off)
    }

    /// True when the header of the record at `offset` is here.
    pub(super) fn has_head(&self, segment: &Segment, offset: u64) -> bool {
        let end = self.offset + self.len as u64;
        self.id == segment.id && self.offset <= offset && offset + RECORD_HEADER_BYTES as u64 <= end
    }

    /// True when the whole record at `offset` is here, by the length that its header says.
    pub(super) fn has_record(&self, segment: &Segment, offset: u64) -> bool {
        if !self.has_head(segment, offset) {
            return false;
        }
        let here = &self.bytes()[(offset - self.offset) as usize..];
        here.first_chunk().is_some_and(|head| stored_bytes_of(head) <= here.len() as u64)
    }

    /// The header of the record at `offset`, unchecked.
    pub(super) fn head(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<&[u8; RECORD_HEADER_BYTES], StoreError> {
        self.cover(segment, offset, RECORD_HEADER_BYTES as u64)?;
        debug_assert!(self.offset <= offset, "the window covers the place");
        let begin = (offset - self.offset) as usize;
        let head = self.bytes().get(begin..).and_then(|bytes| bytes.first_chunk());
        head.ok_or_else(|| damaged(segment.id, offset, "a record that is cut off"))
    }

    /// Gives its memory back when that is more than `bytes`.
    pub(super) fn keep_at_most(&mut self, bytes: u64) {
        if self.memory.bytes() as u64 > bytes {
            (self.memory, self.len) = (Blocks::default(), 0);
        }
    }

    /// Has `wanted` bytes from `offset` on, as far as the segment goes.
    pub(super) fn cover(
        &mut self,
        segment: &Segment,
        offset: u64,
        wanted: u64,
    ) -> Result<(), StoreError> {
        let end = self.offset + self.len as u64;
        if self.id == segment.id && self.offset <= offset && offset + wanted <= end {
            return Ok(());
        }
        let left = segment.bytes.saturating_sub(offset);
        let length = wanted.max(self.ahead).min(left);
        (self.id, self.offset, self.len) = (segment.id, offset, 0);
        let file = &segment.file;
        let read = if length < DIRECT_BYTES_MIN {
            file.read_at(self.memory.room(length as usize), offset)
        } else {
            let block_bytes = file.block_bytes() as u64;
            self.offset = offset - offset % block_bytes;
            let length = (offset + length).next_multiple_of(block_bytes) - self.offset;
            file.read_blocks(self.memory.room(length as usize), self.offset)
        };
        self.len = read.map_err(|error| io_error(segment.id, &error))?;
        debug_assert!(self.len <= self.memory.bytes(), "the bytes read are in the buffer");
        debug_assert!(self.offset <= offset, "the window covers the place");
        Ok(())
    }
}
