//! The examples, run against a real cluster.

#![allow(dead_code, reason = "the programs have a main function of their own")]

#[path = "../../examples/first_steps.rs"]
mod first_steps;
#[path = "../../examples/read_rows.rs"]
mod read_rows;
#[cfg(feature = "derive")]
#[path = "../../examples/typed_rows.rs"]
mod typed_rows;
#[path = "../../examples/write_rows.rs"]
mod write_rows;

use oribi_testkit::SharedKuduCluster;

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

fn tables() -> Vec<String> {
    let cluster = CLUSTER.get().expect("the test asked before");
    let list = cluster.tool_stdout(&["table", "list", &cluster.master_addresses()]);
    list.expect("the tool lists tables").lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn first_steps_run() {
    let Some(cluster) = CLUSTER.get() else { return };
    first_steps::run(&cluster.master_addresses()).await.expect("it runs");
    assert!(!tables().contains(&"first_steps".to_owned()));
}

#[tokio::test]
async fn write_rows_runs() {
    let Some(cluster) = CLUSTER.get() else { return };
    write_rows::run(&cluster.master_addresses()).await.expect("it runs");
    assert!(!tables().contains(&"write_rows".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_rows_runs() {
    let Some(cluster) = CLUSTER.get() else { return };
    read_rows::run(&cluster.master_addresses()).await.expect("it runs");
    assert!(!tables().contains(&"read_rows".to_owned()));
}

#[cfg(feature = "derive")]
#[tokio::test]
async fn typed_rows_run() {
    let Some(cluster) = CLUSTER.get() else { return };
    typed_rows::run(&cluster.master_addresses()).await.expect("it runs");
    assert!(!tables().contains(&"typed_rows".to_owned()));
}
