//! Every kind of predicate against a filter over a full scan.

use std::cmp::Ordering;

use oribi_kudu::{Layout, Operand, Predicate, Table};

use super::{OwnedCell, all_rows, connect, every_type_table, loadgen, sorted};

/// How two values of one column compare; `None` if either is NULL.
fn compare(cell: &OwnedCell, value: &OwnedCell) -> Option<Ordering> {
    match (cell, value) {
        (OwnedCell::Number(cell), OwnedCell::Number(value)) => Some(cell.cmp(value)),
        (OwnedCell::Float(cell), OwnedCell::Float(value)) => cell.partial_cmp(value),
        (OwnedCell::Double(cell), OwnedCell::Double(value)) => cell.partial_cmp(value),
        (OwnedCell::Bool(cell), OwnedCell::Bool(value)) => Some(cell.cmp(value)),
        (OwnedCell::Bytes(cell), OwnedCell::Bytes(value)) => Some(cell.cmp(value)),
        _ => None,
    }
}

fn operand(value: &OwnedCell) -> Operand {
    match value {
        OwnedCell::Null => panic!("NULL is compared with nothing"),
        OwnedCell::Number(value) => Operand::from(*value),
        OwnedCell::Float(value) => Operand::from(*value),
        OwnedCell::Double(value) => Operand::from(*value),
        OwnedCell::Bool(value) => Operand::from(*value),
        OwnedCell::Bytes(value) => Operand::from(value.clone()),
    }
}

/// Scans with a predicate and compares with the rows that it should let through.
async fn check(
    table: &Table,
    all: &[Vec<OwnedCell>],
    predicate: Predicate,
    holds: impl Fn(&Vec<OwnedCell>) -> bool,
) -> usize {
    let expected: Vec<Vec<OwnedCell>> = all.iter().filter(|row| holds(row)).cloned().collect();
    for layout in [Layout::Rowwise, Layout::Columnar] {
        let scanner = table.scan().filter(predicate.clone()).layout(layout).build().unwrap();
        assert_eq!(sorted(all_rows(scanner).await), expected, "{predicate:?}");
    }
    let counted = table.scan().filter(predicate.clone()).count().await.unwrap();
    assert_eq!(counted, expected.len() as u64, "{predicate:?}");
    expected.len()
}

// Compat (Apache Kudu): scans: predicates, bounds, read modes,
// tokens, columnar layout
#[tokio::test]
async fn comparisons_of_every_type_select_the_right_rows() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "comparisons").await;
    loadgen(cluster, "comparisons", 60);
    let all = sorted(all_rows(table.scan().build().unwrap()).await);
    for (at, column) in table.schema().columns().iter().enumerate() {
        let name = column.name();
        for value in [&all[0][at], &all[all.len() / 2][at]] {
            let is = |wanted: fn(Ordering) -> bool| {
                move |row: &Vec<OwnedCell>| compare(&row[at], value).is_some_and(wanted)
            };
            let through = [
                check(&table, &all, Predicate::equal(name, operand(value)), is(Ordering::is_eq))
                    .await,
                check(&table, &all, Predicate::less(name, operand(value)), is(Ordering::is_lt))
                    .await,
                check(&table, &all, Predicate::greater(name, operand(value)), is(Ordering::is_gt))
                    .await,
            ];
            assert!(through[0] > 0, "a value that exists is found in {name}");
            assert_eq!(through.iter().sum::<usize>(), all.len(), "{name} has no NULL");
            check(
                &table,
                &all,
                Predicate::less_or_equal(name, operand(value)),
                is(Ordering::is_le),
            )
            .await;
            check(
                &table,
                &all,
                Predicate::greater_or_equal(name, operand(value)),
                is(Ordering::is_ge),
            )
            .await;
        }
    }
}

#[tokio::test]
async fn lists_and_ranges_let_the_right_rows_through() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "lists").await;
    loadgen(cluster, "lists", 60);
    let all = sorted(all_rows(table.scan().build().unwrap()).await);
    for (at, column) in table.schema().columns().iter().enumerate() {
        let name = column.name();
        let (one, other) = (&all[3][at], &all[70][at]);
        let is_one = |row: &Vec<OwnedCell>| [one, other].contains(&&row[at]);
        let list = Predicate::in_list(name, [one, other, one].map(operand));
        assert!(check(&table, &all, list, is_one).await > 0);
        let (low, high) = if compare(one, other) == Some(Ordering::Greater) {
            (other, one)
        } else {
            (one, other)
        };
        let inside = |row: &Vec<OwnedCell>| {
            compare(&row[at], low).is_some_and(Ordering::is_ge)
                && compare(&row[at], high).is_some_and(Ordering::is_lt)
        };
        check(&table, &all, Predicate::range(name, operand(low), operand(high)), inside).await;
    }
}

#[tokio::test]
async fn conditions_about_null_and_contradictions() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "nulls").await;
    loadgen(cluster, "nulls", 30);
    let all = sorted(all_rows(table.scan().build().unwrap()).await);
    for column in ["id", "i8", "raw"] {
        check(&table, &all, Predicate::is_null(column), |_| false).await;
        check(&table, &all, Predicate::is_not_null(column), |_| true).await;
    }
    check(&table, &all, Predicate::in_list("id", [0_i32; 0]), |_| false).await;
    check(&table, &all, Predicate::range("id", 5, 5), |_| false).await;
    check(&table, &all, Predicate::greater("i8", i8::MAX), |_| false).await;
    check(&table, &all, Predicate::less_or_equal("i8", i8::MAX), |_| true).await;
    let both = table
        .scan()
        .filter(Predicate::greater("id", 10))
        .filter(Predicate::less_or_equal("id", 20));
    let between =
        all.iter().filter(|row| matches!(row[0], OwnedCell::Number(id) if id > 10 && id <= 20));
    assert_eq!(sorted(all_rows(both.build().unwrap()).await), between.cloned().collect::<Vec<_>>());
}
