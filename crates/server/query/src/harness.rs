//! Checks shared by tests and the fuzz targets.
//!
//! Each takes arbitrary bytes and panics when an invariant of this crate does not hold. Compiled
//! for tests and under the `harness` feature only.
//!
//! [`check_model`] is differential. It derives documents and a query from the input, and runs the
//! query with [`Service`] and with a plain evaluator over serde_json's values (`model`). Both must
//! agree on the rows.

mod documents;
mod expression;
mod generate;
mod model;
mod select;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{
    MemoryBudget, QueryRequest, ResponseHead, RowSink, RunControl, RunOutcome, Service, SinkError,
};
use crate::{parser, printer::print};

use documents::FixedDocuments;
use generate::Choices;

/// Memory of a statement that is checked.
const BUDGET_BYTES: usize = 8 << 20;

/// Time of a statement that is checked. It ends soon after.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Rows whose text is checked.
const ROWS_CHECKED: usize = 200;

/// Checks the parser: an expression that was parsed has a canonical text, and that text has the
/// same canonical text.
///
/// # Panics
/// When an invariant is violated.
pub fn check_parser(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // Any statement: an error has a place within the text.
    if let Err(error) = parser::parse(&text, &|_| Ok(()))
        && let Some((line, column)) = error.position
    {
        assert!(line >= 1 && column >= 1, "{error}");
    }
    let Ok(expr) = parser::parse_expression(&text) else { return };
    let printed = print(&expr);
    // Canonical texts have more parentheses, which may be too many.
    let Ok(again) = parser::parse_expression(&printed) else { return };
    assert_eq!(print(&again), printed, "{text}");
}

/// Checks the evaluator on any statement: rows are JSON, memory returns, and the statement ends
/// with its time.
///
/// # Panics
/// When an invariant is violated.
pub fn check_statement(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let store = FixedDocuments::new(&[
        (r"a", r#"{"x":[1,{"y":null}],"s":"text","n":1.5,"o":{"p":{"q":true}}}"#),
        (r"b", r#"[1,2,[3]]"#),
        (r"c", r#"{"x":[[],{}],"s":"","n":-7,"o":null}"#),
        (r"d", "broken {\"x\":[1,\""),
    ]);
    let (outcome, rows) = run(&store, &text);
    for row in rows.iter().take(ROWS_CHECKED) {
        assert!(oribi_subdoc::json::is_json(row), "{text}: {}", String::from_utf8_lossy(row));
    }
    assert_eq!(outcome.metrics.result_count as usize, rows.len(), "{text}");
    let elapsed = outcome.metrics.elapsed;
    assert!(elapsed < 20 * TIMEOUT, "{text} took {elapsed:?}");
}

/// Checks the evaluator against the model.
///
/// # Panics
/// When they differ.
pub fn check_model(input: &[u8]) {
    check_model_with(input, |statement| statement);
}

/// The same with another statement for the engine: a planted difference has to be found.
fn check_model_with(input: &[u8], change: impl Fn(String) -> String) {
    let mut choices = Choices::new(input);
    let documents = generate::documents(&mut choices);
    let query = generate::query(&mut choices);
    let texts: Vec<(String, String)> =
        documents.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    let texts: Vec<(&str, &str)> =
        texts.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    let statement = change(query.text());
    let (outcome, rows) = run(&FixedDocuments::new(&texts), &statement);
    if outcome.errors.iter().any(|error| matches!(error.code, 1080 | 5500)) {
        return;
    }
    assert!(outcome.errors.is_empty(), "{statement}: {:?}", outcome.errors);
    let rows: Vec<serde_json::Value> =
        rows.iter().map(|row| serde_json::from_slice(row).expect("a row is JSON")).collect();
    let documents: Vec<serde_json::Value> = documents.into_iter().map(|(_, value)| value).collect();
    let expected = query.rows(&documents);
    assert!(
        select::same_rows(&rows, &expected, query.is_ordered()),
        "{statement}\n over {texts:?}\n engine {rows:?}\n model  {expected:?}"
    );
}

fn run(store: &FixedDocuments, statement: &str) -> (RunOutcome, Vec<Vec<u8>>) {
    let budget = CountedBudget::default();
    let control = RunControl { memory: &budget, cancelled: None, timeout: Some(TIMEOUT) };
    let mut rows = KeptRows::default();
    let request = QueryRequest::of(statement);
    let outcome = Service::new().run(store, &request, &control, &mut rows);
    assert_eq!(budget.used.load(Ordering::Relaxed), 0, "{statement} keeps memory");
    (outcome, rows.0)
}

#[derive(Default)]
struct CountedBudget {
    used: AtomicUsize,
}

impl MemoryBudget for CountedBudget {
    fn reserve(&self, bytes: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let fits = used.checked_add(bytes).is_some_and(|used| used <= BUDGET_BYTES);
        if fits {
            self.used.store(used + bytes, Ordering::Relaxed);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The rows of an answer. More than fit end the statement.
#[derive(Default)]
struct KeptRows(Vec<Vec<u8>>);

impl RowSink for KeptRows {
    fn start(&mut self, _: &ResponseHead) -> Result<(), SinkError> {
        Ok(())
    }

    fn row(&mut self, json: &[u8]) -> Result<(), SinkError> {
        self.0.push(json.to_vec());
        Ok(())
    }
}
