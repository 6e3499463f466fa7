//! Statements of strangers, wrong statements, and statements that are ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::source::{Column, Conditions, Operator, RowStream, ScanRequest, TableSource};

/// Numbers from 0 on.
struct Numbers {
    columns: Vec<Column>,
    count: i64,
}

struct Counting {
    at: i64,
    count: i64,
}

impl RowStream for Counting {
    fn advance(&mut self) -> Result<bool> {
        self.at += 1;
        Ok(self.at < self.count)
    }

    fn cell(&self, _: usize) -> Result<ValueRef<'_>> {
        Ok(ValueRef::Integer(self.at))
    }
}

impl TableSource for Numbers {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn identity(&self) -> &[usize] {
        &[0]
    }

    fn rows(&self) -> u64 {
        1
    }

    fn share_read(&self, _: &[(usize, Operator)]) -> f64 {
        1.0
    }

    fn scan(&self, _: &ScanRequest) -> Result<Box<dyn RowStream>> {
        Ok(Box::new(Counting { at: -1, count: self.count }))
    }
}

fn numbers(count: i64) -> Arc<dyn Catalog> {
    let column =
        Column { name: "n".to_owned(), declared: "INTEGER", takes: Conditions::Comparisons };
    let table: Arc<dyn TableSource> = Arc::new(Numbers { columns: vec![column], count });
    Arc::new(BTreeMap::from([("numbers".to_owned(), table)]))
}

/// Counts rows.
#[derive(Default)]
struct Counter {
    rows: usize,
    texts: Vec<String>,
}

impl RowSink for Counter {
    fn begin(&mut self, _: Vec<ResultColumn>) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        self.rows += 1;
        self.texts = values.iter().map(|value| format!("{value:?}")).collect();
        Ok(())
    }

    fn end(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}

/// Enough for everything but what is meant to need too much.
const HEAP_BYTES: u64 = 64 << 20;

fn restricted(count: i64) -> Database {
    Database::restricted(numbers(count), HEAP_BYTES, &any_room()).unwrap()
}

fn error_of(database: &Database, statement: &str) -> String {
    let outcome = database.run(statement, &Parameters::None, &mut Counter::default());
    outcome.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[test]
fn strangers_may_only_read() {
    let database = restricted(3);
    for statement in [
        "create table x (a)",
        "create temp table x as select 1",
        "create view x as select 1",
        "create virtual table x using oribi",
        "drop table numbers",
        "insert into numbers values (1)",
        "delete from numbers",
        "update sqlite_master set name = 'x'",
        "attach 'file' as other",
        "vacuum into 'file'",
        "pragma hard_heap_limit = 0",
        "pragma temp_store = file",
        "pragma temp_store_directory = '/'",
        "begin",
        "savepoint x",
        "analyze",
        "select load_extension('x')",
    ] {
        database.declare("numbers").unwrap();
        let said = error_of(&database, statement);
        assert!(
            ["may only read", "not authorized", "may not be modified"]
                .iter()
                .any(|refusal| said.contains(refusal)),
            "{statement}: {said:?}"
        );
    }
    for statement in [
        "select sum(n) from numbers",
        "with recursive c(x) as (values (1) union all select x + 1 from c where x < 9) select * from c",
        "values (1), (2)",
        "explain query plan select * from numbers order by n",
        "select name, type from pragma_table_info('numbers')",
        "select value from json_each('[1,2]')",
        "select a.n from numbers a join numbers b on a.n = b.n order by 1",
    ] {
        assert_eq!(error_of(&database, statement), "", "{statement}");
    }
}

#[test]
fn wrong_statements_say_what_is_wrong() {
    let database = restricted(3);
    for (statement, expected) in [
        ("select * from numbres", "did you mean numbers?"),
        ("select * from numbers where", "incomplete input"),
        ("selec 1", "syntax error, at \"selec 1\""),
        ("select m from numbers", "no such column: m"),
        ("select * from numbers where n = ?", "?1 has no value"),
        ("select no_function(1)", "no such function"),
        // `.cargo/config.toml` leaves it out.
        ("select fts3_tokenizer('x')", "no such function"),
    ] {
        let said = error_of(&database, statement);
        assert!(said.contains(expected), "{statement}: {said:?}");
    }
}

#[test]
fn parameters_have_positions_or_names() {
    let database = restricted(3);
    let last = |statement: &str, parameters: &Parameters| {
        let mut counter = Counter::default();
        database.run(statement, parameters, &mut counter).unwrap();
        counter.texts.join(" ")
    };
    let positions = Parameters::Positions(vec![Value::Integer(1), Value::Text("x".to_owned())]);
    assert_eq!(
        last("select n, ?2 from numbers where n = ?1", &positions),
        "Integer(1) Text([120])"
    );
    let names = Parameters::Names(vec![("least".to_owned(), Value::Integer(2))]);
    assert_eq!(last("select n from numbers where n >= :least", &names), "Integer(2)");
}

#[test]
fn a_statement_that_finds_no_row_can_be_ended() {
    let mut database = restricted(i64::MAX);
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    database.end_when(move || counted.fetch_add(1, Ordering::Relaxed) >= 3).unwrap();
    assert_eq!(error_of(&database, "select * from numbers where n < 0"), "interrupted");
    assert!(looks.load(Ordering::Relaxed) >= 3);
    let endless =
        "with recursive c(x) as (values (1) union all select x + 1 from c) select max(x) from c";
    assert_eq!(error_of(&database, endless), "interrupted");
}

#[test]
fn only_named_tables_are_declared_and_their_number_is_bounded() {
    struct Many;
    impl Catalog for Many {
        fn names(&self) -> Result<Vec<String>> {
            Ok((0..200).map(|number| format!("t{number}")).collect())
        }
        fn table(&self, _: &str) -> Result<Arc<dyn TableSource>> {
            numbers(1).table("numbers")
        }
    }
    let database = Database::restricted(Arc::new(Many), HEAP_BYTES, &any_room()).unwrap();
    assert_eq!(error_of(&database, "select * from t1, t2 where t1.n = t2.n"), "");
    assert_eq!(database.declared.lock().len(), 2);
    let all = (0..=TABLES_MAX).map(|number| format!("select n from t{number}"));
    let statement = all.collect::<Vec<_>>().join(";");
    assert!(error_of(&database, &statement).contains("may name 64 tables"));
}

#[test]
fn the_bucket_default_is_quoted() {
    let error = error_of(&restricted(1), "select count(*) from default");
    assert!(error.contains("\"default\""), "{error}");
}
