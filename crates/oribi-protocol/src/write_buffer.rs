//! Output of one connection: contiguous bytes with large values pinned between them.
//!
//! Owns: the bytes that are not yet accepted by the socket. Small frames are encoded straight into one
//! block; a value of at least `GATHER_VALUE_BYTES_MIN` is not copied, it is held by reference and sent
//! from where it lies, by one scatter-gather write together with the bytes around it (at 512 bytes a
//! gather pair costs more than the copy, at 8 KiB it is the other way round).
//!
//! How it works: every byte of the contiguous block has a position in the stream of contiguous bytes;
//! `base` is the position of `bytes[0]`, `sent` that of the first unsent byte. A pinned value stands
//! *before* the contiguous byte at its position. Sending walks both in order, and `advance` may stop
//! anywhere, inside a value too.
//!
//! Invariants: `base <= sent <= base + bytes.len()`; positions in `pinned` never decrease and none is
//! below `sent`; bytes already sent are dropped before they outnumber the unsent ones, so memory is
//! bounded by twice what is pending. Used for the server's responses and for the client's requests. It
//! does no I/O itself and knows no frame.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Most slices in one scatter-gather write; far below IOV_MAX (1024), and 64 values of 8 KiB already
/// fill a socket buffer.
pub const SLICES_MAX: usize = 64;

/// A block that grew beyond this is given back to the allocator once it is drained, unless the buffer was
/// told otherwise.
const BLOCK_KEPT_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug)]
struct Pinned<V> {
    position: u64,
    value: V,
}

/// See the module text. `V` is what keeps a large value alive until it is sent.
#[derive(Debug)]
pub struct WriteBuffer<V> {
    bytes: Vec<u8>,
    base: u64,
    sent: u64,
    pinned: VecDeque<Pinned<V>>,
    /// Bytes of the first pinned value that are already sent.
    front_sent: usize,
    /// Unsent bytes of all pinned values.
    pinned_bytes: usize,
    block_kept_bytes_max: usize,
}

impl<V> Default for WriteBuffer<V> {
    fn default() -> WriteBuffer<V> {
        WriteBuffer {
            bytes: Vec::new(),
            base: 0,
            sent: 0,
            pinned: VecDeque::new(),
            front_sent: 0,
            pinned_bytes: 0,
            block_kept_bytes_max: BLOCK_KEPT_BYTES_MAX,
        }
    }
}

impl<V: AsRef<[u8]>> WriteBuffer<V> {
    /// An empty buffer without a block.
    pub fn new() -> WriteBuffer<V> {
        WriteBuffer::default()
    }

    /// An empty buffer that keeps its block, once it is drained, unless it grew beyond `bytes`: for a sender
    /// whose batches are larger than usual and who would otherwise grow a block anew for each.
    pub fn keeping(bytes: usize) -> WriteBuffer<V> {
        WriteBuffer { block_kept_bytes_max: bytes, ..WriteBuffer::default() }
    }

    /// Bytes answered and not yet sent, pinned values included.
    pub fn pending_bytes(&self) -> usize {
        self.unsent_contiguous() + self.pinned_bytes
    }

    /// True when there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// True while a value that was not copied waits to be sent.
    pub fn holds_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// The block to encode a frame into; whatever is appended is sent after everything before it.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends `value` without copying it.
    pub fn pin(&mut self, value: V) {
        let bytes = value.as_ref().len();
        if bytes == 0 {
            return;
        }
        self.pinned_bytes += bytes;
        let position = self.base + self.bytes.len() as u64;
        self.pinned.push_back(Pinned { position, value });
    }

    /// Fills `slices` with what is to be sent next, in order, and returns how many were filled.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.gather_up_to(slices, usize::MAX)
    }

    /// [`WriteBuffer::gather`] of at most `bytes_max` bytes: for who sends in slices.
    pub fn gather_up_to<'a>(&'a self, slices: &mut [IoSlice<'a>], bytes_max: usize) -> usize {
        let (mut filled, mut left) = (0, bytes_max);
        // Takes what fits of `bytes`; false when there is no room for more.
        let mut take = |bytes: &'a [u8]| {
            let bytes = &bytes[..bytes.len().min(left)];
            if bytes.is_empty() || filled == slices.len() {
                return left > 0 && filled < slices.len();
            }
            slices[filled] = IoSlice::new(bytes);
            filled += 1;
            left -= bytes.len();
            left > 0 && filled < slices.len()
        };
        let mut position = self.sent;
        let mut skip = self.front_sent;
        for pinned in &self.pinned {
            let before = self.range(position, pinned.position);
            position = pinned.position;
            if !take(before) || !take(&pinned.value.as_ref()[skip..]) {
                return filled;
            }
            skip = 0;
        }
        take(self.range(position, self.base + self.bytes.len() as u64));
        filled
    }

    /// Forgets the next `count` bytes because the socket took them.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.pending_bytes(), "a socket cannot take more than it was offered");
        while count > 0 {
            let limit = match self.pinned.front() {
                Some(pinned) => pinned.position,
                None => self.base + self.bytes.len() as u64,
            };
            let contiguous = (limit - self.sent) as usize;
            if contiguous > 0 {
                let taken = contiguous.min(count);
                self.sent += taken as u64;
                count -= taken;
                continue;
            }
            count -= self.advance_front(count);
        }
        self.reclaim();
    }

    /// Hands the block to the caller's pool, leaving this buffer without one. Only when drained.
    pub fn take_block(&mut self) -> Option<Vec<u8>> {
        if !self.is_empty() || self.bytes.capacity() == 0 {
            return None;
        }
        self.base = 0;
        self.sent = 0;
        let mut block = std::mem::take(&mut self.bytes);
        block.clear();
        (block.capacity() <= self.block_kept_bytes_max).then_some(block)
    }

    /// Gives a pooled block to a buffer that has none.
    pub fn give_block(&mut self, block: Vec<u8>) {
        if self.bytes.capacity() == 0 {
            self.bytes = block;
        }
    }

    /// True when the buffer owns a block.
    pub fn has_block(&self) -> bool {
        self.bytes.capacity() > 0
    }

    fn unsent_contiguous(&self) -> usize {
        self.bytes.len() - (self.sent - self.base) as usize
    }

    fn range(&self, from: u64, to: u64) -> &[u8] {
        &self.bytes[(from - self.base) as usize..(to - self.base) as usize]
    }

    /// Takes up to `count` bytes from the first pinned value and drops it when it is finished.
    fn advance_front(&mut self, count: usize) -> usize {
        let front = self.pinned.front().expect("bytes are pending and none are contiguous");
        let left = front.value.as_ref().len() - self.front_sent;
        let taken = left.min(count);
        self.pinned_bytes -= taken;
        if taken == left {
            self.pinned.pop_front();
            self.front_sent = 0;
        } else {
            self.front_sent += taken;
        }
        taken
    }

    /// Drops sent bytes once they are at least as many as the unsent ones: each byte moves at most
    /// once on average, and a slow reader cannot make the block grow without bound.
    fn reclaim(&mut self) {
        let gone = (self.sent - self.base) as usize;
        let left = self.bytes.len() - gone;
        if gone < left {
            return;
        }
        self.bytes.copy_within(gone.., 0);
        self.bytes.truncate(left);
        self.base = self.sent;
        if left == 0 && self.bytes.capacity() > self.block_kept_bytes_max {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests;
