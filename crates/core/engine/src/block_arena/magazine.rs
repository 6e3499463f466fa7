//! Magazines: each thread's cache of blocks per class, so that most calls take no lock.
//!
//! Owns: the arrays of free blocks of one thread. An array is made when its class is first used,
//! holds at most `Class::magazine_blocks` blocks, is refilled and emptied by halves, and is given
//! back when the thread ends. Only addresses are moved. The block that will be taken next starts
//! loading when the one before it is taken: whoever fills a cold block waits for its lines when it
//! takes the next lock, because a locked instruction waits for all writes before it.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use oribi_storage::prefetch::load_lines_to_write;

use super::arena::{ARENA, Arena};
use super::class::{CLASSES, Class, MAGAZINE_BLOCKS_MAX};
use crate::grace_period;

/// Bytes of the next block that are loaded ahead; the processor follows a longer one by itself.
const BYTES_AHEAD_MAX: usize = 1024;

thread_local! {
    static MAGAZINES: Magazines<'static> = const { Magazines::new(&ARENA) };
}

/// A block of a class.
#[inline]
pub(super) fn allocate(class: Class) -> NonNull<u8> {
    let taken = MAGAZINES.try_with(|magazines| magazines.take(class));
    // A destructor that runs after this thread's magazines are gone.
    taken.unwrap_or_else(|_| ARENA.take_one(class))
}

/// Blocks that this thread has taken since it began.
pub(super) fn allocations() -> u64 {
    MAGAZINES.try_with(|magazines| magazines.taken.get()).unwrap_or_default()
}

/// Frees a block.
///
/// # Safety
/// (7) It is a block of this class from the process's arena, and the caller gives it up.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, class: Class) {
    // SAFETY: the caller's promise.
    let put = MAGAZINES.try_with(|magazines| unsafe { magazines.put(block, class) });
    if put.is_err() {
        // SAFETY: the caller's promise; as above for the order of destructors.
        unsafe { ARENA.give(class, &[block]) }
    }
}

/// Gives back everything that this thread keeps.
pub(super) fn give_back() {
    grace_period::settle();
    // A thread whose magazines are gone keeps nothing.
    let _ = MAGAZINES.try_with(|magazines| Class::all().for_each(|class| magazines.empty(class)));
}

/// Gives back everything that this thread keeps if a round of compaction has begun since it did so
/// last.
pub(super) fn join_round() {
    let _ = MAGAZINES.try_with(Magazines::join_round);
}

struct Magazine {
    /// An array of `capacity` places, of which the first `len` are filled; null until the first
    /// use.
    blocks: Cell<*mut NonNull<u8>>,
    len: Cell<u32>,
    capacity: Cell<u32>,
}

/// All magazines of one thread.
pub(super) struct Magazines<'a> {
    arena: &'a Arena,
    /// Blocks taken since the thread began.
    taken: Cell<u64>,
    /// The round of compaction for which everything was given back last.
    round: Cell<u32>,
    by_class: [Magazine; CLASSES],
}

impl<'a> Magazines<'a> {
    pub(super) const fn new(arena: &'a Arena) -> Magazines<'a> {
        let by_class = [const { Magazine::new() }; CLASSES];
        Magazines { arena, taken: Cell::new(0), round: Cell::new(0), by_class }
    }

    /// Takes one block out.
    #[inline]
    pub(super) fn take(&self, class: Class) -> NonNull<u8> {
        let magazine = &self.by_class[class.index()];
        self.taken.set(self.taken.get() + 1);
        let taken = magazine.pop().unwrap_or_else(|| self.refill(class));
        if let Some(next) = magazine.peek() {
            load_lines_to_write(next.as_ptr(), class.block_bytes().min(BYTES_AHEAD_MAX));
        }
        taken
    }

    /// Puts one block in.
    ///
    /// # Safety
    /// (7) It is a block of this class from the same arena, and the caller gives it up.
    #[inline]
    pub(super) unsafe fn put(&self, block: NonNull<u8>, class: Class) {
        let magazine = &self.by_class[class.index()];
        if !magazine.push(block) {
            // SAFETY: the caller's promise.
            unsafe { self.spill(block, class) }
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, class: Class) -> NonNull<u8> {
        self.join_round();
        if class.has_no_magazine() {
            return self.arena.take_one(class);
        }
        let magazine = &self.by_class[class.index()];
        magazine.make_places(class);
        let mut batch = [NonNull::dangling(); BATCH_MAX];
        let batch = &mut batch[..class.magazine_blocks() / 2];
        let taken = self.arena.take(class, batch);
        assert!(0 < taken && taken <= batch.len(), "a depot gives one block to a whole batch");
        let (_, filled) = batch.split_at(batch.len() - taken);
        for block in filled {
            let has_room = magazine.push(*block);
            assert!(has_room, "an empty magazine holds half of its capacity");
        }
        magazine.pop().expect("a depot gives at least one block")
    }

    /// # Safety
    /// As for [`Magazines::put`].
    #[cold]
    #[inline(never)]
    unsafe fn spill(&self, block: NonNull<u8>, class: Class) {
        self.join_round();
        if class.has_no_magazine() {
            // SAFETY: the caller's promise.
            return unsafe { self.arena.give(class, &[block]) };
        }
        let magazine = &self.by_class[class.index()];
        magazine.make_places(class);
        let mut batch = [NonNull::dangling(); BATCH_MAX];
        let oldest = magazine.take_oldest(&mut batch[..class.magazine_blocks() / 2]);
        debug_assert!(!oldest.contains(&block), "a block is freed once");
        // SAFETY: (5) they were in this magazine.
        unsafe { self.arena.give(class, oldest) }
        let has_room = magazine.push(block);
        assert!(has_room, "half of a magazine is free after its oldest half has left");
    }
}

/// Places of the longest batch.
const BATCH_MAX: usize = 32;
const _: () = assert!(MAGAZINE_BLOCKS_MAX / 2 <= BATCH_MAX);

impl Magazines<'_> {
    /// A block that waits here keeps its chunk from becoming empty, so when a round of compaction
    /// has begun everything is given back once.
    fn join_round(&self) {
        let round = self.arena.rounds();
        if self.round.replace(round) != round {
            Class::all().for_each(|class| self.empty(class));
        }
    }

    fn empty(&self, class: Class) {
        let magazine = &self.by_class[class.index()];
        let mut batch = [NonNull::dangling(); BATCH_MAX];
        loop {
            let oldest = magazine.take_oldest(&mut batch);
            if oldest.is_empty() {
                return;
            }
            // SAFETY: (5) they were in this magazine.
            unsafe { self.arena.give(class, oldest) }
        }
    }
}

impl Drop for Magazines<'_> {
    fn drop(&mut self) {
        for class in Class::all() {
            self.empty(class);
            self.by_class[class.index()].drop_places();
        }
    }
}

impl Magazine {
    const fn new() -> Magazine {
        Magazine { blocks: Cell::new(null_mut()), len: Cell::new(0), capacity: Cell::new(0) }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        let len = self.len.get().checked_sub(1)?;
        self.len.set(len);
        // SAFETY: (6) places below the old length are filled.
        Some(unsafe { self.blocks.get().add(len as usize).read() })
    }

    /// The next block of [`Magazine::pop`].
    #[inline]
    fn peek(&self) -> Option<NonNull<u8>> {
        let last = self.len.get().checked_sub(1)?;
        // SAFETY: (6) places below the length are filled.
        Some(unsafe { self.blocks.get().add(last as usize).read() })
    }

    /// False when there is no space.
    #[inline]
    fn push(&self, block: NonNull<u8>) -> bool {
        let len = self.len.get();
        debug_assert!(len <= self.capacity.get(), "a magazine holds at most its capacity");
        if len == self.capacity.get() {
            return false;
        }
        // SAFETY: (6) the array has `capacity` places.
        unsafe { self.blocks.get().add(len as usize).write(block) };
        self.len.set(len + 1);
        true
    }

    /// Moves the blocks that have waited longest into `batch`, as far as there are any; the ones
    /// that stay were used last and are the warmest.
    fn take_oldest<'b>(&self, batch: &'b mut [NonNull<u8>]) -> &'b [NonNull<u8>] {
        debug_assert!(
            self.len.get() <= self.capacity.get(),
            "a magazine holds at most its capacity"
        );
        let len = self.len.get() as usize;
        let count = batch.len().min(len);
        let blocks = self.blocks.get();
        if count > 0 {
            // SAFETY: (6) `count` filled places are read, and the other filled ones move to the
            // front.
            unsafe {
                batch.as_mut_ptr().copy_from_nonoverlapping(blocks, count);
                blocks.copy_from(blocks.add(count), len - count);
            }
        }
        self.len.set((len - count) as u32);
        debug_assert!(count <= batch.len(), "a batch takes at most its length");
        &batch[..count]
    }

    fn make_places(&self, class: Class) {
        if self.blocks.get().is_null() {
            let capacity = class.magazine_blocks();
            let places = Box::<[NonNull<u8>]>::new_uninit_slice(capacity);
            debug_assert_eq!(self.len.get(), 0, "a magazine without an array is empty");
            self.blocks.set(Box::into_raw(places).cast());
            self.capacity.set(capacity as u32);
        }
    }

    fn drop_places(&self) {
        debug_assert_eq!(self.len.get(), 0, "a magazine is empty before its array goes");
        let blocks = self.blocks.replace(null_mut()).cast::<MaybeUninit<NonNull<u8>>>();
        let capacity = self.capacity.replace(0) as usize;
        if !blocks.is_null() {
            let places = std::ptr::slice_from_raw_parts_mut(blocks, capacity);
            // SAFETY: (6) `make_places` made this array with this length.
            drop(unsafe { Box::from_raw(places) });
        }
    }
}
