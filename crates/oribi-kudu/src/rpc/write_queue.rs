//! The frames that wait for a socket.
//!
//! Invariants: a body is queued as the pieces it was given in and never copied; the parts of one frame
//! are next to each other; the room that a frame holds in the connection's queue is given back when its
//! last byte has been written. Called by the connection and the link.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use super::frame::{CallHeader, FrameError};

/// Bytes that are allocated at a time for the headers of frames.
const HEADER_BLOCK_BYTES: usize = 8 * 1024;

/// Bytes for a server, in order.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    chunks: VecDeque<Bytes>,
    /// Headers are encoded here and split off, many to one allocation.
    headers: BytesMut,
    /// Bytes of the chunks.
    bytes: usize,
    /// Bytes that have ever been written.
    written_bytes: u64,
    /// Where each frame ends, counted as `written_bytes` is, and the room it holds.
    rooms: VecDeque<(u64, OwnedSemaphorePermit)>,
}

impl WriteQueue {
    /// Queues bytes as they are.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Queues the frame of a call. Nothing is queued when it is too large.
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

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when nothing waits.
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

    /// Forgets the first bytes, which have been written.
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
