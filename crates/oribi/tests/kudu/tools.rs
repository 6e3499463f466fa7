//! `oribi perf` against a real Kudu, with the C++ tool as the second opinion.
//!
//! All tests share one cluster and use their own tables. Without Kudu they are left out, and say
//! so.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod data;
mod loadgen;
mod query;
mod table_scan;

use std::process::{Command, Output, Stdio};

use oribi_testkit::{KuduCluster, SharedKuduCluster};
use serde_json::Value;

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// `oribi perf loadgen` on the cluster, to be run.
fn loadgen(cluster: &KuduCluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oribi"));
    command
        .args(["perf", "loadgen", &cluster.master_addresses()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to the end.
fn run(cluster: &KuduCluster, arguments: &[&str]) -> Output {
    loadgen(cluster, arguments).output().unwrap()
}

/// Runs it; it must have succeeded without a complaint.
fn report(cluster: &KuduCluster, arguments: &[&str]) -> String {
    let output = run(cluster, arguments);
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)), "{output:?}");
    stdout(&output)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Name of the created table, from the first line of a report of either tool.
fn table_of(report: &str) -> String {
    let (_, rest) = report.split_once("Using auto-created table '").unwrap();
    rest.split_once('\'').unwrap().0.to_owned()
}

/// True when the tool knows a table of this name.
fn exists(cluster: &KuduCluster, table: &str) -> bool {
    let list = cluster.tool_stdout(&["table", "list", &cluster.master_addresses()]).unwrap();
    list.lines().any(|line| line == table)
}

/// All rows of a table as the tool prints them, in order.
fn rows(cluster: &KuduCluster, table: &str) -> Vec<String> {
    let masters = cluster.master_addresses();
    let text = cluster.tool_stdout(&["table", "scan", &masters, table]).unwrap();
    let mut rows =
        text.lines().filter(|line| line.starts_with('(')).map(str::to_owned).collect::<Vec<_>>();
    rows.sort_unstable();
    rows
}
