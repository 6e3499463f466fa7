//! Frames out of a stream of bytes, without moving the bytes.
//!
//! Owns the bytes received and not yet taken. Small frames are handed out where the socket left
//! them, in a [`ReadBuffer`], so draining a stream of any length moves at most the one partial
//! frame at the end of each block. A frame of [`LARGE_FRAME_BYTES_MIN`] and more gets a block of
//! exactly its size: the part that had arrived is copied there once, the rest is received straight
//! into it, and its value leaves as that same block ([`FrameReader::take_body`]).
//!
//! To drive it, read into [`FrameReader::spare`], report the length by [`FrameReader::commit`],
//! then call [`FrameReader::advance`] until it answers false. The frame it found is
//! [`FrameReader::frame`] until the next call of `advance`. Bytes may be added at any time, also
//! while a frame is held.
//!
//! Invariants: `moved_bytes() <= received_bytes()`; a header's length is checked against the limit
//! before room is made. Does no I/O. Used by both kinds of connection.

use bytes::{Buf, Bytes};
use oribi_protocol::frame::{self, Decoded, Frame, FrameError, Header};
use oribi_protocol::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use oribi_protocol::read_buffer::ReadBuffer;

/// Frames of this size and more are received into a block of their own. Below it the copy out of
/// the read buffer costs less than an allocation that the system has to zero.
pub const LARGE_FRAME_BYTES_MIN: usize = 64 * 1024;

/// A read is worth its system call only with some room to read into.
const READ_ROOM_BYTES_MIN: usize = 16 * 1024;

/// A read buffer that grew beyond this is given back once it is empty.
const READ_BLOCK_KEPT_BYTES_MAX: usize = 256 * 1024;

/// Why the bytes received are not a stream of frames. Nothing after it can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// Not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame is longer than any that a server may send.
    #[error("a frame of {bytes} bytes was announced, the limit is {FRAME_BYTES_MAX}")]
    TooLong {
        /// Announced length.
        bytes: usize,
    },
}

/// A frame that is received into its own block.
#[derive(Debug)]
struct Large {
    header: Header,
    /// As long as the whole frame.
    block: Vec<u8>,
    filled_bytes: usize,
}

impl Large {
    fn is_complete(&self) -> bool {
        self.filled_bytes == self.block.len()
    }
}

/// Which frame `frame` shows.
#[derive(Clone, Copy, Debug, Default)]
enum Current {
    #[default]
    None,
    /// The one at the head of the buffer.
    Buffered(Header),
    /// The large one.
    Large,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: ReadBuffer,
    /// Precedes everything in `buffer`.
    large: Option<Large>,
    current: Current,
    /// Bytes received straight into large blocks.
    large_received_bytes: u64,
    /// Bytes copied from the buffer into large blocks.
    large_moved_bytes: u64,
}

impl FrameReader {
    /// A reader that has received nothing and holds no memory.
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// Where the next bytes go; never empty.
    pub fn spare(&mut self) -> &mut [u8] {
        match &mut self.large {
            Some(large) if !large.is_complete() => &mut large.block[large.filled_bytes..],
            _ => self.buffer.spare(READ_ROOM_BYTES_MIN),
        }
    }

    /// Says that the first `bytes` of [`FrameReader::spare`] were filled.
    ///
    /// # Panics
    /// When there was not that much room.
    pub fn commit(&mut self, bytes: usize) {
        match &mut self.large {
            Some(large) if !large.is_complete() => {
                assert!(
                    bytes <= large.block.len() - large.filled_bytes,
                    "more than there was room"
                );
                large.filled_bytes += bytes;
                self.large_received_bytes += bytes as u64;
            }
            _ => self.buffer.commit(bytes),
        }
    }

    /// Lets go of the present frame and finds the next; false when more bytes are needed.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, StreamError> {
        self.release_current();
        if let Some(large) = &self.large {
            if large.is_complete() {
                self.current = Current::Large;
            }
            return Ok(large.is_complete());
        }
        match frame::decode(self.buffer.unread())? {
            Decoded::Complete { frame, .. } => {
                self.current = Current::Buffered(frame.header);
                Ok(true)
            }
            Decoded::Incomplete { needed } => {
                self.prepare(needed)?;
                Ok(false)
            }
        }
    }

    /// The present frame's header.
    #[inline]
    pub fn header(&self) -> Option<&Header> {
        match &self.current {
            Current::None => None,
            Current::Buffered(header) => Some(header),
            Current::Large => self.large.as_ref().map(|large| &large.header),
        }
    }

    /// The present frame; `None` before the first [`FrameReader::advance`] that answered true and
    /// after one that answered false.
    #[inline]
    pub fn frame(&self) -> Option<Frame<'_>> {
        match self.current {
            Current::None => None,
            Current::Buffered(header) => {
                Frame::from_body(header, &self.buffer.unread()[HEADER_BYTES..])
            }
            Current::Large => {
                let large = self.large.as_ref()?;
                Frame::from_body(large.header, &large.block[HEADER_BYTES..])
            }
        }
    }

    /// Extras, key and value of the present frame as memory of their own: copied for a small frame,
    /// the very block it was received into for a large one. The frame is gone afterwards.
    pub fn take_body(&mut self) -> Option<(Header, Bytes)> {
        match std::mem::take(&mut self.current) {
            Current::None => None,
            Current::Buffered(header) => {
                let bytes = header.frame_bytes();
                let body = &self.buffer.unread()[body_start(&header)..bytes];
                let body = Bytes::copy_from_slice(body);
                self.consume(bytes);
                Some((header, body))
            }
            Current::Large => {
                let Large { header, block, .. } = self.large.take()?;
                let mut body = Bytes::from(block);
                body.advance(body_start(&header));
                Some((header, body))
            }
        }
    }

    /// Bytes received and not yet handed out, those of the present frame included.
    pub fn unread_bytes(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |large| large.filled_bytes);
        self.buffer.unread().len() + large
    }

    /// The bytes received and not yet handed out, for another reader.
    pub(crate) fn into_unread(self) -> Vec<u8> {
        let mut unread = self.large.map_or_else(Vec::new, |mut large| {
            large.block.truncate(large.filled_bytes);
            large.block
        });
        unread.extend_from_slice(self.buffer.unread());
        unread
    }

    /// Bytes received in the reader's life.
    pub fn received_bytes(&self) -> u64 {
        self.buffer.received_bytes() + self.large_received_bytes
    }

    /// Bytes that were received in one place and moved to another; never more than were received.
    pub fn moved_bytes(&self) -> u64 {
        self.buffer.moved_bytes() + self.large_moved_bytes
    }

    #[inline]
    fn release_current(&mut self) {
        match std::mem::take(&mut self.current) {
            Current::None => {}
            Current::Buffered(header) => self.consume(header.frame_bytes()),
            Current::Large => self.large = None,
        }
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.buffer.consume(bytes);
        if self.buffer.is_empty() && self.buffer.capacity() > READ_BLOCK_KEPT_BYTES_MAX {
            self.buffer.release();
        }
    }

    /// Makes room for a frame of `frame_bytes` of which only the start is there.
    fn prepare(&mut self, frame_bytes: usize) -> Result<(), StreamError> {
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(StreamError::TooLong { bytes: frame_bytes });
        }
        let unread = self.buffer.unread();
        if frame_bytes < LARGE_FRAME_BYTES_MIN {
            self.buffer.reserve_frame(frame_bytes);
            return Ok(());
        }
        let Some(header_bytes) = unread.first_chunk::<HEADER_BYTES>() else { return Ok(()) };
        let header = Header::decode(header_bytes)?;
        // Zeroed pages are mapped when first written, so a length that no bytes follow costs
        // nothing.
        let mut block = vec![0; frame_bytes];
        block[..unread.len()].copy_from_slice(unread);
        let filled_bytes = unread.len();
        self.large_moved_bytes += filled_bytes as u64;
        self.large = Some(Large { header, block, filled_bytes });
        self.consume(filled_bytes);
        Ok(())
    }
}

/// Where a frame's body starts when its framing extras are left out.
fn body_start(header: &Header) -> usize {
    HEADER_BYTES + usize::from(header.framing_bytes)
}

#[cfg(test)]
mod tests;
