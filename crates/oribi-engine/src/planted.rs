//! Bugs that tests plant to prove that the suite finds them. Outside of tests there are none.
//!
//! Owns: the switch. A simulation runs on one thread and plants at most one bug there; the places that would
//! have it ask for it by name, and in a build without tests the answer is known when compiling. The bugs of the
//! log store have a switch of their own, in that crate. `simulation/canaries.rs` shows that each is found.

/// What an engine under test does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Waiters are answered before the commit.
    AcknowledgesBeforeTheCommit,
    /// A commit that failed counts as done.
    IgnoresAFailedCommit,
    /// After a failed commit the cursor stays where it read to.
    ForgetsTheRewind,
    /// A full commit costs a vbucket its visit.
    SkipsAVbucketOfAPass,
    /// Tombstones are not written to the store.
    LosesTombstones,
    /// The last record of a batch is not written.
    DropsTheLastRecord,
    /// The persisted state says one seqno more than was written.
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
    /// A stored record takes the place of what is in the table.
    LoadsOverNewer,
    /// What is not durable yet is evicted.
    EvictsDirtyItems,
    /// A fetched version is installed although a newer one has come and gone meanwhile.
    InstallsStaleFetches,
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
