//! Random operations in every mode, with buffers of any size. The table ends up like a plain map,
//! and the failed rows are those that the map refuses.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Row { operation: RowOperation, key: i64, number: Option<Option<i32>>, text: Option<String> },
    Flush,
    StartFlush,
    LetTasksRun,
}

/// Cells of the map's rows: absent, NULL or a value.
type ModelRow = (Option<Option<i32>>, Option<String>);

/// Content of the table, in a comparable form.
type Contents = BTreeMap<i64, ModelRow>;

fn a_step() -> impl Strategy<Value = Step> {
    let row = (
        prop::sample::select(&RowOperation::ALL[..]),
        0_i64..12,
        prop::option::of(prop::option::of(any::<i32>())),
        prop::option::of("[a-z]{0,40}"),
    )
        .prop_map(|(operation, key, number, text)| Step::Row { operation, key, number, text });
    prop_oneof![30 => row, 1 => Just(Step::Flush), 1 => Just(Step::StartFlush), 1 => Just(Step::LetTasksRun)]
}

/// Applies a row to the map. False if it is refused.
fn apply_to_model(model: &mut Contents, operation: RowOperation, key: i64, row: ModelRow) -> bool {
    use RowOperation::*;
    let known = model.contains_key(&key);
    match (operation, known) {
        (Insert, true) | (Update | Delete, false) => return false,
        (InsertIgnore, true) | (UpdateIgnore | DeleteIgnore, false) => {}
        (Delete | DeleteIgnore, true) => {
            model.remove(&key);
        }
        (Insert | InsertIgnore | Upsert | UpsertIgnore, false) => {
            model.insert(key, row);
        }
        (Upsert | UpsertIgnore | Update | UpdateIgnore, true) => {
            let old = model.entry(key).or_default();
            *old = (row.0.or(old.0), row.1.or_else(|| old.1.take()));
        }
    }
    true
}

fn contents(table: &MemoryTable) -> Contents {
    let decode = |(key, row): (Vec<u8>, memory_table::StoredRow)| {
        let number = row.get(&11).map(|cell| {
            cell.as_ref().map(|cell| {
                i32::from_le_bytes(cell[..].try_into().expect("an INT32 has four bytes"))
            })
        });
        let text =
            row.get(&12).map(|cell| String::from_utf8(cell.clone().expect("never NULL")).unwrap());
        (i64::from_le_bytes(key[..].try_into().expect("an INT64 has eight bytes")), (number, text))
    };
    table.rows().into_iter().map(decode).collect()
}

async fn run(steps: Vec<Step>, options: SessionOptions, buckets: u32) {
    let table = MemoryTable::new(loadgen_schema(), buckets);
    let mut session = session(&table, buckets as i32, options);
    let mut model = Contents::new();
    let mut refused: BTreeMap<i64, Vec<RowOperation>> = BTreeMap::new();
    let mut taken = 0;
    for step in steps {
        match step {
            Step::Row { operation, key, number, text } => {
                let mut row = session.row(operation);
                row.set_i64(0, key).unwrap();
                let is_delete =
                    matches!(operation, RowOperation::Delete | RowOperation::DeleteIgnore);
                let is_update =
                    matches!(operation, RowOperation::Update | RowOperation::UpdateIgnore);
                // What a session would refuse is not the subject here.
                let number = if is_delete { None } else { number.or(is_update.then_some(None)) };
                let text = if is_delete { None } else { text };
                if let Some(number) = number {
                    let set = match number {
                        Some(number) => row.set_i32(1, number),
                        None => row.set_null(1),
                    };
                    set.unwrap();
                }
                if let Some(text) = &text {
                    row.set_string(2, text).unwrap();
                }
                let applied = row.apply().await;
                match applied {
                    Err(SessionError::BufferFull { .. }) => continue,
                    Ok(()) | Err(SessionError::RowsFailed { .. }) => taken += 1,
                    Err(other) => panic!("{other}"),
                }
                if !apply_to_model(&mut model, operation, key, (number, text)) {
                    refused.entry(key).or_default().push(operation);
                }
            }
            Step::Flush => drop(session.flush().await),
            Step::StartFlush => session.start_flush(),
            Step::LetTasksRun => let_tasks_run().await,
        }
    }
    let _ = session.flush().await;
    assert_eq!(contents(&table), model);
    assert_eq!(session.rows_taken(), taken);
    assert_eq!(table.most_under_way().max(1), 1);
    let mut failed: BTreeMap<i64, Vec<RowOperation>> = BTreeMap::new();
    for row in session.take_errors().iter() {
        let Some(Value::Int64(key)) = row.cell(0) else { panic!("{row}") };
        failed.entry(key).or_default().push(row.operation().unwrap());
    }
    assert_eq!(failed, refused);
    assert_eq!(session.buffered_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_session_ends_up_like_a_map(
        steps in prop::collection::vec(a_step(), 1..250),
        flush_mode in prop::sample::select(&[FlushMode::Sync, FlushMode::Background, FlushMode::Manual][..]),
        buffer_bytes_max in 1_usize..4000,
        flush_watermark in 0.0..1.0,
        buckets in 1_u32..5,
    ) {
        let options = SessionOptions { flush_mode, buffer_bytes_max, flush_watermark, ..SessionOptions::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(steps, options, buckets));
    }
}
