//! The memory of values that statements make, by a counting allocator: reserved before it is
//! taken, and within the budget when it is refused.

#![allow(clippy::unwrap_used)]

mod support;

use oribi_query::{QueryRequest, RunControl, Service};
use oribi_testkit::CountingAllocator;
use support::{MemoryDatastore, NoRows, TestBudget};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const BUDGET_BYTES: usize = 2 << 20;
/// Plans, caches, and values below the size that is counted.
const UNCOUNTED_BYTES_MAX: usize = 256 << 10;

/// Says what is wrong with a statement's errors and most memory.
fn wrong(statement: &str, expected: &[u32]) -> Option<String> {
    let (store, budget) = (MemoryDatastore::default(), TestBudget::new(BUDGET_BYTES));
    let (service, request) = (Service::new(), QueryRequest::of(statement));
    let control = RunControl { memory: &budget, cancelled: None, timeout: None };
    let run = || service.run(&store, &request, &control, &mut NoRows);
    let (outcome, most) = ALLOCATOR.growth(run);
    assert_eq!(budget.used(), 0, "{statement}");
    let codes: Vec<u32> = outcome.errors.iter().map(|error| error.code).collect();
    let reserved = budget.most();
    (codes != expected || most > reserved + UNCOUNTED_BYTES_MAX)
        .then(|| format!("{codes:?}, {most} bytes of {reserved}: {statement}"))
}

/// One test, because the allocator counts all threads.
#[test]
fn values_are_reserved_before_they_are_made() {
    // The tables of functions stay from here on.
    assert_eq!(wrong("SELECT REPEAT('x', 10)", &[]), None);
    let mut failures = Vec::new();
    let text = "REPEAT('a b', 200000)";
    let array = "ARRAY_RANGE(0, 12000)";
    for large in [
        "REPEAT('x', 3000000)".to_owned(),
        "LPAD('x', 3000000)".to_owned(),
        "MB_RPAD('x', 3000000, 'é')".to_owned(),
        "ARRAY_RANGE(0, 200000)".to_owned(),
        "ARRAY_REPEAT(1, 200000)".to_owned(),
        format!("CONCAT({text}, {text}, {text})"),
        format!("{text} || {text} || {text}"),
        format!("CONCAT2({text}, {text}, {text}, {text})"),
        format!("SPLIT({text}, ' ')"),
        "SPLIT(REPEAT('ab', 50000), '')".to_owned(),
        "SUFFIXES(REPEAT('ab', 50000))".to_owned(),
        format!("REPLACE({text}, 'a', 'aaaaaa')"),
        format!("REGEXP_REPLACE({text}, 'a', 'aaaaaa')"),
        format!("REGEXP_MATCHES({text}, 'a')"),
        format!("REGEXP_SPLIT({text}, ' ')"),
        format!("URLENCODE({text})"),
        format!("BASE64_ENCODE({text} || {text})"),
        format!("ENCODE_JSON(ARRAY_CONCAT({array}, {array}, {array}))"),
        "DECODE_JSON('[1' || REPEAT(',1', 300000) || ']')".to_owned(),
        "DECODE_JSON('[1' || REPEAT(',1', 100000) || ']')[1:]".to_owned(),
        "ARRAY_LENGTH(DECODE_JSON('[1' || REPEAT(',1', 100000) || ']'))".to_owned(),
        format!("ARRAY_CONCAT({array}, {array}, {array}, {array}, {array}, {array})"),
        format!("ARRAY_DISTINCT({array})"),
        format!("ARRAY_UNION({array}, {array})"),
        format!("ARRAY_FLATTEN(ARRAY_REPEAT({array}, 20), 1)"),
        format!("ARRAY [x, x] FOR x IN {array} END"),
        format!("ARRAY REPEAT('x', 4000) FOR x IN {array} END"),
        format!("OBJECT TOSTRING(x) : REPEAT('x', 1000) FOR x IN {array} END"),
        format!("OBJECT_PAIRS(OBJECT TOSTRING(x) : x FOR x IN {array} END)"),
        "TOKENS(ARRAY TOSTRING(x) FOR x IN ARRAY_RANGE(0, 12000) END)".to_owned(),
        "(SELECT RAW REPEAT('x', 3000) FROM ARRAY_RANGE(0, 12000) AS x)".to_owned(),
        "(SELECT RAW ARRAY_AGG(REPEAT('x', 3000)) FROM ARRAY_RANGE(0, 12000) AS x)".to_owned(),
        "DATE_RANGE_STR('2000-01-01', '2100-01-01', 'hour')".to_owned(),
    ] {
        failures.extend(wrong(&format!("SELECT RAW {large}"), &[5500]));
    }
    // Memory returns with each value.
    for small in [
        "SELECT RAW LENGTH(REPEAT('x', 500000)) FROM ARRAY_RANGE(0, 1000) AS n",
        "SELECT RAW SUM(LENGTH('y' || REPEAT('x', 300000))) FROM ARRAY_RANGE(0, 100) AS n",
        "SELECT RAW ANY x IN ARRAY_RANGE(0, 500) SATISFIES LENGTH(REPEAT('x', 500000)) = x END",
        "SELECT RAW (SELECT RAW m FROM ARRAY_RANGE(0, 2000) AS m WHERE m > n) \
         FROM ARRAY_RANGE(0, 100) AS n",
    ] {
        failures.extend(wrong(small, &[]));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
