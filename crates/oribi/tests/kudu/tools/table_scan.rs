//! `oribi perf table-scan` counts what `kudu perf table_scan` counts.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use oribi_testkit::KuduCluster;

use crate::tools::{CLUSTER, json, report, stderr, stdout, table_of};

/// Runs `oribi perf table-scan` on a table.
fn scan(cluster: &KuduCluster, table: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oribi"))
        .args(["perf", "table-scan", &cluster.master_addresses(), table])
        .args(arguments)
        .output()
        .unwrap()
}

/// The number after `Total count`, in the report of either tool.
fn total_of(report: &str) -> u64 {
    let (_, rest) =
        report.split_once("Total count ").unwrap_or_else(|| panic!("no total in {report}"));
    rest.split_once(" cost ").unwrap().0.parse().unwrap()
}

/// The ids of the tablets in the report of either tool.
fn tablets_of(report: &str) -> BTreeSet<String> {
    let id = |line: &str| {
        line.strip_prefix("T ").and_then(|rest| rest.split(' ').next()).map(str::to_owned)
    };
    report.lines().filter_map(id).collect()
}

// Compat (Apache Kudu): `kudu perf table_scan`
#[test]
fn both_tools_count_the_same_rows() {
    let Some(cluster) = CLUSTER.get() else { return };
    let table = table_of(&report(cluster, &["--keep-auto-table", "--num-rows-per-thread=1500"]));
    let masters = cluster.master_addresses();
    for arguments in [
        &[] as &[&str],
        &["--row_count_only"],
        &["--columns=key,string_val", "--fault_tolerant"],
        &[
            "--num_threads=1",
            "--scan_batch_size=1000",
            "--fill_cache=false",
            "--replica_selection=LEADER",
        ],
        &[r#"--predicates=["AND", [">=", "key", 100], ["<", "int_val", 900]]"#],
        &[r#"--predicates=["AND", ["IN", "key", [5, 6, 1000000]]]"#],
        &[r#"--predicates=["AND", ["NULL", "int_val"]]"#],
    ] {
        let ours = scan(cluster, &table, arguments);
        assert_eq!((stderr(&ours).as_str(), ours.status.code()), ("", Some(0)), "{arguments:?}");
        let theirs = cluster
            .tool_stdout(&[&["perf", "table_scan", &masters, &table], arguments].concat())
            .unwrap();
        assert_eq!(total_of(&stdout(&ours)), total_of(&theirs), "{arguments:?}");
    }
    let columnar = scan(cluster, &table, &["--layout=columnar"]);
    assert_eq!(total_of(&stdout(&columnar)), 3000);
}

#[test]
fn every_tablet_is_reported_and_can_be_chosen() {
    let Some(cluster) = CLUSTER.get() else { return };
    let table = table_of(&report(cluster, &["--keep-auto-table", "--num-rows-per-thread=1000"]));
    let masters = cluster.master_addresses();
    let arguments = ["perf", "table_scan", &masters, &table, "--report_scanner_stats"];
    let theirs = tablets_of(&cluster.tool_stdout(&arguments).unwrap());
    let ours = stdout(&scan(cluster, &table, &["--report-scanner-stats"]));
    assert_eq!(tablets_of(&ours), theirs);
    assert_eq!(theirs.len(), 8);
    assert!(ours.contains("               NextBatch() calls "), "{ours}");

    let summary = json(&scan(cluster, &table, &["--json"]));
    assert_eq!(summary["rows"], 2000);
    let tablets = summary["tablets"].as_array().unwrap();
    assert_eq!(tablets.iter().map(|tablet| tablet["rows"].as_u64().unwrap()).sum::<u64>(), 2000);
    let first = format!("--tablets={}", tablets[0]["tablet"].as_str().unwrap());
    let one = json(&scan(cluster, &table, &["--json", &first]));
    assert_eq!((&one["rows"], one["tablets"].as_array().unwrap().len()), (&tablets[0]["rows"], 1));
}

#[test]
fn scan_errors_are_one_line_and_a_status() {
    let Some(cluster) = CLUSTER.get() else { return };
    let table = table_of(&report(cluster, &["--keep-auto-table", "--num-rows-per-thread=1"]));
    for (table, arguments, words) in [
        ("absent", &[] as &[&str], "\"absent\""),
        (&table, &["--columns=absent"], "\"absent\""),
        (&table, &["--predicates=["], "--predicates is not JSON"),
        (&table, &["--tablets=0123"], "0123"),
    ] {
        let output = scan(cluster, table, arguments);
        let complaint = stderr(&output);
        assert_eq!(
            (stdout(&output).as_str(), output.status.code()),
            ("", Some(1)),
            "{arguments:?}: {complaint}"
        );
        assert!(complaint.contains(words) && complaint.lines().count() == 1, "{complaint}");
    }
}
