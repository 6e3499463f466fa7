//! Grace periods: readers that write nothing shared, and memory that waits for them.
//!
//! A GET reads a slot of the hash table and the item that it points to without the table's lock and
//! without counting a reference. A writer may replace the item at any time, so a thread that drops
//! the last reference does not free the block: the block is *retired*, and freed after a *grace
//! period*, when every read section that was open at that time has ended. The technique is known as
//! quiescent-state-based reclamation; McKenney and Walpole, "What is RCU, fundamentally?".
//!
//! Owns: the read sections of all threads ([`slot`]) and each thread's retired memory. A section
//! costs its thread two stores to its own line and one fence, however many reads it covers. A
//! worker opens one for each turn of a connection. Retired memory stays with the thread that
//! retired it. The thread looks whether grace periods are over when its section ends, when much
//! waits, and when it returns its cached blocks; a thread that ends leaves the rest to the others.
//!
//! Sections are short and never blocked: what is retired while one is open takes memory until it
//! ends.
//!
//! Unsafe invariants:
//! 1. Memory is retired after no reader that begins now can find it, and it is released once.
//! 2. What a reader found stays as it is until its section ends: it is released only when every
//!    section has ended that was open after it was retired.
//!
//! Called by items, the hash table's groups and the workers.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

mod registry;
mod retire_list;
mod retired;
mod slot;

#[cfg(test)]
mod tests;

/// The atomics of [`slot`]; a model checker has its own.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

use registry::ThreadReader;
use retire_list::RetireList;
pub(crate) use retired::RetiredBlock;

/// Retired blocks that a thread checks again only when it trims its caches: beyond
/// either of these it looks at once, unless it reads.
const RETIRED_MAX: usize = 32;
const RETIRED_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

/// Retired blocks of threads that have ended.
static ORPHANS: Mutex<RetireList> = Mutex::new(RetireList::new());
static HAS_ORPHANS: AtomicBool = AtomicBool::new(false);

/// While a section is open, items that this thread finds without a lock do not change.
pub struct ReadSection {
    /// A section belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl ReadSection {
    /// Opens a section of this thread, or joins the one that is open.
    #[inline]
    pub fn open() -> ReadSection {
        LOCAL.with(Local::enter);
        ReadSection { _thread: PhantomData }
    }
}

impl Drop for ReadSection {
    #[inline]
    fn drop(&mut self) {
        LOCAL.with(Local::leave);
    }
}

/// Frees memory when its grace period is over.
///
/// # Safety
/// (1) The caller owns the memory and gives it up, no reader that begins now can find it, and
/// `release` may be called with its address and length.
#[inline]
pub(crate) unsafe fn retire(retired: RetiredBlock) {
    let kept = LOCAL.try_with(|local| local.retire(retired));
    if kept.is_err() {
        // A destructor that runs after this thread's state is gone. It gets a copy, so that usually
        // nothing of it is in memory.
        leave_behind(move |orphans| orphans.add(retired));
    }
}

/// Frees the memory whose grace period is over: this thread's, and that of threads that have ended.
pub(crate) fn settle() {
    // A thread whose state is gone keeps nothing.
    let _ = LOCAL.try_with(Local::settle);
}

#[cold]
fn leave_behind(add: impl FnOnce(&mut RetireList)) {
    let mut orphans = ORPHANS.lock();
    add(&mut orphans);
    debug_assert!(!orphans.is_empty(), "an ended thread leaves orphans");
    HAS_ORPHANS.store(true, Ordering::Release);
}

#[cold]
fn settle_orphans() {
    let Some(mut orphans) = ORPHANS.try_lock() else { return };
    orphans.settle();
    HAS_ORPHANS.store(!orphans.is_empty(), Ordering::Release);
}

struct Local {
    reader: Cell<Option<ThreadReader>>,
    /// Open sections of this thread, one in the other.
    depth: Cell<u32>,
    retire_list: RefCell<RetireList>,
}

impl Local {
    const fn new() -> Local {
        Local {
            reader: Cell::new(None),
            depth: Cell::new(0),
            retire_list: RefCell::new(RetireList::new()),
        }
    }

    #[inline]
    fn enter(&self) {
        let depth = self.depth.get();
        debug_assert!(depth < u32::MAX, "sections of a thread are nested a few times");
        self.depth.set(depth + 1);
        if depth == 0 {
            let reader = self.reader.get().unwrap_or_else(|| self.register());
            reader.slot().enter();
        }
    }

    #[cold]
    fn register(&self) -> ThreadReader {
        debug_assert!(self.reader.get().is_none(), "a thread registers once");
        let reader = ThreadReader::register();
        self.reader.set(Some(reader));
        reader
    }

    #[inline]
    fn leave(&self) {
        debug_assert!(self.depth.get() > 0, "a section that ends was opened");
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth > 0 {
            return;
        }
        if let Some(reader) = self.reader.get() {
            reader.slot().leave();
        }
        let mut retire_list = self.retire_list.borrow_mut();
        if !retire_list.is_empty() {
            retire_list.settle();
        }
    }

    #[inline]
    fn retire(&self, retired: RetiredBlock) {
        let mut retire_list = self.retire_list.borrow_mut();
        retire_list.add(retired);
        debug_assert!(!retire_list.is_empty(), "a retired block is in the list");
        if self.depth.get() == 0 && retire_list.has_more_than(RETIRED_MAX, RETIRED_BYTES_MAX) {
            retire_list.settle();
        }
    }

    fn settle(&self) {
        self.retire_list.borrow_mut().settle();
        if HAS_ORPHANS.load(Ordering::Acquire) {
            settle_orphans();
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        debug_assert_eq!(self.depth.get(), 0, "a thread ends outside of its sections");
        if let Some(reader) = self.reader.take() {
            reader.unregister();
        }
        let retire_list = self.retire_list.get_mut();
        retire_list.settle();
        if !retire_list.is_empty() {
            leave_behind(|orphans| orphans.take_over(retire_list));
            debug_assert!(retire_list.is_empty(), "a retire list has one owner");
        }
    }
}
