//! SIGKILL under load, again and again on one directory, checked by the oracle of the test kit.
//!
//! `oribi_testkit::kill_cycles` describes a cycle. The few cycles of an ordinary run become as many
//! as the variable `ORIBI_KILL_CYCLES` says; `cargo xtask soak kill` runs thousands against a
//! release binary. The variable `ORIBI_TEST_SEED` chooses another seed.

use oribi_testkit::kill_cycles::{KillCycles, KillOptions};
use oribi_testkit::{ServerOptions, seed};

use crate::fixture::ORIBI;

const SEED: u64 = 1;

/// Cycles of an ordinary run, for each way to keep documents.
const CYCLES: u64 = 10;

fn cycles() -> u64 {
    let asked = std::env::var("ORIBI_KILL_CYCLES").ok();
    asked.and_then(|cycles| cycles.parse().ok()).unwrap_or(CYCLES)
}

/// Runs `count` cycles; a broken promise fails the test with everything that is known of it.
#[track_caller]
fn run(
    count: u64,
    server: impl FnOnce(ServerOptions) -> ServerOptions,
    configure: impl FnOnce(KillOptions) -> KillOptions,
) {
    let directory = tempfile::tempdir().unwrap();
    let server = server(ServerOptions::new(ORIBI, directory.path().join("data")));
    let mut lives = KillCycles::start(configure(KillOptions::new(server, seed(SEED)))).unwrap();
    for _ in 0..count {
        if let Err(error) = lives.cycle() {
            panic!("{error:#}");
        }
    }
    let report = lives.finish().unwrap_or_else(|error| panic!("{error:#}"));
    println!("{report:?}");
    assert_eq!(report.cycles, count);
    let tally = report.tally;
    assert!(tally.persisted > 0 && tally.read > 0, "nothing was checked: {tally:?}");
    let streams = report.streams;
    assert!(streams.changes > 0 && streams.compared > 0, "no stream was checked: {streams:?}");
}

#[test]
fn no_acknowledged_write_is_lost_by_the_log_store() {
    run(cycles(), |server| server.setting("storage", "log"), |options| options);
}

/// About three times the quota.
fn larger_than_memory(options: KillOptions) -> KillOptions {
    KillOptions { documents_per_writer: 1500, value_bytes_max: 4000, ..options }
}

#[test]
fn value_eviction_loses_no_acknowledged_write() {
    let server = |server: ServerOptions| {
        let server = server.setting("memory-quota-mib", 8).setting("eviction", "value");
        server.setting("logs", 3)
    };
    run(cycles(), server, larger_than_memory);
}

#[test]
fn full_eviction_loses_no_acknowledged_write() {
    let server = |server: ServerOptions| {
        let server = server.setting("storage", "log").setting("eviction", "full");
        server.setting("memory-quota-mib", 8)
    };
    run(cycles(), server, larger_than_memory);
}

#[test]
fn orderly_stops_under_load_lose_nothing() {
    let server = |server: ServerOptions| server.setting("logs", 2);
    run(4, server, |options| KillOptions { clean_stop_one_in: 1, ..options });
}
