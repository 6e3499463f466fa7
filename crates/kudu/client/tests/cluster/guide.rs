//! The examples and the bench of lookups, run against a real cluster.

#![allow(dead_code, reason = "the programs have a main function of their own")]

#[path = "../../examples/first_steps.rs"]
mod first_steps;
#[path = "../../benches/lookups/mod.rs"]
mod lookups;
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

#[test]
fn the_bench_of_lookups_runs() {
    let Some(cluster) = CLUSTER.get() else { return };
    let masters = cluster.master_addresses();
    let load = ["perf", "loadgen", &masters, "--keep_auto_table", "--num_rows_per_thread=300"];
    let report = cluster.tool_stdout(&load).expect("the tool writes rows");
    let table = report.split('\'').nth(1).expect("the report names the table").to_owned();
    let run = |keys: &str| {
        let arguments =
            ["--masters", &masters, "--table", &table, "--keys", keys, "--lookups", "500"];
        lookups::run(arguments.into_iter().map(str::to_owned))
    };
    let found = run("600").expect("all keys are there");
    assert!(found.starts_with(r#"{"lookups": 500, "seconds": "#), "{found}");
    assert!(run("1200").is_err(), "half of the keys are missing");
    assert!(lookups::run(["--tabel".to_owned(), "x".to_owned()].into_iter()).is_err());
}
