//! Structs that are written: their cells, the operations, and what does not fit the table.

use super::memory_table::with_ids;
use super::*;
use crate::schema::{DataType, ValueError};
use crate::{KuduRow, RowFailure};

fn table() -> (Arc<MemoryTable>, Schema) {
    let columns = [
        ("key", DataType::Int64),
        ("name", DataType::String),
        ("day", DataType::Date),
        ("at", DataType::UnixtimeMicros),
    ];
    let schema = with_ids(&columns, &[10, 11, 12, 13]);
    (MemoryTable::new(schema.clone(), 2), schema)
}

fn session_of(table: &Arc<MemoryTable>, schema: &Schema) -> Session {
    Session::with_target(schema, &hashed_by_key(schema, 2), table.clone(), options(FlushMode::Sync))
}

fn cells(table: &MemoryTable, key: i64) -> Vec<Option<Vec<u8>>> {
    table.rows()[&key.to_le_bytes().to_vec()].values().cloned().collect()
}

/// The fields are in another order than the columns.
#[derive(Clone, Debug, KuduRow)]
struct Event<'a> {
    name: &'a str,
    #[kudu(column = "day")]
    date: Option<i32>,
    key: i64,
    at: i64,
}

#[derive(KuduRow)]
struct Name {
    key: i64,
    name: Option<String>,
}

#[tokio::test]
async fn each_field_is_the_cell_of_its_column() {
    let (table, schema) = table();
    let mut session = session_of(&table, &schema);
    let first = Event { name: "launch", date: Some(3), key: 7, at: 11 };
    session.insert_row(&first).await.unwrap();
    let expected = |name: &str, day: Option<i32>| {
        let bytes = |cell: &[u8]| Some(cell.to_vec());
        vec![
            bytes(&7_i64.to_le_bytes()),
            bytes(name.as_bytes()),
            day.map(|day| day.to_le_bytes().to_vec()),
            bytes(&11_i64.to_le_bytes()),
        ]
    };
    assert_eq!(cells(&table, 7), expected("launch", Some(3)));
    // A text that lives shorter than the session, and NULL.
    let name = String::from("landing");
    session.upsert_row(&Event { name: &name, date: None, ..first }).await.unwrap();
    assert_eq!(cells(&table, 7), expected("landing", None));
    // Another struct changes the columns that it has.
    session.update_row(&Name { key: 7, name: Some("flight".to_owned()) }).await.unwrap();
    assert_eq!(cells(&table, 7), expected("flight", None));
    // Only the key counts.
    session
        .delete_row(&Event { name: "not looked at", date: Some(9), key: 7, at: 0 })
        .await
        .unwrap();
    assert_eq!(table.row_count(), 0);
    let failed = session.update_row(&Name { key: 7, name: None }).await;
    assert!(matches!(failed, Err(SessionError::RowsFailed { failed_rows: 1, .. })), "{failed:?}");
    let errors = session.take_errors();
    let failure = errors.iter().next().unwrap().failure().clone();
    assert!(matches!(failure, RowFailure::Refused { code: StatusCode::NotFound, .. }));
}

#[derive(KuduRow)]
struct WrongType {
    key: i64,
    name: i32,
}

#[derive(KuduRow)]
struct WrongName {
    key: i64,
    title: String,
}

#[tokio::test]
async fn an_unfit_struct_is_rejected_by_column_name() {
    let (table, schema) = table();
    let mut session = session_of(&table, &schema);
    let refused = session.insert_row(&WrongType { key: 1, name: 2 }).await.unwrap_err();
    let SessionError::Row(RowError::Value(ValueError::WrongType { column, expected, .. })) =
        &refused
    else {
        panic!("{refused}");
    };
    assert_eq!((column.as_str(), *expected), ("name", DataType::String));
    let refused =
        session.insert_row(&WrongName { key: 1, title: String::new() }).await.unwrap_err();
    let SessionError::Row(RowError::UnknownColumn { column }) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(column, "title");
    // Neither left anything behind.
    session.insert_row(&Name { key: 1, name: None }).await.unwrap();
    assert_eq!((table.row_count(), session.rows_taken()), (1, 1));
}
