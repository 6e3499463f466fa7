//! The sorted entries of an index.
//!
//! Entries are in blocks; a map from the first bytes of each block finds the one of an entry. A
//! scan takes the blocks of its ranges under the lock and reads them without it: a writer that
//! meets a block that a scan reads makes a copy. So a scan sees the entries of one moment, and
//! neither waits for the other for longer than one insertion or one look-up of blocks.
//!
//! An entry is stale when its document has other keys now. Scans find out and remove it, but a
//! writer may have inserted the entry again since the document was read. Each document has a
//! stamp that every insertion changes: a removal with an old stamp does nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::block::{BLOCK_BYTES, IndexBlock, IndexEntry};
use super::memory::EntryMemory;

/// Documents share these stamps by their hash.
const STAMP_COUNT: usize = 1024;

/// Bytes of an entry of the map from first bytes to blocks, apart from those bytes.
const MAP_ENTRY_BYTES: usize = 48;

/// A range of encoded entries: `low` is in it, `high` is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryRange {
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

/// The memory of the index is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

pub struct IndexEntries {
    sorted: RwLock<SortedBlocks>,
    memory: Arc<EntryMemory>,
}

/// A block that [`IndexEntries::block_at`] copied.
#[derive(Default)]
pub struct BlockCopy {
    pub entries: Vec<(Box<[u8]>, usize)>,
    pub next: Option<Vec<u8>>,
}

#[derive(Default)]
struct SortedBlocks {
    blocks: BTreeMap<Box<[u8]>, Arc<IndexBlock>>,
    stamps: Vec<u32>,
    count: usize,
}

/// Changes with every insertion of a document's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentStamp(u32);

fn stamp_of(document_key: &[u8]) -> usize {
    crc32fast::hash(document_key) as usize % STAMP_COUNT
}

impl IndexEntries {
    pub fn new(memory: Arc<EntryMemory>) -> IndexEntries {
        IndexEntries { sorted: RwLock::default(), memory }
    }

    pub fn len(&self) -> usize {
        self.sorted.read().count
    }

    /// Inserts the entries of a document. Answers how many are new.
    pub fn insert(&self, encoded: &[Vec<u8>], document_key: &[u8]) -> Result<usize, IndexFull> {
        let Ok(key_length) = u8::try_from(document_key.len()) else { return Ok(0) };
        let mut sorted = self.sorted.write();
        if sorted.stamps.is_empty() {
            sorted.stamps = vec![0; STAMP_COUNT];
        }
        assert!(sorted.stamps.len() == STAMP_COUNT, "each hash has a stamp");
        let stamp = &mut sorted.stamps[stamp_of(document_key)];
        *stamp = stamp.wrapping_add(1);
        let mut inserted = 0;
        let longest = encoded.iter().map(Vec::len).max().unwrap_or_default();
        let mut entry = Vec::with_capacity(longest + document_key.len());
        for encoded in encoded {
            entry.clear();
            entry.extend_from_slice(encoded);
            entry.extend_from_slice(document_key);
            inserted += usize::from(sorted.insert(&entry, key_length, &self.memory)?);
        }
        assert!(inserted <= encoded.len(), "a new entry is one of those given");
        Ok(inserted)
    }

    pub fn stamp(&self, document_key: &[u8]) -> DocumentStamp {
        let sorted = self.sorted.read();
        DocumentStamp(sorted.stamps.get(stamp_of(document_key)).copied().unwrap_or_default())
    }

    /// Removes an entry, unless its document's entries were inserted after the stamp was read.
    pub fn remove(&self, entry: IndexEntry<'_>, stamp: DocumentStamp) -> bool {
        let mut sorted = self.sorted.write();
        let current = sorted.stamps.get(stamp_of(entry.document_key())).copied();
        current == Some(stamp.0) && sorted.remove(entry.bytes, &self.memory)
    }

    pub fn clear(&self) {
        let mut sorted = self.sorted.write();
        for bound in sorted.blocks.keys() {
            self.memory.release(MAP_ENTRY_BYTES + bound.len());
        }
        sorted.blocks.clear();
        sorted.count = 0;
        // A removal that was decided before has nothing to remove afterwards.
        sorted.stamps.iter_mut().for_each(|stamp| *stamp = stamp.wrapping_add(1));
    }

    /// Copies of the entries of the block where `from` is or would be, as bytes and the length of
    /// the document's key, and where the next block begins. A copy keeps no block from changing.
    pub fn block_at(&self, from: &[u8]) -> BlockCopy {
        let sorted = self.sorted.read();
        let Some((bound, block)) = sorted.place(from) else { return BlockCopy::default() };
        let entries = (block.lower_bound(from)..block.len()).map(|at| {
            let entry = block.entry(at);
            (Box::from(entry.bytes), entry.document_key().len())
        });
        let after = (Bound::Excluded(bound), Bound::Unbounded);
        let next = sorted.blocks.range::<[u8], _>(after).next();
        debug_assert!(
            next.is_none_or(|(bound, _)| **bound > *from),
            "the next block begins after this place"
        );
        BlockCopy { entries: entries.collect(), next: next.map(|(bound, _)| bound.to_vec()) }
    }

    /// The entries of ranges as they are now.
    pub fn snapshot(&self, ranges: Vec<EntryRange>) -> IndexSnapshot {
        let sorted = self.sorted.read();
        let parts = ranges.into_iter().map(|range| {
            let blocks = sorted.blocks_of(&range);
            (range, blocks)
        });
        IndexSnapshot { parts: parts.collect() }
    }
}

impl Drop for IndexEntries {
    fn drop(&mut self) {
        self.clear();
    }
}

impl SortedBlocks {
    /// The first bytes of the block where an entry is or would be.
    fn place(&self, entry: &[u8]) -> Option<(&[u8], &Arc<IndexBlock>)> {
        let upto = (Bound::Unbounded, Bound::Included(entry));
        let found = self.blocks.range::<[u8], _>(upto).next_back();
        found.map(|(bound, block)| (&**bound, block))
    }

    fn insert(
        &mut self,
        entry: &[u8],
        key_length: u8,
        memory: &Arc<EntryMemory>,
    ) -> Result<bool, IndexFull> {
        let upto = (Bound::Unbounded, Bound::Included(entry));
        let Some((_, block)) = self.blocks.range_mut::<[u8], _>(upto).next_back() else {
            // The first block's bound is below every entry.
            let mut block = IndexBlock::new(memory).ok_or(IndexFull)?;
            if !block.insert(0, entry, key_length) {
                return Err(IndexFull);
            }
            self.add_block(Box::default(), block, memory)?;
            self.count += 1;
            return Ok(true);
        };
        let Err(at) = block.find(entry) else { return Ok(false) };
        let block = writable(block)?;
        if !block.insert(at, entry, key_length) {
            return Err(IndexFull);
        }
        self.count += 1;
        if block.is_overfull() {
            // Ascending insertions fill blocks.
            let is_last = at + 1 == block.len();
            let at = if is_last { at } else { block.middle() };
            let bound: Box<[u8]> = Box::from(block.entry(at).bytes);
            // Before the split: the part split off needs its place.
            if !memory.reserve(MAP_ENTRY_BYTES + bound.len()) {
                return Err(IndexFull);
            }
            let Some(upper) = block.split(at) else {
                memory.release(MAP_ENTRY_BYTES + bound.len());
                return Err(IndexFull);
            };
            debug_assert_eq!(*bound, *upper.entry(0).bytes, "a block begins with its bound");
            let replaced = self.blocks.insert(bound, Arc::new(upper));
            assert!(replaced.is_none(), "a bound has one block");
        }
        Ok(true)
    }

    fn add_block(
        &mut self,
        bound: Box<[u8]>,
        block: IndexBlock,
        memory: &EntryMemory,
    ) -> Result<(), IndexFull> {
        if !memory.reserve(MAP_ENTRY_BYTES + bound.len()) {
            return Err(IndexFull);
        }
        let replaced = self.blocks.insert(bound, Arc::new(block));
        assert!(replaced.is_none(), "a bound has one block");
        Ok(())
    }

    fn remove(&mut self, entry: &[u8], memory: &EntryMemory) -> bool {
        let upto = (Bound::Unbounded, Bound::Included(entry));
        let Some((bound, block)) = self.blocks.range_mut::<[u8], _>(upto).next_back() else {
            return false;
        };
        let Ok(at) = block.find(entry) else { return false };
        // Without memory for a copy the stale entry stays.
        let Ok(block) = writable(block) else { return false };
        block.remove(at);
        assert!(self.count > 0, "an entry that is there is counted");
        self.count -= 1;
        let bound = bound.clone();
        if block.byte_count() < BLOCK_BYTES / 4 {
            self.merge(&bound, memory);
        }
        true
    }

    /// Merges a small block with the next one, if they fit.
    fn merge(&mut self, bound: &[u8], memory: &EntryMemory) {
        let after = (Bound::Excluded(bound), Bound::Unbounded);
        let Some((next_bound, next)) = self.blocks.range::<[u8], _>(after).next() else { return };
        let (next_bound, next) = (next_bound.clone(), next.clone());
        let Some(block) = self.blocks.get_mut(bound) else { return };
        if block.byte_count() + next.byte_count() > BLOCK_BYTES * 3 / 4 {
            return;
        }
        let Ok(block) = writable(block) else { return };
        if block.append(&next) {
            assert!(!block.is_overfull(), "a merged block is not too large");
            self.blocks.remove(&next_bound);
            memory.release(MAP_ENTRY_BYTES + next_bound.len());
        }
    }

    fn blocks_of(&self, range: &EntryRange) -> Vec<Arc<IndexBlock>> {
        if range.high.as_ref().is_some_and(|high| *high <= range.low) {
            return Vec::new();
        }
        let first = self.place(&range.low).map_or(&[][..], |(bound, _)| bound);
        let high = match &range.high {
            Some(high) => Bound::Excluded(&high[..]),
            None => Bound::Unbounded,
        };
        let blocks = self.blocks.range::<[u8], _>((Bound::Included(first), high));
        blocks.map(|(_, block)| block.clone()).collect()
    }
}

/// The block itself, or a copy of it if a scan reads it.
fn writable(block: &mut Arc<IndexBlock>) -> Result<&mut IndexBlock, IndexFull> {
    if Arc::get_mut(block).is_none() {
        *block = Arc::new(block.copy().ok_or(IndexFull)?);
    }
    Arc::get_mut(block).ok_or(IndexFull)
}

/// The entries of ranges at one moment, in the order of the ranges.
pub struct IndexSnapshot {
    parts: Vec<(EntryRange, Vec<Arc<IndexBlock>>)>,
}

impl IndexSnapshot {
    /// Visits the entries, until `visit` answers false. `reverse` begins with the last one.
    pub fn each<E>(
        &self,
        reverse: bool,
        visit: &mut dyn FnMut(IndexEntry<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let parts: &mut dyn Iterator<Item = _> = match reverse {
            true => &mut self.parts.iter().rev(),
            false => &mut self.parts.iter(),
        };
        for (range, blocks) in parts {
            let blocks: &mut dyn Iterator<Item = _> = match reverse {
                true => &mut blocks.iter().rev(),
                false => &mut blocks.iter(),
            };
            for block in blocks {
                let first = block.lower_bound(&range.low);
                let end = range.high.as_ref().map_or(block.len(), |high| block.lower_bound(high));
                debug_assert!(first <= end, "a range begins before its end");
                for step in 0..end.saturating_sub(first) {
                    let at = if reverse { end - 1 - step } else { first + step };
                    if !visit(block.entry(at))? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
