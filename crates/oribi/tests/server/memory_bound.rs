//! Several buckets, sizes that change, clients that mean no good: what is resident stays within
//! what is promised.
//!
//! `oribi_testkit::memory_soak` describes a run. An ordinary one lasts some seconds; `cargo xtask
//! soak memory` continues for as long as wanted, against a release binary, with more hostile
//! clients and with Kudu.

use std::time::Duration;

use oribi_testkit::memory_soak::{BucketPlan, MemorySoakOptions, run};
use oribi_testkit::{ServerOptions, seed};

use crate::fixture::ORIBI;

const SEED: u64 = 1;

const DURATION: Duration = Duration::from_secs(15);

// Invariant: The process stays within all quotas, a tenth of them, and 64 MiB.
#[test]
fn hostile_clients_and_buckets_stay_within_the_bound() {
    let directory = tempfile::tempdir().unwrap();
    let options = MemorySoakOptions {
        server: ServerOptions::new(ORIBI, directory.path().join("data")),
        buckets: vec![
            BucketPlan::new("default", 64, "log").eviction("valueOnly"),
            BucketPlan::new("beyond", 32, "log").filled_to(300),
            BucketPlan::new("cache", 32, "memory").filled_to(300),
            BucketPlan::new("memory", 96, "memory").eviction("noEviction"),
        ],
        hostile: 6,
        stalled_readers: None,
        duration: DURATION,
        seed: seed(SEED),
    };
    let report = run(&options, &mut |_| Ok(())).unwrap_or_else(|error| panic!("{error:#}"));
    println!("{report:?}");
    assert!(report.answered > 1000, "next to nothing was done: {report:?}");
    assert!(report.hostile_opened >= 2, "no hostile client got in: {report:?}");
}

// Invariant: Back-pressure slows a client that reads, and never disconnects it for memory.
/// The small form of `cargo xtask soak memory` for readers: a fixed seed, one bucket.
#[test]
fn readers_of_every_kind_are_bounded_and_finish() {
    let directory = tempfile::tempdir().unwrap();
    let options = MemorySoakOptions {
        server: ServerOptions::new(ORIBI, directory.path().join("data")).setting("workers", 2),
        buckets: vec![BucketPlan::new("default", 256, "log").filled_to(10)],
        hostile: 0,
        stalled_readers: Some(6),
        duration: Duration::from_secs(10),
        seed: 42,
    };
    let report = run(&options, &mut |_| Ok(())).unwrap_or_else(|error| panic!("{error:#}"));
    println!("{report:?}");
    assert_eq!(report.readers_finished, 9, "not all kinds of readers finished: {report:?}");
    assert!(report.hostile_opened >= 24, "stalled readers do not get in: {report:?}");
}
