//! Masks that continue from block to block.
//!
//! A mask of a block moves by one byte, or along a run of bytes. The bits that leave the block at
//! its end enter the next at its beginning; they are the only state between blocks.

/// The mask of the previous block; only its last byte matters.
#[derive(Default)]
pub(super) struct PreviousMask(u64);

impl PreviousMask {
    /// The bytes after those of the mask.
    #[inline(always)]
    pub(super) fn of(&mut self, mask: u64) -> u64 {
        let before = std::mem::replace(&mut self.0, mask);
        (mask << 1) | (before >> 63)
    }

    /// 1 if the last byte of the previous block was in the mask, else 0.
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        self.0 >> 63
    }
}

/// The bytes of the previous block that cursors ran over; only the last matters.
#[derive(Default)]
pub(super) struct Runs(u64);

impl Runs {
    /// The first bytes after the runs at whose first bytes the cursors are. A cursor outside a run
    /// stays. No cursor may be inside a run after its first byte.
    #[inline(always)]
    pub(super) fn ends(&mut self, cursors: u64, runs: u64) -> u64 {
        self.sum(cursors, runs) & !runs
    }

    /// The bytes of the runs at whose first bytes the cursors are.
    #[inline(always)]
    pub(super) fn whole(&mut self, cursors: u64, runs: u64) -> u64 {
        self.sum(cursors, runs);
        self.0
    }

    /// An addition carries each cursor along its run: the run's bits become 0, and the next one 1.
    #[inline(always)]
    fn sum(&mut self, cursors: u64, runs: u64) -> u64 {
        let sum = cursors.wrapping_add(runs).wrapping_add(self.0 >> 63);
        self.0 = runs & !sum;
        sum
    }

    /// 1 if a cursor has not reached the end of its run yet, else 0.
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        self.0 >> 63
    }
}
