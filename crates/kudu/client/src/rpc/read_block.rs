//! The block that a connection reads into, and the frames in it.
//!
//! Invariants: a frame is a slice of the block it was read into. Received bytes move at most once,
//! and only those of a frame that does not fit into the rest of its block: at most one small
//! block's worth, whatever the size of the frame. A frame larger than a small block gets a block of
//! that size, which the socket then fills directly. The connection calls it and does the
//! reading: it fills [`ReadBlock::room`].

use bytes::{Bytes, BytesMut};

use super::frame::{FrameError, LENGTH_BYTES, frame_bytes};
use super::limits::{READ_BLOCK_BYTES, READ_ROOM_BYTES_MIN};

/// Bytes from the server that are not part of a complete frame yet.
#[derive(Debug)]
pub(crate) struct ReadBlock {
    block: BytesMut,
    frame_bytes_max: usize,
}

impl ReadBlock {
    /// An empty block for frames of at most this size.
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self { block: BytesMut::new(), frame_bytes_max }
    }

    /// The buffer to read into, with capacity for at least one more byte. Only append to it, within
    /// its capacity.
    pub(crate) fn room(&mut self) -> Result<&mut BytesMut, FrameError> {
        let room_bytes = self.block.capacity() - self.block.len();
        let wanted_bytes = match self.unfinished_frame_bytes()? {
            Some(bytes) => bytes.saturating_sub(self.block.len()).max(1),
            None => READ_ROOM_BYTES_MIN,
        };
        if room_bytes < wanted_bytes {
            self.renew(wanted_bytes);
        }
        Ok(&mut self.block)
    }

    /// Splits the next complete frame off the front, with its length prefix.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        match self.unfinished_frame_bytes()? {
            Some(bytes) if bytes <= self.block.len() => {
                Ok(Some(self.block.split_to(bytes).freeze()))
            }
            _ => Ok(None),
        }
    }

    /// True when the block ends between two frames.
    pub(crate) fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Bytes of the frame at the front, once its length has been read.
    fn unfinished_frame_bytes(&self) -> Result<Option<usize>, FrameError> {
        match self.block.first_chunk::<LENGTH_BYTES>() {
            Some(length) => frame_bytes(*length, self.frame_bytes_max).map(Some),
            None => Ok(None),
        }
    }

    /// Switches to a block with capacity for this many more bytes: the old one if all its frames
    /// were dropped, else a new one.
    fn renew(&mut self, wanted_bytes: usize) {
        let bytes = (self.block.len() + wanted_bytes).max(READ_BLOCK_BYTES);
        if self.block.is_empty() && self.block.try_reclaim(bytes) {
            return;
        }
        let mut renewed = BytesMut::with_capacity(bytes);
        renewed.extend_from_slice(&self.block);
        self.block = renewed;
    }
}

#[cfg(test)]
mod tests;
