//! A server whose bucket is a table of a real Kudu: what is acknowledged as persisted survives
//! whatever happens to either, and the table is what the C++ tool says it is.
//!
//! Without Kudu these tests are left out, and say so.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod away;
mod backup;
mod documents;
mod faults;
mod kills;
mod query;
#[path = "../tools/backup/random.rs"]
mod random;
mod settings;
mod streams;
mod table;
#[path = "../tools/backup/table.rs"]
#[allow(dead_code, reason = "the tests of backups use the rest")]
mod versions;

use oribi_testkit::{KuduCluster, ServerOptions, ServerProcess, SharedKuduCluster};
use tempfile::TempDir;

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// The binary under test.
const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Log lines at level WARN that are allowed while Kudu comes and goes.
const ALLOWED_WARNINGS: [&str; 3] = ["DEVELOPMENT MODE", "waiting for Kudu", "Kudu answers again"];

/// How to start a server whose bucket is in this database of the cluster.
fn options(cluster: &KuduCluster, database: &str, directory: &TempDir) -> ServerOptions {
    let url = format!("kudu://{}/{database}?tablets=3&replicas=1", cluster.master_addresses());
    ServerOptions::new(ORIBI, directory.path().join("data")).setting("storage", url)
}

fn start(cluster: &KuduCluster, database: &str, directory: &TempDir) -> ServerProcess {
    ServerProcess::start(options(cluster, database, directory)).unwrap()
}
