//! A table that is altered while a session writes to it.

use super::memory_table::with_ids;
use super::*;
use crate::schema::DataType;

async fn write(session: &mut Session, key: i64, number: Option<i32>, text: Option<&str>) {
    let mut row = session.upsert();
    row.set_i64("key", key).unwrap();
    if let Some(number) = number {
        row.set_i32("int_val", number).unwrap();
    }
    if let Some(text) = text {
        row.set_string("string_val", text).unwrap();
    }
    row.apply().await.unwrap();
}

#[tokio::test]
async fn rows_follow_a_renamed_column_and_an_added_one() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session = session(&table, 2, options(FlushMode::Manual));
    write(&mut session, 1, Some(1), Some("one")).await;
    table.alter(with_ids(
        &[
            ("key", DataType::Int64),
            ("added", DataType::Bool),
            ("text", DataType::String),
            ("int_val", DataType::Int32),
        ],
        &[10, 20, 12, 11],
    ));
    write(&mut session, 2, None, Some("two")).await;
    session.flush().await.unwrap();
    write(&mut session, 3, Some(3), Some("three")).await;
    session.flush().await.unwrap();
    let texts: Vec<_> = table.rows().values().map(|row| row[&12].clone().unwrap()).collect();
    assert_eq!(texts, [&b"one"[..], b"two", b"three"]);
    let numbers: Vec<_> = table.rows().values().map(|row| row.get(&11).cloned()).collect();
    assert_eq!(numbers, [Some(Some(vec![1, 0, 0, 0])), None, Some(Some(vec![3, 0, 0, 0]))]);
    // The schema is asked for once, and sent from then on.
    assert_eq!(table.views(), 2);
}

#[tokio::test]
async fn only_rows_that_use_a_dropped_column_fail() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session = session(&table, 2, options(FlushMode::Manual));
    // The column was dropped, and another one of the same name added.
    table.alter(with_ids(
        &[("key", DataType::Int64), ("int_val", DataType::Int32), ("other", DataType::String)],
        &[10, 11, 30],
    ));
    for key in 0..20 {
        let text = (key % 2 == 1).then_some("lost");
        write(&mut session, key, Some(key as i32), text).await;
    }
    session.flush().await.unwrap_err();
    let errors = session.take_errors();
    let mut keys: Vec<_> = errors.iter().map(|row| format!("{row}")).collect();
    keys.sort();
    assert_eq!(errors.len(), 10);
    assert!(errors.iter().all(|row| row.cell(2) == Some(Value::String("lost"))));
    assert!(keys.contains(
        &"UPSERT of (key = Int64(7)): the table has no column \"string_val\" any more".to_owned()
    ));
    assert_eq!(table.row_count(), 10);
    let statistics = session.statistics();
    assert_eq!((statistics.rows_written, statistics.rows_failed), (10, 10));
    write(&mut session, 100, Some(1), None).await;
    session.flush().await.unwrap();
}

/// Refused rows keep their numbers when others of the batch were left out.
#[tokio::test]
async fn errors_of_an_altered_table_name_the_right_rows() {
    let table = MemoryTable::new(loadgen_schema(), 1);
    let mut session = session(&table, 1, options(FlushMode::Manual));
    write(&mut session, 3, None, None).await;
    session.flush().await.unwrap();
    table.alter(with_ids(&[("key", DataType::Int64), ("int_val", DataType::Int32)], &[10, 11]));
    for (key, text) in [(1, Some("x")), (2, None), (3, None), (4, Some("y")), (5, None)] {
        let mut row = session.insert();
        row.set_i64("key", key).unwrap();
        if let Some(text) = text {
            row.set_string("string_val", text).unwrap();
        }
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap_err();
    let errors = session.take_errors();
    let failed: Vec<_> = errors
        .iter()
        .map(|row| {
            (row.cell(0).unwrap(), matches!(row.failure(), RowFailure::ColumnDropped { .. }))
        })
        .collect();
    assert_eq!(
        failed,
        [(Value::Int64(1), true), (Value::Int64(3), false), (Value::Int64(4), true)]
    );
}

/// A mismatch that the current schema does not explain fails the batch instead of retrying forever.
#[tokio::test]
async fn a_mismatch_without_a_change_is_an_error() {
    let table = MemoryTable::new(loadgen_schema(), 1);
    let mut session = session(&table, 1, options(FlushMode::Manual));
    let mismatch = Error::TabletServer {
        operation: crate::error::Operation::Write,
        server: crate::types::HostPort { host: "memory".to_owned(), port: 1 },
        table: "t".to_owned(),
        tablet_id: String::new(),
        code: crate::error::TabletServerErrorCode::MismatchedSchema,
        status: StatusCode::InvalidArgument,
        message: "no".into(),
    };
    table.break_tablet(0, Some(mismatch));
    write(&mut session, 1, None, None).await;
    session.flush().await.unwrap_err();
    assert_eq!((session.take_errors().len(), table.writes()), (1, 1));
}
