//! How often the served vbuckets and their histories have changed.
//!
//! Owns: the count of changes that have begun and ended. A reader that keeps something for all
//! vbuckets compares one number instead of looking at each vbucket. Invariant: a change is counted
//! before it can be seen, so equal numbers mean that nothing has changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct OwnershipChanges {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A change that is under way, until this is dropped.
pub(crate) struct OwnershipChange<'a>(&'a OwnershipChanges);

impl OwnershipChanges {
    pub(crate) fn begin(&self) -> OwnershipChange<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        OwnershipChange(self)
    }

    /// Changes that have begun.
    pub(crate) fn count(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// The count, unless a change is under way.
    pub(crate) fn settled(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        debug_assert!(ended <= self.count(), "a change that ended has begun");
        (self.count() == ended).then_some(ended)
    }
}

impl Drop for OwnershipChange<'_> {
    fn drop(&mut self) {
        let ended = self.0.ended.fetch_add(1, Ordering::SeqCst);
        assert!(ended < self.0.count(), "a change that ends has begun");
    }
}

#[cfg(test)]
mod tests {
    //! Counts while changes are under way, and after them.

    use super::*;

    #[test]
    fn a_change_under_way_is_not_settled() {
        let changes = OwnershipChanges::default();
        assert_eq!(changes.settled(), Some(0));
        let (first, second) = (changes.begin(), changes.begin());
        assert_eq!((changes.count(), changes.settled()), (2, None));
        drop(first);
        assert_eq!(changes.settled(), None);
        drop(second);
        assert_eq!(changes.settled(), Some(2));
    }
}
