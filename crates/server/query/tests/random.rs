//! No input makes the engine panic: random bytes, random tokens, and vectors with parts exchanged.
//! Seeds are fixed.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;

use oribi_query::{QueryRequest, Service};
use support::MemoryDatastore;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

fn store() -> MemoryDatastore {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    keyspace.put("a", r#"{"x":[1,{"y":null}],"s":"text","n":1.5,"o":{"p":{"q":true}}}"#);
    keyspace.put("b", r#"[1,2,[3]]"#);
    keyspace.put("c", "broken {\"x\":[1,\"");
    keyspace.put("d", "{\"x\":{\"y\":");
    store
}

fn run(service: &Service, store: &MemoryDatastore, statement: &str) -> u32 {
    let (outcome, _) = support::run(service, store, &QueryRequest::of(statement));
    outcome.errors.first().map_or(0, |error| error.code)
}

#[test]
fn random_bytes_do_not_panic() {
    let (service, store, mut random) = (Service::new(), store(), Random(1));
    for _ in 0..3_000 {
        let count = random.below(60);
        let bytes: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
        run(&service, &store, &String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn random_tokens_do_not_panic() {
    const TOKENS: &[&str] = &[
        "SELECT",
        "FROM",
        "WHERE",
        "k",
        "x",
        "y",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        ":",
        "*",
        "+",
        "-",
        "/",
        "%",
        "^",
        "||",
        "=",
        "<",
        ">=",
        "1",
        "2.5",
        "\"a\"",
        "'b'",
        "null",
        "missing",
        "true",
        "AND",
        "OR",
        "NOT",
        "IN",
        "WITHIN",
        "LIKE",
        "BETWEEN",
        "IS",
        "VALUED",
        "AS",
        "ANY",
        "EVERY",
        "SATISFIES",
        "END",
        "ARRAY",
        "FIRST",
        "OBJECT",
        "FOR",
        "WHEN",
        "CASE",
        "THEN",
        "ELSE",
        "GROUP",
        "BY",
        "HAVING",
        "LETTING",
        "LET",
        "ORDER",
        "DESC",
        "LIMIT",
        "OFFSET",
        "UNION",
        "ALL",
        "INTERSECT",
        "EXCEPT",
        "JOIN",
        "ON",
        "KEYS",
        "USE",
        "UNNEST",
        "NEST",
        "LEFT",
        "RAW",
        "DISTINCT",
        "COUNT",
        "SUM",
        "META",
        "UPPER",
        "ARRAY_AGG",
        "OVER",
        "PARTITION",
        "WITH",
        "RECURSIVE",
        "INSERT",
        "INTO",
        "VALUES",
        "UPSERT",
        "UPDATE",
        "SET",
        "UNSET",
        "DELETE",
        "MERGE",
        "USING",
        "MATCHED",
        "RETURNING",
        "EXPLAIN",
        "PREPARE",
        "EXECUTE",
        "CREATE",
        "INDEX",
        "PRIMARY",
        "DROP",
        "BUILD",
        "$1",
        "$n",
        "?",
        "`q`",
        "`Q`i",
        "EXISTS",
        "9e999",
    ];
    let (service, store, mut random) = (Service::new(), store(), Random(2));
    for _ in 0..30_000 {
        let count = 1 + random.below(24);
        let mut statement = String::from(if random.below(3) > 0 { "SELECT " } else { "" });
        for _ in 0..count {
            statement.push_str(TOKENS[random.below(TOKENS.len())]);
            statement.push(' ');
        }
        run(&service, &store, &statement);
    }
}

#[test]
fn exchanged_parts_of_vectors_do_not_panic() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut words: Vec<Vec<String>> = Vec::new();
    for area in ["select", "expr", "group", "joins", "fn-array", "fn-string", "fn-date", "dml"] {
        let text = std::fs::read_to_string(folder.join(format!("{area}.jsonl"))).unwrap();
        for line in text.lines() {
            let vector: serde_json::Value = serde_json::from_str(line).unwrap();
            let statement = vector["statement"].as_str().unwrap_or_default();
            words.push(statement.split_inclusive(' ').map(str::to_owned).collect());
        }
    }
    words.retain(|list| !list.is_empty());
    let (service, store, mut random) = (Service::new(), store(), Random(3));
    for _ in 0..20_000 {
        let mut statement = random.pick(&words).clone();
        for _ in 0..1 + random.below(3) {
            let other = random.pick(&words).clone();
            let at = random.below(statement.len());
            statement[at].clone_from(random.pick(&other));
        }
        let statement = statement.concat().replace("customers", "k").replace("products", "k");
        run(&service, &store, &statement);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let (service, store) = (Service::new(), store());
    let repeated = [
        ("SELECT ", "(", "1", ")"),
        ("SELECT ", "[", "1", "]"),
        ("SELECT ", "{\"a\":", "1", "}"),
        ("SELECT ", "(SELECT RAW ", "1", ")"),
        ("SELECT ", "NOT ", "1", ""),
        ("SELECT ", "- ", "1", ""),
        ("SELECT ", "UPPER(", "1", ")"),
        ("SELECT ", "CASE WHEN ", "1", " THEN 1 END"),
        ("SELECT ", "ARRAY ", "1", " FOR x IN y END"),
        ("", "EXPLAIN ", "SELECT 1", ""),
        ("", "(", "SELECT 1", ")"),
        ("SELECT * FROM ", "(SELECT * FROM ", "k", ") AS s"),
    ];
    for (start, open, inside, close) in repeated {
        for count in [40, 5_000, 100_000] {
            let statement = format!("{start}{}{inside}{}", open.repeat(count), close.repeat(count));
            let code = run(&service, &store, &statement);
            assert!(count == 40 || code >= 3000, "{open} {count}");
        }
    }
}

#[test]
fn large_statements_run() {
    let (service, store) = (Service::new(), store());
    let numbers = vec!["1"; 300_000].join(",");
    assert_eq!(run(&service, &store, &format!("SELECT RAW ARRAY_LENGTH([{numbers}])")), 0);
    for operator in [" + ", " OR ", " || ", " - "] {
        let chain = vec!["x"; 100_000].join(operator);
        assert_eq!(run(&service, &store, &format!("SELECT RAW {chain} FROM k")), 0);
    }
    let union = vec!["SELECT RAW 1"; 2_000].join(" UNION ");
    assert_eq!(run(&service, &store, &union), 0);
    let joins = " UNNEST x".repeat(10_000);
    assert_eq!(run(&service, &store, &format!("SELECT 1 FROM k{joins}")), 3000);
}

#[test]
fn functions_refuse_results_that_explode() {
    let (service, store) = (Service::new(), store());
    for expression in [
        "ARRAY_RANGE(0, 1e15)",
        "REPEAT('abc', 100000000000)",
        "ARRAY_REPEAT([1,2,3], 100000000)",
        "LPAD('a', 1000000000)",
        "REPLACE(REPEAT('a', 1000000), 'a', REPEAT('b', 1000000))",
        "REGEXP_LIKE('aaaa', '(a{1000}){1000}')",
        "SUFFIXES(REPEAT('a', 10000000))",
        "DATE_RANGE_STR('0001-01-01', '9999-01-01', 'millisecond')",
    ] {
        assert_eq!(run(&service, &store, &format!("SELECT {expression}")), 5010, "{expression}");
    }
    let text = "REPEAT('a', 100000)";
    let like = format!("SELECT {text} LIKE '%a%a%a%a%a%a%a%a%b', REGEXP_LIKE({text}, '(a*)*b')");
    assert_eq!(run(&service, &store, &like), 0);
}
