//! Whole buckets, simulated: clients, background work and a disk that fails, decided by one seed.
//!
//! Owns: the runs. A run opens a bucket over the log store in simulated files and takes random
//! steps (`steps.rs`): operations, flushes, fetches, evictions, warmup, compaction, time, and
//! crashes at any step of the disk, with other steps nested in the middle of commits, reads and
//! loads. An exact model (`model.rs`) checks each answer, and after each crash whether the bucket
//! came back in a state that it may have. It is single-threaded, so a seed
//! repeats a run exactly: `ORIBI_SIMULATION_SEED=0x.. cargo test -p oribi-engine simulation` runs
//! that one, `ORIBI_SIMULATION_SEEDS=N` as many as wanted.

mod dense;
mod flushes;
mod interrupts;
mod model;
mod operation;
mod pending;
mod steps;
mod store_mutants;
mod streams;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_storage::testing::Trouble;

use world::{RunCounts, Setup, World};

/// Seeds of an ordinary run; `cargo xtask soak simulation` runs more.
const SEEDS: u64 = 100;
/// Seeds that found something once.
const FOUND_SEEDS: [u64; 1] = [0x3a39];
/// Steps of one run.
const STEPS: u64 = 400;

/// One run from its seed, and a last look at everything.
fn run(setup: Setup) -> RunCounts {
    let world = World::new(setup);
    for _ in 0..STEPS {
        world.step();
    }
    world.recover_and_settle();
    world.crash();
    world.read_everything();
    let counts = *world.counts.borrow();
    world.end_life();
    counts
}

/// Runs a seed; a failure says which one it was.
fn run_seed(setup: Setup) -> RunCounts {
    catch_unwind(AssertUnwindSafe(|| run(setup))).unwrap_or_else(|panic| {
        eprintln!("simulation failed; repeat it with ORIBI_SIMULATION_SEED={:#x}", setup.seed);
        std::panic::resume_unwind(panic)
    })
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

// Compat (Change streams): Filters
// Invariant: Flush, warmup and purge are steps without a clock.
// Invariant: A read without the lock gives the answer of a read with the lock, or leaves the answer
// to that one.
// Invariant: The hash table keeps an item or its tombstone until its slot has left the queue.
// Invariant: Between changes of the manifest, the history of each served vbucket says what the
// manifest says.
// Invariant: A durable write is visible once the store has it, and a value that was read is never
// taken back.
// Invariant: A snapshot is one moment of the vbucket: at its end the reader has the exact state of
// its collections.
// Invariant: While a vbucket loads, entries are replaced, never removed.
#[test]
fn random_lives_lose_nothing_that_was_promised() {
    if let Some(seed) = number("ORIBI_SIMULATION_SEED") {
        println!("{:?}", run_seed(Setup::of(seed)));
        return;
    }
    let from = number("ORIBI_SIMULATION_FROM").unwrap_or(0x51_0000);
    let seeds = number("ORIBI_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let begun = std::time::Instant::now();
    let mut sum = RunCounts::default();
    for seed in (from..from + seeds).chain(FOUND_SEEDS) {
        sum.add(&run_seed(Setup::of(seed)));
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds, {:.0} a minute: {sum:?}", seeds as f64 / minutes);
    assert!(sum.is_worth_something(), "{sum:?}");
}

/// The same steps again and again, each time with trouble one step of the disk later.
fn run_at_every_step(seed: u64, steps: u64, trouble: Trouble) -> u64 {
    for at in 1.. {
        let setup = Setup { is_calm: true, ..Setup::of(seed) };
        let world = World::new(setup);
        world.is_troubled.set(true);
        world.files.plan(at, trouble);
        let before = world.files.steps();
        for _ in 0..steps {
            world.step();
        }
        let is_behind = world.files.steps() < before + at;
        world.crash();
        world.read_everything();
        world.end_life();
        if is_behind {
            return at;
        }
    }
    unreachable!("the loop has no other end")
}

// Invariant: After a failed write the log store cuts off everything after its last sync and
// continues without a restart.
#[test]
fn a_disk_fault_loses_no_acknowledged_write() {
    for (seed, trouble) in [(7, Trouble::PowerLoss), (8, Trouble::Failure), (9, Trouble::NoSpace)] {
        let steps = run_at_every_step(seed, 300, trouble);
        assert!(steps > 20, "there is I/O: {steps}");
    }
}
