//! Sealed bytes on their way to a socket.
//!
//! Invariant: the block is initialised once to its whole length, so that sealing into it writes
//! each byte once. The owner of the socket lends it to a [`crate::Session`]; a worker has one for
//! all of its connections.

/// See the module text.
#[derive(Debug, Default)]
pub struct SealedBytes {
    block: Vec<u8>,
    head: usize,
    tail: usize,
}

impl SealedBytes {
    /// Bytes to send.
    pub fn pending(&self) -> &[u8] {
        &self.block[self.head..self.tail]
    }

    /// True when there are no bytes to send.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Drops the next `count` bytes after they were sent.
    ///
    /// # Panics
    /// When fewer bytes are pending.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.tail - self.head, "more was sent than there was");
        self.head += count;
        if self.head == self.tail {
            self.clear();
        }
    }

    /// Drops all bytes; the block stays.
    pub fn clear(&mut self) {
        self.head = 0;
        self.tail = 0;
    }

    /// Adds bytes as they are.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// At least `bytes_min` bytes of space after the pending bytes, initialised.
    pub(crate) fn room(&mut self, bytes_min: usize) -> &mut [u8] {
        if self.block.len() - self.tail < bytes_min {
            let block_bytes = (self.tail + bytes_min).next_power_of_two();
            self.block.resize(block_bytes, 0);
        }
        &mut self.block[self.tail..]
    }

    /// Appends the first `bytes` of the space to the pending bytes.
    pub(crate) fn commit(&mut self, bytes: usize) {
        assert!(bytes <= self.block.len() - self.tail, "more was sealed than there was room for");
        self.tail += bytes;
    }
}
