//! The memory of long statements, by a counting allocator: their trees and plans are reserved
//! before they are built.

#![allow(clippy::unwrap_used)]

mod support;

use oribi_query::{QueryRequest, RunControl, Service};
use oribi_testkit::CountingAllocator;
use support::{MemoryDatastore, NoRows, TestBudget};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Tables of functions, small texts, the answer's errors.
const UNCOUNTED_BYTES_MAX: usize = 512 << 10;

/// Bytes of the statements of each kind, and of some of them.
const STATEMENT_BYTES: usize = 128 << 10;
const LONG_STATEMENT_BYTES: usize = 1 << 20;

/// Runs a request with a budget. The most bytes that it allocated, those that it reserved, and the
/// codes of its errors.
fn run(request: &QueryRequest, budget_bytes: usize) -> (usize, usize, Vec<u32>) {
    let store = MemoryDatastore::default();
    store.add("d").put("k", "{\"a\":1}");
    let (service, budget) = (Service::new(), TestBudget::new(budget_bytes));
    let control = RunControl { memory: &budget, cancelled: None, timeout: None };
    let run = || service.run(&store, request, &control, &mut NoRows);
    let (outcome, most) = ALLOCATOR.growth(run);
    assert_eq!(budget.used(), 0);
    (most, budget.most(), outcome.errors.iter().map(|error| error.code).collect())
}

/// A list with so many items that its text has a length.
fn list(start: &str, item: impl Fn(usize) -> String, end: &str) -> String {
    list_of(STATEMENT_BYTES, start, item, end)
}

fn list_of(bytes: usize, start: &str, item: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = start.to_owned();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&item(number));
    }
    text + end
}

/// Long statements, each of many parts of one kind.
fn statements() -> Vec<String> {
    let repeated = |start: &str, item: &str, end: &str| list(start, |_| item.to_owned(), end);
    let long = |start: &str, item: &str, end: &str| {
        list_of(LONG_STATEMENT_BYTES, start, |_| item.to_owned(), end)
    };
    vec![
        long("SELECT RAW [", "1,", "1]"),
        repeated("SELECT RAW [", "a,", "1] FROM d"),
        repeated("SELECT RAW [", "a.b,", "1] FROM d"),
        repeated("SELECT RAW [", "'a',", "1]"),
        repeated("SELECT RAW [", "'\\n',", "1]"),
        repeated("SELECT RAW [", "$1,", "1]"),
        repeated("SELECT RAW [", "-1,", "1]"),
        repeated("SELECT RAW [", "-a,", "1] FROM d"),
        repeated("SELECT RAW [", "[],", "1]"),
        repeated("SELECT RAW [", "{},", "1]"),
        repeated("SELECT RAW [", "[a],", "1] FROM d"),
        repeated("SELECT RAW [", "(1),", "1]"),
        repeated("SELECT RAW [", "PI(),", "1]"),
        repeated("SELECT RAW [", "ABS(a),", "1] FROM d"),
        repeated("SELECT RAW [", "(SELECT 1),", "1]"),
        repeated("SELECT RAW [", "(SELECT a FROM d),", "1]"),
        repeated("SELECT RAW [", "(SELECT a FROM d ORDER BY a LIMIT 1),", "1]"),
        repeated("SELECT RAW [", "CASE WHEN 1 THEN 1 END,", "1]"),
        repeated("SELECT RAW [", "CASE 1 WHEN 1 THEN 1 ELSE 1 END,", "1]"),
        repeated("SELECT RAW [", "ARRAY x FOR x IN [] END,", "1]"),
        repeated("SELECT RAW [", "ANY x IN a SATISFIES x END,", "1] FROM d"),
        repeated("SELECT RAW [", "a IS NULL,", "1] FROM d"),
        repeated("SELECT RAW [", "a[0],", "1] FROM d"),
        repeated("SELECT RAW [", "a[0:1],", "1] FROM d"),
        repeated("SELECT RAW [", "a BETWEEN 1 AND 2,", "1] FROM d"),
        repeated("SELECT RAW [", "a LIKE 'b',", "1] FROM d"),
        repeated("SELECT RAW [", "a IN [],", "1] FROM d"),
        repeated("SELECT RAW [", "EXISTS a,", "1] FROM d"),
        repeated("SELECT RAW [", "COUNT(*),", "1] FROM d"),
        repeated("SELECT RAW [", "SUM(a) OVER (),", "1] FROM d"),
        repeated("SELECT RAW [", "SUM(a) OVER (PARTITION BY a ORDER BY a),", "1] FROM d"),
        repeated("SELECT 1", "+1", ""),
        repeated("SELECT a", "+a", " FROM d"),
        repeated("SELECT 1", "||1", ""),
        repeated("SELECT 1", " OR 1", ""),
        repeated("SELECT a", " AND a", " FROM d"),
        repeated("SELECT a", ".a", " FROM d"),
        repeated("SELECT a", "[0]", " FROM d"),
        repeated("SELECT a", "[*]", " FROM d"),
        repeated("SELECT 1", "=1", ""),
        repeated("SELECT 1", " UNION ALL SELECT 1", ""),
        repeated("SELECT RAW {", "'a':1,", "'b':1}"),
        repeated("SELECT 1 FROM d WHERE 1", " AND a=1", ""),
        repeated("SELECT 1 FROM d WHERE 1", " AND a IN [1]", ""),
        repeated("SELECT 1 FROM d ORDER BY a", ",a", ""),
        repeated("SELECT 1 FROM d GROUP BY 1", ",1", ""),
        long("INSERT INTO d VALUES ('a', 1)", ",('a',1)", ""),
        repeated("UPDATE d SET a = 1", ",a=1", " WHERE FALSE"),
        repeated("UPDATE d UNSET a", ",a", " WHERE FALSE"),
        repeated("SELECT d.* EXCLUDE '", "a,", "a' FROM d"),
        list("SELECT 1", |n| format!(",1 b{n}"), ""),
        list("SELECT 1", |n| format!(",b{n}"), " FROM d"),
        list("SELECT 1 FROM d LET a = 1", |n| format!(",b{n}=1"), ""),
        list("WITH a AS (1)", |n| format!(",b{n} AS (1)"), " SELECT 1"),
        list("WITH a AS (1)", |n| format!(",b{n} AS (SELECT 1)"), " SELECT 1"),
        list("SELECT 1 FROM d GROUP BY a", |n| format!(",a b{n}"), ""),
        format!("SELECT '{}'", "x".repeat(LONG_STATEMENT_BYTES)),
        format!("SELECT 1 AS `{}`", "x".repeat(LONG_STATEMENT_BYTES)),
        format!("SELECT {}", "x".repeat(LONG_STATEMENT_BYTES)),
        format!("SELECT /*{}*/ 1", "x".repeat(LONG_STATEMENT_BYTES)),
    ]
}

/// One test, because the allocator counts all threads.
#[test]
fn statements_are_reserved_before_they_are_built() {
    // The tables of functions stay from here on.
    run(&QueryRequest::of("SELECT UPPER('x') FROM d"), 1 << 20);
    let mut failures = Vec::new();
    for statement in statements() {
        let text: String = statement.chars().take(50).collect();
        for before in ["", "PREPARE ", "EXPLAIN "] {
            let statement = format!("{before}{statement}");
            let (most, reserved, _) = run(&QueryRequest::of(statement), 4 << 30);
            if most > reserved + UNCOUNTED_BYTES_MAX {
                failures.push(format!("{most} bytes of {reserved}: {text}"));
            }
        }
        // A refused statement builds nothing.
        let (most, reserved, codes) = run(&QueryRequest::of(statement), 4 << 20);
        if most > reserved + UNCOUNTED_BYTES_MAX {
            failures.push(format!("{most} bytes of {reserved}, {codes:?}: {text}"));
        }
    }
    let numbers: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let args: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let positions = list("SELECT RAW [", |n| format!("${},", n % 10_000 + 1), "1]");
    for statement in ["SELECT $10000".to_owned(), positions] {
        let mut request = QueryRequest::of(statement);
        request.set_args(&args).unwrap();
        let (most, reserved, codes) = run(&request, 4 << 30);
        assert_eq!(codes, Vec::<u32>::new());
        if most > reserved + UNCOUNTED_BYTES_MAX {
            failures.push(format!("{most} bytes of {reserved}: 10,000 parameters"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
