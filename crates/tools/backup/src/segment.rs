//! A segment: a file with the records of many documents, in the order in which they came.
//!
//! Layout, all numbers big-endian:
//!
//! | part | |
//! |---|---|
//! | head | `ORIBISEG`, then the version of the format as u32 (2) |
//! | blocks | each a zstd frame of [records](crate::record) |
//! | footer | JSON, see [`Footer`] |
//! | end | u32 bytes of the footer, u32 CRC-32 of the footer, `ORIBIEND` |
//!
//! The footer is at the end because it describes the blocks, with a CRC-32 of each; the last
//! sixteen bytes lead to it. So a checksum of the footer is one of the whole segment, and the
//! manifest has no other. A segment is self-contained: the footer of the last one tells where a
//! backup that was interrupted continues.

mod raw_frame;
mod records;

use oribi_types::Vbid;
use serde::{Deserialize, Serialize};

use crate::checked_text::sha256;
use crate::error::ArchiveError;
use crate::limits::{BLOCK_BYTES, BLOCK_BYTES_MAX, TEXT_BYTES_MAX};
use crate::manifest::{CollectionEvent, SegmentEntry};
use crate::record::ArchiveRecord;

const MAGIC: &[u8; 8] = b"ORIBISEG";
const END: &[u8; 8] = b"ORIBIEND";
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 12;
const END_BYTES: usize = 16;

/// The levels up to this one use zstd's strategy `fast`.
const FAST_LEVEL_MAX: i32 = 2;

/// Window of those levels: 256 KiB. Below 2^19, zstd compares candidates without branches that a
/// processor mispredicts (`useCmov` in zstd_fast.c). At level 1 this took 4 to 11 % less time for 0
/// to 4 % more bytes, by the kind of document.
const FAST_WINDOW_LOG: u32 = 18;

/// A segment's summary of a vbucket's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Range {
    pub vbucket: u16,
    /// Seqno of the first record.
    pub first: u64,
    /// Seqno of the last one.
    pub last: u64,
    /// How many there are.
    pub records: u64,
}

/// Where a block is, and what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchiveBlock {
    /// Bytes of the file before the block.
    pub offset: u64,
    /// Bytes of its frame.
    pub stored: u64,
    /// Bytes of its records.
    pub inflated: u64,
    pub records: u64,
    /// CRC-32 of the frame.
    pub crc32: u32,
}

/// Contents of a segment, and the backup's position after it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Footer {
    /// Id of the backup.
    pub backup: String,
    /// Number of the segment, from 0.
    pub number: u32,
    /// Vbuckets that begin anew after this segment: their records up to here are void, those of
    /// parents included.
    pub resets: Vec<u16>,
    /// Collections that came and went while the segment was made.
    pub events: Vec<CollectionEvent>,
    pub blocks: Vec<ArchiveBlock>,
    /// Its vbuckets, in their order.
    pub vbuckets: Vec<Range>,
    /// Records that are documents.
    pub mutations: u64,
    /// Records that are removals.
    pub removals: u64,
    /// Bytes of all records.
    pub plain_bytes: u64,
    /// Token of the change stream after the segment.
    pub token: String,
}

/// Makes segments in memory, one after the other, and keeps its buffers from one to the next.
///
/// Several of them make one backup together when each has its own vbuckets:
/// [`crate::writer::BackupWriter::cut`].
pub struct SegmentWriter {
    bytes: Vec<u8>,
    block: Vec<u8>,
    block_records: u64,
    /// Output buffer of zstd, as long as the largest block needs.
    compressed: Vec<u8>,
    /// Of each vbucket up to the highest one; those without records have none.
    ranges: Vec<Range>,
    footer: Footer,
    /// None for frames of records as they are.
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl SegmentWriter {
    /// An empty segment; `level` is zstd's, 1 to 19, or below 0 for its fast ones. With 0, frames
    /// have the records as they are.
    pub(crate) fn new(level: i32) -> std::io::Result<SegmentWriter> {
        let mut segment = SegmentWriter {
            bytes: Vec::new(),
            block: Vec::with_capacity(BLOCK_BYTES + 4096),
            block_records: 0,
            compressed: Vec::new(),
            ranges: Vec::new(),
            footer: Footer::default(),
            compressor: match level {
                0 => None,
                _ => Some(compressor(level)?),
            },
        };
        segment.begin();
        Ok(segment)
    }

    /// Begins a segment in the buffers of the one before.
    fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(MAGIC);
        self.bytes.extend_from_slice(&VERSION.to_be_bytes());
        self.ranges.clear();
        self.footer = Footer::default();
    }

    /// Records, resets or events were added.
    pub fn has_news(&self) -> bool {
        self.footer.mutations + self.footer.removals > 0
            || !self.footer.resets.is_empty()
            || !self.footer.events.is_empty()
    }

    /// Bytes of all records.
    pub fn plain_bytes(&self) -> u64 {
        self.footer.plain_bytes
    }

    /// Voids what the vbucket has had so far, parents included. The token that the segment is cut
    /// with has the vbucket at its beginning.
    pub fn reset(&mut self, vbid: Vbid) {
        if !self.footer.resets.contains(&vbid.0) {
            self.footer.resets.push(vbid.0);
        }
    }

    /// Adds a collection that came or went. Every vbucket tells it.
    pub fn event(&mut self, event: CollectionEvent) {
        if !self.footer.events.contains(&event) {
            self.footer.events.push(event);
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When it is longer than any server's.
    pub fn push(&mut self, record: &ArchiveRecord<'_>) -> Result<(), ArchiveError> {
        if self.block.len() >= BLOCK_BYTES {
            self.close_block();
        }
        record.encode(&mut self.block).map_err(|error| {
            let (vbid, seqno) = (record.vbid, record.seqno.0);
            ArchiveError::damaged("the change stream", format!("{vbid}, seqno {seqno}: {error}"))
        })?;
        self.block_records += 1;
        self.footer.plain_bytes += record.encoded_bytes() as u64;
        match record.kind {
            crate::RecordKind::Mutation => self.footer.mutations += 1,
            _ => self.footer.removals += 1,
        }
        let (index, seqno) = (usize::from(record.vbid.0), record.seqno.0);
        if self.ranges.len() <= index {
            let empty = Range { vbucket: 0, first: 0, last: 0, records: 0 };
            self.ranges.resize(index + 1, empty);
        }
        let range = &mut self.ranges[index];
        if range.records == 0 {
            (range.vbucket, range.first) = (record.vbid.0, seqno);
        }
        range.last = seqno;
        range.records += 1;
        Ok(())
    }

    fn close_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let offset = self.bytes.len();
        match &mut self.compressor {
            Some(compressor) => {
                // The destination has the bound that zstd gives, so compressing cannot fail.
                let bound = zstd::zstd_safe::compress_bound(self.block.len());
                if self.compressed.len() < bound {
                    self.compressed.resize(bound, 0);
                }
                let stored = compressor.compress_to_buffer(&self.block, &mut self.compressed[..]);
                let stored = stored.expect("the destination is as large as zstd asks for");
                self.bytes.extend_from_slice(&self.compressed[..stored]);
            }
            None => raw_frame::append(&self.block, &mut self.bytes),
        }
        let frame = &self.bytes[offset..];
        self.footer.blocks.push(ArchiveBlock {
            offset: offset as u64,
            stored: frame.len() as u64,
            inflated: self.block.len() as u64,
            records: self.block_records,
            crc32: crc32fast::hash(frame),
        });
        self.block.clear();
        self.block_records = 0;
    }

    /// Closes the last block, so that [`SegmentWriter::finish`] has little left to do.
    pub(crate) fn close(&mut self) {
        self.close_block();
    }

    /// The collections that came or went.
    pub(crate) fn events(&self) -> &[CollectionEvent] {
        &self.footer.events
    }

    /// The whole segment, and what the manifest says of it; the next one begins after it. The
    /// bytes are there until then.
    pub(crate) fn finish(
        &mut self,
        backup: &str,
        number: u32,
        token: String,
    ) -> Result<(&[u8], SegmentEntry, Footer), serde_json::Error> {
        self.close_block();
        let vbuckets = self.ranges.drain(..).filter(|range| range.records > 0).collect();
        let footer = std::mem::take(&mut self.footer);
        let footer = Footer { backup: backup.to_owned(), number, token, vbuckets, ..footer };
        let text = serde_json::to_vec(&footer)?;
        self.bytes.extend_from_slice(&text);
        self.bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(&crc32fast::hash(&text).to_be_bytes());
        self.bytes.extend_from_slice(END);
        let entry = SegmentEntry::of(self.bytes.len(), &text, &footer);
        Ok((&self.bytes, entry, footer))
    }

    /// Begins the next segment.
    pub(crate) fn next(&mut self) {
        self.begin();
    }
}

impl SegmentEntry {
    fn of(bytes: usize, footer_text: &[u8], footer: &Footer) -> SegmentEntry {
        SegmentEntry {
            bytes: bytes as u64,
            footer_sha256: sha256(footer_text),
            records: footer.mutations.saturating_add(footer.removals),
            resets: footer.resets.clone(),
        }
    }
}

/// Zstd at a level that is not 0.
fn compressor(level: i32) -> std::io::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    if level <= FAST_LEVEL_MAX {
        compressor.set_parameter(zstd::zstd_safe::CParameter::WindowLog(FAST_WINDOW_LOG))?;
    }
    Ok(compressor)
}

/// A segment that was read.
pub struct ArchiveSegment<'a> {
    name: &'a str,
    bytes: &'a [u8],
    footer_text: &'a [u8],
    footer: Footer,
}

impl<'a> ArchiveSegment<'a> {
    /// Reads the footer of the file called `name`, and finds the blocks.
    ///
    /// # Errors
    /// When the bytes are no whole segment.
    pub fn open(name: &'a str, bytes: &'a [u8]) -> Result<ArchiveSegment<'a>, ArchiveError> {
        let damaged = |reason: &str| ArchiveError::damaged(name, reason);
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_be_bytes());
        if !bytes.starts_with(&head) {
            return Err(damaged("it does not begin as a segment of version 2"));
        }
        let rest = bytes.strip_suffix(END).ok_or_else(|| damaged("its end is missing"))?;
        let (rest, end) =
            rest.split_last_chunk::<8>().ok_or_else(|| damaged("its end is missing"))?;
        let footer_bytes = word(end, 0) as usize;
        if footer_bytes > TEXT_BYTES_MAX || footer_bytes > rest.len().saturating_sub(HEAD_BYTES) {
            return Err(damaged("its footer is cut off"));
        }
        let blocks_end = rest.len() - footer_bytes;
        let footer_text = &rest[blocks_end..];
        if crc32fast::hash(footer_text) != word(end, 4) {
            return Err(damaged("the checksum of its footer is another one"));
        }
        let footer: Footer =
            serde_json::from_slice(footer_text).map_err(|error| damaged(&error.to_string()))?;
        // One block after the other, from the head to the footer.
        let mut at = HEAD_BYTES as u64;
        for (index, block) in footer.blocks.iter().enumerate() {
            if block.offset != at {
                return Err(damaged(&format!("block {index} does not begin where it has to")));
            }
            if block.inflated > BLOCK_BYTES_MAX as u64 {
                return Err(damaged(&format!("block {index} has {} bytes", block.inflated)));
            }
            at = at.saturating_add(block.stored);
        }
        if at != blocks_end as u64 {
            return Err(damaged("its blocks do not end at the footer"));
        }
        Ok(ArchiveSegment { name, bytes, footer_text, footer })
    }

    /// This segment's entry in a manifest.
    pub fn entry(&self) -> SegmentEntry {
        SegmentEntry::of(self.bytes.len(), self.footer_text, &self.footer)
    }

    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Takes the footer out.
    pub fn into_footer(self) -> Footer {
        self.footer
    }

    /// Its blocks, in order.
    ///
    /// # Errors
    /// When zstd cannot be set up.
    pub fn blocks(&self) -> Result<ArchiveBlocks<'_>, ArchiveError> {
        let inflater = zstd::bulk::Decompressor::new()
            .map_err(|error| self.damaged(format!("zstd cannot be set up: {error}")))?;
        Ok(ArchiveBlocks { segment: self, next: 0, inflater })
    }

    /// Compares the checksum of every block.
    ///
    /// # Errors
    /// When a block is damaged.
    pub fn check(&self) -> Result<(), ArchiveError> {
        (0..self.footer.blocks.len()).try_for_each(|index| self.frame(index).map(drop))
    }

    /// The frame of a block.
    fn frame(&self, index: usize) -> Result<&'a [u8], ArchiveError> {
        let block = &self.footer.blocks[index];
        // That the blocks are in the file was checked when it was opened.
        let frame = &self.bytes[block.offset as usize..][..block.stored as usize];
        match crc32fast::hash(frame) == block.crc32 {
            true => Ok(frame),
            false => Err(self.damaged(format!("the checksum of block {index} is another one"))),
        }
    }

    /// Calls `visit` for each record, in order.
    ///
    /// # Errors
    /// When a block is damaged, or what `visit` returns. Records before it were visited.
    pub fn for_each<E: From<ArchiveError>>(
        &self,
        mut visit: impl FnMut(&ArchiveRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut blocks = self.blocks()?;
        let mut plain = Vec::new();
        while let Some(records) = blocks.inflate_next(&mut plain)? {
            let (mut rest, mut count) = (&plain[..], 0);
            while !rest.is_empty() {
                let record = ArchiveRecord::decode(&mut rest)
                    .map_err(|error| self.damaged(format!("block {}: {error}", blocks.next - 1)))?;
                count += 1;
                visit(&record)?;
            }
            if count != records {
                let index = blocks.next - 1;
                let reason = format!("block {index} has {count} records, not {records}");
                return Err(self.damaged(reason).into());
            }
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, reason: String) -> ArchiveError {
        ArchiveError::damaged(self.name, reason)
    }
}

/// The blocks of a segment, inflated one by one.
pub struct ArchiveBlocks<'a> {
    segment: &'a ArchiveSegment<'a>,
    /// Index of the next block.
    next: usize,
    inflater: zstd::bulk::Decompressor<'static>,
}

impl ArchiveBlocks<'_> {
    /// Inflates the next block into `plain`, whose content and memory are replaced or reused.
    /// Returns how many records it has; `None` behind the last block.
    ///
    /// # Errors
    /// When the block is damaged.
    pub fn inflate_next(&mut self, plain: &mut Vec<u8>) -> Result<Option<u64>, ArchiveError> {
        let (segment, index) = (self.segment, self.next);
        let Some(block) = segment.footer.blocks.get(index) else { return Ok(None) };
        let (frame, inflated) = (segment.frame(index)?, block.inflated as usize);
        self.next = index + 1;
        plain.clear();
        plain.reserve(inflated);
        match self.inflater.decompress_to_buffer(frame, plain) {
            Ok(bytes) if bytes == inflated => Ok(Some(block.records)),
            Ok(_) => Err(segment.damaged(format!("block {index} inflates to another length"))),
            Err(error) => {
                Err(segment.damaged(format!("block {index} cannot be inflated: {error}")))
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

const _: () = assert!(END_BYTES == 8 + END.len() && HEAD_BYTES == MAGIC.len() + 4);

#[cfg(test)]
mod tests;
