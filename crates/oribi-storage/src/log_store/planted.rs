//! Bugs that tests plant to prove that the suite finds them. Outside of tests there are none.
//!
//! Owns: the switch. A store is made with at most one bug; the places that would have it ask for it
//! by name, and without tests (and the feature `testing`, with which the tests of the engine build this
//! crate) the answer is known when compiling.

/// What a store under test does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Commits return before they are synced.
    SkipsTheSync,
    /// A commit is shown before it is synced.
    ShowsBeforeTheSync,
    /// Compaction does not move tombstones.
    ForgetsTombstones,
    /// Compaction removes a segment before what was moved is durable.
    RemovesBeforeTheSync,
    /// Opening does not compare checksums.
    IgnoresChecksums,
    /// Opening cuts the log off at damage as if it were a tail.
    TakesDamageForATail,
    /// Purged tombstones are dropped while older versions are on disk.
    DropsTombstonesEarly,
    /// After a failure the store goes on writing.
    WritesAfterAFailure,
    /// What was read back at opening is not written again before it is relied on.
    TrustsTheTail,
    /// Compaction moves versions that were superseded meanwhile.
    MovesWithoutLooking,
}

/// The bug of one store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planted {
    #[cfg(any(test, feature = "testing"))]
    bug: Bug,
}

impl Planted {
    /// A store with this bug.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with(bug: Bug) -> Planted {
        Planted { bug }
    }

    /// True when the store has this bug.
    pub(super) fn has(self, bug: Bug) -> bool {
        #[cfg(any(test, feature = "testing"))]
        return self.bug == bug;
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = bug;
            false
        }
    }
}
