//! Planted bugs, which prove that the suite finds bugs. Outside of tests there are none.
//!
//! Owns: the switch. A simulation runs on one thread and plants at most one bug there. The code
//! that would have the bug asks for it by name; in a build without tests the answer is a constant.
//! The log store has planted bugs of its own. `simulation/canaries.rs` shows that each is found.

/// A bug of an engine under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Waiters are answered before the commit.
    AcknowledgesBeforeTheCommit,
    /// A commit that failed counts as done.
    IgnoresAFailedCommit,
    /// A failed commit does not take the cursor back.
    ForgetsTheRewind,
    /// A full commit costs a vbucket its visit.
    SkipsAVbucketOfAPass,
    /// Tombstones are not written to the store.
    LosesTombstones,
    /// Of the versions of a key in one commit, the oldest is written.
    CoalescesToTheOldest,
    /// The last record of a batch is not written.
    DropsTheLastRecord,
    /// Events that a crash kept from the store are not added again.
    ForgetsToReconcile,
    /// The persisted state is one seqno ahead of the records.
    WrongSeqnoInState,
    /// The persisted state forgets the highest CAS.
    ForgetsTheHighestCas,
    /// New histories are not made durable when a bucket is opened.
    LosesVbucketStates,
    /// A crash begins no new history.
    KeepsTheHistoryOverACrash,
    /// Expel takes one checkpoint that the cursor has not passed.
    ExpelsOneTooMany,
    /// Tombstones leave the table while documents are still being loaded.
    RemovesTombstonesWhileLoading,
    /// A stored record replaces the version in the table.
    LoadsOverNewer,
    /// Versions that are not durable yet are evicted.
    EvictsDirtyItems,
    /// A fetched version is installed although a newer one came and left meanwhile.
    InstallsStaleFetches,
    /// An operation that asks for a document while it is read is never told.
    ForgetsWhoJoinsARead,
    /// A scan of a hash table does not notice that the table has grown.
    ScansPastAGrowth,
    /// A scan of a hash table takes items that moved to its current groups for visited.
    ScansPastAMigration,
    /// A reader without the lock does not ask whether a client has locked the version.
    SharesLockedVersions,
    /// A reader without the lock takes an expired document for a live one.
    SharesExpiredDocuments,
    /// A reader without the lock takes a miss for certain although documents have left the table,
    /// or are still being loaded.
    SharesUncertainMisses,
    /// A failure stays until there is something to commit.
    WaitsForWorkAfterAFailure,
    /// A reader may go on beyond the end of its history.
    ForgetsTheEndOfAHistory,
    /// A reader is sent back further than it must go.
    RollsBackTooDeep,
    /// A reader that lacks purged tombstones may go on.
    ForgetsPurgedTombstones,
    /// A stream begins in memory although a part has left it.
    ForgetsTheBackfill,
    /// A backfill leaves out its first record.
    SkipsTheFirstOfABackfill,
    /// A stream goes on one seqno too far behind a backfill.
    SkipsBehindABackfill,
    /// What both a backfill and the queue have is sent twice.
    RepeatsWhatABackfillSent,
    /// A backfill announces an end that a commit has passed by the time of its scan.
    TakesTheEndTooEarly,
    /// A stream whose cursor was dropped goes on at the end.
    ForgetsWhatADroppedCursorHeld,
    /// What a stream has not sent of a snapshot that was cut short counts as sent.
    ForgetsTheRestOfASnapshot,
    /// Deletions are not streamed.
    StreamsNoTombstones,
    /// Every collection passes every filter.
    LeaksThroughTheFilter,
    /// A marker ends behind the last change of its snapshot.
    AnnouncesTooMuch,
    /// A snapshot whose last change is left out is not ended.
    ForgetsTheEndOfASnapshot,
    /// A stream ends in the middle of a snapshot.
    EndsInsideASnapshot,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Bug> = const { std::cell::Cell::new(Bug::None) };
}

/// Plants a bug on this thread.
#[cfg(test)]
pub(crate) fn plant(bug: Bug) {
    PLANTED.set(bug);
}

/// True when the engine has this bug on this thread.
#[inline(always)]
pub(crate) fn has(bug: Bug) -> bool {
    #[cfg(test)]
    return PLANTED.get() == bug;
    #[cfg(not(test))]
    {
        let _ = bug;
        false
    }
}
