//! Rows come back as they were written, in either layout.

use oribi_kudu::{Layout, ReadMode, Value};

use super::{OwnedCell, all_rows, connect, every_type_table, loadgen, numbers_table, sorted};

/// The load generator's rows, in a table of key, number and text.
fn generated(seed: i64, row: i64) -> Vec<OwnedCell> {
    let mut text = format!("{}.", seed + 2 * row + 1);
    while text.len() < 32 {
        text.push('x');
    }
    vec![
        OwnedCell::Number((seed + row).into()),
        OwnedCell::Number((seed + 2 * row).into()),
        OwnedCell::Bytes(text.into_bytes()),
    ]
}

#[tokio::test]
async fn load_generator_rows_return_in_both_layouts() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "generated").await;
    loadgen(cluster, "generated", 5000);
    let span = 5000 * 3;
    let expected: Vec<Vec<OwnedCell>> =
        (0..2).flat_map(|thread| (0..5000).map(move |row| generated(thread * span, row))).collect();
    // The seed of the second thread is its share of keys; whether that counts columns is the tool's
    // business.
    let rows = sorted(all_rows(table.scan().build().unwrap()).await);
    assert_eq!(rows.len(), expected.len());
    let first_thread = rows.iter().filter(|row| expected[..5000].contains(row)).count();
    assert_eq!(first_thread, 5000);
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let scanner =
            table.scan().layout(layout).batch_bytes(20_000).read_mode(ReadMode::AtSnapshot(None));
        assert_eq!(sorted(all_rows(scanner.build().unwrap()).await), rows, "{layout:?}");
    }
    assert_eq!(table.scan().count().await.unwrap(), 10_000);
}

/// One row in the words of `kudu table scan`, for the types whose words are not in doubt.
fn in_words_of_the_tool(columns: &[&str], row: &[OwnedCell]) -> String {
    let words = columns.iter().zip(row).map(|(column, value)| match value {
        OwnedCell::Null => format!("{column}=NULL"),
        OwnedCell::Number(value) => format!("{column}={value}"),
        OwnedCell::Bool(value) => format!("{column}={value}"),
        OwnedCell::Bytes(value) => format!("{column}={:?}", String::from_utf8_lossy(value)),
        other => panic!("{other:?} is not compared"),
    });
    format!("({})", words.collect::<Vec<_>>().join(", "))
}

#[tokio::test]
async fn the_tool_reads_the_same_rows() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "same_rows").await;
    loadgen(cluster, "same_rows", 500);
    let columns = ["name", "id", "i8", "i16", "i64", "flag", "raw", "short"];
    let typed = [
        "string name",
        "int32 id",
        "int8 i8",
        "int16 i16",
        "int64 i64",
        "bool flag",
        "binary raw",
        "varchar short",
    ];
    let list = format!("--columns={}", columns.join(","));
    let output = cluster
        .tool_stdout(&["table", "scan", &cluster.master_addresses(), "same_rows", &list])
        .unwrap();
    let mut expected: Vec<String> = output
        .lines()
        .filter(|line| line.starts_with('('))
        .map(|line| line.replace("varchar(40) short", "varchar short"))
        .collect();
    expected.sort();
    assert_eq!(expected.len(), 1000);
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let rows = all_rows(table.scan().columns(columns).layout(layout).build().unwrap()).await;
        let mut rows: Vec<String> =
            rows.iter().map(|row| in_words_of_the_tool(&typed, row)).collect();
        rows.sort();
        assert_eq!(rows, expected, "{layout:?}");
    }
}

#[tokio::test]
async fn every_type_is_read_alike_from_both_layouts() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "both_layouts").await;
    loadgen(cluster, "both_layouts", 1000);
    let rowwise = sorted(all_rows(table.scan().build().unwrap()).await);
    let columnar = sorted(all_rows(table.scan().layout(Layout::Columnar).build().unwrap()).await);
    assert_eq!(rowwise.len(), 2000);
    assert_eq!(rowwise, columnar);
}

#[tokio::test]
async fn an_empty_table_has_no_batch() {
    let Some((_, client)) = connect().await else { return };
    let table = every_type_table(&client, "empty").await;
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let mut scanner = table.scan().layout(layout).build().unwrap();
        assert!(scanner.next_batch().await.unwrap().is_none());
        assert!(scanner.next_batch().await.unwrap().is_none(), "the end stays the end");
    }
    assert_eq!(table.scan().count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_projection_has_its_own_order() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "projected").await;
    loadgen(cluster, "projected", 50);
    let mut scanner = table.scan().columns(["string_val", "key"]).build().unwrap();
    assert_eq!(scanner.projection().index_of("key"), Some(1));
    let batch = scanner.next_batch().await.unwrap().unwrap();
    let row = batch.row(0).unwrap();
    assert!(matches!(row.get::<Value<'_>>(0), Ok(Value::String(_))));
    assert!(row.get::<i64>(1).is_ok() && row.get::<i64>(0).is_err());
}
