//! A place for one item that others read while it changes.
//!
//! Owns: the pointer and its memory orderings. Its owner, under a lock, puts items in and takes
//! them out; readers in a read section see one item or another, or none. A reader's item is
//! complete: the owner's store is a release, the reader's load an acquire. The numbers of unsafe
//! invariants are those of `item.rs`.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Header, Item, ItemRef};
use crate::grace_period::ReadSection;

/// See the top of the file. All zero bytes are an empty slot.
#[repr(transparent)]
pub(crate) struct ItemSlot(AtomicPtr<Header>);

const _: () = assert!(size_of::<ItemRef>() == size_of::<ItemSlot>());
const _: () = assert!(size_of::<Option<ItemRef>>() == size_of::<ItemSlot>());

impl ItemSlot {
    /// The slot's item. The caller holds the owner's lock, so that nothing changes
    /// concurrently.
    #[inline]
    pub(crate) fn get(&self) -> Option<&ItemRef> {
        let place: *const Option<ItemRef> = self.0.as_ptr().cast_const().cast();
        // SAFETY: (4) an item reference is a pointer that is not null, and the slot owns its count.
        // Others only read it, atomically.
        unsafe { (*place).as_ref() }
    }

    /// View of a reader without the lock.
    #[inline]
    pub(crate) fn read<'s>(&self, _section: &'s ReadSection) -> Option<SharedItem<'s>> {
        let block = NonNull::new(self.0.load(Ordering::Acquire))?;
        Some(SharedItem { item: Item(block), _section: PhantomData })
    }

    /// Where the item is, for a prefetch.
    #[inline]
    pub(crate) fn address(&self) -> *const u8 {
        self.0.load(Ordering::Relaxed).cast_const().cast()
    }

    /// Puts `item` in and returns what was there.
    ///
    /// # Safety
    /// The caller holds the owner's lock.
    #[inline]
    pub(crate) unsafe fn replace(&self, item: ItemRef) -> Option<ItemRef> {
        let new = std::mem::ManuallyDrop::new(item).block().as_ptr();
        // No other thread writes, so that two instructions do.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(new, Ordering::Release);
        NonNull::new(before).map(ItemRef::owning)
    }

    /// Empties the slot.
    ///
    /// # Safety
    /// The caller holds the owner's lock.
    #[inline]
    pub(crate) unsafe fn take(&self) -> Option<ItemRef> {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(null_mut(), Ordering::Release);
        NonNull::new(before).map(ItemRef::owning)
    }
}

/// A version that was found without a lock: it stays readable until the section ends, whatever
/// happens to the document.
pub struct SharedItem<'s> {
    item: Item,
    _section: PhantomData<&'s ReadSection>,
}

impl SharedItem<'_> {
    /// Raises the frequency of use, unless it is saturated or another thread changes it just now.
    #[inline]
    pub(crate) fn note_use(&self) {
        self.item.header().refcount.note_use();
    }
}

impl Deref for SharedItem<'_> {
    type Target = Item;

    #[inline]
    fn deref(&self) -> &Item {
        &self.item
    }
}
