//! The end of a segment in memory, on its way to the file in whole blocks.
//!
//! Owns: the buffer that frames are put together in. Files are written past the page cache, which
//! takes whole blocks only. So the last block of a frame is written with zeros after the frame,
//! stays here, and is written once more with the next frame's first bytes. Invariants: a block is
//! written only with everything that the log has in it; acknowledged bytes are written again
//! unchanged, so a write that a power failure cuts off changes none of them. Caller: the writer,
//! which passes the start of each frame.

use std::io;

use super::blocks::{BLOCK_BYTES_MAX, Blocks};
use super::files::LogFile;

/// Bytes that collect before they are written: few enough to stay in a core's own cache while they
/// are put together, many enough that a call for each costs next to nothing.
const STAGING_BYTES: usize = 1 << 20;

const _: () = assert!(STAGING_BYTES.is_multiple_of(BLOCK_BYTES_MAX));

/// See the module text.
#[derive(Default)]
pub(super) struct Staging {
    /// Empty until the first write.
    memory: Blocks,
    /// The segment; `None` when the staged bytes are unknown.
    segment: Option<u32>,
    /// Offset in the segment of the first byte, a multiple of the file's block.
    at: u64,
    /// Bytes that are here.
    len: usize,
}

impl Staging {
    /// The next byte stands at `end` of the segment. Reads the beginning of its block back when it
    /// is not here.
    pub(super) fn go_to(&mut self, file: &dyn LogFile, segment: u32, end: u64) -> io::Result<()> {
        if self.segment == Some(segment) && self.end() == end {
            return Ok(());
        }
        let in_block = end % file.block_bytes() as u64;
        assert!(in_block < BLOCK_BYTES_MAX as u64, "a block is at most a page");
        (self.segment, self.at, self.len) = (None, end - in_block, in_block as usize);
        let tail = &mut self.memory.room(STAGING_BYTES)[..self.len];
        if file.read_at(tail, self.at)? < tail.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.segment = Some(segment);
        assert_eq!(self.end(), end, "the next byte is at the requested offset");
        Ok(())
    }

    /// It is no longer known what the file has.
    pub(super) fn forget(&mut self) {
        self.segment = None;
    }

    /// Offset of the next byte in the segment.
    pub(super) fn end(&self) -> u64 {
        self.at + self.len as u64
    }

    /// Appends the bytes, and writes whenever the buffer is full.
    pub(super) fn push(&mut self, file: &dyn LogFile, mut bytes: &[u8]) -> io::Result<()> {
        debug_assert!(self.len < STAGING_BYTES, "a full buffer is written");
        while !bytes.is_empty() {
            let free = &mut self.memory.room(STAGING_BYTES)[self.len..];
            debug_assert!(!free.is_empty(), "a full buffer is written");
            let (now, later) = bytes.split_at(bytes.len().min(free.len()));
            free[..now.len()].copy_from_slice(now);
            self.len += now.len();
            debug_assert!(self.len <= STAGING_BYTES, "bytes are inside the buffer");
            bytes = later;
            if self.len == STAGING_BYTES {
                file.write_blocks(self.memory.first(STAGING_BYTES), self.at)?;
                self.at += STAGING_BYTES as u64;
                self.len = 0;
            }
        }
        Ok(())
    }

    /// Writes the staged bytes, the last block padded with zeros; with `keeps_tail` it stays
    /// staged.
    pub(super) fn flush(&mut self, file: &dyn LogFile, keeps_tail: bool) -> io::Result<()> {
        let block_bytes = file.block_bytes();
        let whole = self.len.next_multiple_of(block_bytes);
        assert!(whole <= STAGING_BYTES, "the last block is in the buffer");
        debug_assert!(self.at.is_multiple_of(block_bytes as u64), "the buffer begins at a block");
        let blocks = &mut self.memory.room(STAGING_BYTES)[..whole];
        blocks[self.len..].fill(0);
        file.write_blocks(blocks, self.at)?;
        let tail = self.len - self.len % block_bytes;
        if keeps_tail {
            blocks.copy_within(tail..self.len, 0);
        } else {
            blocks[..self.len - tail].fill(0);
        }
        self.at += tail as u64;
        self.len -= tail;
        debug_assert!(self.len < block_bytes, "less than a block stays");
        Ok(())
    }

    /// Writes a whole file that is no segment: what fills no block in the usual way.
    pub(super) fn write_file(&mut self, file: &dyn LogFile, bytes: &[u8]) -> io::Result<()> {
        (self.segment, self.at, self.len) = (None, 0, 0);
        self.push(file, bytes)?;
        let whole = self.len - self.len % file.block_bytes();
        let (blocks, rest) = self.memory.first(self.len).split_at(whole);
        debug_assert!(rest.len() < file.block_bytes(), "less than a block is left");
        if !blocks.is_empty() {
            file.write_blocks(blocks, self.at)?;
        }
        if rest.is_empty() { Ok(()) } else { file.write_at(rest, self.at + whole as u64) }
    }
}
