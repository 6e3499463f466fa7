//! Mutants of the log store, each of which the simulation has to find.
//!
//! A mutant is found when a run fails with it that a sound store passes. The runs are those of the
//! ordinary test. Mutants of the engine itself are in `mutants.toml`, which `cargo xtask mutants`
//! runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_storage::testing::Bug as StoreBug;

use super::run;
use super::world::Setup;

/// Runs in which a mutant has to show; most show in the first few.
const SEEDS: u64 = 300;

/// The first seed in which a mutant shows.
fn found_by(store_bug: StoreBug) -> Option<u64> {
    (0x51_0000..0x51_0000 + SEEDS).find(|seed| {
        let setup = Setup { store_bug, ..Setup::of(*seed) };
        catch_unwind(AssertUnwindSafe(|| run(setup))).is_err()
    })
}

#[test]
fn the_simulation_finds_mutants_of_the_store() {
    for bug in [
        StoreBug::SkipsTheSync,
        StoreBug::WritesAfterAFailure,
        StoreBug::TrustsTheTail,
        StoreBug::TrustsAFailedSync,
        StoreBug::KeepsUnfinishedSegments,
        StoreBug::MovesWithoutLooking,
        StoreBug::RemovesBeforeTheSync,
    ] {
        let found = found_by(bug);
        eprintln!("{bug:?} shows with seed {found:x?}");
        assert!(found.is_some(), "the simulation does not notice a store that {bug:?}");
    }
}
