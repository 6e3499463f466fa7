//! SIGKILL of the server under load, checked by the oracle, and by the C++ tool at the end.

use std::collections::BTreeMap;

use anyhow::ensure;
use oribi_testkit::kill_cycles::{KillCycles, KillOptions};
use oribi_testkit::seed;

use crate::bucket::{CLUSTER, options, table};

/// Lives of one run; `ORIBI_KILL_CYCLES` makes it more.
const CYCLES: u64 = 4;
const SEED: u64 = 1;

fn run(database: &str, configure: impl FnOnce(KillOptions) -> KillOptions, quota_mib: Option<u64>) {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = options(cluster, database, &directory);
    if let Some(quota) = quota_mib {
        server = server.setting("memory-quota-mib", quota).setting("eviction", "full");
    }
    let kills = KillOptions {
        store_is_shared: true,
        acknowledgements_max: 600,
        clean_stop_one_in: 4,
        ..KillOptions::new(server, seed(SEED))
    };
    let mut lives = KillCycles::start(configure(kills)).unwrap();
    let asked = std::env::var("ORIBI_KILL_CYCLES").ok();
    for _ in 0..asked.and_then(|cycles| cycles.parse().ok()).unwrap_or(CYCLES) {
        lives.cycle().unwrap_or_else(|error| panic!("{error:#}"));
    }
    let report = lives.finish_with(|log| {
        let expected: BTreeMap<(u16, String), usize> = log
            .documents()
            .map(|(vbid, name, value)| {
                ((vbid.0, String::from_utf8_lossy(name).into_owned()), value.len())
            })
            .collect();
        let found: BTreeMap<(u16, String), usize> =
            table::documents(cluster, &format!("{database}.default"))
                .into_iter()
                .map(|(place, stored)| (place, stored.body_bytes))
                .collect();
        ensure!(found == expected, "the table has other documents than the oracle");
        ensure!(!found.is_empty(), "nothing was compared");
        Ok(())
    });
    let report = report.unwrap_or_else(|error| panic!("{error:#}"));
    println!("{report:?}");
    assert!(report.tally.persisted > 0 && report.tally.read > 0, "nothing was checked: {report:?}");
    let streams = &report.streams;
    assert!(streams.changes > 0 && streams.compared > 0, "no stream was checked: {report:?}");
}

// Compat (Buckets on Kudu): history after an orderly stop
#[test]
fn no_acknowledged_write_is_lost() {
    run("kills", |kills| kills, None);
}

#[test]
fn full_eviction_loses_no_acknowledged_write() {
    let larger = |kills| KillOptions { documents_per_writer: 800, value_bytes_max: 8000, ..kills };
    run("evicted", larger, Some(8));
}
