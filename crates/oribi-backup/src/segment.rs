//! A segment: a file with the records of many documents, in the order in which they came.
//!
//! Layout, all numbers big-endian:
//!
//! | part | |
//! |---|---|
//! | head | `ORIBISEG`, then the version of the format as u32 (1) |
//! | blocks | each: u32 stored bytes, u32 inflated bytes, u32 CRC-32 of the stored bytes, a zstd frame of [records](crate::record) |
//! | footer | JSON, see [`Footer`] |
//! | end | u32 bytes of the footer, u32 CRC-32 of the footer, `ORIBIEND` |
//!
//! The footer is at the end because it says what the blocks have; the last sixteen bytes lead to
//! it. A segment stands for itself: the footer of the last one tells where a backup that was
//! interrupted goes on.

use std::collections::BTreeMap;

use oribi_types::Vbid;
use serde::{Deserialize, Serialize};

use crate::error::ArchiveError;
use crate::limits::{BLOCK_BYTES, BLOCK_BYTES_MAX, TEXT_BYTES_MAX};
use crate::manifest::CollectionEvent;
use crate::record::{NoRecord, Record};

const MAGIC: &[u8; 8] = b"ORIBISEG";
const END: &[u8; 8] = b"ORIBIEND";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 12;
const BLOCK_HEAD_BYTES: usize = 12;
const END_BYTES: usize = 16;

/// What a segment says about its vbucket's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Range {
    /// The vbucket.
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
pub struct Block {
    /// Bytes of the file before the block.
    pub offset: u64,
    /// Records in it.
    pub records: u64,
}

/// What a segment has, and where the backup is behind it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Footer {
    /// Id of the backup.
    pub backup: String,
    /// Number of the segment, from 0.
    pub number: u32,
    /// Vbuckets that begin anew behind this segment: their records up to here are void, those of
    /// parents included.
    pub resets: Vec<u16>,
    /// Collections that came and went while the segment was made.
    pub events: Vec<CollectionEvent>,
    /// Its blocks.
    pub blocks: Vec<Block>,
    /// Its vbuckets, in their order.
    pub vbuckets: Vec<Range>,
    /// Records that are documents.
    pub mutations: u64,
    /// Records that are removals.
    pub removals: u64,
    /// Bytes of all records.
    pub plain_bytes: u64,
    /// Token of the change stream behind the segment.
    pub token: String,
}

/// Makes one segment in memory.
pub(crate) struct SegmentWriter {
    bytes: Vec<u8>,
    block: Vec<u8>,
    block_records: u64,
    ranges: BTreeMap<u16, Range>,
    footer: Footer,
    compressor: zstd::bulk::Compressor<'static>,
}

impl SegmentWriter {
    /// An empty segment; `level` is zstd's, 1 to 19.
    pub fn new(level: i32) -> std::io::Result<SegmentWriter> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        Ok(SegmentWriter {
            bytes,
            block: Vec::with_capacity(BLOCK_BYTES + 4096),
            block_records: 0,
            ranges: BTreeMap::new(),
            footer: Footer::default(),
            compressor: zstd::bulk::Compressor::new(level)?,
        })
    }

    /// Records, resets or events were added.
    pub fn has_news(&self) -> bool {
        !self.ranges.is_empty() || !self.footer.resets.is_empty() || !self.footer.events.is_empty()
    }

    /// Bytes of all records.
    pub fn plain_bytes(&self) -> u64 {
        self.footer.plain_bytes
    }

    /// Voids what the vbucket has had so far.
    pub fn reset(&mut self, vbid: Vbid) {
        if !self.footer.resets.contains(&vbid.0) {
            self.footer.resets.push(vbid.0);
        }
    }

    /// Adds a collection that came or went.
    pub fn event(&mut self, event: CollectionEvent) {
        self.footer.events.push(event);
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), NoRecord> {
        if self.block.len() >= BLOCK_BYTES {
            self.close_block();
        }
        record.encode(&mut self.block)?;
        self.block_records += 1;
        self.footer.plain_bytes += record.encoded_bytes() as u64;
        match record.kind {
            crate::RecordKind::Mutation => self.footer.mutations += 1,
            _ => self.footer.removals += 1,
        }
        let Vbid(vbucket) = record.vbid;
        let seqno = record.seqno.0;
        let new = Range { vbucket, first: seqno, last: seqno, records: 0 };
        let range = self.ranges.entry(vbucket).or_insert(new);
        range.last = seqno;
        range.records += 1;
        Ok(())
    }

    fn close_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let offset = self.bytes.len() as u64;
        // The destination has the bound that zstd gives, so compressing cannot fail.
        let bound = zstd::zstd_safe::compress_bound(self.block.len());
        self.bytes.resize(offset as usize + BLOCK_HEAD_BYTES + bound, 0);
        let frame = &mut self.bytes[offset as usize + BLOCK_HEAD_BYTES..];
        let stored = self.compressor.compress_to_buffer(&self.block, frame);
        let stored = stored.expect("the destination is as large as zstd asks for");
        self.bytes.truncate(offset as usize + BLOCK_HEAD_BYTES + stored);
        let checksum = crc32fast::hash(&self.bytes[offset as usize + BLOCK_HEAD_BYTES..]);
        let head = &mut self.bytes[offset as usize..offset as usize + BLOCK_HEAD_BYTES];
        // Both are far below 4 GiB, see `limits`.
        head[..4].copy_from_slice(&(stored as u32).to_be_bytes());
        head[4..8].copy_from_slice(&(self.block.len() as u32).to_be_bytes());
        head[8..].copy_from_slice(&checksum.to_be_bytes());
        self.footer.blocks.push(Block { offset, records: self.block_records });
        self.block.clear();
        self.block_records = 0;
    }

    /// The whole segment.
    pub fn finish(
        mut self,
        backup: &str,
        number: u32,
        token: String,
    ) -> Result<(Vec<u8>, Footer), serde_json::Error> {
        self.close_block();
        let vbuckets = self.ranges.into_values().collect();
        let footer = Footer { backup: backup.to_owned(), number, token, vbuckets, ..self.footer };
        let text = serde_json::to_vec(&footer)?;
        let mut bytes = self.bytes;
        bytes.extend_from_slice(&text);
        bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&text).to_be_bytes());
        bytes.extend_from_slice(END);
        Ok((bytes, footer))
    }
}

/// A segment that was read.
pub struct Segment<'a> {
    name: &'a str,
    blocks: &'a [u8],
    footer: Footer,
}

impl<'a> Segment<'a> {
    /// Reads the footer of the file called `name`.
    ///
    /// # Errors
    /// When the bytes are no whole segment.
    pub fn open(name: &'a str, bytes: &'a [u8]) -> Result<Segment<'a>, ArchiveError> {
        let damaged = |reason: &str| ArchiveError::damaged(name, reason);
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_be_bytes());
        let rest = bytes.strip_prefix(&head[..]);
        let rest = rest.ok_or_else(|| damaged("it does not begin as a segment of version 1"))?;
        let rest = rest.strip_suffix(END).ok_or_else(|| damaged("its end is missing"))?;
        let (rest, end) =
            rest.split_last_chunk::<8>().ok_or_else(|| damaged("its end is missing"))?;
        let footer_bytes = word(end, 0) as usize;
        if footer_bytes > TEXT_BYTES_MAX || footer_bytes > rest.len() {
            return Err(damaged("its footer is cut off"));
        }
        let (blocks, text) = rest.split_at(rest.len() - footer_bytes);
        if crc32fast::hash(text) != word(end, 4) {
            return Err(damaged("the checksum of its footer is another one"));
        }
        let footer = serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))?;
        Ok(Segment { name, blocks, footer })
    }

    /// What it has.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Takes the footer out.
    pub fn into_footer(self) -> Footer {
        self.footer
    }

    /// Calls `visit` for each record, in order.
    ///
    /// # Errors
    /// When a block is damaged, or what `visit` returns. Records before it were visited.
    pub fn for_each<E: From<ArchiveError>>(
        &self,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = self.blocks;
        let mut inflater = zstd::bulk::Decompressor::new()
            .map_err(|error| self.damaged(format!("zstd cannot be set up: {error}")))?;
        for (index, block) in self.footer.blocks.iter().enumerate() {
            let offset = (HEAD_BYTES + self.blocks.len() - rest.len()) as u64;
            if block.offset != offset {
                return Err(self
                    .damaged(format!("block {index} is not where the index says"))
                    .into());
            }
            let plain = self.next_block(&mut rest, index, &mut inflater)?;
            let mut records = &plain[..];
            let mut count = 0;
            while !records.is_empty() {
                let record = Record::decode(&mut records)
                    .map_err(|error| self.damaged(format!("block {index}: {error}")))?;
                count += 1;
                visit(&record)?;
            }
            if count != block.records {
                let reason = format!("block {index} has {count} records, not {}", block.records);
                return Err(self.damaged(reason).into());
            }
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(self.damaged("there are bytes behind the last block".to_owned()).into()),
        }
    }

    fn next_block(
        &self,
        rest: &mut &'a [u8],
        index: usize,
        inflater: &mut zstd::bulk::Decompressor<'_>,
    ) -> Result<Vec<u8>, ArchiveError> {
        let cut_off = || self.damaged(format!("block {index} is cut off"));
        let (head, behind) = rest.split_first_chunk::<BLOCK_HEAD_BYTES>().ok_or_else(cut_off)?;
        let (stored, plain) = (word(head, 0) as usize, word(head, 4) as usize);
        let (frame, behind) = behind.split_at_checked(stored).ok_or_else(cut_off)?;
        if crc32fast::hash(frame) != word(head, 8) {
            return Err(self.damaged(format!("the checksum of block {index} is another one")));
        }
        if plain > BLOCK_BYTES_MAX {
            return Err(self.damaged(format!("block {index} has {plain} bytes")));
        }
        *rest = behind;
        match inflater.decompress(frame, plain) {
            Ok(bytes) if bytes.len() == plain => Ok(bytes),
            Ok(_) => Err(self.damaged(format!("block {index} inflates to another length"))),
            Err(error) => Err(self.damaged(format!("block {index} cannot be inflated: {error}"))),
        }
    }

    fn damaged(&self, reason: String) -> ArchiveError {
        ArchiveError::damaged(self.name, reason)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

const _: () = assert!(END_BYTES == 8 + END.len() && HEAD_BYTES == MAGIC.len() + 4);

#[cfg(test)]
mod tests;
