//! Bugs that tests plant to prove that the suite finds them. Outside of tests there are none.
//!
//! Owns: the switch. A store is made with at most one bug, and the places that would have it ask
//! for it by name. Without tests, and without the feature `testing` (for the engine's tests), the
//! answer is a constant.

/// A fault of a store under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bug {
    #[default]
    None,
    /// Commits return before they are synced.
    SkipsTheSync,
    /// A commit is shown before it is synced.
    ShowsBeforeTheSync,
    /// Compaction does not move tombstones.
    ForgetsTombstones,
    /// Compaction removes a segment before its copies are durable.
    RemovesBeforeTheSync,
    /// Opening does not compare checksums.
    IgnoresChecksums,
    /// Opening cuts the log off at damage as if it were a tail.
    TakesDamageForATail,
    /// Purged tombstones are dropped while older versions are on disk.
    DropsTombstonesEarly,
    /// After a failure the store continues writing.
    WritesAfterAFailure,
    /// After a failed sync the store relies on what it can still read.
    TrustsAFailedSync,
    /// A segment that was not finished stays, and the one before it continues.
    KeepsUnfinishedSegments,
    /// Readers are pointed at copies of compaction that may be cut off.
    ShowsCopiesBeforeTheSync,
    /// Omits to write recovered frames again before the store relies on them.
    TrustsTheTail,
    /// Scans by seqno miss the seqnos that compaction has moved to a segment.
    ForgetsWhereCopiesBelong,
    /// The last block is written again without its earlier bytes.
    ForgetsTheTail,
    /// A sealed segment keeps the zeros after its last frame.
    KeepsThePadding,
    /// A commit whose sender knew of no purge takes its seqno back.
    TakesPurgesBack,
    /// Tombstones are purged before the purge seqno is durable.
    PurgesBeforeItSaysSo,
    /// Compaction moves versions that were superseded concurrently.
    MovesWithoutLooking,
    /// A commit takes a packed entry of the index for that of its key without reading the record.
    TrustsAPrefix,
}

/// The bug of one store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlantedBug {
    #[cfg(any(test, feature = "testing"))]
    bug: Bug,
}

impl PlantedBug {
    /// A store with this bug.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with(bug: Bug) -> PlantedBug {
        PlantedBug { bug }
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
