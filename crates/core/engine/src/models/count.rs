//! The reference count of an item: threads read it, replace it and drop it; one frees it, once.
//!
//! The count is the one of `item/reference_count.rs`. The block around it is a stand-in whose value
//! the checker watches: freeing it writes to it, which is an error unless every read happened
//! before.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic;
use loom::thread;

#[path = "../item/reference_count.rs"]
mod reference_count;

use reference_count::ReferenceCount;

const FREED: u64 = u64::MAX;

/// The real count, or one with a mutant.
trait Count: Send + Sync + 'static {
    fn one() -> Self;
    fn acquire(&self);
    fn release(&self) -> bool;

    fn release_two(&self) -> bool {
        self.release() || self.release()
    }

    /// As `acquire`, for a reader under the table's lock.
    fn acquire_for_use(&self) {
        self.acquire();
    }

    /// The pager's step under the table's lock.
    fn age(&self) {}

    /// Of two uses and one round of the pager no more than one use is left.
    fn assert_settled(&self) {}
}

impl Count for ReferenceCount {
    fn acquire_for_use(&self) {
        ReferenceCount::acquire_for_use(self);
    }

    fn age(&self) {
        ReferenceCount::age(self);
        self.note_incompressible();
    }

    fn assert_settled(&self) {
        assert_eq!(self.references(), 1);
        assert!(self.is_incompressible());
        // A use that meets another change is not counted.
        assert!(self.frequency() <= 1, "{} uses", self.frequency());
        let next = ReferenceCount::one();
        next.inherit(self);
        assert_eq!((next.references(), next.frequency()), (1, 1));
        assert!(!next.is_incompressible(), "a new version is tried");
        next.copy_frequency(&ReferenceCount::one());
        assert_eq!((next.references(), next.frequency()), (1, 0));
        next.acquire_unshared();
        assert_eq!((next.references(), next.frequency()), (2, 0));
    }

    fn one() -> ReferenceCount {
        ReferenceCount::one()
    }

    fn acquire(&self) {
        ReferenceCount::acquire(self);
    }

    fn release(&self) -> bool {
        ReferenceCount::release(self)
    }

    fn release_two(&self) -> bool {
        ReferenceCount::release_two(self)
    }
}

struct Block<C> {
    count: C,
    value: UnsafeCell<u64>,
}

/// As an `ItemRef`: each owns one count of the block. The memory itself outlives the model, so that
/// a use after the free is found by its value instead of by luck.
struct Reference<C: Count>(Arc<Block<C>>);

// SAFETY: the checker reports every access to the value that is not ordered against a write.
unsafe impl<C: Count> Send for Reference<C> {}

impl<C: Count> Reference<C> {
    /// A block, and a second handle that looks at it after the model's threads are gone.
    fn new(value: u64) -> (Reference<C>, Arc<Block<C>>) {
        let block = Arc::new(Block { count: C::one(), value: UnsafeCell::new(value) });
        (Reference(Arc::clone(&block)), block)
    }

    fn read(&self) -> u64 {
        // SAFETY: the checker finds a write that is not ordered against this read.
        let value = self.0.value.with(|value| unsafe { *value });
        assert_ne!(value, FREED, "a block is read after it was freed");
        value
    }
}

impl<C: Count> Reference<C> {
    fn clone_for_use(&self) -> Reference<C> {
        self.0.count.acquire_for_use();
        Reference(Arc::clone(&self.0))
    }
}

impl<C: Count> Reference<C> {
    fn drop_both(self, other: Reference<C>) {
        if self.0.count.release_two() {
            self.free();
        }
        std::mem::forget((self, other));
    }

    fn free(&self) {
        // SAFETY: the checker finds a read that does not happen before this write.
        let before =
            self.0.value.with_mut(|value| unsafe { std::mem::replace(&mut *value, FREED) });
        assert_ne!(before, FREED, "a block is freed twice");
    }
}

impl<C: Count> Clone for Reference<C> {
    fn clone(&self) -> Reference<C> {
        self.0.count.acquire();
        Reference(Arc::clone(&self.0))
    }
}

impl<C: Count> Drop for Reference<C> {
    fn drop(&mut self) {
        if self.0.count.release() {
            self.free();
        }
    }
}

fn assert_freed<C: Count>(block: &Block<C>) {
    // SAFETY: all threads of the model have been joined.
    let value = block.value.with(|value| unsafe { *value });
    assert_eq!(value, FREED, "a block is never freed");
}

/// A reader that clones, a reader that only reads, and the table that releases.
fn clone_read_drop<C: Count>() {
    let (table, block) = Reference::<C>::new(7);
    let (cloning, reading) = (table.clone(), table.clone());
    let cloning = thread::spawn(move || {
        let second = cloning.clone();
        drop(cloning);
        assert_eq!(second.read(), 7);
    });
    let reading = thread::spawn(move || assert_eq!(reading.read(), 7));
    drop(table);
    cloning.join().expect("no assertion fails");
    reading.join().expect("no assertion fails");
    assert_freed(&block);
}

/// A slot under a lock: a GET clones under it and reads after it, a SET replaces under it and drops
/// after it.
fn get_while_set<C: Count>() {
    let (first, first_block) = Reference::<C>::new(1);
    let (second, second_block) = Reference::<C>::new(2);
    let slot = Arc::new(Mutex::new(first));
    let readers = [Arc::clone(&slot), Arc::clone(&slot)].map(|slot| {
        thread::spawn(move || {
            let item = slot.lock().expect("no assertion fails").clone();
            assert!(matches!(item.read(), 1 | 2));
        })
    });
    let before = std::mem::replace(&mut *slot.lock().expect("no assertion fails"), second);
    drop(before);
    for reader in readers {
        reader.join().expect("no assertion fails");
    }
    drop(slot);
    assert_freed(&first_block);
    assert_freed(&second_block);
}

/// A slot under a lock: a GET counts its use, the pager ages, and a reference goes outside of the
/// lock concurrently.
fn get_while_ageing<C: Count>() {
    let (item, block) = Reference::<C>::new(3);
    // The pager finds a use whoever comes first.
    drop(item.clone_for_use());
    let outside = item.clone();
    let slot = Arc::new(Mutex::new(item));
    let reader = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || {
            let item = slot.lock().expect("no assertion fails").clone_for_use();
            assert_eq!(item.read(), 3);
        })
    };
    let pager = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || slot.lock().expect("no assertion fails").0.count.age())
    };
    drop(outside);
    reader.join().expect("no assertion fails");
    pager.join().expect("no assertion fails");
    slot.lock().expect("no assertion fails").0.count.assert_settled();
    drop(slot);
    assert_freed(&block);
}

/// A version leaves table and queue at once, while others read it.
fn replace_in_table_and_queue<C: Count>() {
    let (table, block) = Reference::<C>::new(4);
    let queue = table.clone();
    let readers = [table.clone(), table.clone()]
        .map(|reader| thread::spawn(move || assert_eq!(reader.read(), 4)));
    table.drop_both(queue);
    for reader in readers {
        reader.join().expect("no assertion fails");
    }
    assert_freed(&block);
}

#[test]
fn a_block_dropped_twice_is_freed_once_after_reads() {
    loom::model(replace_in_table_and_queue::<ReferenceCount>);
}

#[test]
fn uses_and_ageing_leave_the_count_alone() {
    loom::model(get_while_ageing::<ReferenceCount>);
}

#[test]
fn a_block_is_freed_once_and_after_every_read() {
    loom::model(clone_read_drop::<ReferenceCount>);
}

#[test]
fn a_get_keeps_what_a_set_replaces() {
    loom::model(get_while_set::<ReferenceCount>);
}

/// Mutant: giving up is not a release, so a read may still be under way when the block is
/// freed.
struct RelaxedCount(atomic::AtomicU32);

impl Count for RelaxedCount {
    fn one() -> RelaxedCount {
        RelaxedCount(atomic::AtomicU32::new(1))
    }

    fn acquire(&self) {
        self.0.fetch_add(1, atomic::Ordering::Relaxed);
    }

    fn release(&self) -> bool {
        self.0.fetch_sub(1, atomic::Ordering::Relaxed) == 1
    }
}

/// Mutant: reads and writes the count in two steps.
struct TornCount(atomic::AtomicU32);

impl Count for TornCount {
    fn one() -> TornCount {
        TornCount(atomic::AtomicU32::new(1))
    }

    fn acquire(&self) {
        let before = self.0.load(atomic::Ordering::SeqCst);
        self.0.store(before + 1, atomic::Ordering::SeqCst);
    }

    fn release(&self) -> bool {
        self.0.fetch_sub(1, atomic::Ordering::AcqRel) == 1
    }
}

/// Mutant: the only holder does not see that the reads of those before it are over.
struct UnorderedAlone(atomic::AtomicU32);

impl Count for UnorderedAlone {
    fn one() -> UnorderedAlone {
        UnorderedAlone(atomic::AtomicU32::new(1))
    }

    fn acquire(&self) {
        self.0.fetch_add(1, atomic::Ordering::Relaxed);
    }

    fn release(&self) -> bool {
        self.0.load(atomic::Ordering::Relaxed) == 1
            || self.0.fetch_sub(1, atomic::Ordering::AcqRel) == 1
    }

    fn release_two(&self) -> bool {
        self.0.load(atomic::Ordering::Relaxed) == 2
            || self.0.fetch_sub(2, atomic::Ordering::AcqRel) == 2
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_count_that_is_alone_without_acquire_is_found() {
    loom::model(clone_read_drop::<UnorderedAlone>);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_two_sole_owners_without_acquire() {
    loom::model(replace_in_table_and_queue::<UnorderedAlone>);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_count_without_release_is_found() {
    loom::model(clone_read_drop::<RelaxedCount>);
}

#[test]
#[should_panic]
fn a_count_in_two_steps_is_found() {
    loom::model(get_while_set::<TornCount>);
}
