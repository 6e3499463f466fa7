//! Every operation, in every mode, on keys that are there and on keys that are not.

use oribi_kudu::{
    ColumnSchema, DataType, FlushMode, RowFailure, RowOperation, Schema, SchemaBuilder, Session,
    StatusCode, TableCreator, Value,
};

use crate::writes::{connect, options, scan};

fn schema(builder: SchemaBuilder) -> Schema {
    builder
        .column(ColumnSchema::builder("a", DataType::Int32))
        .column(ColumnSchema::builder("fixed", DataType::String).immutable(true))
        .build()
        .unwrap()
}

/// Applies an operation to a row that is there (key 1) and to one that is not (key 2), in both
/// cases with new cells. Returns what failed.
async fn run(session: &mut Session, operation: RowOperation) -> Vec<(i64, StatusCode)> {
    let mut failed = Vec::new();
    for key in [1_i64, 2] {
        let mut row = session.row(operation);
        row.set_i64("key", key).unwrap();
        if !matches!(operation, RowOperation::Delete | RowOperation::DeleteIgnore) {
            row.set_i32("a", 20).unwrap();
        }
        // In sync mode the failure comes here, else from the flush; the rows are kept in both
        // cases.
        let _ = row.apply().await;
    }
    let _ = session.flush().await;
    for row in session.take_errors().iter() {
        assert_eq!(row.operation(), Some(operation));
        match (row.cell(0), row.failure()) {
            (Some(Value::Int64(key)), RowFailure::Refused { code, .. }) => {
                failed.push((key, *code))
            }
            other => panic!("{other:?}"),
        }
    }
    failed
}

// Compat (Apache Kudu): writes: eight operations, three flush
// modes
#[tokio::test]
async fn every_operation_does_what_it_says() {
    let Some((cluster, client)) = connect().await else { return };
    let columns =
        schema(Schema::builder().column(ColumnSchema::builder("key", DataType::Int64).key()));
    for (mode, name) in [
        (FlushMode::Sync, "sync"),
        (FlushMode::Background, "background"),
        (FlushMode::Manual, "manual"),
    ] {
        for operation in RowOperation::ALL {
            let name = format!("operations_{name}_{operation}");
            let creator = TableCreator::new(&name, columns.clone()).num_replicas(1);
            let table = client.create_table(creator).await.unwrap();
            let mut session = Session::new(&table, options(mode));
            let mut first = session.insert();
            first.set_i64(0, 1).unwrap().set_i32(1, 10).unwrap().set_string(2, "stays").unwrap();
            first.apply().await.unwrap();
            session.flush().await.unwrap();

            let failed = run(&mut session, operation).await;
            let old = "(int64 key=1, int32 a=10, string fixed=\"stays\")";
            let changed = "(int64 key=1, int32 a=20, string fixed=\"stays\")";
            let new = "(int64 key=2, int32 a=20, string fixed=NULL)";
            let (rows, failures) = match operation {
                RowOperation::Insert => (vec![old, new], vec![(1, StatusCode::AlreadyPresent)]),
                RowOperation::InsertIgnore => (vec![old, new], vec![]),
                RowOperation::Upsert | RowOperation::UpsertIgnore => (vec![changed, new], vec![]),
                RowOperation::Update => (vec![changed], vec![(2, StatusCode::NotFound)]),
                RowOperation::UpdateIgnore => (vec![changed], vec![]),
                RowOperation::Delete => (vec![], vec![(2, StatusCode::NotFound)]),
                RowOperation::DeleteIgnore => (vec![], vec![]),
                other => panic!("{other} is an operation that this test does not know"),
            };
            assert_eq!(
                (scan(cluster, &name), failed),
                (rows.iter().map(|row| row.to_string()).collect(), failures),
                "{name}"
            );
            client.delete_table(&name).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_immutable_cell_is_kept() {
    let Some((cluster, client)) = connect().await else { return };
    let columns =
        schema(Schema::builder().column(ColumnSchema::builder("key", DataType::Int64).key()));
    let table =
        client.create_table(TableCreator::new("immutable", columns).num_replicas(1)).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Manual));
    for (operation, text) in [
        (RowOperation::Insert, "first"),
        (RowOperation::Upsert, "second"),
        (RowOperation::UpsertIgnore, "third"),
    ] {
        let mut row = session.row(operation);
        row.set_i64(0, 1)
            .unwrap()
            .set_i32(1, text.len() as i32)
            .unwrap()
            .set_string(2, text)
            .unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap_err();
    let failed: Vec<_> = session.take_errors().iter().map(|row| row.to_string()).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].starts_with("UPSERT of (key = Int64(1)): Immutable"), "{}", failed[0]);
    assert_eq!(scan(cluster, "immutable"), ["(int64 key=1, int32 a=5, string fixed=\"first\")"]);
}

#[tokio::test]
async fn keys_that_are_not_unique_are_numbered() {
    let Some((cluster, client)) = connect().await else { return };
    let columns = schema(
        Schema::builder()
            .column(ColumnSchema::builder("key", DataType::Int64).key())
            .non_unique_key(),
    );
    let table =
        client.create_table(TableCreator::new("numbered", columns).num_replicas(1)).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Background));
    for a in 0..3 {
        let mut row = session.insert();
        row.set_i64("key", 7).unwrap().set_i32("a", a).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    let mut row = session.update();
    row.set_i64("key", 7)
        .unwrap()
        .set_i64("auto_incrementing_id", 2)
        .unwrap()
        .set_i32("a", 50)
        .unwrap();
    row.apply().await.unwrap();
    session.flush().await.unwrap();
    let rows = scan(cluster, "numbered");
    let expected = |id: i64, a: i32| {
        format!("(int64 key=7, int64 auto_incrementing_id={id}, int32 a={a}, string fixed=NULL)")
    };
    assert_eq!(rows, [expected(1, 0), expected(2, 50), expected(3, 2)]);
}

/// Rows with one key are applied in the order in which they were handed over, whatever is sent
/// when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_row_of_a_key_wins() {
    let Some((cluster, client)) = connect().await else { return };
    let columns =
        schema(Schema::builder().column(ColumnSchema::builder("key", DataType::Int64).key()));
    let table =
        client.create_table(TableCreator::new("order", columns).num_replicas(1)).await.unwrap();
    let small = options(FlushMode::Background).buffer_bytes_max(2000);
    let mut session = Session::new(&table, small);
    for round in 0..5000 {
        let mut row = session.upsert();
        row.set_i64(0, round % 3).unwrap().set_i32(1, round as i32).unwrap();
        row.apply().await.unwrap();
    }
    let summary = session.flush().await.unwrap();
    assert!(summary.writes > 50, "{summary:?}");
    let expected = [4998, 4999, 4997].iter().enumerate();
    let expected: Vec<_> = expected
        .map(|(key, a)| format!("(int64 key={key}, int32 a={a}, string fixed=NULL)"))
        .collect();
    assert_eq!(scan(cluster, "order"), expected);
}
