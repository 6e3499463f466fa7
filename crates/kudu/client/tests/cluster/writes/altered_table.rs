//! ALTER TABLE under a running session.

use std::ops::Bound;

use oribi_kudu::{
    ColumnSchema, DataType, FlushMode, HashPartition, RangePartition, RowFailure, Schema,
    SchemaChange, Session, SessionError, TableAlterer, TableCreator, Value,
};

use crate::writes::{connect, options, scan};

fn schema() -> Schema {
    Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("gone", DataType::Int32))
        .column(ColumnSchema::builder("name", DataType::String))
        .build()
        .unwrap()
}

#[tokio::test]
async fn rows_are_encoded_again_or_come_back() {
    let Some((cluster, client)) = connect().await else { return };
    let creator = TableCreator::new("altered", schema())
        .hash_partition(HashPartition::new(["key"], 2))
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Manual));
    for key in 0..6 {
        let mut row = session.insert();
        row.set_i64("key", key).unwrap().set_string("name", "before").unwrap();
        if key % 3 == 0 {
            row.set_i32("gone", key as i32).unwrap();
        }
        row.apply().await.unwrap();
    }
    let alterer = TableAlterer::new(&table)
        .drop_column("gone")
        .rename_column("name", "title")
        .add_column(
            ColumnSchema::builder("added", DataType::Int8)
                .nullable(false)
                .default_value(Value::Int8(4)),
        )
        .unwrap();
    client.alter_table(alterer).await.unwrap();

    let error = session.flush().await.unwrap_err();
    assert!(matches!(error, SessionError::RowsFailed { failed_rows: 2, .. }), "{error}");
    let errors = session.take_errors();
    let mut lost: Vec<_> = errors.iter().map(|row| (row.cell(0), row.cell(1))).collect();
    lost.sort_by_key(|(key, _)| format!("{key:?}"));
    assert_eq!(lost, [0, 3].map(|key| (Some(Value::Int64(key)), Some(Value::Int32(key as i32)))));
    assert!(errors.iter().all(
        |row| matches!(row.failure(), RowFailure::ColumnDropped { column } if column == "gone")
    ));

    let mut row = session.upsert();
    row.set_i64("key", 1).unwrap().set_string("name", "after").unwrap();
    row.apply().await.unwrap();
    session.flush().await.unwrap();
    let row = |key: i64, title: &str| {
        format!("(int64 key={key}, string title=\"{title}\", int8 added=4)")
    };
    assert_eq!(
        scan(cluster, "altered"),
        [row(1, "after"), row(2, "before"), row(4, "before"), row(5, "before")]
    );
}

/// Who asked for it is told that the table was altered, and nothing that was encoded before is ever
/// written, not even rows that would fit the new schema.
#[tokio::test]
async fn a_batch_fails_as_a_whole_for_who_wants_it_so() {
    let Some((cluster, client)) = connect().await else { return };
    let creator = TableCreator::new("altered_fails", schema()).num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let fails = options(FlushMode::Manual).on_schema_change(SchemaChange::Fail);
    let mut session = Session::new(&table, fails);
    for key in 0..2 {
        let mut row = session.upsert();
        row.set_i64("key", key).unwrap().set_bytes("name", b"before").unwrap();
        row.apply().await.unwrap();
        if key == 0 {
            session.flush().await.unwrap();
            client.alter_table(TableAlterer::new(&table).drop_column("gone")).await.unwrap();
        }
    }
    let mut delete = session.delete_ignore();
    delete.set_i64("key", 0).unwrap();
    delete.apply().await.unwrap();
    let error = session.flush().await.unwrap_err();
    assert!(matches!(error, SessionError::RowsFailed { failed_rows: 2, .. }), "{error}");
    let errors = session.take_errors();
    assert!(errors.iter().all(
        |row| matches!(row.failure(), RowFailure::Batch(error) if error.is_schema_mismatch())
    ));
    assert_eq!(scan(cluster, "altered_fails"), ["(int64 key=0, string name=\"before\")"]);
}

#[tokio::test]
async fn a_partition_that_is_added_is_found() {
    let Some((cluster, client)) = connect().await else { return };
    let lower = [("key", Value::Int64(0))];
    let upper = [("key", Value::Int64(10))];
    let next = [("key", Value::Int64(20))];
    let creator = TableCreator::new("ranges_added", schema())
        .range_columns(["key"])
        .range_partition(RangePartition::new(Bound::Included(&lower), Bound::Excluded(&upper)))
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Background));
    for key in [5, 15] {
        let mut row = session.insert();
        row.set_i64("key", key).unwrap();
        match row.apply().await {
            Ok(()) => assert_eq!(key, 5),
            Err(SessionError::NonCoveredKey) => assert_eq!(key, 15),
            Err(other) => panic!("{other}"),
        }
    }
    let alterer = TableAlterer::new(&table)
        .add_range_partition(RangePartition::new(Bound::Included(&upper), Bound::Excluded(&next)))
        .unwrap();
    client.alter_table(alterer).await.unwrap();
    let mut row = session.insert();
    row.set_i64("key", 15).unwrap();
    row.apply().await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(scan(cluster, "ranges_added").len(), 2);
}
