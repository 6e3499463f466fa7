//! Trouble at every step and at random ones, and the mutants that this has to find.

use super::super::planted::Bug;
use super::super::sim_files::Trouble;
use super::driver::{Driver, options, passes, run_at_every_step, run_random};

/// Runs of random operations; `ORIBI_LOG_STORE_SEEDS` makes it a soak.
const SEEDS: u64 = 40;

/// Runs that a mutant has to show in; most show in the first.
const CANARY_SEEDS: u64 = 300;

// Invariant: In a store of several logs a vbucket stays in one log, and each log fails and recovers
// by itself.
#[test]
fn random_operations_with_trouble_lose_nothing() {
    let asked = std::env::var("ORIBI_LOG_STORE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    // Three vbuckets: two logs with one or two of them, or one each.
    for logs in [1, 2, 3] {
        let seeds = 0..asked.unwrap_or(SEEDS);
        let run = |seed| run_random(0x2000 + seed, 80, logs, Bug::None);
        let recoveries: u64 = seeds.map(run).sum();
        assert!(recoveries > 0, "a store that failed goes on");
    }
}

#[test]
fn a_loss_of_power_at_every_step_loses_nothing() {
    // An even seed packs the index.
    for seed in [6, 7] {
        for logs in [1, 2] {
            let steps = run_at_every_step(seed, 30, Trouble::PowerLoss, logs);
            assert!(steps > 50, "the operations do I/O: {steps}");
        }
    }
}

// Invariant: After a failed write the log store cuts off everything after its last sync and
// continues without a restart.
#[test]
fn a_failure_at_every_step_loses_nothing() {
    run_at_every_step(8, 25, Trouble::Failure, 1);
    run_at_every_step(8, 20, Trouble::Failure, 2);
}

#[test]
fn a_full_disk_at_every_step_loses_nothing() {
    run_at_every_step(9, 25, Trouble::NoSpace, 1);
    run_at_every_step(9, 20, Trouble::NoSpace, 2);
}

/// Without trouble: segments come and go, and purged tombstones do not pile up.
#[test]
fn compaction_keeps_the_log_small() {
    let mut driver = Driver::new(5, options(), Bug::None);
    driver.open();
    let mut most = 0;
    for _ in 0..600 {
        driver.step();
        driver.compact();
        most = most.max(driver.sizes().log_bytes);
    }
    // 48 keys of at most 1.3 KiB and what may be garbage; 600 operations write far more.
    assert!(most < 48 * 1300 * 3, "{most} bytes");
    assert!(driver.sizes().purged_tombstones <= 12, "{:?}", driver.sizes());
}

#[test]
fn the_suite_finds_planted_bugs_in_several_logs() {
    for bug in [Bug::SkipsTheSync, Bug::TrustsAFailedSync, Bug::KeepsUnfinishedSegments] {
        let fails = |seed: &u64| !passes(|| run_random(0x2000 + seed, 80, 2, bug));
        let found = (0..CANARY_SEEDS).find(fails);
        assert!(found.is_some(), "the suite does not notice a store of two logs that {bug:?}");
    }
}

// Invariant: The index has one entry for each key, also where packed entries collide.
// Invariant: The purge seqno is durable before a tombstone is removed, and no commit lowers it.
/// By runs in which a store without a bug passes.
#[test]
fn the_suite_finds_every_planted_bug() {
    for bug in [
        Bug::SkipsTheSync,
        Bug::ShowsBeforeTheSync,
        Bug::ForgetsTombstones,
        Bug::RemovesBeforeTheSync,
        Bug::IgnoresChecksums,
        Bug::DropsTombstonesEarly,
        Bug::WritesAfterAFailure,
        Bug::TrustsAFailedSync,
        Bug::KeepsUnfinishedSegments,
        Bug::ShowsCopiesBeforeTheSync,
        Bug::TrustsTheTail,
        Bug::MovesWithoutLooking,
        Bug::ForgetsWhereCopiesBelong,
        Bug::ForgetsTheTail,
        Bug::KeepsThePadding,
        Bug::TakesPurgesBack,
        Bug::PurgesBeforeItSaysSo,
        Bug::TrustsAPrefix,
    ] {
        let found =
            (0..CANARY_SEEDS).find(|seed| !passes(|| run_random(0x2000 + seed, 80, 1, bug)));
        eprintln!("{bug:?} shows with seed {found:?}");
        assert!(found.is_some(), "the suite does not notice a store that {bug:?}");
    }
}
