//! Freed large blocks that are kept for their next use.
//!
//! Owns: these blocks, by rounded length and by age. Every page of a new block is faulted in and
//! cleared, which is as much work as receiving the value. So a freed block waits here. The next
//! value takes the shortest that is long enough, of several the one that was freed last. The rest
//! of a block that is too long goes back to the system, so nothing is used without being counted.
//! That rest is a part of the need at most; a value of a tenth of a block would waste nine tenths
//! of the work that the block has cost.
//!
//! Kept blocks live on memory that nothing else needs. Two rules bound them:
//!
//! * **Headroom**: what is kept counts as taken ([`taken`]). Nothing is kept above the lower bound.
//!   Memory that grows beyond it takes the oldest kept blocks first (`growth.rs`), so the process's
//!   bound holds, no write is refused for a kept block, and compaction does not run for one.
//! * **Age**: a block that was not used for a whole period goes back to the system. The module has
//!   no clock; a caller that has one ends the periods ([`end_period`]).
//!
//! Blocks go back to the system without the lock.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use super::large_block::{LargeBlock, MAPPINGS_MAX};
use super::taken;
use super::units::SYSTEM_BLOCKS;

/// Kept blocks at a time: half of the mappings that there may be.
const BLOCKS_MAX: usize = 8 * 1024;
const _: () = assert!(BLOCKS_MAX <= MAPPINGS_MAX / 2);
/// Most of a need that may go back as the rest of the block: a fourth.
const REST_PART: usize = 4;

static KEPT: Mutex<KeptBlocks> = Mutex::new(KeptBlocks::new());

/// A kept block of this rounded length, cut from a longer one if there is none.
pub(super) fn take(bytes: usize) -> Option<LargeBlock> {
    let kept = if SYSTEM_BLOCKS { None } else { KEPT.lock().take(bytes) }?;
    Some(if kept.bytes() == bytes { kept } else { kept.shortened(bytes) })
}

/// Keeps a freed block if it is a mapping and there is headroom, or gives it back to the system.
pub(super) fn keep(freed: LargeBlock) {
    if freed.is_mapped() {
        let mut kept = KEPT.lock();
        // Under the lock: a thread that takes memory counts it before it looks for kept blocks.
        if taken::excess_bytes() == 0 && kept.blocks < BLOCKS_MAX {
            return kept.put(freed);
        }
    }
    freed.give_back();
}

/// Gives the oldest kept blocks back to the system while `is_needed` says so.
pub(super) fn release_oldest_while(is_needed: impl Fn() -> bool) {
    while is_needed() {
        let Some(oldest) = KEPT.lock().take_oldest() else { return };
        oldest.give_back();
    }
}

/// Gives all kept blocks back to the system.
pub fn release_kept() {
    release_oldest_while(|| true);
}

/// Ends a period: blocks that were kept through all of it are no longer wanted.
pub fn end_period() {
    KEPT.lock().end_period();
}

/// Gives unwanted blocks of up to `bytes_max` bytes together, but at least one, back to the system.
/// True when there are more.
pub fn release_unwanted(bytes_max: usize) -> bool {
    let mut bytes = 0;
    while bytes < bytes_max {
        let Some(unwanted) = KEPT.lock().take_unwanted() else { return false };
        bytes += unwanted.bytes();
        unwanted.give_back();
    }
    true
}

/// Bytes of freed large blocks that wait for their next use. They count as taken.
pub fn kept_bytes() -> u64 {
    KEPT.lock().bytes as u64
}

/// A kept block, and how many blocks had been kept before it.
struct AgedBlock {
    block: LargeBlock,
    number: u64,
}

/// See the top of the file.
struct KeptBlocks {
    /// By rounded length, the oldest first. An empty list stays; there are few lengths.
    by_bytes: BTreeMap<usize, VecDeque<AgedBlock>>,
    blocks: usize,
    bytes: usize,
    /// Number of the next block that is kept.
    next: u64,
    /// Blocks below this number are in their second period.
    period_begin: u64,
    /// Blocks below this number are unwanted.
    unwanted_end: u64,
}

impl KeptBlocks {
    const fn new() -> KeptBlocks {
        KeptBlocks {
            by_bytes: BTreeMap::new(),
            blocks: 0,
            bytes: 0,
            next: 0,
            period_begin: 0,
            unwanted_end: 0,
        }
    }

    fn put(&mut self, block: LargeBlock) {
        assert!(
            block.is_mapped(),
            "only a mapping is cached: its end can be returned to the system"
        );
        self.blocks += 1;
        debug_assert!(self.blocks <= BLOCKS_MAX, "cached blocks are bounded");
        self.bytes += block.bytes();
        let number = self.next;
        self.next += 1;
        self.by_bytes.entry(block.bytes()).or_default().push_back(AgedBlock { block, number });
    }

    /// The shortest block of this rounded length or somewhat more.
    fn take(&mut self, bytes: usize) -> Option<LargeBlock> {
        let mut fitting = self.by_bytes.range_mut(bytes..=bytes + bytes / REST_PART);
        let kept = fitting.find_map(|(_, kept)| kept.pop_back())?;
        debug_assert!(kept.block.bytes() >= bytes, "a cached block has the requested length");
        Some(self.taken(kept))
    }

    fn take_oldest(&mut self) -> Option<LargeBlock> {
        self.take_oldest_below(u64::MAX)
    }

    fn take_unwanted(&mut self) -> Option<LargeBlock> {
        self.take_oldest_below(self.unwanted_end)
    }

    fn take_oldest_below(&mut self, end: u64) -> Option<LargeBlock> {
        let age = |kept: &VecDeque<AgedBlock>| kept.front().map_or(u64::MAX, |kept| kept.number);
        let oldest = self.by_bytes.values_mut().min_by_key(|kept| age(kept))?;
        let kept = if age(oldest) < end { oldest.pop_front() } else { None }?;
        Some(self.taken(kept))
    }

    fn taken(&mut self, kept: AgedBlock) -> LargeBlock {
        assert!(
            self.blocks > 0 && self.bytes >= kept.block.bytes(),
            "the sums count the cached blocks"
        );
        debug_assert!(kept.number < self.next, "a cached block has a number below the next");
        self.blocks -= 1;
        self.bytes -= kept.block.bytes();
        debug_assert_eq!(self.blocks == 0, self.bytes == 0, "the sums count the same blocks");
        kept.block
    }

    fn end_period(&mut self) {
        assert!(self.unwanted_end <= self.period_begin, "periods of cached blocks do not overlap");
        assert!(self.period_begin <= self.next, "a period begins at a number that was used");
        self.unwanted_end = self.period_begin;
        self.period_begin = self.next;
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(oribi_system_blocks)))]
mod tests;
