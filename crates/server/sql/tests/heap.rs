//! The bound on SQLite's heap, which all databases of a process share: so this is a process of its
//! own.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use oribi_sql::ValueRef;
use oribi_sql::database::{Database, Parameters, ResultColumn, RowSink, any_room};
use oribi_sql::source::TableSource;

const HEAP_BYTES: u64 = 32 << 20;

/// Takes rows and forgets them.
struct Nowhere;

impl RowSink for Nowhere {
    fn begin(&mut self, _: Vec<ResultColumn>) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[ValueRef<'_>]) -> Result<()> {
        Ok(())
    }

    fn end(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_takes_too_much_memory_is_an_error_and_the_next_statement_works() {
    let catalog = Arc::new(BTreeMap::<String, Arc<dyn TableSource>>::new());
    let database = Database::restricted(catalog, HEAP_BYTES, &any_room()).expect("a database");
    let error_of = |statement: &str| {
        let outcome = database.run(statement, &Parameters::None, &mut Nowhere);
        outcome.err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let rows =
        "with recursive c(x) as (values (1) union all select x + 1 from c where x < 1000000)";
    for statement in [
        format!("{rows} select x, randomblob(2000) from c order by 2"),
        format!("{rows} select count(distinct hex(x) || hex(zeroblob(1000))) from c"),
        format!("{rows} select group_concat(hex(zeroblob(1000))) from c"),
        "select hex(zeroblob(30000000))".to_owned(),
    ] {
        let said = error_of(&statement);
        assert!(said.contains("more memory") || said.contains("too big"), "{statement}: {said:?}");
    }
    assert_eq!(error_of("select 1"), "");
}
