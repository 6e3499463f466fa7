//! Sessions on a table in memory: modes, order, back-pressure, errors, altered tables.

mod allocations;
mod altered_table;
mod memory_table;
mod model;
#[cfg(feature = "derive")]
mod typed_rows;

use std::task::Poll;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::row_buffers::RowBuffers;
use super::write_request::{WriteRequest, schema_field};
use super::*;
use crate::error::{Error, StatusCode};
use crate::proto::rpc::SignedTokenPb;
use crate::proto::tserver::WriteRequestPb;
use crate::row_operation::RowError;
use crate::schema::Value;
use memory_table::{MemoryTable, hashed_by_key, loadgen_schema};

fn session(table: &Arc<MemoryTable>, buckets: i32, options: SessionOptions) -> Session {
    let schema = loadgen_schema();
    Session::with_target(&schema, &hashed_by_key(&schema, buckets), table.clone(), options)
}

fn options(flush_mode: FlushMode) -> SessionOptions {
    SessionOptions { flush_mode, ..SessionOptions::default() }
}

async fn put(session: &mut Session, operation: RowOperation, key: i64) -> Result<(), SessionError> {
    let mut row = session.row(operation);
    row.set_i64(0, key)?;
    if !matches!(operation, RowOperation::Delete | RowOperation::DeleteIgnore) {
        row.set_i32(1, key as i32)?.set_string(2, "a string of thirty-two characters")?;
    }
    row.apply().await
}

fn timed_out() -> Error {
    Error::Timeout {
        operation: crate::error::Operation::Write,
        subject: "tablet".to_owned(),
        last: None,
    }
}

/// Polls once; true if it is not ready.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| {
        Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

/// Lets the tasks of tablets run until they have nothing to do.
async fn let_tasks_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn pieces_are_the_message() {
    let buffers =
        Arc::new(RowBuffers { rows: b"rows".to_vec(), indirect: vec![b'i'; 300], row_count: 2 });
    let schema = loadgen_schema();
    let request = WriteRequest::new(schema_field(&schema), &buffers);
    let token = SignedTokenPb {
        token_data: Some(Bytes::from_static(b"token")),
        ..SignedTokenPb::default()
    };
    for (token, timestamp) in [(None, None), (Some(&token), None), (Some(&token), Some(1 << 40))] {
        let pieces = request.pieces("0123", token, timestamp);
        assert!(
            pieces.iter().any(|piece| piece.as_ptr() == buffers.indirect.as_ptr()),
            "strings are copied"
        );
        assert!(
            pieces.iter().any(|piece| piece.as_ptr() == buffers.rows.as_ptr()),
            "rows are copied"
        );
        let message = WriteRequestPb::decode(&pieces.concat()[..]).unwrap();
        assert_eq!(message.tablet_id, "0123");
        assert_eq!(message.schema, Some(schema.to_pb()));
        assert_eq!(message.authz_token.as_ref(), token);
        assert_eq!(message.propagated_timestamp, timestamp);
        let operations = message.row_operations.unwrap();
        assert_eq!(operations.rows.unwrap(), "rows");
        assert_eq!(operations.indirect_data.unwrap(), buffers.indirect);
    }
}

#[tokio::test]
async fn rows_reach_their_tablets_in_batches() {
    let table = MemoryTable::new(loadgen_schema(), 4);
    let mut session = session(
        &table,
        4,
        SessionOptions { buffer_bytes_max: 64 << 10, ..options(FlushMode::Background) },
    );
    for key in 0..10_000 {
        put(&mut session, RowOperation::Insert, key).await.unwrap();
    }
    let summary = session.flush().await.unwrap();
    assert_eq!((summary.rows, table.row_count(), session.rows_taken()), (10_000, 10_000, 10_000));
    assert_eq!(table.most_under_way(), 1);
    assert_eq!(session.buffered_bytes(), 0);
    // 640 KB over a watermark of 32 KiB is some 20 batches for each of the four tablets, of 8 KiB
    // each.
    assert!(table.writes() <= 100, "{} writes", table.writes());
    assert_eq!(session.flush().await.unwrap(), FlushSummary::default());
}

#[tokio::test]
async fn each_row_is_answered_in_sync_mode() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session = session(&table, 2, options(FlushMode::Sync));
    put(&mut session, RowOperation::Insert, 1).await.unwrap();
    assert_eq!((table.row_count(), table.writes()), (1, 1));
    let error = put(&mut session, RowOperation::Insert, 1).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 rows failed, the first: INSERT of (key = Int64(1)): AlreadyPresent: AlreadyPresent"
    );
    assert_eq!(session.take_errors().len(), 1);
    put(&mut session, RowOperation::Delete, 1).await.unwrap();
    assert_eq!(table.row_count(), 0);
}

#[tokio::test]
async fn manual_mode_sends_only_on_flush() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session =
        session(&table, 2, SessionOptions { buffer_bytes_max: 2000, ..options(FlushMode::Manual) });
    let mut taken = 0;
    let refused = loop {
        match put(&mut session, RowOperation::Insert, taken).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, SessionError::BufferFull { buffer_bytes_max: 2000 }));
    assert_eq!(taken, 2000 / 64);
    let_tasks_run().await;
    assert_eq!(table.writes(), 0);

    table.pause(0);
    session.start_flush();
    let_tasks_run().await;
    assert!(session.buffered_bytes() > 0, "a tablet is slow, and still start_flush returned");
    table.resume(0);
    assert_eq!(session.flush().await.unwrap().rows, taken as u64);
    put(&mut session, RowOperation::Insert, taken).await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(table.row_count(), taken as usize + 1);
}

/// A row that is larger than the whole buffer is still written, by itself.
#[tokio::test]
async fn one_row_always_fits() {
    for mode in [FlushMode::Background, FlushMode::Manual, FlushMode::Sync] {
        let table = MemoryTable::new(loadgen_schema(), 2);
        let mut session =
            session(&table, 2, SessionOptions { buffer_bytes_max: 10, ..options(mode) });
        for key in 0..3 {
            put(&mut session, RowOperation::Upsert, key).await.unwrap();
            session.flush().await.unwrap();
        }
        assert_eq!(table.row_count(), 3);
    }
}

#[tokio::test]
async fn a_slow_tablet_delays_only_its_rows() {
    let table = MemoryTable::new(loadgen_schema(), 4);
    let limit = 64 << 10;
    let mut session = session(
        &table,
        4,
        SessionOptions { buffer_bytes_max: limit, ..options(FlushMode::Background) },
    );
    table.pause(2);
    let mut key = 0;
    loop {
        let mut next = Box::pin(put(&mut session, RowOperation::Insert, key));
        let mut polls = 0;
        while polls < 300 && is_pending(&mut next).await {
            tokio::task::yield_now().await;
            polls += 1;
        }
        key += 1;
        if polls == 300 {
            break;
        }
    }
    // The slow tablet has filled what the others left, and the others have written what they got.
    assert!(session.buffered_bytes() <= limit + 64, "{} bytes buffered", session.buffered_bytes());
    assert!(session.buffered_bytes() > limit / 2);
    let written = table.row_count();
    let buffered = session.buffered_bytes() / 64;
    assert!(written > 2 * buffered, "{written} rows written while {buffered} waited");
    table.resume(2);
    session.flush().await.unwrap();
    assert_eq!(table.row_count(), key as usize);
    assert_eq!(table.most_under_way(), 1);
}

#[tokio::test(start_paused = true)]
async fn old_rows_are_sent_without_another_row() {
    let table = MemoryTable::new(loadgen_schema(), 4);
    let mut session = session(&table, 4, options(FlushMode::Background));
    for round in 1..=3 {
        let started = Instant::now();
        put(&mut session, RowOperation::Insert, round).await.unwrap();
        assert_eq!(table.row_count() as i64, round - 1);
        while (table.row_count() as i64) < round {
            tokio::time::advance(std::time::Duration::from_millis(10)).await;
        }
        let waited = started.elapsed().as_millis();
        assert!((1000..1100).contains(&waited), "{waited} ms");
    }
}

#[tokio::test]
async fn failed_rows_come_back_with_their_cells() {
    let table = MemoryTable::new(loadgen_schema(), 3);
    let mut session = session(&table, 3, options(FlushMode::Manual));
    for key in 0..100 {
        put(&mut session, RowOperation::Insert, key).await.unwrap();
    }
    session.flush().await.unwrap();
    for key in 90..110 {
        put(&mut session, RowOperation::Insert, key).await.unwrap();
    }
    put(&mut session, RowOperation::Delete, 1000).await.unwrap();
    let error = session.flush().await.unwrap_err();
    assert!(matches!(error, SessionError::RowsFailed { failed_rows: 11, .. }), "{error}");
    let statistics = session.statistics();
    assert_eq!((statistics.rows_written, statistics.rows_failed), (110, 11));

    let errors = session.take_errors();
    let mut keys = Vec::new();
    for row in errors.iter() {
        let Some(Value::Int64(key)) = row.cell(0) else { panic!("no key in {row}") };
        keys.push(key);
        let RowFailure::Refused { code, .. } = row.failure() else { panic!("{row}") };
        if key == 1000 {
            assert_eq!(
                (row.operation(), *code),
                (Some(RowOperation::Delete), StatusCode::NotFound)
            );
            assert_eq!(row.cell(2), None);
        } else {
            assert_eq!(
                (row.operation(), *code),
                (Some(RowOperation::Insert), StatusCode::AlreadyPresent)
            );
            assert_eq!(row.cell(1), Some(Value::Int32(key as i32)));
            assert_eq!(row.cell(2), Some(Value::String("a string of thirty-two characters")));
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, (90..100).chain([1000]).collect::<Vec<_>>());
    assert!(session.take_errors().is_empty());
    session.flush().await.unwrap();
}

#[tokio::test]
async fn a_failed_batch_gives_all_its_rows_back() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session = session(&table, 2, options(FlushMode::Manual));
    table.break_tablet(1, Some(timed_out()));
    for key in 0..50 {
        put(&mut session, RowOperation::Upsert, key).await.unwrap();
    }
    session.flush().await.unwrap_err();
    let errors = session.take_errors();
    assert_eq!(errors.len() as usize + table.row_count(), 50);
    let keys: Vec<_> = errors.iter().flat_map(|row| row.key().collect::<Vec<_>>()).collect();
    assert_eq!(keys.len() as u64, errors.len());
    assert!(keys.is_sorted_by_key(|key| match key {
        Value::Int64(key) => *key,
        other => panic!("{other:?}"),
    }));
    assert!(
        errors.iter().all(|row| matches!(row.failure(), RowFailure::Batch(Error::Timeout { .. })))
    );

    // The rows can be applied again from what came back.
    table.break_tablet(1, None);
    for row in errors.iter() {
        let mut again = session.row(row.operation().unwrap());
        for (column, _) in row.schema().columns().iter().enumerate() {
            if let Some(value) = row.cell(column) {
                again.set(column, value).unwrap();
            }
        }
        again.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    assert_eq!(table.row_count(), 50);
}

#[tokio::test]
async fn failures_beyond_the_limit_are_counted() {
    let table = MemoryTable::new(loadgen_schema(), 1);
    let mut session =
        session(&table, 1, SessionOptions { error_bytes_max: 0, ..options(FlushMode::Manual) });
    put(&mut session, RowOperation::Update, 5).await.unwrap();
    let error = session.flush().await.unwrap_err().to_string();
    assert_eq!(error, "1 rows failed, the first: lost, because there was no room to keep it");
    let errors = session.take_errors();
    assert_eq!((errors.len(), errors.lost(), errors.iter().count()), (1, 1, 0));
}

#[tokio::test]
async fn no_request_is_larger_than_servers_take() {
    for mode in [FlushMode::Background, FlushMode::Manual] {
        let table = MemoryTable::with_request_bytes_max(loadgen_schema(), 1, 150 << 10);
        let options = SessionOptions { cell_bytes_max: 8 << 10, ..options(mode) };
        let mut session = session(&table, 1, options);
        let text = "x".repeat(5000);
        for key in 0..100 {
            let mut row = session.insert();
            row.set_string("string_val", &text[key as usize..])
                .unwrap()
                .set_i64("key", key)
                .unwrap();
            row.apply().await.unwrap();
        }
        session.flush().await.unwrap();
        assert_eq!(table.row_count(), 100);
        assert!(
            table.largest_request() <= 150 << 10,
            "a request of {} bytes",
            table.largest_request()
        );
        assert!(table.writes() >= 3);
    }
}

#[tokio::test]
async fn a_row_that_is_not_applied_leaves_nothing_behind() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let mut session = session(&table, 2, options(FlushMode::Manual));
    put(&mut session, RowOperation::Insert, 1).await.unwrap();
    let before = session.buffered_bytes();
    for key in 0..10 {
        let mut row = session.insert();
        row.set_i64(0, key).unwrap().set_string(2, "never mind").unwrap();
        drop(row);
    }
    let incomplete = session.update().apply().await.unwrap_err();
    assert!(matches!(incomplete, SessionError::Row(RowError::MissingCell { .. })), "{incomplete}");
    assert!(session.insert().set_i64("nothing", 1).is_err());
    assert_eq!(session.buffered_bytes(), before);
    put(&mut session, RowOperation::Insert, 2).await.unwrap();
    session.flush().await.unwrap();
    assert_eq!((table.row_count(), session.buffered_bytes()), (2, 0));
    for row in table.rows().values() {
        assert_eq!(row[&12].as_deref(), Some(&b"a string of thirty-two characters"[..]));
    }
}

#[tokio::test]
async fn a_key_without_a_tablet_is_rejected_until_it_exists() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let removed = table.remove_tablet(1);
    let mut session = session(&table, 2, options(FlushMode::Background));
    let mut uncovered = Vec::new();
    for key in 0..20 {
        match put(&mut session, RowOperation::Insert, key).await {
            Ok(()) => {}
            Err(SessionError::NonCoveredKey) => uncovered.push(key),
            Err(other) => panic!("{other}"),
        }
    }
    assert!((1..20).contains(&uncovered.len()));
    table.add_tablet(removed);
    let views = table.views();
    for key in uncovered {
        put(&mut session, RowOperation::Insert, key).await.unwrap();
    }
    assert_eq!(table.views(), views + 1, "the tablets are asked for once");
    session.flush().await.unwrap();
    assert_eq!(table.row_count(), 20);
}

#[tokio::test]
async fn a_tablet_that_is_gone_is_asked_for_again() {
    let table = MemoryTable::new(loadgen_schema(), 1);
    let mut session = session(&table, 1, options(FlushMode::Manual));
    put(&mut session, RowOperation::Insert, 1).await.unwrap();
    let mut other = table.remove_tablet(0);
    other.id = "f".repeat(32);
    table.add_tablet(other);
    session.flush().await.unwrap_err();
    let errors = session.take_errors();
    assert!(
        errors
            .iter()
            .all(|row| matches!(row.failure(), RowFailure::Batch(Error::TabletGone { .. })))
    );
    put(&mut session, RowOperation::Insert, 1).await.unwrap();
    session.flush().await.unwrap();
    assert_eq!((errors.len(), table.row_count()), (1, 1));
}

/// Regression: without a limit for cells the size of a row is unknown, and the sum with it
/// overflowed.
#[tokio::test]
async fn cells_without_a_limit_are_sent_one_row_at_a_time() {
    let table = MemoryTable::new(loadgen_schema(), 1);
    let unlimited = SessionOptions { cell_bytes_max: usize::MAX, ..options(FlushMode::Manual) };
    let mut session = session(&table, 1, unlimited);
    for key in 0..3 {
        put(&mut session, RowOperation::Insert, key).await.unwrap();
    }
    assert_eq!(session.flush().await.unwrap().writes, 3);
    assert_eq!(table.row_count(), 3);
}

/// A program may hold a row for any time, on the only thread.
#[tokio::test]
async fn a_row_can_be_held_over_an_await() {
    let table = MemoryTable::new(loadgen_schema(), 2);
    let interval = std::time::Duration::from_millis(1);
    let mut session = session(
        &table,
        2,
        SessionOptions { flush_interval: interval, ..options(FlushMode::Background) },
    );
    put(&mut session, RowOperation::Insert, 1).await.unwrap();
    session.start_flush();
    put(&mut session, RowOperation::Insert, 2).await.unwrap();
    let mut row = session.insert();
    row.set_i64(0, 3).unwrap();
    while table.row_count() < 1 {
        tokio::task::yield_now().await;
    }
    row.apply().await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(table.row_count(), 3);
}
