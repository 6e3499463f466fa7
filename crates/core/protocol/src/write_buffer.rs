//! Output of one connection: contiguous bytes with large values pinned between them.
//!
//! It owns the bytes that the socket has not accepted yet. Small frames are encoded straight into
//! one block. A value of at least `GATHER_VALUE_BYTES_MIN` is held by reference instead of copied,
//! and sent in place with the bytes around it by one scatter-gather write. At 512 bytes a gather
//! pair costs more than the copy; at 8 KiB the copy costs more.
//!
//! How it works: every byte of the contiguous block has a position in the stream of contiguous
//! bytes. `base` is the position of `bytes[0]`, `sent` that of the first unsent byte. A pinned
//! value precedes the contiguous byte at its position. Sending walks both in order, and `advance`
//! may stop anywhere, even inside a value.
//!
//! Invariants: `base <= sent <= base + bytes.len()`. Positions in `pinned` never decrease and none
//! is below `sent`. Sent bytes are dropped before they outnumber the unsent ones, so memory is
//! bounded by twice the pending bytes. A pinned value that is produced while sending is produced in
//! order, and only its first unsent bytes are in memory. The server uses it for responses and the
//! client for requests. It does no I/O itself and does not know frames.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Most slices in one scatter-gather write; far below IOV_MAX (1024), and 64 values of 8 KiB
/// already fill a socket buffer.
pub const SLICES_MAX: usize = 64;

/// A block beyond this size is returned to the allocator once it is drained, unless the buffer was
/// created with another limit.
const BLOCK_KEPT_BYTES_MAX: usize = 256 * 1024;

/// A value that is sent without a copy into the buffer's block.
///
/// A value in memory only needs `AsRef<[u8]>`. A value that is produced in pieces, as the socket
/// takes them, implements the three methods: only one piece of it is in memory at a time.
pub trait PinnedBytes {
    /// All of its bytes, including sent ones. Never changes.
    fn total_bytes(&self) -> usize;

    /// The bytes in memory after the first `sent` ones; empty when they are not produced yet.
    fn ready(&self, sent: usize) -> &[u8];

    /// Produces the bytes after the first `sent` ones, if any remain and they are not in memory.
    ///
    /// # Errors
    /// [`BrokenValue`]: the rest can never be produced.
    fn make_ready(&mut self, _sent: usize) -> Result<(), BrokenValue> {
        Ok(())
    }
}

impl<V: AsRef<[u8]>> PinnedBytes for V {
    fn total_bytes(&self) -> usize {
        self.as_ref().len()
    }

    fn ready(&self, sent: usize) -> &[u8] {
        &self.as_ref()[sent..]
    }
}

/// The rest of an announced value cannot be produced, so the stream cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenValue;

#[derive(Debug)]
struct QueuedValue<V> {
    position: u64,
    value: V,
}

/// See the module text. `V` keeps a large value alive until it is sent.
#[derive(Debug)]
pub struct WriteBuffer<V> {
    bytes: Vec<u8>,
    base: u64,
    sent: u64,
    pinned: VecDeque<QueuedValue<V>>,
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

impl<V: PinnedBytes> WriteBuffer<V> {
    /// An empty buffer without a block.
    pub fn new() -> WriteBuffer<V> {
        WriteBuffer::default()
    }

    /// An empty buffer that keeps its block once it is drained, unless it grew beyond `bytes`. For
    /// a sender with large batches, which would otherwise grow a block for each.
    pub fn keeping(bytes: usize) -> WriteBuffer<V> {
        WriteBuffer { block_kept_bytes_max: bytes, ..WriteBuffer::default() }
    }

    /// Unsent bytes, including pinned values.
    pub fn pending_bytes(&self) -> usize {
        self.unsent_contiguous() + self.pinned_bytes
    }

    /// True when the buffer is drained.
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// True while a pinned value is unsent.
    pub fn holds_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// The block to encode a frame into; appended bytes are sent after everything before them.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends `value` without copying it.
    pub fn pin(&mut self, value: V) {
        let bytes = value.total_bytes();
        if bytes == 0 {
            return;
        }
        self.pinned_bytes += bytes;
        let position = self.base + self.bytes.len() as u64;
        self.pinned.push_back(QueuedValue { position, value });
    }

    /// Appends everything of `other`, of which nothing was sent.
    pub fn append(&mut self, mut other: WriteBuffer<V>) {
        assert!(other.sent == 0 && other.front_sent == 0, "nothing of it was sent");
        let begin = self.base + self.bytes.len() as u64;
        let bytes = self.pending_bytes() + other.pending_bytes();
        self.bytes.append(&mut other.bytes);
        self.pinned_bytes += other.pinned_bytes;
        let moved =
            |queued: QueuedValue<V>| QueuedValue { position: begin + queued.position, ..queued };
        self.pinned.extend(other.pinned.into_iter().map(moved));
        debug_assert_eq!(self.pending_bytes(), bytes, "all of it is appended");
    }

    /// Produces the next piece of a value that is produced while sending. Call it before each
    /// gather.
    ///
    /// # Errors
    /// [`BrokenValue`]: an announced value cannot be sent.
    #[inline]
    pub fn make_ready(&mut self) -> Result<(), BrokenValue> {
        match self.pinned.front_mut() {
            Some(front) => front.value.make_ready(self.front_sent),
            None => Ok(()),
        }
    }

    /// The pinned values that are not fully sent, in order.
    pub fn pinned(&self) -> impl Iterator<Item = &V> {
        self.pinned.iter().map(|pinned| &pinned.value)
    }

    /// Size of the block of contiguous bytes.
    pub fn block_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Fills `slices` with the next bytes to send, in order, and returns how many it filled.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.gather_up_to(slices, usize::MAX)
    }

    /// [`WriteBuffer::gather`] of at most `bytes_max` bytes, for senders with time slices.
    pub fn gather_up_to<'a>(&'a self, slices: &mut [IoSlice<'a>], bytes_max: usize) -> usize {
        let (mut filled, mut left) = (0, bytes_max);
        // Takes as much of `bytes` as fits; false when there is no space for more.
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
            let ready = pinned.value.ready(skip);
            let is_whole = ready.len() == pinned.value.total_bytes() - skip;
            if !take(before) || !take(ready) || !is_whole {
                return filled;
            }
            skip = 0;
        }
        take(self.range(position, self.base + self.bytes.len() as u64));
        filled
    }

    /// Drops the next `count` bytes, which the socket took.
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

    /// Gives the block to the caller's pool, which leaves this buffer without one. Only when
    /// drained.
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

    /// Gives a pooled block to a buffer without one.
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

    /// Takes up to `count` bytes from the first pinned value and drops it at its end.
    fn advance_front(&mut self, count: usize) -> usize {
        let front = self.pinned.front().expect("bytes are pending and none are contiguous");
        let left = front.value.total_bytes() - self.front_sent;
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

    /// Drops sent bytes once they are at least as many as the unsent ones. Each byte moves at most
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
