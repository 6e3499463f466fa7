//! Virtual tables over rows in memory: what is asked of the source, and that its answers are
//! checked again.

use std::sync::Mutex;

use rusqlite::types::Value;

use super::*;
use crate::source::{Argument, Column, Conditions};

/// Rows in memory; writes down what it was asked, and ignores every condition unless it is indexed.
struct FixedRows {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    asked: Mutex<Vec<ScanRequest>>,
    fails_at: Option<usize>,
    /// Says that it has millions of rows, of which `=` finds few, and returns those only.
    is_indexed: bool,
}

impl FixedRows {
    fn new(rows: Vec<Vec<Value>>) -> Arc<FixedRows> {
        FixedRows::failing(rows, None)
    }

    fn failing(rows: Vec<Vec<Value>>, fails_at: Option<usize>) -> Arc<FixedRows> {
        let column =
            |name: &str, declared, takes| Column { name: name.to_owned(), declared, takes };
        let columns = vec![
            column("id", "TEXT", Conditions::Comparisons),
            column("cas", "INTEGER", Conditions::Comparisons),
            column("json", "JSON TEXT", Conditions::Nullness),
        ];
        let asked = Mutex::default();
        Arc::new(FixedRows { columns, rows, asked, fails_at, is_indexed: false })
    }

    fn indexed(rows: Vec<Vec<Value>>) -> Arc<FixedRows> {
        let rows = FixedRows::new(rows);
        Arc::new(FixedRows { is_indexed: true, ..Arc::into_inner(rows).unwrap() })
    }

    /// Whether a row fulfils the conditions with `=`.
    fn is_found(&self, row: &[Value], request: &ScanRequest) -> bool {
        let mut equals =
            request.conditions.iter().filter(|asked| asked.operator == Operator::Equal);
        !self.is_indexed
            || equals.all(|asked| {
                let cell = Argument::column_result(ValueRef::from(&row[asked.column])).unwrap();
                cell == asked.values[0]
            })
    }

    fn asked(&self) -> Vec<ScanRequest> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// The rows by the columns that were asked for; others are NULL, as a source makes them.
struct Copied {
    rows: Vec<Vec<Value>>,
    columns: Vec<usize>,
    at: Option<usize>,
    fails_at: Option<usize>,
}

impl RowStream for Copied {
    fn advance(&mut self) -> anyhow::Result<bool> {
        let at = self.at.map_or(0, |at| at + 1);
        anyhow::ensure!(self.fails_at != Some(at), "the servers are gone");
        self.at = Some(at);
        Ok(at < self.rows.len())
    }

    fn cell(&self, column: usize) -> anyhow::Result<ValueRef<'_>> {
        let row = &self.rows[self.at.unwrap()];
        Ok(if self.columns.contains(&column) {
            ValueRef::from(&row[column])
        } else {
            ValueRef::Null
        })
    }
}

impl TableSource for Arc<FixedRows> {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn identity(&self) -> &[usize] {
        &[0]
    }

    fn rows(&self) -> u64 {
        if self.is_indexed { 10_000_000 } else { self.rows.len() as u64 }
    }

    fn share_read(&self, conditions: &[(usize, Operator)]) -> f64 {
        if self.is_indexed && conditions.iter().any(|(_, operator)| *operator == Operator::Equal) {
            return 1e-6;
        }
        if conditions.contains(&(0, Operator::Equal)) { 0.0 } else { 1.0 }
    }

    fn scan(&self, request: &ScanRequest) -> anyhow::Result<Box<dyn RowStream>> {
        self.asked.lock().unwrap().push(request.clone());
        let rows = self.rows.iter().filter(|row| self.is_found(row, request));
        let (rows, columns) = (rows.cloned().collect(), request.columns.clone());
        Ok(Box::new(Copied { rows, columns, at: None, fails_at: self.fails_at }))
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn row(id: &str, cas: i64, json: &str) -> Vec<Value> {
    vec![text(id), Value::Integer(cas), if json.is_empty() { Value::Null } else { text(json) }]
}

fn orders() -> Vec<Vec<Value>> {
    vec![
        row("a1", 10, r#"{"city":"Kyiv","total":5}"#),
        row("a2", 20, r#"{"city":"Oslo","total":7}"#),
        row("b1", 30, r#"{"city":"Kyiv","total":9}"#),
        row("b2", 40, ""),
    ]
}

fn connect(tables: &[(&str, &Arc<FixedRows>)]) -> Connection {
    connect_with_numbers(tables).0
}

fn connect_with_numbers(tables: &[(&str, &Arc<FixedRows>)]) -> (Connection, RowNumbers) {
    let connection = Connection::open_in_memory().unwrap();
    let row_numbers = RowNumbers::default();
    let declared = register(&connection, row_numbers.clone()).unwrap();
    for (name, rows) in tables {
        declare(&connection, &declared, name, Arc::new(Arc::clone(rows))).unwrap();
    }
    (connection, row_numbers)
}

/// All rows of a statement, as text.
fn query(connection: &Connection, statement: &str) -> Vec<String> {
    let mut statement = connection.prepare(statement).unwrap();
    let count = statement.column_count();
    let rows = statement.query_map([], |row| {
        let cells = (0..count).map(|at| {
            Ok(match row.get::<_, Value>(at)? {
                Value::Null => "-".to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                other => format!("{other:?}"),
            })
        });
        Ok(cells.collect::<rusqlite::Result<Vec<_>>>()?.join(" "))
    });
    rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn counting_asks_for_no_column_and_no_condition() {
    let rows = FixedRows::new(orders());
    let (connection, row_numbers) = connect_with_numbers(&[("orders", &rows)]);
    let counting = "select count(*) from orders";
    row_numbers.look_at(&connection, &connection.prepare(counting).unwrap());
    assert_eq!(query(&connection, counting), ["4"]);
    assert_eq!(rows.asked(), [ScanRequest::default()]);
}

#[test]
fn json_functions_groups_and_order_work_on_what_is_asked_for() {
    let rows = FixedRows::new(orders());
    let (connection, row_numbers) = connect_with_numbers(&[("orders", &rows)]);
    let statement = "select json ->> 'city' as city, sum(json ->> 'total') from orders
                     where json is not null group by city order by 2 desc";
    row_numbers.look_at(&connection, &connection.prepare(statement).unwrap());
    assert_eq!(query(&connection, statement), ["Kyiv 14", "Oslo 7"]);
    let condition = Condition { column: 2, operator: Operator::IsNotNull, values: Vec::new() };
    assert_eq!(rows.asked(), [ScanRequest { columns: vec![2], conditions: vec![condition] }]);
}

#[test]
fn conditions_are_handed_down_and_checked_again() {
    let rows = FixedRows::new(orders());
    let connection = connect(&[("orders", &rows)]);
    let statement = "select id from orders where cas >= 20 and cas < 40 and id glob 'b*'";
    // The source ignores them all, and still only one row is right.
    assert_eq!(query(&connection, statement), ["b1"]);
    let asked = rows.asked();
    let find = |column, operator| {
        let mut conditions = asked[0].conditions.iter();
        conditions.find(|asked| (asked.column, asked.operator) == (column, operator)).unwrap()
    };
    assert_eq!(find(1, Operator::GreaterOrEqual).values, [Argument::Integer(20)]);
    assert_eq!(find(1, Operator::Less).values, [Argument::Integer(40)]);
    // SQLite turns a prefix into a range by itself.
    assert_eq!(find(0, Operator::GreaterOrEqual).values, [Argument::Text(b"b".to_vec())]);
    assert_eq!(find(0, Operator::Less).values, [Argument::Text(b"c".to_vec())]);
}

#[test]
fn a_list_comes_at_once_and_null_finds_nothing() {
    let rows = FixedRows::new(orders());
    let connection = connect(&[("orders", &rows)]);
    assert_eq!(
        query(&connection, "select cas from orders where id in ('a1', 'b2', 'zz')"),
        ["10", "40"]
    );
    let asked = rows.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].conditions[0].operator, asked[0].conditions[0].values.len()),
        (Operator::In, 3)
    );
    assert!(query(&connection, "select cas from orders where id = null").is_empty());
    assert!(rows.asked().is_empty());
}

#[test]
fn what_is_compared_without_case_stays_with_sqlite() {
    let rows = FixedRows::new(orders());
    let connection = connect(&[("orders", &rows)]);
    assert_eq!(query(&connection, "select cas from orders where id = 'A1' collate nocase"), ["10"]);
    assert_eq!(rows.asked()[0].conditions, []);
    assert_eq!(query(&connection, "select cas from orders where json = '5' or id = 'a1'"), ["10"]);
    assert!(
        rows.asked().iter().all(|asked| asked.conditions.iter().all(|asked| asked.column == 0))
    );
}

#[test]
fn a_join_looks_the_inner_table_up_by_key() {
    let people =
        FixedRows::new(vec![row("p1", 1, r#"{"order":"a2"}"#), row("p2", 2, r#"{"order":"b1"}"#)]);
    let orders = FixedRows::new(orders());
    let connection = connect(&[("orders", &orders), ("people", &people)]);
    let statement =
        "select p.id, o.cas from people p join orders o on o.id = p.json ->> 'order' order by 1";
    assert_eq!(query(&connection, statement), ["p1 20", "p2 30"]);
    let asked = orders.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[1].conditions[0].values, [Argument::Text(b"b1".to_vec())]);
    let plan = query(&connection, &format!("explain query plan {statement}")).join("\n");
    assert!(plan.contains("where id = ?, reads id, cas"), "{plan}");
    assert!(plan.contains("reads id, json"), "{plan}");
}

/// Rows were numbered in the order of each scan, so that the first row of every branch was taken
/// for the same one.
#[test]
fn branches_of_an_or_lose_no_row_and_repeat_none() {
    let rows = FixedRows::indexed(orders());
    let (connection, row_numbers) = connect_with_numbers(&[("orders", &rows)]);
    for (condition, expected) in [
        ("id = 'a1' or cas = 30", &["a1", "b1"] as &[&str]),
        ("(id = 'a2' and cas = 20) or (id = 'b2' and cas = 40)", &["a2", "b2"]),
        ("id = 'a1' or cas = 10 or id = 'b1'", &["a1", "b1"]),
    ] {
        let statement = format!("select id from orders where {condition} order by id");
        let plan = query(&connection, &format!("explain query plan {statement}")).join("\n");
        assert!(plan.contains("MULTI-INDEX OR"), "{plan}");
        row_numbers.look_at(&connection, &connection.prepare(&statement).unwrap());
        assert_eq!(query(&connection, &statement), expected, "{condition}");
        // What tells rows apart is read also where a statement does not look at it.
        let counting = format!("select count(*) from orders where {condition}");
        row_numbers.look_at(&connection, &connection.prepare(&counting).unwrap());
        assert_eq!(query(&connection, &counting), [expected.len().to_string()], "{condition}");
    }
}

/// The rows that a right join has found are remembered by the same numbers.
#[test]
fn outer_joins_show_every_row_once() {
    let people = FixedRows::indexed(vec![
        row("p1", 1, r#"{"order":"a2"}"#),
        row("p2", 2, r#"{"order":"b1"}"#),
        row("p3", 3, r#"{"order":"none"}"#),
    ]);
    let orders = FixedRows::indexed(orders());
    let (connection, row_numbers) =
        connect_with_numbers(&[("orders", &orders), ("people", &people)]);
    let join = "join orders o on o.id = p.json ->> 'order' order by o.cas, p.id";
    let right = format!("select p.id, o.cas from people p right {join}");
    row_numbers.look_at(&connection, &connection.prepare(&right).unwrap());
    assert_eq!(query(&connection, &right), ["- 10", "p1 20", "p2 30", "- 40"]);
    let full = format!("select p.id, o.cas from people p full {join}");
    row_numbers.look_at(&connection, &connection.prepare(&full).unwrap());
    assert_eq!(query(&connection, &full), ["p3 -", "- 10", "p1 20", "p2 30", "- 40"]);
}

#[test]
fn a_number_that_was_not_to_be_asked_for_is_an_error() {
    let rows = FixedRows::new(orders());
    let (connection, row_numbers) = connect_with_numbers(&[("orders", &rows)]);
    let (counting, numbers) = ("select count(*) from orders", "select rowid from orders");
    row_numbers.look_at(&connection, &connection.prepare(numbers).unwrap());
    assert_eq!(query(&connection, numbers).len(), 4);
    // As if SQLite asked in a way that was not foreseen.
    row_numbers.look_at(&connection, &connection.prepare(counting).unwrap());
    let mut statement = connection.prepare(numbers).unwrap();
    let failed = statement.query([]).unwrap().next().unwrap_err().to_string();
    assert!(failed.contains("whose key was not read"), "{failed}");
}

#[test]
fn plans_are_remembered_once_each() {
    let rows = FixedRows::new(orders());
    let connection = connect(&[("orders", &rows)]);
    for _ in 0..3 {
        query(&connection, "select cas from orders where id = 'a1'");
    }
    let plan = query(&connection, "explain query plan select cas from orders where id = 'a1'");
    assert!(plan[0].contains("INDEX 0:"), "{plan:?}");
}

#[test]
fn a_source_that_fails_says_why_and_nothing_can_be_written() {
    let rows = FixedRows::failing(orders(), Some(2));
    let connection = connect(&[("orders", &rows)]);
    let mut statement = connection.prepare("select id from orders").unwrap();
    let mut found = statement.query([]).unwrap();
    assert!(found.next().unwrap().is_some() && found.next().unwrap().is_some());
    assert!(found.next().unwrap_err().to_string().contains("the servers are gone"));
    let refused = connection.execute("delete from orders", []).unwrap_err();
    assert!(refused.to_string().contains("may not be modified"), "{refused}");
}
