//! The frames that wait for a socket.
//!
//! Invariants: a body is queued in its original pieces and never copied. The parts of one frame are
//! adjacent. A frame releases its space in the connection's queue when its last byte has been
//! written. The connection and the link call it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use super::frame::{CallHeader, FrameError};

/// Allocation size for the headers of frames.
const HEADER_BLOCK_BYTES: usize = 8 * 1024;

/// Bytes for a server, in order.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    chunks: VecDeque<Bytes>,
    /// The encoder writes headers here and splits them off, many per allocation.
    headers: BytesMut,
    /// Bytes of the chunks.
    bytes: usize,
    /// All bytes written so far.
    written_bytes: u64,
    /// Where each frame ends, on the scale of `written_bytes`, and the space it holds.
    rooms: VecDeque<(u64, OwnedSemaphorePermit)>,
}

impl WriteQueue {
    /// Queues raw bytes.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Queues the frame of a call. It queues nothing if the frame is too large.
    pub(crate) fn push_call(
        &mut self,
        header: &CallHeader<'_>,
        pieces: Vec<Bytes>,
        frame_bytes_max: usize,
        room: OwnedSemaphorePermit,
    ) -> Result<(), FrameError> {
        let body_bytes = pieces.iter().map(Bytes::len).sum();
        if self.headers.capacity() < HEADER_BLOCK_BYTES / 8 {
            self.headers = BytesMut::with_capacity(HEADER_BLOCK_BYTES);
        }
        header.encode(body_bytes, frame_bytes_max, &mut self.headers)?;
        let header = self.headers.split().freeze();
        self.push(header);
        for piece in pieces {
            self.push(piece);
        }
        self.rooms.push_back((self.written_bytes + self.bytes as u64, room));
        Ok(())
    }

    /// Bytes in the queue.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Points the slices at the first chunks. Returns how many of them were set.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
            count += 1;
        }
        count
    }

    /// Removes the first bytes, which have been written.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn advance(&mut self, written_bytes: usize) {
        assert!(written_bytes <= self.bytes, "more bytes were written than waited");
        self.bytes -= written_bytes;
        self.written_bytes += written_bytes as u64;
        let mut rest_bytes = written_bytes;
        while rest_bytes > 0 {
            let front = self.chunks.front_mut().expect("the bytes of the chunks are counted");
            if front.len() > rest_bytes {
                front.advance(rest_bytes);
                break;
            }
            rest_bytes -= front.len();
            self.chunks.pop_front();
        }
        while self.rooms.front().is_some_and(|(end, _)| *end <= self.written_bytes) {
            self.rooms.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
