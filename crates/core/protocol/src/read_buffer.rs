//! The block of memory for reading and decoding frames.
//!
//! Bytes arrive at the tail and are consumed at the head. When both meet, both return to the
//! block's start for free. Otherwise bytes move to the front only when a partial frame is at the
//! end and there is no space left. A caller that consumes every complete frame before it reads
//! again moves each byte at most once, however long the stream. After the move the frame is at the
//! front and is completed there. If a caller leaves complete frames unread, the buffer grows rather
//! than move a byte twice. Hence `moved_bytes() <= received_bytes()`, always.
//!
//! Growth: a frame that does not fit gets a larger block, copied once per growth (counted
//! separately, in `regrown_bytes`). The block reaches ahead of the arrived bytes by at most twice
//! their number and [`READ_BLOCK_BYTES`]. A header that promises 20 MiB therefore costs nothing
//! until the bytes come. An idle connection returns its block with [`ReadBuffer::release`] or pools
//! it with [`ReadBuffer::take_block`].
//!
//! The server's connections and the client use it. It does no I/O and does not know frames.

use crate::limits::READ_BLOCK_BYTES;

/// A frame that needs more gets more space when less than this is left. That is late enough for
/// geometric growth, and early enough for large reads.
const GROW_BELOW_BYTES: usize = READ_BLOCK_BYTES / 4;

/// Received bytes that are not consumed yet, and room for more.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// Initialised to its whole length, so a socket can read into any part of it.
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

    /// A buffer that uses the whole capacity of `block` and forgets its content.
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

    /// Bytes that fit at the tail without moving or growing.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        self.block.len() - self.tail
    }

    /// Consumes the first `bytes` of [`ReadBuffer::unread`].
    ///
    /// # Panics
    /// When there are fewer unread bytes.
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
            // Without a frame's length as a guide, doubling keeps the number of copies low.
            let unread_bytes = self.tail - self.head;
            self.ensure_capacity(bytes_min, unread_bytes.max(bytes_min));
        }
        &mut self.block[self.tail..]
    }

    /// Confirms that the first `bytes` of the space from [`ReadBuffer::spare`] are filled.
    ///
    /// # Panics
    /// When there was less space.
    pub fn commit(&mut self, bytes: usize) {
        assert!(bytes <= self.block.len() - self.tail, "committed more than there was room for");
        self.tail += bytes;
        self.received_bytes += bytes as u64;
    }

    /// Prepares for a frame of `frame_bytes` in total that starts at the head.
    ///
    /// Call it whenever decoding needs more bytes. The space grows with the arrived bytes, so one
    /// call need not make space for the whole frame. The caller has checked `frame_bytes` against
    /// its limit.
    pub fn reserve_frame(&mut self, frame_bytes: usize) {
        let unread_bytes = self.tail - self.head;
        let missing_bytes = frame_bytes.saturating_sub(unread_bytes);
        let free_bytes = self.block.len() - self.tail;
        if free_bytes < missing_bytes.min(GROW_BELOW_BYTES) {
            let ahead_bytes = unread_bytes.saturating_mul(2).saturating_add(READ_BLOCK_BYTES);
            let room_bytes = missing_bytes.min(ahead_bytes);
            self.ensure_capacity(room_bytes, room_bytes);
        }
    }

    /// Makes space at once for the rest of a frame of `frame_bytes` in total at the head, so that
    /// it is received without a copy. For a caller that has reserved memory for all of it.
    pub fn reserve_whole(&mut self, frame_bytes: usize) {
        let missing_bytes = frame_bytes.saturating_sub(self.tail - self.head);
        if self.block.len() - self.tail < missing_bytes {
            self.ensure_capacity(missing_bytes, missing_bytes);
        }
    }

    /// Moves the unread bytes into a block of nearly their size if that at least halves the buffer.
    /// For a buffer that will wait.
    pub fn shrink(&mut self) {
        let unread = &self.block[self.head..self.tail];
        if unread.is_empty() || unread.len() > self.block.len() / 2 {
            return;
        }
        self.regrown_bytes += unread.len() as u64;
        self.block = unread.to_vec();
        (self.head, self.tail) = (0, self.block.len());
    }

    /// Frees the block if it has no unread bytes; returns whether it did.
    pub fn release(&mut self) -> bool {
        self.take_block().is_some()
    }

    /// Takes the block, for a pool, if it has no unread bytes. The counters stay.
    pub fn take_block(&mut self) -> Option<Vec<u8>> {
        if !self.is_empty() {
            return None;
        }
        self.head = 0;
        self.tail = 0;
        Some(std::mem::take(&mut self.block))
    }

    /// Gives a block to a buffer without one; ignored otherwise.
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

    /// Bytes copied into larger blocks in the buffer's life; 0 while the first block suffices.
    pub fn regrown_bytes(&self) -> u64 {
        self.regrown_bytes
    }

    /// Ensures space for `bytes_min` at the tail, by moving to the front or else by a larger block
    /// with capacity for `growth_bytes`.
    fn ensure_capacity(&mut self, bytes_min: usize, growth_bytes: usize) {
        let unread_bytes = self.tail - self.head;
        let fits = self.block.len() - unread_bytes >= bytes_min;
        let may_move = self.moved_bytes + unread_bytes as u64 <= self.received_bytes;
        if fits && may_move {
            self.block.copy_within(self.head..self.tail, 0);
            self.moved_bytes += unread_bytes as u64;
        } else {
            let block_bytes = (unread_bytes + growth_bytes).max(READ_BLOCK_BYTES);
            // Zeroed pages are mapped on first write, so unused space is free.
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
