//! Rows that this client's sessions wrote, NULLs among them, are read back by scans, and predicates
//! treat NULL as they should.

use oribi_kudu::{Layout, Predicate, ReadMode, Session, SessionOptions, Table, Value};

use super::{OwnedCell, all_rows, connect, every_type_table, sorted};

/// The values of row `id` behind its key; every third cell that can be NULL is.
fn values<'t>(id: i32, text: &'t str) -> Vec<Value<'t>> {
    let wide = i64::from(id) * 1_000_003;
    let values = vec![
        Value::Int8(id as i8),
        Value::Int16(-(id as i16)),
        Value::Int64(wide),
        Value::Bool(id % 2 == 0),
        Value::Float(id as f32 / 8.0),
        Value::Double(f64::from(id) * 1e100),
        Value::Binary(text.as_bytes()),
        Value::UnixtimeMicros(wide * 1000),
        Value::Date(id),
        Value::Decimal(i128::from(id) * 100 - 99),
        Value::Decimal(i128::from(wide)),
        Value::Decimal(i128::from(wide) * 1_000_000_007),
        Value::String(text),
    ];
    let is_null = |column: usize| column != 3 && (id as usize + column).is_multiple_of(3);
    values
        .into_iter()
        .enumerate()
        .map(|(at, value)| if is_null(at) { Value::Null } else { value })
        .collect()
}

/// Writes rows with a session, and returns them.
async fn write(table: &Table, rows: i32) -> Vec<Vec<OwnedCell>> {
    let mut session = Session::new(table, SessionOptions::default());
    let mut written = Vec::new();
    for id in 0..rows {
        let text = "é".repeat(id as usize % 30);
        let name = format!("name {id}");
        let mut cells = vec![Value::Int32(id), Value::String(&name)];
        cells.extend(values(id, &text));
        let mut row = session.insert();
        for (column, value) in cells.iter().enumerate() {
            row.set(column, *value).unwrap();
        }
        row.apply().await.unwrap();
        written.push(cells.into_iter().map(OwnedCell::from).collect());
    }
    session.flush().await.unwrap();
    assert_eq!(session.take_errors().len(), 0);
    sorted(written)
}

#[tokio::test]
async fn rows_of_a_session_come_back() {
    let Some((_, client)) = connect().await else { return };
    let table = every_type_table(&client, "written").await;
    let written = write(&table, 1000).await;
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let scan = table.scan().layout(layout).read_mode(ReadMode::YourWrites);
        assert_eq!(sorted(all_rows(scan.build().unwrap()).await), written, "{layout:?}");
    }
    let lookup = table.point_lookup().build().unwrap();
    for id in [0, 1, 2, 999] {
        let name = format!("name {id}");
        let row = lookup
            .get(&[Value::Int32(id), Value::String(&name)])
            .await
            .unwrap()
            .expect("it was written");
        assert_eq!(row.row().is_null(2), Ok(id % 3 == 0));
    }
}

#[tokio::test]
async fn predicates_do_not_let_null_through() {
    let Some((_, client)) = connect().await else { return };
    let table = every_type_table(&client, "with_nulls").await;
    let written = write(&table, 300).await;
    for (at, column) in
        table.schema().columns().iter().enumerate().filter(|(_, column)| column.is_nullable())
    {
        let name = column.name();
        let nulls = written.iter().filter(|row| row[at] == OwnedCell::Null).count() as u64;
        assert!(nulls > 0, "{name} has NULLs");
        let count = |predicate| table.scan().filter(predicate).count();
        assert_eq!(count(Predicate::is_null(name)).await.unwrap(), nulls);
        assert_eq!(count(Predicate::is_not_null(name)).await.unwrap(), 300 - nulls);
    }
    let below = written
        .iter()
        .filter(|row| matches!(row[4], OwnedCell::Number(value) if value < 50_000_000))
        .count();
    assert_eq!(
        table.scan().filter(Predicate::less("i64", 50_000_000_i64)).count().await.unwrap(),
        below as u64
    );
}

#[cfg(feature = "arrow")]
#[tokio::test]
async fn arrow_has_the_same_nulls_and_numbers() {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal32Type, Int64Type};

    let Some((_, client)) = connect().await else { return };
    let table = every_type_table(&client, "arrow_nulls").await;
    write(&table, 500).await;
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let mut scanner = table.scan().layout(layout).build().unwrap();
        let mut rows = 0;
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            let record_batch = batch.to_record_batch().unwrap();
            for (at, column) in record_batch.columns().iter().enumerate() {
                let nulls = batch.rows().filter(|row| row.is_null(at).unwrap()).count();
                assert_eq!(column.null_count(), nulls, "column {at}");
            }
            let numbers = record_batch.column(4).as_primitive::<Int64Type>();
            let decimals = record_batch.column(11).as_primitive::<Decimal32Type>();
            let texts = record_batch.column(14).as_string::<i32>();
            for (index, row) in batch.rows().enumerate() {
                let present = |array: &dyn Array| array.is_valid(index);
                assert_eq!(
                    row.get::<Option<i64>>(4),
                    Ok(present(numbers).then(|| numbers.value(index)))
                );
                assert_eq!(
                    row.get::<Option<i32>>(11),
                    Ok(present(decimals).then(|| decimals.value(index)))
                );
                assert_eq!(
                    row.get::<Option<&str>>(14),
                    Ok(present(texts).then(|| texts.value(index)))
                );
            }
            rows += batch.num_rows();
        }
        assert_eq!(rows, 500, "{layout:?}");
    }
}
