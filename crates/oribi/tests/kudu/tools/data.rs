//! Rows are those that `kudu perf loadgen` writes, value for value and in any table.

use oribi_testkit::KuduCluster;

use crate::tools::{CLUSTER, report, rows, table_of};

/// Both tools' rows for the same arguments, each in its own table that they created.
fn both(cluster: &KuduCluster, arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let masters = cluster.master_addresses();
    let arguments = [arguments, &["--keep_auto_table"]].concat();
    let ours = table_of(&report(cluster, &arguments));
    let theirs = [&["perf", "loadgen", &masters], arguments.as_slice()].concat();
    let theirs = table_of(&cluster.tool_stdout(&theirs).unwrap());
    let both = (rows(cluster, &ours), rows(cluster, &theirs));
    for table in [ours, theirs] {
        cluster.tool_stdout(&["table", "delete", &masters, &table]).unwrap();
    }
    both
}

// Compat (Apache Kudu): `kudu perf loadgen`
#[test]
fn sequential_rows_are_the_other_tools() {
    let Some(cluster) = CLUSTER.get() else { return };
    let arguments = ["--num_threads=3", "--num_rows_per_thread=400", "--seq_start=77"];
    let (ours, theirs) = both(cluster, &arguments);
    assert_same(&ours, &theirs, 1200);
    let texts = ["--num_rows_per_thread=20", "--string_len=3", "--table_num_range_partitions=4"];
    let (ours, theirs) = both(cluster, &texts);
    assert_same(&ours, &theirs, 40);
}

#[test]
fn random_rows_are_the_other_tools() {
    let Some(cluster) = CLUSTER.get() else { return };
    let keys = ["--use_random_pk", "--seq_start=5", "--num_rows_per_thread=100", "--use_upsert"];
    let (ours, theirs) = both(cluster, &keys);
    assert_same(&ours, &theirs, 200);
    let others = ["--use_random_non_pk", "--string_fixed=text", "--num_rows_per_thread=100"];
    let (ours, theirs) = both(cluster, &others);
    assert_same(&ours, &theirs, 200);
}

/// Compares rows one by one, so that a failure shows two of them and not all.
#[track_caller]
fn assert_same(ours: &[String], theirs: &[String], count: usize) {
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!((ours.len(), theirs.len()), (count, count));
}

/// Columns of every type, as the tool takes them.
fn all_types(table: &str) -> String {
    let column = |name: &str, data_type: &str| {
        format!(
            r#"{{"column_name": "{name}", "column_type": "{data_type}", "is_nullable": false}}"#
        )
    };
    let decimal = |name: &str, precision: u8| {
        format!(
            r#"{{"column_name": "{name}", "column_type": "DECIMAL", "is_nullable": false,
                "type_attributes": {{"precision": {precision}, "scale": 2}}}}"#
        )
    };
    let columns = [
        column("k1", "INT32"),
        column("k2", "STRING"),
        column("i8", "INT8"),
        column("i16", "INT16"),
        column("i64", "INT64"),
        column("b", "BOOL"),
        column("f", "FLOAT"),
        column("d", "DOUBLE"),
        column("t", "UNIXTIME_MICROS"),
        column("day", "DATE"),
        column("bin", "BINARY"),
        r#"{"column_name": "v", "column_type": "VARCHAR", "is_nullable": true,
            "type_attributes": {"length": 10}}"#
            .to_owned(),
        decimal("d32", 9),
        decimal("d64", 18),
        decimal("d128", 38),
    ];
    format!(
        r#"{{"table_name": "{table}", "num_replicas": 1,
            "schema": {{"columns": [{}], "key_column_names": ["k1", "k2"]}},
            "partition": {{"hash_partitions": [{{"columns": ["k2"], "num_buckets": 3}}]}}}}"#,
        columns.join(", ")
    )
}

#[test]
fn columns_of_every_type_match_the_other_tool() {
    let Some(cluster) = CLUSTER.get() else { return };
    let masters = cluster.master_addresses();
    let create = |table: &str| {
        cluster.tool_stdout(&["table", "create", &masters, &all_types(table)]).unwrap();
    };
    let arguments = ["--num_rows_per_thread=150", "--use_random_non_pk", "--seq_start=1000"];
    create("types_ours");
    create("types_theirs");
    let text =
        report(cluster, &[&arguments[..], &["--table_name=types_ours", "--run_scan"]].concat());
    assert!(
        text.starts_with("Using table 'types_ours'\n\nINSERT report\n    rows total: 300\n"),
        "{text}"
    );
    assert!(
        text.ends_with("\nScanner report\n  expected rows: 300\n  actual rows  : 300\n"),
        "{text}"
    );
    let theirs = ["perf", "loadgen", &masters, "--table_name=types_theirs"];
    cluster.tool_stdout(&[&theirs[..], &arguments].concat()).unwrap();
    let (ours, theirs) = (rows(cluster, "types_ours"), rows(cluster, "types_theirs"));
    assert_same(&ours, &theirs, 300);

    // Each tool deletes the other's rows: cleaning up needs the keys only.
    let clean = ["--use_upsert", "--run_cleanup", "--table_name=types_theirs"];
    let text = report(cluster, &[&arguments[..], &clean].concat());
    assert!(text.contains("\nUPSERT report\n") && text.contains("\nDELETE report\n"), "{text}");
    assert_eq!(rows(cluster, "types_theirs"), Vec::<String>::new());
}
