//! What servers refuse for its size: a session refuses it first, or sends it in parts, and is
//! usable after.

use oribi_kudu::{
    ColumnSchema, DataType, FlushMode, RowError, Schema, Session, SessionError, TableCreator,
};

use crate::writes::{connect, options};

fn schema() -> Schema {
    Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("blob", DataType::Binary))
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_oversized_cell_is_rejected_the_session_stays() {
    let Some((_, client)) = connect().await else { return };
    let table =
        client.create_table(TableCreator::new("oversize", schema()).num_replicas(1)).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Background));
    let bytes = vec![7; 65_537];
    let mut row = session.insert();
    row.set_i64(0, 1).unwrap();
    let error = row.set_binary(1, &bytes).unwrap_err();
    assert_eq!(
        error,
        RowError::CellTooLarge { column: "blob".to_owned(), bytes: 65_537, bytes_max: 65_536 }
    );
    drop(row);
    // The limit is the server's: without the session's the server says the same of the row, and
    // takes others.
    let mut unlimited = Session::new(&table, options(FlushMode::Manual).cell_bytes_max(usize::MAX));
    for (key, size) in [(2, 65_536), (3, 65_537)] {
        let mut row = unlimited.insert();
        row.set_i64(0, key).unwrap().set_binary(1, &bytes[..size]).unwrap();
        row.apply().await.unwrap();
    }
    assert!(matches!(
        unlimited.flush().await,
        Err(SessionError::RowsFailed { failed_rows: 1, .. })
    ));
    let mut row = session.insert();
    row.set_i64(0, 1).unwrap().set_binary(1, &bytes[1..]).unwrap();
    row.apply().await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(table.scan().count().await.unwrap(), 2);
}

/// 51 MiB for one tablet are more than a server takes in one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_51_mib_is_sent_in_parts() {
    let Some((_, client)) = connect().await else { return };
    let table = client
        .create_table(TableCreator::new("large_batch", schema()).num_replicas(1))
        .await
        .unwrap();
    let large = options(FlushMode::Manual)
        .buffer_bytes_max(64 << 20)
        .timeout(std::time::Duration::from_secs(60));
    let mut session = Session::new(&table, large);
    let blob = vec![1; 60_000];
    let rows = (51 << 20) / 60_000 + 1;
    for key in 0..rows {
        let mut row = session.insert();
        row.set_i64(0, key).unwrap().set_binary(1, &blob).unwrap();
        row.apply().await.unwrap();
    }
    let summary = session.flush().await.unwrap();
    assert_eq!((summary.rows, summary.writes), (rows as u64, 2));
    assert_eq!(table.scan().count().await.unwrap(), rows as u64);
}
