//! A grace period: a reader without a lock, a writer that replaces what it reads and frees it.
//!
//! The slot is the one of `grace_period/slot.rs`. The blocks are stand-ins whose value the checker
//! watches: freeing one writes to it, which is an error unless every read happened before.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[path = "../grace_period/slot.rs"]
mod slot;

use slot::{ReaderSlot, order_removal_before_look};

const FREED: u64 = u64::MAX;

/// The real slot, or one with a mutant.
trait Sections: Send + Sync + 'static {
    fn new() -> Self;
    fn enter(&self);
    fn leave(&self);
    /// Returns when everything may be freed that was removed before.
    fn wait(&self);
}

impl Sections for ReaderSlot {
    fn new() -> ReaderSlot {
        ReaderSlot::new()
    }

    fn enter(&self) {
        ReaderSlot::enter(self);
    }

    fn leave(&self) {
        ReaderSlot::leave(self);
    }

    fn wait(&self) {
        order_removal_before_look();
        let Some(section) = self.section() else { return };
        while !self.has_left(section) {
            thread::yield_now();
        }
    }
}

struct World<S> {
    sections: S,
    /// Which block the table leads to.
    current: AtomicUsize,
    blocks: [UnsafeCell<u64>; 2],
}

// SAFETY: the checker reports every access to a block that is not ordered against a write.
unsafe impl<S: Sections> Sync for World<S> {}
// SAFETY: as above.
unsafe impl<S: Sections> Send for World<S> {}

impl<S: Sections> World<S> {
    fn get(&self) -> u64 {
        self.sections.enter();
        let block = &self.blocks[self.current.load(Ordering::Acquire)];
        // SAFETY: the checker finds a write that is not ordered against this read.
        let value = block.with(|value| unsafe { *value });
        self.sections.leave();
        assert_ne!(value, FREED, "a block is read after it was freed");
        value
    }

    fn replace(&self) {
        self.current.store(1, Ordering::Release);
        self.sections.wait();
        // SAFETY: as above.
        self.blocks[0].with_mut(|value| unsafe { *value = FREED });
    }
}

fn get_while_replaced<S: Sections>() {
    let world = Arc::new(World {
        sections: S::new(),
        current: AtomicUsize::new(0),
        blocks: [UnsafeCell::new(1), UnsafeCell::new(2)],
    });
    let reading = Arc::clone(&world);
    let reader = thread::spawn(move || {
        let first = reading.get();
        let second = reading.get();
        assert!(first <= second, "a reader went back");
    });
    world.replace();
    reader.join().expect("no assertion fails");
    assert_eq!(world.get(), 2);
}

// Invariant: A look-up of a small document in memory takes no lock, and the block stays readable
// until the read section ends.
#[test]
fn a_block_is_freed_after_every_read() {
    loom::model(get_while_replaced::<ReaderSlot>);
}

/// Mutant: removed items are freed at once.
struct NoGrace(ReaderSlot);

impl Sections for NoGrace {
    fn new() -> NoGrace {
        NoGrace(ReaderSlot::new())
    }

    fn enter(&self) {
        self.0.enter();
    }

    fn leave(&self) {
        self.0.leave();
    }

    fn wait(&self) {}
}

/// Mutant: a reader looks at the table before others can see that it reads.
struct LateEntry(atomic::AtomicU64);

impl Sections for LateEntry {
    fn new() -> LateEntry {
        LateEntry(atomic::AtomicU64::new(0))
    }

    fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn wait(&self) {
        let sections = self.0.load(Ordering::Acquire);
        while sections % 2 == 1 && self.0.load(Ordering::Acquire) == sections {
            thread::yield_now();
        }
    }
}

/// Mutant: the end of a section does not order the reads before it.
struct RelaxedEnd(atomic::AtomicU64);

impl Sections for RelaxedEnd {
    fn new() -> RelaxedEnd {
        RelaxedEnd(atomic::AtomicU64::new(0))
    }

    fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        atomic::fence(Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn wait(&self) {
        order_removal_before_look();
        let sections = self.0.load(Ordering::Acquire);
        while sections % 2 == 1 && self.0.load(Ordering::Acquire) == sections {
            thread::yield_now();
        }
    }
}

#[test]
#[should_panic]
fn freeing_at_once_is_found() {
    loom::model(get_while_replaced::<NoGrace>);
}

#[test]
#[should_panic]
fn a_section_without_a_fence_is_found() {
    loom::model(get_while_replaced::<LateEntry>);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_section_that_ends_without_a_release_is_found() {
    loom::model(get_while_replaced::<RelaxedEnd>);
}
