//! A block of sorted entries: encoded keys followed by the document's key.
//!
//! Entries lie in one run of bytes, so a block of a hundred entries is three allocations. A block
//! counts its memory in the index's [`EntryMemory`] from its creation to its end, also while only
//! a scan still reads it.

use std::sync::Arc;

use super::memory::EntryMemory;

/// A block that grows past this is split. A larger entry has a block alone.
pub const BLOCK_BYTES: usize = 8 << 10;

/// Steps in which the bytes of a block grow.
const GROWTH_BYTES: usize = 512;
const GROWTH_ENTRIES: usize = 16;

const _: () = assert!(GROWTH_BYTES < BLOCK_BYTES);

pub struct IndexBlock {
    bytes: Vec<u8>,
    /// Where each entry ends.
    ends: Vec<u32>,
    /// The length of each entry's document key.
    key_lengths: Vec<u8>,
    memory: Arc<EntryMemory>,
    counted: usize,
}

/// An entry: encoded keys and the key of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry<'b> {
    pub bytes: &'b [u8],
    key_length: usize,
}

impl<'b> IndexEntry<'b> {
    /// An entry whose last `key_length` bytes are the document's key.
    pub fn new(bytes: &'b [u8], key_length: usize) -> IndexEntry<'b> {
        assert!(key_length <= bytes.len(), "an entry has its document's key");
        IndexEntry { bytes, key_length }
    }

    /// The encoded keys, without the document's key.
    pub fn encoded(&self) -> &'b [u8] {
        &self.bytes[..self.bytes.len() - self.key_length]
    }

    pub fn document_key(&self) -> &'b [u8] {
        &self.bytes[self.bytes.len() - self.key_length..]
    }
}

impl IndexBlock {
    /// An empty block; none if the memory is used up.
    pub fn new(memory: &Arc<EntryMemory>) -> Option<IndexBlock> {
        let mut block = IndexBlock {
            bytes: Vec::new(),
            ends: Vec::new(),
            key_lengths: Vec::new(),
            memory: memory.clone(),
            counted: 0,
        };
        block.count_memory().then_some(block)
    }

    /// A copy with capacity for one more entry.
    pub fn copy(&self) -> Option<IndexBlock> {
        let mut copy = IndexBlock::new(&self.memory)?;
        copy.bytes = Vec::with_capacity(self.bytes.len() + GROWTH_BYTES);
        copy.bytes.extend_from_slice(&self.bytes);
        copy.ends.clone_from(&self.ends);
        copy.key_lengths.clone_from(&self.key_lengths);
        copy.count_memory().then_some(copy)
    }

    /// Counts what the block has allocated.
    fn count_memory(&mut self) -> bool {
        let allocated = size_of::<IndexBlock>()
            + self.bytes.capacity()
            + 4 * self.ends.capacity()
            + self.key_lengths.capacity();
        if allocated > self.counted && !self.memory.reserve(allocated - self.counted) {
            return false;
        }
        self.memory.release(self.counted.saturating_sub(allocated));
        self.counted = allocated;
        true
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_overfull(&self) -> bool {
        self.bytes.len() > BLOCK_BYTES && self.ends.len() > 1
    }

    /// Whether the lists of a block belong together.
    fn is_whole(&self) -> bool {
        self.ends.len() == self.key_lengths.len() && self.start(self.len()) == self.bytes.len()
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    pub fn entry(&self, at: usize) -> IndexEntry<'_> {
        let bytes = &self.bytes[self.start(at)..self.ends[at] as usize];
        let key_length = usize::from(self.key_lengths[at]);
        debug_assert!(key_length <= bytes.len(), "an entry has its document's key");
        IndexEntry { bytes, key_length }
    }

    /// Where an entry is, or where it would be.
    pub fn find(&self, entry: &[u8]) -> Result<usize, usize> {
        let at = self.lower_bound(entry);
        match at < self.len() && self.entry(at).bytes == entry {
            true => Ok(at),
            false => Err(at),
        }
    }

    /// The first entry that is not below a bound.
    pub fn lower_bound(&self, bound: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle).bytes < bound {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        debug_assert!(low == 0 || self.entry(low - 1).bytes < bound, "entries ascend");
        low
    }

    /// Inserts an entry at its place; false if the memory is used up.
    pub fn insert(&mut self, at: usize, entry: &[u8], key_length: u8) -> bool {
        assert!(usize::from(key_length) <= entry.len(), "an entry has its document's key");
        debug_assert!(at == 0 || self.entry(at - 1).bytes < entry, "entries ascend");
        debug_assert!(at == self.len() || entry < self.entry(at).bytes, "entries ascend");
        if self.bytes.capacity() < self.bytes.len() + entry.len() {
            self.bytes.reserve_exact(entry.len().max(GROWTH_BYTES));
        }
        if self.ends.capacity() == self.ends.len() {
            self.ends.reserve_exact(GROWTH_ENTRIES);
            self.key_lengths.reserve_exact(GROWTH_ENTRIES);
        }
        if !self.count_memory() {
            return false;
        }
        let (start, length) = (self.start(at), self.bytes.len());
        self.bytes.extend_from_slice(entry);
        self.bytes.copy_within(start..length, start + entry.len());
        self.bytes[start..start + entry.len()].copy_from_slice(entry);
        self.ends.insert(at, (start + entry.len()) as u32);
        self.ends[at + 1..].iter_mut().for_each(|end| *end += entry.len() as u32);
        self.key_lengths.insert(at, key_length);
        assert!(self.is_whole(), "the last entry ends with the bytes");
        true
    }

    pub fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.ends[at] as usize);
        self.bytes.drain(start..end);
        self.ends.remove(at);
        self.ends[at..].iter_mut().for_each(|later| *later -= (end - start) as u32);
        self.key_lengths.remove(at);
        assert!(self.is_whole(), "the last entry ends with the bytes");
    }

    /// Moves the entries from `at` on to a new block.
    pub fn split(&mut self, at: usize) -> Option<IndexBlock> {
        let count = self.len();
        assert!(0 < at && at < count, "both parts have an entry");
        let start = self.start(at);
        let mut upper = IndexBlock::new(&self.memory)?;
        upper.bytes = self.bytes[start..].to_vec();
        upper.ends = self.ends[at..].iter().map(|end| end - start as u32).collect();
        upper.key_lengths = self.key_lengths[at..].to_vec();
        if !upper.count_memory() {
            return None;
        }
        self.bytes.truncate(start);
        self.ends.truncate(at);
        self.key_lengths.truncate(at);
        self.bytes.shrink_to(start + GROWTH_BYTES);
        self.ends.shrink_to(at + GROWTH_ENTRIES);
        self.key_lengths.shrink_to(at + GROWTH_ENTRIES);
        self.count_memory();
        assert!(self.len() + upper.len() == count, "a split keeps every entry");
        assert!(self.is_whole() && upper.is_whole(), "the last entry ends with the bytes");
        Some(upper)
    }

    /// The entry at which the bytes are halved.
    pub fn middle(&self) -> usize {
        assert!(self.len() > 1, "a middle is between two entries");
        let half = (self.bytes.len() / 2) as u32;
        self.ends.partition_point(|end| *end < half).clamp(1, self.len() - 1)
    }

    /// Appends the entries of the next block; false if the memory is used up.
    pub fn append(&mut self, next: &IndexBlock) -> bool {
        let is_before = || self.entry(self.len() - 1).bytes < next.entry(0).bytes;
        debug_assert!(self.len() == 0 || next.len() == 0 || is_before(), "blocks ascend");
        self.bytes.reserve_exact(next.bytes.len());
        self.ends.reserve_exact(next.ends.len());
        self.key_lengths.reserve_exact(next.key_lengths.len());
        if !self.count_memory() {
            return false;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&next.bytes);
        self.ends.extend(next.ends.iter().map(|end| end + start));
        self.key_lengths.extend_from_slice(&next.key_lengths);
        assert!(self.is_whole(), "the last entry ends with the bytes");
        true
    }
}

impl Drop for IndexBlock {
    fn drop(&mut self) {
        self.memory.release(self.counted);
    }
}
