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
//! while a frame is held. A caller that adds bytes without advancing fills block after block: a
//! full block is queued with its whole frames, and the partial frame at its end moves on to the
//! next block, or at once to a block of its size. No block grows, whatever the caller does.
//!
//! Invariants: `moved_bytes() <= received_bytes()`, because only a partial frame moves, once, to
//! where it is completed. (A header that is cut before its length moves again if its frame is
//! large. That is at most 23 bytes, and the first frame of the same block has not moved.) A
//! header's length is checked against the limit before a block is allocated. Does no I/O. Used by
//! both kinds of connection.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use oribi_protocol::frame::{self, DecodedFrame, Frame, FrameError, Header};
use oribi_protocol::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use oribi_protocol::read_buffer::ReadBuffer;

/// Frames of this size and more are received into their own block. Below it the copy out of the
/// read buffer costs less than an allocation that the system has to zero.
pub const LARGE_FRAME_BYTES_MIN: usize = 64 * 1024;

/// A read is worth its system call only with some space to read into.
const READ_ROOM_BYTES_MIN: usize = 16 * 1024;

/// The longest partial small frame leaves the space of a read. Blocks therefore never grow.
const BLOCK_BYTES: usize = LARGE_FRAME_BYTES_MIN + READ_ROOM_BYTES_MIN;

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
struct LargeFrame {
    header: Header,
    /// As long as the whole frame.
    block: Vec<u8>,
    filled_bytes: usize,
}

impl LargeFrame {
    /// Copies the start of a large frame into a block for all of it; `None` while the frame's
    /// length is unknown, and for a small one.
    fn start(bytes: &[u8]) -> Result<Option<LargeFrame>, StreamError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header)?;
        let frame_bytes = header.frame_bytes();
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(StreamError::TooLong { bytes: frame_bytes });
        }
        if frame_bytes < LARGE_FRAME_BYTES_MIN {
            return Ok(None);
        }
        // Zeroed pages are mapped when first written, so a length that no bytes follow costs
        // nothing.
        let mut block = vec![0; frame_bytes];
        block[..bytes.len()].copy_from_slice(bytes);
        Ok(Some(LargeFrame { header, block, filled_bytes: bytes.len() }))
    }

    fn is_complete(&self) -> bool {
        self.filled_bytes == self.block.len()
    }
}

/// A part of the stream that precedes the bytes in the buffer.
#[derive(Debug)]
enum Segment {
    /// Whole frames in the block where they were received. The bytes after `frames_bytes` have
    /// moved on.
    Frames { buffer: ReadBuffer, frames_bytes: usize },
    /// Incomplete only as the last segment, and then the buffer is empty.
    Large(LargeFrame),
}

impl Segment {
    /// The part's bytes that were received and not handed out.
    fn unread(&self) -> &[u8] {
        match self {
            Segment::Frames { buffer, frames_bytes } => &buffer.unread()[..*frames_bytes],
            Segment::Large(large) => &large.block[..large.filled_bytes],
        }
    }
}

/// Which frame `frame` shows.
#[derive(Clone, Copy, Debug, Default)]
enum Current {
    #[default]
    None,
    /// The one at the head of the first segment with frames, or else of the buffer.
    Buffered(Header),
    /// The large one, which is the first segment.
    Large,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Precede everything in `buffer`, oldest first.
    segments: VecDeque<Segment>,
    buffer: ReadBuffer,
    current: Current,
    received_bytes: u64,
    /// Bytes copied into the next block or a large one; moves within a block are the buffer's.
    moved_bytes: u64,
}

impl FrameReader {
    /// A reader that has received nothing and holds no memory.
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// Where the next bytes go; never empty.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.receiving_large().is_none() && self.buffer.free_bytes() < READ_ROOM_BYTES_MIN {
            self.queue_frames();
        }
        // A match on `receiving_large` would keep the borrow of the other arm.
        match self.segments.back_mut() {
            Some(Segment::Large(large)) if !large.is_complete() => {
                &mut large.block[large.filled_bytes..]
            }
            _ => {
                if self.buffer.capacity() == 0 {
                    self.buffer.put_block(vec![0; BLOCK_BYTES]);
                }
                self.buffer.spare(READ_ROOM_BYTES_MIN)
            }
        }
    }

    /// Says that the first `bytes` of [`FrameReader::spare`] were filled.
    ///
    /// # Panics
    /// When there was not that much space.
    pub fn commit(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
        match self.receiving_large() {
            Some(large) => {
                assert!(
                    bytes <= large.block.len() - large.filled_bytes,
                    "more than there was room"
                );
                large.filled_bytes += bytes;
            }
            None => self.buffer.commit(bytes),
        }
    }

    /// Releases the present frame and finds the next; false when more bytes are needed.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, StreamError> {
        self.release_current();
        if let Some(Segment::Large(large)) = self.segments.front() {
            if large.is_complete() {
                self.current = Current::Large;
            }
            return Ok(large.is_complete());
        }
        match frame::decode(self.head())? {
            DecodedFrame::Complete { frame, .. } => {
                self.current = Current::Buffered(frame.header);
                Ok(true)
            }
            DecodedFrame::Incomplete { needed } => {
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
            Current::Large => self.current_large().map(|large| &large.header),
        }
    }

    /// The present frame; `None` before the first [`FrameReader::advance`] that answered true and
    /// after one that answered false.
    #[inline]
    pub fn frame(&self) -> Option<Frame<'_>> {
        match self.current {
            Current::None => None,
            Current::Buffered(header) => Frame::from_body(header, &self.head()[HEADER_BYTES..]),
            Current::Large => {
                let large = self.current_large()?;
                Frame::from_body(large.header, &large.block[HEADER_BYTES..])
            }
        }
    }

    /// Extras, key and value of the present frame as their own memory: copied for a small frame,
    /// the very block it was received into for a large one. The frame is gone afterwards.
    pub fn take_body(&mut self) -> Option<(Header, Bytes)> {
        match std::mem::take(&mut self.current) {
            Current::None => None,
            Current::Buffered(header) => {
                let bytes = header.frame_bytes();
                let body = &self.head()[body_start(&header)..bytes];
                let body = Bytes::copy_from_slice(body);
                self.consume(bytes);
                Some((header, body))
            }
            Current::Large => {
                let Some(Segment::Large(LargeFrame { header, block, .. })) =
                    self.segments.pop_front()
                else {
                    return None;
                };
                let mut body = Bytes::from(block);
                body.advance(body_start(&header));
                Some((header, body))
            }
        }
    }

    /// Bytes received and not yet handed out, those of the present frame included.
    pub fn unread_bytes(&self) -> usize {
        let segments = self.segments.iter().map(|segment| segment.unread().len());
        self.buffer.unread().len() + segments.sum::<usize>()
    }

    /// The bytes received and not yet handed out, for another reader.
    pub(crate) fn into_unread(self) -> Vec<u8> {
        let mut unread = Vec::with_capacity(self.unread_bytes());
        self.segments.iter().for_each(|segment| unread.extend_from_slice(segment.unread()));
        unread.extend_from_slice(self.buffer.unread());
        unread
    }

    /// Bytes received in the reader's life.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Bytes that were received in one place and moved to another; never more than were received.
    pub fn moved_bytes(&self) -> u64 {
        self.buffer.moved_bytes() + self.moved_bytes
    }

    /// Where the present frame starts, or the next if it is small.
    #[inline]
    fn head(&self) -> &[u8] {
        match self.segments.front() {
            None => self.buffer.unread(),
            Some(segment) => segment.unread(),
        }
    }

    fn current_large(&self) -> Option<&LargeFrame> {
        match self.segments.front() {
            Some(Segment::Large(large)) => Some(large),
            _ => None,
        }
    }

    /// The large frame that the next bytes belong to.
    fn receiving_large(&mut self) -> Option<&mut LargeFrame> {
        match self.segments.back_mut() {
            Some(Segment::Large(large)) if !large.is_complete() => Some(large),
            _ => None,
        }
    }

    #[inline]
    fn release_current(&mut self) {
        match std::mem::take(&mut self.current) {
            Current::None => {}
            Current::Buffered(header) => self.consume(header.frame_bytes()),
            Current::Large => drop(self.segments.pop_front()),
        }
    }

    /// Consumes a frame at the head.
    #[inline]
    fn consume(&mut self, bytes: usize) {
        let Some(Segment::Frames { buffer, frames_bytes }) = self.segments.front_mut() else {
            return self.buffer.consume(bytes);
        };
        buffer.consume(bytes);
        *frames_bytes -= bytes;
        if *frames_bytes == 0 {
            self.segments.pop_front();
        }
    }

    /// Makes space for a frame of `frame_bytes` at the head, of which only the start has arrived.
    fn prepare(&mut self, frame_bytes: usize) -> Result<(), StreamError> {
        // Segments have whole frames, so the partial one is in the buffer.
        let unread = self.buffer.unread();
        if let Some(large) = LargeFrame::start(unread)? {
            self.moved_bytes += unread.len() as u64;
            self.buffer.consume(unread.len());
            self.segments.push_back(Segment::Large(large));
        } else if !unread.is_empty() {
            self.buffer.reserve_frame(frame_bytes);
        }
        Ok(())
    }

    /// Queues the buffer's block with its whole frames, and moves the partial frame at its end to
    /// the next block. Without a whole frame, only the start of a large one moves.
    fn queue_frames(&mut self) {
        let unread = self.buffer.unread();
        let frames_bytes = whole_frames_bytes(unread);
        let rest = &unread[frames_bytes..];
        // `advance` reports bytes that are no frame.
        let large = LargeFrame::start(rest).unwrap_or(None);
        if frames_bytes == 0 && large.is_none() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let rest = &buffer.unread()[frames_bytes..];
        self.moved_bytes += buffer.moved_bytes() + rest.len() as u64;
        if large.is_none() {
            self.buffer.put_block(vec![0; BLOCK_BYTES]);
            self.buffer.spare(rest.len())[..rest.len()].copy_from_slice(rest);
            self.buffer.commit(rest.len());
        }
        if frames_bytes > 0 {
            self.segments.push_back(Segment::Frames { buffer, frames_bytes });
        }
        self.segments.extend(large.map(Segment::Large));
    }
}

/// Length of the whole frames at the start of `bytes`.
fn whole_frames_bytes(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Ok(DecodedFrame::Complete { frame, .. }) = frame::decode(&bytes[end..]) {
        end += frame.header.frame_bytes();
    }
    end
}

/// Where a frame's body starts when its framing extras are left out.
fn body_start(header: &Header) -> usize {
    HEADER_BYTES + usize::from(header.framing_bytes)
}

#[cfg(test)]
mod tests;
