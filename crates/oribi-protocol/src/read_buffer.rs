//! The block of memory that frames are read into and decoded from.
//!
//! Bytes arrive at the tail and are consumed at the head. When both meet, both go back to the
//! block's start for free. Otherwise bytes move to the front only when a partial frame stands at the
//! end and no room is left. A caller that consumes every complete frame before it reads again moves
//! each byte at most once, however long the stream: after the move the frame stands at the front and
//! is completed there. Should a caller leave complete frames unread, the buffer grows rather than
//! move a byte twice. Hence `moved_bytes() <= received_bytes()`, always.
//!
//! Growth: a frame that does not fit gets a larger block, copied once per growth (counted apart, in
//! `regrown_bytes`). The block reaches ahead of the bytes that have arrived by at most twice their
//! number and [`READ_BLOCK_BYTES`], so a header that promises 20 MiB costs nothing until the bytes
//! come. An idle connection gives its block back with [`ReadBuffer::release`] or pools it with
//! [`ReadBuffer::take_block`].
//!
//! Used by the server's connections and by the client. Does no I/O and knows no frame.

use crate::limits::READ_BLOCK_BYTES;

/// A frame that needs more gets more room when less than this is left: late enough that blocks grow
/// geometrically, early enough that reads stay large.
const GROW_BELOW_BYTES: usize = READ_BLOCK_BYTES / 4;

/// Received bytes that were not consumed yet, and room for more.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// Always initialised to its whole length, so that a socket can read into any of it.
    block: Vec<u8>,
    /// Start of the bytes not consumed.
    head: usize,
    /// End of the bytes received; `head <= tail <= block.len()`.
    tail: usize,
    received_bytes: u64,
    moved_bytes: u64,
    regrown_bytes: u64,
}

impl ReadBuffer {
    /// A buffer without a block; the first call of [`ReadBuffer::spare`] allocates one.
    pub fn new() -> ReadBuffer {
        ReadBuffer::default()
    }

    /// A buffer that uses the whole capacity of `block`; what the block holds is forgotten.
    pub fn with_block(mut block: Vec<u8>) -> ReadBuffer {
        block.resize(block.capacity(), 0);
        ReadBuffer { block, ..ReadBuffer::default() }
    }

    /// Bytes received and not consumed.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.block[self.head..self.tail]
    }

    /// True when every received byte was consumed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Size of the block.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// Marks the first `bytes` of [`ReadBuffer::unread`] as done.
    ///
    /// # Panics
    /// When that many are not there.
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.tail - self.head, "consumed more than was received");
        self.head += bytes;
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Room for at least `bytes_min` (and at least one) more bytes: everything free at the tail.
    /// Its content is unspecified but initialised.
    pub fn spare(&mut self, bytes_min: usize) -> &mut [u8] {
        let bytes_min = bytes_min.max(1);
        if self.block.len() - self.tail < bytes_min {
            // Without a frame's length to go by, doubling keeps the number of copies low.
            let unread_bytes = self.tail - self.head;
            self.make_room(bytes_min, unread_bytes.max(bytes_min));
        }
        &mut self.block[self.tail..]
    }

    /// Says that the first `bytes` of the room returned by [`ReadBuffer::spare`] were filled.
    ///
    /// # Panics
    /// When there was not that much room.
    pub fn commit(&mut self, bytes: usize) {
        assert!(bytes <= self.block.len() - self.tail, "committed more than there was room for");
        self.tail += bytes;
        self.received_bytes += bytes as u64;
    }

    /// Prepares for a frame of `frame_bytes` in total that starts at the head.
    ///
    /// Called whenever decoding says that more is needed. The room grows with what has arrived, so
    /// one call need not make room for the whole frame; the caller has checked `frame_bytes`
    /// against its limit.
    pub fn reserve_frame(&mut self, frame_bytes: usize) {
        let unread_bytes = self.tail - self.head;
        let missing_bytes = frame_bytes.saturating_sub(unread_bytes);
        let free_bytes = self.block.len() - self.tail;
        if free_bytes < missing_bytes.min(GROW_BELOW_BYTES) {
            let ahead_bytes = unread_bytes.saturating_mul(2).saturating_add(READ_BLOCK_BYTES);
            let room_bytes = missing_bytes.min(ahead_bytes);
            self.make_room(room_bytes, room_bytes);
        }
    }

    /// Frees the block if nothing is unread in it; returns whether it did.
    pub fn release(&mut self) -> bool {
        self.take_block().is_some()
    }

    /// Takes the block, for a pool, if nothing is unread in it. The counters stay.
    pub fn take_block(&mut self) -> Option<Vec<u8>> {
        if !self.is_empty() {
            return None;
        }
        self.head = 0;
        self.tail = 0;
        Some(std::mem::take(&mut self.block))
    }

    /// Gives a block to a buffer that has none; ignored by one that has.
    pub fn put_block(&mut self, mut block: Vec<u8>) {
        if self.block.is_empty() {
            block.resize(block.capacity(), 0);
            self.block = block;
        }
    }

    /// Bytes received in the buffer's life.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Bytes moved to the front of the block in the buffer's life; never more than were received.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Bytes copied into larger blocks in the buffer's life; none when the first block is enough.
    pub fn regrown_bytes(&self) -> u64 {
        self.regrown_bytes
    }

    /// Makes the tail have room for `bytes_min` by moving to the front, or else for `growth_bytes`
    /// in a larger block.
    fn make_room(&mut self, bytes_min: usize, growth_bytes: usize) {
        let unread_bytes = self.tail - self.head;
        let fits = self.block.len() - unread_bytes >= bytes_min;
        let may_move = self.moved_bytes + unread_bytes as u64 <= self.received_bytes;
        if fits && may_move {
            self.block.copy_within(self.head..self.tail, 0);
            self.moved_bytes += unread_bytes as u64;
        } else {
            let block_bytes = (unread_bytes + growth_bytes).max(READ_BLOCK_BYTES);
            // Zeroed pages are mapped when first written, so room that no byte reaches is free.
            let mut block = vec![0; block_bytes];
            block[..unread_bytes].copy_from_slice(self.unread());
            self.regrown_bytes += unread_bytes as u64;
            self.block = block;
        }
        self.head = 0;
        self.tail = unread_bytes;
    }
}

#[cfg(test)]
mod tests;
