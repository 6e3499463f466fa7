//! Record batches have the rows that the scan has.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use oribi_kudu::{FromCell, Layout, Row, Scanner};

use super::{connect, every_type_table, loadgen};

/// Rows next to the record batch that was made of them.
async fn batches(mut scanner: Scanner, mut check: impl FnMut(&[Row<'_>], &RecordBatch)) -> usize {
    let mut rows = 0;
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        let record_batch = batch.to_record_batch().unwrap();
        assert_eq!(record_batch.num_rows(), batch.num_rows());
        check(&batch.rows().collect::<Vec<_>>(), &record_batch);
        rows += batch.num_rows();
    }
    rows
}

fn same<'a, T: FromCell<'a> + PartialEq + std::fmt::Debug>(
    rows: &[Row<'a>],
    column: usize,
    value: impl Fn(usize) -> T,
) {
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<T>(column).unwrap(), value(index), "row {index}, column {column}");
    }
}

#[tokio::test]
async fn record_batches_have_the_rows_of_the_scan() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "arrow").await;
    loadgen(cluster, "arrow", 1000);
    for layout in [Layout::Columnar, Layout::Rowwise] {
        let columns = ["id", "name", "flag", "raw", "at", "day", "large"];
        let scanner =
            table.scan().columns(columns).layout(layout).batch_bytes(30_000).build().unwrap();
        let schema = scanner.projection().arrow_schema();
        let fields: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect();
        assert_eq!(fields[0], "id Int32");
        assert_eq!(fields[6], "large Decimal128(38, 10)");
        let rows = batches(scanner, |rows, batch| {
            same(rows, 0, |index| batch.column(0).as_primitive::<Int32Type>().value(index));
            same(rows, 2, |index| batch.column(2).as_boolean().value(index));
            same(rows, 4, |index| {
                batch.column(4).as_primitive::<TimestampMicrosecondType>().value(index)
            });
            same(rows, 5, |index| batch.column(5).as_primitive::<Date32Type>().value(index));
            same(rows, 6, |index| batch.column(6).as_primitive::<Decimal128Type>().value(index));
            for (index, row) in rows.iter().enumerate() {
                assert_eq!(
                    row.get::<&str>(1).unwrap(),
                    batch.column(1).as_string::<i32>().value(index)
                );
                assert_eq!(
                    row.get::<&[u8]>(3).unwrap(),
                    batch.column(3).as_binary::<i32>().value(index)
                );
            }
            assert!(batch.columns().iter().all(|column| column.null_count() == 0));
        })
        .await;
        assert_eq!(rows, 2000);
    }
}
