//! The Kudu cluster of the testkit does what tests of the client rely on: servers die, come back
//! where they were and can be paused, and nothing is left behind, not even by a test run that is
//! killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use oribi_testkit::{
    KuduCluster, KuduOptions, KuduServer, PATIENCE, kudu_is_available, poll_until,
};

const TABLET_SERVER: KuduServer = KuduServer::TabletServer(0);

fn process_exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// The state of a process as one letter, `T` for a stopped one.
fn process_state(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().next().map(str::to_owned)
}

#[test]
fn servers_are_killed_restarted_and_paused() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::default()) else { return };
    let masters = cluster.master_addresses();
    let directory = cluster.directory().to_owned();
    let load = |rows: &str| {
        let rows = format!("--num_rows_per_thread={rows}");
        cluster.tool(&["perf", "loadgen", &masters, "--num_threads=1", &rows]).expect("it runs")
    };

    let output = load("100");
    assert!(output.success && output.stdout.contains("rows total: 100"), "{output:?}");
    assert!(!cluster.tool(&["table", "describe", &masters, "absent"]).expect("it runs").success);

    let address = cluster.address(TABLET_SERVER);
    let first = cluster.pid(TABLET_SERVER);
    cluster.kill(TABLET_SERVER).expect("it can be killed");
    assert!(!process_exists(&first.to_string()));
    cluster.restart(TABLET_SERVER).expect("it starts again");
    cluster.wait_healthy().expect("the cluster is healthy again");
    assert_eq!(cluster.address(TABLET_SERVER), address);
    assert!(cluster.restart(TABLET_SERVER).is_err(), "it runs already");

    cluster.pause(TABLET_SERVER).expect("it can be paused");
    let pid = cluster.pid(TABLET_SERVER);
    let becomes = |wanted: bool| {
        let is_stopped = || process_state(pid).map(|state| state == "T");
        poll_until(PATIENCE, || is_stopped().filter(|stopped| *stopped == wanted)).is_some()
    };
    assert!(becomes(true), "it stops");
    cluster.resume(TABLET_SERVER).expect("it can be resumed");
    assert!(becomes(false), "it runs again");
    assert!(load("50").success);

    // Dropping also ends a server that does not run.
    cluster.pause(TABLET_SERVER).expect("it can be paused");
    drop(cluster);
    assert!(!process_exists(&pid.to_string()));
    assert!(!directory.exists());
}

#[test]
fn a_killed_test_run_leaves_nothing_behind() {
    if !kudu_is_available() {
        return;
    }
    let mut run = Command::new(env!("CARGO_BIN_EXE_kudu_cluster"))
        .args(["3", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is built with the tests");
    let mut line = String::new();
    BufReader::new(run.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
    let parts = line.split_whitespace().collect::<Vec<_>>();
    let [masters, directory, pids] = parts[..] else { panic!("not three words: {line}") };
    assert_eq!(masters.split(',').count(), 3);
    assert!(Path::new(directory).exists());
    assert!(pids.split(',').all(process_exists), "{line}");

    run.kill().expect("it can be killed");
    run.wait().expect("it can be waited for");
    let gone = || !pids.split(',').any(process_exists) && !Path::new(directory).exists();
    let patience = Duration::from_secs(20);
    assert!(poll_until(patience, || gone().then_some(())).is_some(), "still there: {line}");
}
