//! Several nodes over a real Kudu, agreeing through a real etcd: killed, paused, cut off and
//! stopped in order.
//!
//! The oracle is a number in each document, which a writer raises: what was acknowledged as
//! persisted is the least that may be read, what was sent the most. Nodes on their own hosts are
//! checked by the oracle of the crash tests, too. Without Kudu or etcd these tests are left out,
//! and say so.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod chaos;
mod faults;
mod isolation;
mod nodes;
mod notifications;
mod sharing;
mod streams;
mod writer;

use oribi_testkit::{ServerOptions, SharedKuduCluster};

static KUDU: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// The binary under test.
const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Seconds that a lease lasts in these tests: little, and enough for a machine that is busy.
const LEASE_S: u64 = 4;

fn server(directory: &std::path::Path) -> ServerOptions {
    ServerOptions::new(ORIBI, directory.join("data"))
}
