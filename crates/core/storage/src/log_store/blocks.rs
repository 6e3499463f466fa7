//! Memory that is read and written in whole blocks.
//!
//! Owns: the alignment that transfers past the page cache need. Callers: the writer's staging
//! buffer and the windows of readers.

/// Largest block that a file may ask for, and alignment of all memory here.
pub(super) const BLOCK_BYTES_MAX: usize = 4096;
const _: () = assert!(BLOCK_BYTES_MAX.is_power_of_two());

/// Aligned memory that grows when more is asked for.
#[derive(Default)]
pub(super) struct Blocks {
    /// Longer than the used part where that is at least a block, so that an aligned part can be.
    memory: Vec<u8>,
    /// Where the aligned part begins.
    begin: usize,
}

impl Blocks {
    /// Room for `bytes`, aligned from one block on, with any content. Drops the old content if it
    /// has to grow.
    #[inline]
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.begin + bytes > self.memory.len() {
            self.grow(bytes);
        }
        debug_assert!(self.begin + bytes <= self.memory.len(), "there is room for the bytes");
        &mut self.memory[self.begin..self.begin + bytes]
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let spare = if bytes < BLOCK_BYTES_MAX { 0 } else { BLOCK_BYTES_MAX };
        self.memory = vec![0; bytes + spare];
        let address = self.memory.as_ptr().addr();
        self.begin = (address.next_multiple_of(BLOCK_BYTES_MAX) - address).min(spare);
        assert!(self.begin + bytes <= self.memory.len(), "there is room for the bytes");
        debug_assert!(
            spare == 0 || (address + self.begin).is_multiple_of(BLOCK_BYTES_MAX),
            "memory of a block is aligned"
        );
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// The first bytes; there was room for so many.
    pub(super) fn first(&self, bytes: usize) -> &[u8] {
        &self.memory[self.begin..self.begin + bytes]
    }
}
