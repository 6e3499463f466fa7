//! Sessions against a real Kudu: what they write is read back by Kudu's own C++ tool.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests do")]

mod altered_table;
mod limits;
mod operations;
mod placement;
mod types;

use oribi_kudu::{Client, ClientBuilder, FlushMode, SessionOptions};
use oribi_testkit::{KuduCluster, SharedKuduCluster};

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// A client of the shared cluster, unless there is no Kudu.
async fn connect() -> Option<(&'static KuduCluster, Client)> {
    let cluster = CLUSTER.get()?;
    let client =
        ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap().build().await.unwrap();
    Some((cluster, client))
}

fn options(flush_mode: FlushMode) -> SessionOptions {
    SessionOptions::new().flush_mode(flush_mode)
}

/// The rows of a table as the C++ tool prints them, sorted.
fn scan(cluster: &KuduCluster, table: &str) -> Vec<String> {
    let arguments = ["table", "scan", &cluster.master_addresses(), table, "-show_values=true"];
    let output = cluster.tool_stdout(&arguments).unwrap();
    let mut rows: Vec<String> =
        output.lines().filter(|line| line.starts_with('(')).map(str::to_owned).collect();
    rows.sort();
    rows
}
