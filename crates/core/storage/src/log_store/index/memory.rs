//! Memory of large tables: pieces of huge pages that all tables of a store share, whichever of its
//! logs they are of.
//!
//! Owns: [`IndexMemory`], which takes chunks of 2 MiB from the system's allocator and asks for huge
//! pages for them, and [`IndexPiece`], a 64th of a chunk. A look-up in the index misses the caches.
//! In small pages it also waits for the tables of pages, even where it is a prefetch. A table by
//! itself is mostly smaller than a huge page, so tables share chunks.
//!
//! Pieces come from the chunk that has the fewest free ones, so that others become empty. An empty
//! chunk goes back to the system, but for one. Where the system has no huge pages, the pages are
//! small. It does not interpret the content of a piece. Caller: [`super::pieces`].
//!
//! Unsafe invariants: 1. a chunk owns `CHUNK_BYTES` from the allocator, aligned to `CHUNK_BYTES`,
//! and each of its pieces belongs to one [`IndexPiece`] or to the chunk's set of free ones; 2. a
//! chunk goes back only while all its pieces are free; 3. a [`IndexPiece`] is written from end to
//! end before it is made, with values that need no drop.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of a piece, and pieces of a chunk. Small in tests, so that small tables have many.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 32 << 10 };
const PIECES: usize = if cfg!(test) { 16 } else { 64 };
/// Bytes of a chunk: a huge page of most processors.
pub(in super::super) const CHUNK_BYTES: usize = PIECES * PIECE_BYTES;
/// The set of free pieces of an empty chunk.
const ALL_FREE: u64 = u64::MAX >> (u64::BITS as usize - PIECES);
const _: () = assert!(ALL_FREE.count_ones() as usize == PIECES);
const _: () = assert!(PIECE_BYTES.is_power_of_two() && PIECES.is_power_of_two());
/// Empty chunks that are kept: tables that grow take and give by turns.
const EMPTY_KEPT: usize = 1;
const _: () = assert!(PIECES <= u64::BITS as usize, "a bit for each piece");

const _: () = assert!(cfg!(test) || CHUNK_BYTES == 2 << 20);

/// The memory of a store's large tables. Clones are the same memory.
#[derive(Clone, Default)]
pub(in super::super) struct IndexMemory(Arc<Mutex<Vec<Chunk>>>);

impl IndexMemory {
    /// Bytes that the system has given, free pieces among them.
    pub(in super::super) fn bytes(&self) -> usize {
        self.0.lock().len() * CHUNK_BYTES
    }

    fn take(&self) -> NonNull<u8> {
        let mut chunks = self.0.lock();
        let with_room = chunks.iter_mut().filter(|chunk| chunk.free != 0);
        if let Some(fullest) = with_room.min_by_key(|chunk| chunk.free.count_ones()) {
            return fullest.take();
        }
        let mut chunk = Chunk::new();
        let piece = chunk.take();
        assert!(chunk.free < ALL_FREE, "a piece that was taken is not free");
        chunks.push(chunk);
        piece
    }

    fn give(&self, piece: NonNull<u8>) {
        let mut chunks = self.0.lock();
        let at = chunks.iter().position(|chunk| chunk.number_of(piece).is_some());
        let at = at.expect("a piece is given to the memory that it is from");
        chunks[at].give(piece);
        let is_empty = |chunk: &&Chunk| chunk.free == ALL_FREE;
        if is_empty(&&chunks[at]) && chunks.iter().filter(is_empty).count() > EMPTY_KEPT {
            chunks.swap_remove(at);
        }
    }
}

impl fmt::Debug for IndexMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexMemory({} bytes)", self.bytes())
    }
}

struct Chunk {
    base: NonNull<u8>,
    /// A bit for each piece that is free.
    free: u64,
}

// SAFETY: (1) a chunk owns plain memory that no thread is tied to.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new() -> Chunk {
        let layout = Chunk::layout();
        // SAFETY: the size is not zero.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        assert!(base.addr().get().is_multiple_of(CHUNK_BYTES), "a chunk is aligned to its size");
        ask_for_huge_pages(base);
        Chunk { base, free: ALL_FREE }
    }

    fn layout() -> Layout {
        Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("a chunk is a power of two long")
    }

    fn take(&mut self) -> NonNull<u8> {
        assert_ne!(self.free, 0, "a chunk with a free piece is not full");
        let number = self.free.trailing_zeros() as usize;
        self.free &= self.free - 1;
        // SAFETY: (1) some bit was set, so the piece is in the chunk.
        unsafe { self.base.add(number * PIECE_BYTES) }
    }

    fn give(&mut self, piece: NonNull<u8>) {
        let bit = 1 << self.number_of(piece).expect("the caller has found the piece's chunk");
        assert!(self.free & bit == 0, "a piece is given once");
        self.free |= bit;
    }

    /// Number of a piece, if it is of this chunk.
    fn number_of(&self, piece: NonNull<u8>) -> Option<usize> {
        let offset = piece.addr().get().checked_sub(self.base.addr().get())?;
        (offset < CHUNK_BYTES).then_some(offset / PIECE_BYTES)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        assert!(self.free == ALL_FREE, "a chunk outlives its pieces");
        // SAFETY: (1) (2) the same layout as in `new`.
        unsafe { dealloc(self.base.as_ptr(), Chunk::layout()) }
    }
}

/// Requests huge pages. A refusal is no error.
#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_huge_pages(base: NonNull<u8>) {
    if cfg!(not(test)) {
        // SAFETY: (1) the advice changes no content, and the chunk owns the range.
        let _ = unsafe {
            rustix::mm::madvise(
                base.as_ptr().cast(),
                CHUNK_BYTES,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_pages(_base: NonNull<u8>) {}

/// Memory for [`IndexPiece::LEN`] numbers.
pub(super) struct IndexPiece<T: Copy> {
    base: NonNull<T>,
    memory: IndexMemory,
    numbers: PhantomData<T>,
}

// SAFETY: (1) a piece owns its numbers.
unsafe impl<T: Copy + Send> Send for IndexPiece<T> {}
// SAFETY: (1) through a shared reference the numbers are only read.
unsafe impl<T: Copy + Sync> Sync for IndexPiece<T> {}

impl<T: Copy> IndexPiece<T> {
    /// Numbers of a piece, a power of two.
    pub(super) const LEN: usize = {
        assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= PIECE_BYTES);
        assert!(align_of::<T>() <= PIECE_BYTES);
        PIECE_BYTES / size_of::<T>()
    };

    /// A copy of as many numbers as a piece has.
    pub(super) fn of(memory: &IndexMemory, numbers: &[T]) -> IndexPiece<T> {
        assert_eq!(numbers.len(), IndexPiece::<T>::LEN, "a piece is written from end to end");
        let base = memory.take().cast::<T>();
        // SAFETY: (1) (3) the piece has space for so many, is aligned, and only this call has it.
        unsafe { base.copy_from_nonoverlapping(NonNull::from(numbers).cast(), numbers.len()) }
        IndexPiece { base, memory: memory.clone(), numbers: PhantomData }
    }
}

impl<T: Copy> fmt::Debug for IndexPiece<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({:?})", self.base)
    }
}

impl<T: Copy> Drop for IndexPiece<T> {
    fn drop(&mut self) {
        debug_assert!(self.base.addr().get().is_multiple_of(PIECE_BYTES), "a piece is aligned");
        self.memory.give(self.base.cast());
    }
}

impl<T: Copy> Deref for IndexPiece<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: (1) (3)
        unsafe { NonNull::slice_from_raw_parts(self.base, IndexPiece::<T>::LEN).as_ref() }
    }
}

impl<T: Copy> DerefMut for IndexPiece<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: (1) (3)
        unsafe { NonNull::slice_from_raw_parts(self.base, IndexPiece::<T>::LEN).as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, EMPTY_KEPT, IndexMemory, IndexPiece, PIECES};

    fn piece(memory: &IndexMemory, number: u64) -> IndexPiece<u64> {
        IndexPiece::of(memory, &[number; IndexPiece::<u64>::LEN])
    }

    #[test]
    fn pieces_share_chunks_and_keep_what_is_in_them() {
        let memory = IndexMemory::default();
        let mut pieces: Vec<_> =
            (0..2 * PIECES as u64 + 1).map(|number| piece(&memory, number)).collect();
        assert_eq!(memory.bytes(), 3 * CHUNK_BYTES);
        for (number, piece) in (0..).zip(&mut pieces) {
            assert!(piece.iter().all(|found| *found == number));
            piece.fill(number + 1000);
        }
        for (number, piece) in (1000..).zip(&pieces) {
            assert!(piece.iter().all(|found| *found == number));
        }
    }

    #[test]
    fn returned_blocks_are_reused_empty_chunks_freed() {
        let memory = IndexMemory::default();
        let mut pieces: Vec<_> = (0..3 * PIECES).map(|_| piece(&memory, 0)).collect();
        // Every other piece of two chunks.
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number > 2 * PIECES || number % 2 == 0
        });
        assert_eq!(memory.bytes(), 3 * CHUNK_BYTES);
        pieces.extend((0..PIECES).map(|_| piece(&memory, 0)));
        assert_eq!(memory.bytes(), 3 * CHUNK_BYTES);
        pieces.clear();
        assert_eq!(memory.bytes(), EMPTY_KEPT * CHUNK_BYTES);
    }
}
