//! The slots of all threads that read.
//!
//! Owns: a list that only grows. A slot is never freed: a thread that ends leaves its slot to the
//! next one that begins, so there are as many as threads read at a time.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::slot::ReaderSlot;

struct Entry {
    slot: ReaderSlot,
    is_taken: AtomicBool,
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

/// A thread's place in the list.
#[derive(Clone, Copy)]
pub(super) struct ThreadReader(&'static Entry);

impl ThreadReader {
    /// Takes a place for this thread.
    pub(super) fn register() -> ThreadReader {
        let free = entries().find(|entry| !entry.is_taken.swap(true, Ordering::AcqRel));
        ThreadReader(free.unwrap_or_else(append))
    }

    /// Gives the place up. No section of the thread is open.
    pub(super) fn unregister(self) {
        debug_assert!(
            self.0.slot.section().is_none(),
            "a thread gives its slot up outside a section"
        );
        debug_assert!(self.0.is_taken.load(Ordering::Relaxed), "a slot is given up once");
        self.0.is_taken.store(false, Ordering::Release);
    }

    #[inline]
    pub(super) fn slot(self) -> &'static ReaderSlot {
        &self.0.slot
    }
}

/// The slots of all readers.
pub(super) fn slots() -> impl Iterator<Item = &'static ReaderSlot> {
    entries().map(|entry| &entry.slot)
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut next = FIRST.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: entries are made by `append` and never freed.
        let entry: &'static Entry = unsafe { next.as_ref()? };
        next = entry.next.load(Ordering::Acquire);
        Some(entry)
    })
}

fn append() -> &'static Entry {
    let entry: &'static mut Entry = Box::leak(Box::new(Entry {
        slot: ReaderSlot::new(),
        is_taken: AtomicBool::new(true),
        next: AtomicPtr::new(null_mut()),
    }));
    let address: *mut Entry = entry;
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        // SAFETY: the entry was leaked; no other thread knows it yet.
        unsafe { (*address).next.store(first, Ordering::Relaxed) };
        // A reader that opens a section publishes its entry first: the fence of `ReaderSlot::enter`
        // follows this store.
        match FIRST.compare_exchange(first, address, Ordering::SeqCst, Ordering::Acquire) {
            // SAFETY: the entry was leaked.
            Ok(_) => return unsafe { &*address },
            Err(seen) => first = seen,
        }
    }
}
