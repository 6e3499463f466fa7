//! Statements that mean harm: each ends soon after its time, and the memory that it takes is what
//! it reserved. A counting allocator sees all memory of this process, so there is one test.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use oribi_query::{QueryRequest, RunControl, Service};
use oribi_testkit::CountingAllocator;
use support::{MemoryDatastore, NoRows, TestBudget};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const BUDGET_BYTES: usize = 24 << 20;

/// What no reservation counts: values below the size that is counted.
const UNCOUNTED_BYTES_MAX: usize = 2 << 20;

const TIMEOUT: Duration = Duration::from_millis(200);

/// Slow machines included. Without an end these statements take minutes to ages.
const END_MAX: Duration = Duration::from_secs(20);

fn store() -> MemoryDatastore {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    let list = |count: usize, item: &str| vec![item; count].join(",");
    // Large stored values, whose elements take many times their text.
    keyspace.put("array", &format!("{{\"v\":[{}]}}", list(200_000, "1")));
    keyspace.put("brother", &format!("{{\"v\":[{},2]}}", list(199_999, "1")));
    let fields: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":1")).collect();
    keyspace.put("object", &format!("{{\"v\":{{{}}}}}", fields.join(",")));
    keyspace.put("deep", &format!("{{\"v\":{}{}}}", "[".repeat(400), "]".repeat(400)));
    let small = store.add("s");
    for number in 0..2_000 {
        small.put(&format!("key{number:04}"), &format!("{{\"n\":{number},\"g\":{}}}", number % 3));
    }
    store
}

fn nested(levels: usize, open: &str, inner: &str, close: &str) -> String {
    open.repeat(levels) + inner + &close.repeat(levels)
}

fn statements() -> Vec<String> {
    let many = |count: usize, item: &dyn Fn(usize) -> String| {
        (0..count).map(item).collect::<Vec<String>>().join(", ")
    };
    let mut all: Vec<String> = [
        // Comparisons of large stored arrays.
        "SELECT a.v = b.v FROM k a JOIN k b ON true",
        "SELECT a.v < b.v FROM k a JOIN k b ON a.v >= b.v",
        "SELECT k.v FROM k WHERE k.v IN (SELECT RAW x.v FROM k x)",
        "SELECT DISTINCT k.v FROM k",
        "SELECT COUNT(DISTINCT k.v), MIN(k.v), MAX(k.v) FROM k",
        "SELECT 1 FROM k GROUP BY k.v",
        "SELECT META().id FROM k ORDER BY k.v LIMIT 2",
        "SELECT 1 FROM k a JOIN k b ON a.v = b.v",
        "SELECT k.v FROM k UNION SELECT k.v FROM k",
        "SELECT k.v FROM k INTERSECT SELECT k.v FROM k",
        "SELECT a.v BETWEEN b.v AND c.v FROM k a JOIN k b ON true JOIN k c ON true",
        "SELECT CASE a.v WHEN b.v THEN 1 END FROM k a JOIN k b ON true",
        "SELECT v WITHIN k FROM k",
        "SELECT ARRAY_CONTAINS(a.v, b.v) FROM k a JOIN k b ON true",
        "SELECT ARRAY_DISTINCT(v) FROM k",
        "UPDATE k SET v[0] = 2",
        "UPDATE k SET v[0] = x FOR x WITHIN v END",
        "UPDATE k UNSET x FOR x IN v END",
        // NEST and joins.
        "SELECT * FROM k a NEST k b ON true",
        "SELECT * FROM s a NEST s b ON a.g = b.g",
        "SELECT * FROM s a NEST s b ON a.g = b.g NEST s c ON true",
        "SELECT COUNT(*) FROM s a JOIN s b ON true JOIN s c ON true",
        "SELECT COUNT(*) FROM s a JOIN s b ON true RIGHT JOIN s c ON a.n = c.n + b.n",
        // Computation.
        "SELECT COUNT(*) FROM ARRAY_RANGE(0, 60000) a JOIN ARRAY_RANGE(0, 60000) b ON true",
        "SELECT ARRAY ARRAY x + y FOR x IN ARRAY_RANGE(0, 10) END FOR y IN ARRAY_RANGE(0, 1e6) END",
        "SELECT ANY x IN ARRAY_RANGE(0, 1e5) SATISFIES EVERY y IN ARRAY_RANGE(0, 1e5) SATISFIES \
         x < y END END",
        "SELECT SUM(n) OVER (ORDER BY n ROWS BETWEEN n PRECEDING AND n FOLLOWING) FROM s",
        "SELECT MEDIAN(n) OVER (ORDER BY n ROWS BETWEEN n PRECEDING AND 999 FOLLOWING) FROM s",
        "SELECT ARRAY_AGG(n) OVER (ORDER BY n) FROM s",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT r.n FROM r) SELECT * FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.n FROM r a JOIN r b ON true) \
         SELECT * FROM r",
        // Patterns.
        "SELECT REPEAT('a', 1000000) LIKE REPEAT('%a', 20000) || 'b'",
        "SELECT REPEAT('a', 1000000) LIKE '%' || REPEAT('a', 400000) || 'b'",
        "SELECT REGEXP_LIKE(REPEAT('a', 50000), '(a*)*(a*)*(a*)*b')",
        "SELECT REGEXP_CONTAINS(REPEAT('a', 5000), '(a|aa|aaa){1,200}b')",
        "SELECT REGEXP_MATCHES(REPEAT('a', 200000), 'a*?b|a')",
        "SELECT REGEXP_LIKE('a', '((((a{9}){9}){9}){9}){9}')",
        "SELECT REGEXP_REPLACE(REPEAT('ab', 200000), '(a)(b)', '$1$2$1$2$1$2')",
        // Growth.
        "SELECT OBJECT_CONCAT(v, v, {'a': 1}) FROM k",
        "SELECT ENCODE_JSON(v), OBJECT_PAIRS(v), OBJECT_NAMES(v), TOKENS(v) FROM k",
        "SELECT v[*].a, v[*], v[1:], v[-1] FROM k",
        "SELECT TITLE(REPEAT('a', 5000000)), REVERSE(REPEAT('é', 5000000))",
    ]
    .map(str::to_owned)
    .into();
    // Texts that a parser reads twice at each level, long chains, and deep nesting.
    all.push(format!("SELECT {}", nested(18, "((SELECT ", "1", ") + 1)")));
    all.push(format!("SELECT 1 FROM {} x", nested(20, "(SELECT 1 FROM ", "[1]", " x) + 1")));
    all.push(nested(5_000, "(", "SELECT 1", ")"));
    all.push(format!("SELECT {}", nested(5_000, "-(", "1", ")")));
    all.push(format!("SELECT {}1", "NOT ".repeat(50_000)));
    all.push(format!("SELECT {}", nested(5_000, "[", "1", "]")));
    all.push(format!("SELECT 1{}", " + 1".repeat(20_000)));
    all.push(format!("SELECT 1{}", " UNION SELECT 1".repeat(2_000)));
    all.push(format!(
        "WITH {} SELECT a0",
        many(20_000, &|n| format!(
            "a{n} AS ({})",
            if n == 0 { "1".into() } else { format!("a{}", n - 1) }
        ))
    ));
    all.push(format!("SELECT a0 FROM [1] x LET {}", many(20_000, &|n| format!("a{n} = {n}"))));
    all.push(format!(
        "SELECT {} FROM s GROUP BY {}",
        many(3_000, &|n| format!("a{n}")),
        many(3_000, &|n| format!("a{n}"))
    ));
    all
}

#[test]
fn hostile_statements_end_within_their_bounds() {
    let store = store();
    let mut failures = Vec::new();
    // The tables of functions stay from here on.
    run(&store, "SELECT UPPER('x') FROM s LIMIT 1");
    for statement in statements() {
        let text: String = statement.chars().take(90).collect();
        let (elapsed, most, reserved) = run(&store, &statement);
        if elapsed > END_MAX || most > reserved + UNCOUNTED_BYTES_MAX {
            failures.push(format!("{elapsed:?}, {most} bytes of {reserved}: {text}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The time of a statement, the most bytes it took, and those that it reserved.
fn run(store: &MemoryDatastore, statement: &str) -> (Duration, usize, usize) {
    let budget = TestBudget::new(BUDGET_BYTES);
    let request = QueryRequest::of(statement);
    let control = RunControl { memory: &budget, cancelled: None, timeout: Some(TIMEOUT) };
    let started = Instant::now();
    let run = || drop(Service::new().run(store, &request, &control, &mut NoRows));
    let ((), most) = ALLOCATOR.growth(run);
    let elapsed = started.elapsed();
    assert_eq!(budget.used(), 0, "{statement}");
    (elapsed, most, budget.most())
}
