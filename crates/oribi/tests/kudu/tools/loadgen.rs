//! What a load leaves behind, says, and does when it goes wrong.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

use oribi_testkit::{KuduCluster, KuduOptions, KuduServer, PATIENCE, poll_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::tools::{CLUSTER, exists, json, loadgen, report, rows, run, stderr, stdout, table_of};

#[test]
fn a_load_reports_counts_and_drops_its_table() {
    let Some(cluster) = CLUSTER.get() else { return };
    let arguments = ["--num_rows_per_thread=1000", "--run_scan", "--run_cleanup"];
    let text = report(cluster, &arguments);
    let table = table_of(&text);
    assert!(table.starts_with("default.loadgen_auto_") && table.len() == 53, "{table}");
    let parts = [
        format!("Using auto-created table '{table}'\n\nINSERT report\n    rows total: 2000\n"),
        "\nScanner report\n  expected rows: 2000\n  actual rows  : 2000\n\nDELETE report\n"
            .to_owned(),
        format!("Dropping auto-created table '{table}'\n"),
    ];
    let mut rest = text.as_str();
    for part in &parts {
        rest = rest.split_once(part.as_str()).unwrap_or_else(|| panic!("{part} not in {text}")).1;
    }
    assert_eq!(rest, "", "nothing comes after the last line");
    assert_eq!(text.matches("  time per row: ").count(), 2, "{text}");
    assert!(!exists(cluster, &table));
}

// Compat (Apache Kudu): `kudu perf loadgen`
#[test]
fn every_way_to_send_writes_every_row() {
    let Some(cluster) = CLUSTER.get() else { return };
    for way in [
        &["--flush-per-n-rows=100"] as &[&str],
        &["--use-client-per-thread=false", "--num-threads=4"],
        &["--buffer-size-bytes=4096", "--num-threads=1"],
        &["--buffer-flush-watermark-pct=1", "--table-num-hash-partitions=1"],
        &["--num-rows-per-thread=0"],
    ] {
        let output = run(cluster, &[way, &["--run-scan", "--json"]].concat());
        assert!(output.status.success(), "{way:?}: {output:?}");
        let summary = json(&output);
        let threads = summary["options"]["num_threads"].as_u64().unwrap();
        let each = summary["options"]["num_rows_per_thread"].as_u64().unwrap();
        assert_eq!(summary["write"]["rows"], threads * each, "{way:?}");
        assert_eq!(summary["scan"]["actual_rows"], threads * each, "{way:?}");
        assert_eq!((&summary["dropped"], &summary["error"]), (&true.into(), &().into()), "{way:?}");
        let writes = summary["write"]["writes"].as_u64().unwrap();
        assert_eq!(writes > 0, threads * each > 0, "{way:?}: {summary}");
    }
}

#[test]
fn zipfian_keys_are_written_again_and_again() {
    let Some(cluster) = CLUSTER.get() else { return };
    let arguments =
        ["--use-upsert", "--zipf-keys=50", "--seq-start=1000", "--num-rows-per-thread=4000"];
    let output = run(cluster, &[&arguments[..], &["--keep-auto-table", "--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let summary = json(&output);
    assert_eq!((&summary["write"]["rows"], &summary["error"]), (&8000.into(), &().into()));
    assert!(!summary["write"]["timeline"].as_array().unwrap().is_empty(), "{summary}");
    let found = rows(cluster, summary["table"].as_str().unwrap());
    // Each of them is hit 35 times even if it is the last.
    assert_eq!(found.len(), 50, "{found:?}");
    assert!(found[0].starts_with("(int64 key=1000,"), "{}", found[0]);
}

#[test]
fn existing_rows_are_errors_worded_as_the_other_tool() {
    let Some(cluster) = CLUSTER.get() else { return };
    let kept = table_of(&report(cluster, &["--keep-auto-table", "--num-rows-per-thread=300"]));
    assert!(exists(cluster, &kept));
    let existing = format!("--table-name={kept}");
    let output = run(
        cluster,
        &[&existing, "--num-rows-per-thread=300", "--show-first-n-errors=2", "--run-cleanup"],
    );
    assert_eq!(output.status.code(), Some(1));
    let words = "  Already present: key already present\n".repeat(2);
    let complaint = "oribi: Runtime error: Encountered 600 write operation errors\n";
    assert_eq!(
        stderr(&output),
        format!(
            "Error from generator    0:\n{words}\nError from generator    1:\n{words}\n{complaint}"
        )
    );
    let text = stdout(&output);
    assert!(text.contains("    rows total: 600\n"), "{text}");
    assert!(!text.contains("time per row") && !text.contains("DELETE report"), "{text}");
    assert_eq!(rows(cluster, &kept).len(), 600, "an existing table is left as it is");
    cluster.tool_stdout(&["table", "delete", &cluster.master_addresses(), &kept]).unwrap();
}

#[test]
fn an_error_does_not_leave_the_table_behind() {
    let Some(cluster) = CLUSTER.get() else { return };
    // Larger than a cell may be.
    let text = format!("--string-fixed={}", "x".repeat(70_000));
    let output = run(cluster, &[&text]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("oribi: Runtime error: "), "{}", stderr(&output));
    let table = table_of(&stdout(&output));
    assert!(stdout(&output).ends_with(&format!("Dropping auto-created table '{table}'\n")));
    assert!(!exists(cluster, &table));

    let absent = run(cluster, &["--table-name=absent"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).contains("\"absent\""), "{}", stderr(&absent));
}

/// Starts a load without end and waits until it has named its table.
fn start(
    cluster: &KuduCluster,
    arguments: &[&str],
) -> (Child, String, BufReader<std::process::ChildStdout>) {
    let arguments = [arguments, &["--num-rows-per-thread=-1", "--num-threads=1"]].concat();
    let mut child = loadgen(cluster, &arguments).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, table_of(&line), output)
}

/// Waits until the table has rows.
fn wait_for_rows(cluster: &KuduCluster, table: &str) {
    let masters = cluster.master_addresses();
    let has_rows = || {
        let count = ["perf", "table_scan", &masters, table, "-row_count_only"];
        let text = cluster.tool_stdout(&count).unwrap_or_default();
        (text.contains("Total count ") && !text.contains("Total count 0 ")).then_some(())
    };
    assert!(poll_until(PATIENCE, has_rows).is_some(), "rows arrive");
}

/// Sends a signal and returns the exit status.
fn end(child: &mut Child, signal: Signal) -> Option<i32> {
    kill_process(Pid::from_child(child), signal).unwrap();
    poll_until(PATIENCE, || child.try_wait().unwrap()).expect("it ends").code()
}

#[test]
fn an_interrupted_load_reports_and_drops_its_table() {
    let Some(cluster) = CLUSTER.get() else { return };
    for (signal, arguments) in [(Signal::INT, &[] as &[&str]), (Signal::TERM, &["--use-upsert"])] {
        let (mut child, table, mut output) = start(cluster, arguments);
        wait_for_rows(cluster, &table);
        assert_eq!(end(&mut child, signal), Some(130));
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(text.contains(" report\n    rows total: "), "{text}");
        assert!(text.ends_with(&format!("Dropping auto-created table '{table}'\n")), "{text}");
        assert!(!exists(cluster, &table));
    }
}

#[test]
fn a_silent_server_ends_an_interrupted_load() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::default()) else { return };
    let (mut child, table, _output) = start(&cluster, &[]);
    wait_for_rows(&cluster, &table);
    cluster.pause(KuduServer::TabletServer(0)).unwrap();
    assert_eq!(end(&mut child, Signal::INT), Some(130));
    assert!(!exists(&cluster, &table));
}

#[test]
fn a_leaving_reader_drops_its_table() {
    let Some(cluster) = CLUSTER.get() else { return };
    let (mut child, table, output) = start(cluster, &["--run-scan"]);
    drop(output);
    assert_eq!(end(&mut child, Signal::INT), Some(130));
    assert!(!exists(cluster, &table));
}

#[test]
fn a_cluster_that_is_not_there_is_said() {
    let Some(cluster) = CLUSTER.get() else { return };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oribi"));
    // No test listens on it.
    let output =
        command.args(["perf", "loadgen", "127.0.0.1:1", "--timeout-ms=300"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("oribi: cannot reach the cluster: "),
        "{}",
        stderr(&output)
    );
    assert!(cluster.wait_healthy().is_ok());
}
