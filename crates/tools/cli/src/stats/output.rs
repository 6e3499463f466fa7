//! Standard output in large blocks.
//!
//! It owns the block of pending lines, and when it is written. The usual buffered standard output
//! searches for line ends and copies once more; for millions of lines both cost more than
//! formatting. Code that writes lines calls [`StatsOutput::spill`] after each, so the block grows
//! only by the lines since then.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// Size from which on the block is written; large against a system call, small against the caches.
const BLOCK_BYTES: usize = 128 * 1024;

/// Capacity after that for the line that fills the block, so that it rarely grows.
const LINE_ROOM_BYTES: usize = 16 * 1024;

/// See the module text. Unflushed output is lost.
#[derive(Debug)]
pub struct StatsOutput {
    file: File,
    /// Output that is not written yet; appended to freely.
    pub block: Vec<u8>,
}

impl StatsOutput {
    /// The standard output of the process.
    pub fn stdout() -> io::Result<StatsOutput> {
        Ok(StatsOutput::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    pub fn new(file: File) -> StatsOutput {
        StatsOutput { file, block: Vec::with_capacity(BLOCK_BYTES + LINE_ROOM_BYTES) }
    }

    /// Writes the block if it is full.
    #[inline]
    pub fn spill(&mut self) -> io::Result<()> {
        match self.block.len() < BLOCK_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Writes the block. What could not be written is dropped: an output that failed once stays
    /// failed.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.block);
        self.block.clear();
        written
    }
}
