//! Masks that go on from block to block.
//!
//! A mask of a block moves by one byte, or runs to the end of a run of bytes, and what leaves the block at its end
//! comes in at the beginning of the next. That is all that is kept from one block for the next.

/// The mask of the block before, of which only the last byte matters.
#[derive(Default)]
pub(super) struct Behind(u64);

impl Behind {
    /// The bytes behind those of the mask.
    #[inline(always)]
    pub(super) fn of(&mut self, mask: u64) -> u64 {
        let before = std::mem::replace(&mut self.0, mask);
        (mask << 1) | (before >> 63)
    }

    /// 1 when the last byte of the block before was in the mask, else 0.
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        self.0 >> 63
    }
}

/// The bytes of the block before that cursors ran over, of which only the last matters.
#[derive(Default)]
pub(super) struct Runs(u64);

impl Runs {
    /// The first bytes behind the runs at whose first bytes the cursors are. A cursor that is at no run stays
    /// where it is. No cursor may be inside a run, behind its first byte.
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

    /// An addition carries each cursor along its run: the run's bits become 0, and the one behind it 1.
    #[inline(always)]
    fn sum(&mut self, cursors: u64, runs: u64) -> u64 {
        let sum = cursors.wrapping_add(runs).wrapping_add(self.0 >> 63);
        self.0 = runs & !sum;
        sum
    }

    /// 1 when a cursor has not come to the end of its run yet, else 0.
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        self.0 >> 63
    }
}
