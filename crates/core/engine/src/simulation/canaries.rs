//! Planted bugs, each of which the simulation has to find.
//!
//! A bug counts as found when a run fails with it that a sound engine passes. The runs are those of
//! the ordinary test, so the canary shows that the test notices the bug.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_storage::testing::Bug as StoreBug;

use super::run;
use super::world::Setup;
use crate::planted::Bug;

/// Runs in which a bug has to show; most show in the first few.
const SEEDS: u64 = 300;

/// The first seed in which a bug shows.
fn found_by(bug: Bug, store_bug: StoreBug) -> Option<u64> {
    (0x51_0000..0x51_0000 + SEEDS).find(|seed| {
        let setup = Setup { bug, store_bug, ..Setup::of(*seed) };
        catch_unwind(AssertUnwindSafe(|| run(setup))).is_err()
    })
}

// Invariant: A snapshot is one moment of the vbucket: at its end the reader has the exact state of
// its collections.
// Invariant: While a vbucket loads, entries are replaced, never removed.
#[test]
fn the_simulation_finds_every_planted_bug_of_the_engine() {
    for bug in [
        Bug::AcknowledgesBeforeTheCommit,
        Bug::IgnoresAFailedCommit,
        Bug::ForgetsTheRewind,
        Bug::SkipsAVbucketOfAPass,
        Bug::LosesTombstones,
        Bug::CoalescesToTheOldest,
        Bug::DropsTheLastRecord,
        Bug::ForgetsToReconcile,
        Bug::WrongSeqnoInState,
        Bug::ForgetsTheHighestCas,
        Bug::LosesVbucketStates,
        Bug::KeepsTheHistoryOverACrash,
        Bug::ExpelsOneTooMany,
        Bug::RemovesTombstonesWhileLoading,
        Bug::LoadsOverNewer,
        Bug::EvictsDirtyItems,
        Bug::InstallsStaleFetches,
        Bug::ForgetsWhoJoinsARead,
        Bug::SharesLockedVersions,
        Bug::SharesExpiredDocuments,
        Bug::SharesUncertainMisses,
        Bug::WaitsForWorkAfterAFailure,
        Bug::ForgetsTheEndOfAHistory,
        Bug::RollsBackTooDeep,
        Bug::ForgetsPurgedTombstones,
        Bug::ForgetsTheBackfill,
        Bug::SkipsTheFirstOfABackfill,
        Bug::SkipsBehindABackfill,
        Bug::RepeatsWhatABackfillSent,
        Bug::TakesTheEndTooEarly,
        Bug::ForgetsWhatADroppedCursorHeld,
        Bug::ForgetsTheRestOfASnapshot,
        Bug::StreamsNoTombstones,
        Bug::LeaksThroughTheFilter,
        Bug::AnnouncesTooMuch,
        Bug::ForgetsTheEndOfASnapshot,
        Bug::EndsInsideASnapshot,
    ] {
        let found = found_by(bug, StoreBug::None);
        eprintln!("{bug:?} shows with seed {found:x?}");
        assert!(found.is_some(), "the simulation does not notice an engine that {bug:?}");
    }
}

#[test]
fn the_simulation_finds_planted_bugs_of_the_store() {
    for bug in [
        StoreBug::SkipsTheSync,
        StoreBug::WritesAfterAFailure,
        StoreBug::TrustsTheTail,
        StoreBug::TrustsAFailedSync,
        StoreBug::KeepsUnfinishedSegments,
        StoreBug::MovesWithoutLooking,
        StoreBug::RemovesBeforeTheSync,
    ] {
        let found = found_by(Bug::None, bug);
        eprintln!("{bug:?} shows with seed {found:x?}");
        assert!(found.is_some(), "the simulation does not notice a store that {bug:?}");
    }
}
