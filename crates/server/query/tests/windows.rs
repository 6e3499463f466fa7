//! Window functions against a naive computation of each frame, and their time over many rows.

#![allow(clippy::unwrap_used)]

mod support;

use oribi_query::{QueryRequest, Service};
use serde_json::{Value, json};
use support::MemoryDatastore;

fn rows(statement: &str) -> Vec<Value> {
    let (outcome, rows) =
        support::run(&Service::new(), &MemoryDatastore::default(), &QueryRequest::of(statement));
    assert_eq!(outcome.errors, [], "{statement}");
    rows.rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect()
}

/// Numbers of a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.0 >> 33) % bound
    }
}

/// The rows of a frame, by comparing every row with the bounds. Rows are sorted by `key`.
fn frame(
    keys: &[i64],
    unit: &str,
    start: Bound,
    end: Bound,
    exclude: &str,
    at: usize,
) -> Vec<usize> {
    let groups: Vec<usize> = keys
        .iter()
        .scan((0, keys[0]), |state, key| {
            if *key != state.1 {
                *state = (state.0 + 1, *key);
            }
            Some(state.0)
        })
        .collect();
    let place = |row: usize| match unit {
        "ROWS" => row as i64,
        "GROUPS" => groups[row] as i64,
        _ => keys[row],
    };
    (0..keys.len())
        .filter(|row| {
            let distance = place(*row) - place(at);
            let after_start = start.is_none_or(|start| distance >= start);
            let before_end = end.is_none_or(|end| distance <= end);
            let is_peer = keys[*row] == keys[at];
            let excluded = match exclude {
                "CURRENT ROW" => *row == at,
                "GROUP" => is_peer,
                "TIES" => is_peer && *row != at,
                _ => false,
            };
            after_start && before_end && !excluded
        })
        .collect()
}

/// A distance from the current row; none is unbounded.
type Bound = Option<i64>;

fn bound_text(bound: Bound, is_start: bool) -> String {
    match bound {
        None if is_start => "UNBOUNDED PRECEDING".to_owned(),
        None => "UNBOUNDED FOLLOWING".to_owned(),
        Some(0) => "CURRENT ROW".to_owned(),
        Some(distance) if distance < 0 => format!("{} PRECEDING", -distance),
        Some(distance) => format!("{distance} FOLLOWING"),
    }
}

fn expected(function: &str, values: &[Option<i64>], frame: &[usize]) -> Value {
    let numbers: Vec<i64> = frame.iter().filter_map(|row| values[*row]).collect();
    let nth = |at: Option<usize>| {
        at.and_then(|at| frame.get(at)).map_or(Value::Null, |row| json!(values[*row]))
    };
    match function {
        "SUM(v)" if numbers.is_empty() => Value::Null,
        "SUM(v)" => json!(numbers.iter().sum::<i64>()),
        "COUNT(v)" => json!(numbers.len()),
        "COUNT(*)" => json!(frame.len()),
        "MIN(v)" => json!(numbers.iter().min()),
        "MAX(v)" => json!(numbers.iter().max()),
        "COUNT(DISTINCT v)" => {
            json!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len())
        }
        "FIRST_VALUE(v)" => nth(Some(0)),
        "LAST_VALUE(v)" => nth(frame.len().checked_sub(1)),
        "NTH_VALUE(v, 2)" => nth(Some(1)),
        "FIRST_VALUE(v) IGNORE NULLS" => json!(numbers.first()),
        "LAST_VALUE(v) IGNORE NULLS" => json!(numbers.last()),
        "ARRAY_AGG(v)" if frame.is_empty() => Value::Null,
        _ => {
            let mut list: Vec<Option<i64>> = frame.iter().map(|row| values[*row]).collect();
            list.sort();
            json!(list)
        }
    }
}

#[test]
fn frames_have_the_rows_of_a_naive_search() {
    let functions = [
        "SUM(v)",
        "COUNT(v)",
        "COUNT(*)",
        "MIN(v)",
        "MAX(v)",
        "COUNT(DISTINCT v)",
        "FIRST_VALUE(v)",
        "LAST_VALUE(v)",
        "NTH_VALUE(v, 2)",
        "FIRST_VALUE(v) IGNORE NULLS",
        "LAST_VALUE(v) IGNORE NULLS",
        "ARRAY_AGG(v)",
    ];
    let mut numbers = Numbers(7);
    for _ in 0..250 {
        let count = 1 + numbers.below(12) as usize;
        let mut keys: Vec<i64> = (0..count).map(|_| numbers.below(8) as i64).collect();
        keys.sort_unstable();
        let values: Vec<Option<i64>> = (0..count)
            .map(|_| (numbers.below(4) > 0).then(|| numbers.below(20) as i64 - 10))
            .collect();
        let mut distance = || (numbers.below(5) > 0).then(|| numbers.below(7) as i64 - 3);
        let (start, end) = (distance(), distance());
        let unit = ["ROWS", "RANGE", "GROUPS"][numbers.below(3) as usize];
        let exclude = ["NO OTHERS", "CURRENT ROW", "GROUP", "TIES"][numbers.below(4) as usize];
        let function = functions[numbers.below(functions.len() as u64) as usize];
        let documents: Vec<Value> = keys
            .iter()
            .zip(&values)
            .enumerate()
            .map(|(at, (key, value))| json!({"i": at, "k": key, "v": value}))
            .collect();
        let statement = format!(
            "SELECT RAW {function} OVER (ORDER BY k {unit} BETWEEN {} AND {} EXCLUDE {exclude}) \
             FROM {} AS d ORDER BY i",
            bound_text(start, true),
            bound_text(end, false),
            Value::from(documents),
        );
        let expected: Vec<Value> = (0..count)
            .map(|at| expected(function, &values, &frame(&keys, unit, start, end, exclude, at)))
            .collect();
        assert_eq!(rows(&statement), expected, "{statement}");
    }
}

#[test]
fn offsets_skip_rows_without_values() {
    let list = "[{'i':1,'v':5},{'i':2,'v':null},{'i':3,'v':7},{'i':4},{'i':5,'v':9}]";
    let of = |function: &str| {
        rows(&format!("SELECT RAW {function} OVER (ORDER BY i) FROM {list} AS d ORDER BY i"))
    };
    let list = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap();
    assert_eq!(of("LAG(v)"), list("[null,5,null,7,null]"));
    assert_eq!(of("LAG(v, 2, 0)"), list("[0,0,5,null,7]"));
    assert_eq!(of("LAG(v, 1, 0) IGNORE NULLS"), list("[0,5,5,7,7]"));
    assert_eq!(of("LEAD(v, 1, 0) IGNORE NULLS"), list("[7,7,9,9,0]"));
    assert_eq!(of("LEAD(v, 0)"), list("[5,null,7,null,9]"));
    assert_eq!(
        of("RATIO_TO_REPORT(v)"),
        list("[1,null,0.5833333333333334,null,0.42857142857142855]")
    );
}

/// With a row's time in proportion to its frame these take minutes.
#[test]
fn windows_over_many_rows_end_soon() {
    for window in [
        "SUM(x) OVER (ORDER BY x)",
        "SUM(x) OVER (ORDER BY x ROWS BETWEEN 20000 PRECEDING AND CURRENT ROW)",
        "MAX(x) OVER (ORDER BY x ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
        "AVG(x) OVER (ORDER BY x RANGE BETWEEN 15000 PRECEDING AND 15000 FOLLOWING EXCLUDE GROUP)",
        "COUNT(DISTINCT x) OVER (ORDER BY x)",
        "ROW_NUMBER() OVER (ORDER BY x)",
        "RANK() OVER (ORDER BY x % 2)",
        "LAG(x, 20000) OVER (ORDER BY x)",
        "LEAD(x, 20000) IGNORE NULLS OVER (ORDER BY x)",
        "NTH_VALUE(x, 20000) OVER (ORDER BY x GROUPS 30000 PRECEDING)",
        "RATIO_TO_REPORT(x) OVER (ORDER BY x ROWS 10000 PRECEDING)",
    ] {
        let count = rows(&format!(
            "SELECT RAW COUNT(w) FROM (SELECT {window} AS w FROM ARRAY_RANGE(1, 40001) AS x) AS t"
        ));
        assert!(count[0].as_u64().unwrap() >= 20_000, "{window}: {count:?}");
    }
}
