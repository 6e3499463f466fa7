//! Which groups a table has, for readers without its lock: its own, and while it grows those
//! before.
//!
//! Owns: two places and their memory orderings, and the order of a look-up. The atomics come from
//! the parent module: the standard library's in the server, a model checker's in `models/miss.rs`,
//! which compiles this same file again and tries every interleaving and ordering.
//!
//! A look-up that finds nothing may have missed an item that moved. Four rules make a miss certain:
//! 1. An item enters its new group before it leaves its old one.
//! 2. A reader searches the old groups first. An item that it does not find there has moved before,
//!    or was never there.
//! 3. The writer shows a growth before anything moves, the old groups first. So a reader that knows
//!    the new groups also knows the old ones.
//! 4. A reader that has found nothing looks whether the current groups are still current. If they
//!    are, nothing has moved out of them. Groups that were shown in a read section are not freed
//!    before its end, so no others have their address.

use super::atomic::{AtomicPtr, Ordering};

/// Result of a look-up without the lock.
pub(crate) enum TableLookup<T> {
    Found(T),
    /// It was not there, at some moment of the look-up.
    Nothing,
    /// The table has grown concurrently.
    Unsettled,
}

/// See the top of the file.
pub(super) struct PublishedGroups<T> {
    current: AtomicPtr<T>,
    /// Null, or the groups out of which items are moving.
    old: AtomicPtr<T>,
}

impl<T> PublishedGroups<T> {
    pub(super) fn new(none: *mut T) -> PublishedGroups<T> {
        PublishedGroups { current: AtomicPtr::new(none), old: AtomicPtr::new(none) }
    }

    /// Shows others. The caller holds the table's lock, and nothing has moved into `current` that
    /// was shown nowhere else.
    #[inline]
    pub(super) fn show(&self, current: *mut T, old: *mut T) {
        self.old.store(old, Ordering::Release);
        self.current.store(current, Ordering::Release);
    }

    #[inline]
    pub(super) fn current(&self) -> *mut T {
        self.current.load(Ordering::Acquire)
    }

    /// Searches old groups, if there are any, and then the current ones.
    #[inline]
    pub(super) fn look_up<R>(&self, mut search: impl FnMut(*mut T) -> Option<R>) -> TableLookup<R> {
        let current = self.current.load(Ordering::Acquire);
        let old = self.old.load(Ordering::Acquire);
        let in_old = if old.is_null() { None } else { search(old) };
        match in_old.or_else(|| search(current)) {
            Some(found) => TableLookup::Found(found),
            None if self.current.load(Ordering::Acquire) == current => TableLookup::Nothing,
            None => TableLookup::Unsettled,
        }
    }
}
