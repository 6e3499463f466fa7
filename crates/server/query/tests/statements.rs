//! Memory, time, parameters, prepared statements and indexes of a service.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oribi_query::{MemoryBudget, QueryRequest, RunControl, RunOutcome, RunStatus, Service};
use support::{MemoryDatastore, Rows, TestBudget};

fn store() -> MemoryDatastore {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    for number in 0..5_000 {
        let text = format!(r#"{{"n":{number},"g":{},"s":"{}"}}"#, number % 7, "x".repeat(100));
        keyspace.put(&format!("key{number:05}"), &text);
    }
    store
}

fn rows(store: &MemoryDatastore, statement: &str) -> Vec<String> {
    let (outcome, rows) = support::run(&Service::new(), store, &QueryRequest::of(statement));
    assert_eq!(outcome.errors, [], "{statement}");
    rows.rows
}

fn with_budget(store: &MemoryDatastore, statement: &str, budget: &TestBudget) -> RunOutcome {
    let control = RunControl { memory: budget, cancelled: None, timeout: None };
    let request = QueryRequest::of(statement);
    Service::new().run(store, &request, &control, &mut Rows::default())
}

#[test]
fn refused_memory_ends_a_statement_and_is_given_back() {
    let store = store();
    let budget = TestBudget::new(128 << 10);
    for statement in [
        "SELECT s || TOSTRING(n) AS t FROM k GROUP BY s || TOSTRING(n) AS t",
        "SELECT * FROM k ORDER BY n",
        "SELECT DISTINCT * FROM k",
        "SELECT ARRAY_AGG(k) FROM k",
        "SELECT RAW (SELECT * FROM k)",
        "SELECT 1 FROM k a JOIN k b ON a.n = b.n",
        "SELECT RAW k FROM k UNION SELECT RAW 1",
        "SELECT RANK() OVER (ORDER BY n) FROM k",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT r.n + 1 AS n FROM r) SELECT r.n FROM r",
    ] {
        let outcome = with_budget(&store, statement, &budget);
        assert_eq!(outcome.errors.first().map(|error| error.code), Some(5500), "{statement}");
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn streams_and_small_groups_fit_little_memory() {
    let store = store();
    for statement in [
        "SELECT * FROM k",
        "SELECT * FROM k ORDER BY n DESC LIMIT 10",
        "SELECT g, COUNT(*), SUM(n) FROM k GROUP BY g",
        "SELECT a.n FROM k a UNNEST [1, 2] u WHERE u > 1",
    ] {
        let budget = TestBudget::new(128 << 10);
        assert_eq!(with_budget(&store, statement, &budget).errors, [], "{statement}");
        assert!(budget.most() <= 64 << 10, "{statement}");
    }
}

#[test]
fn deadline_ends_a_statement() {
    let budget = TestBudget::new(64 << 20);
    let timeout = Some(Duration::from_millis(1));
    let control = RunControl { memory: &budget, cancelled: None, timeout };
    let request = QueryRequest::of("SELECT COUNT(*) FROM k a JOIN k b ON a.n < b.n");
    let outcome = Service::new().run(&store(), &request, &control, &mut Rows::default());
    assert_eq!((outcome.status, outcome.errors[0].code), (RunStatus::Timeout, 1080));
}

#[test]
fn cancelled_statement_stops() {
    let budget = TestBudget::new(64 << 20);
    let cancelled = AtomicBool::new(true);
    let control = RunControl { memory: &budget, cancelled: Some(&cancelled), timeout: None };
    let request = QueryRequest::of("SELECT * FROM k");
    let outcome = Service::new().run(&store(), &request, &control, &mut Rows::default());
    assert_eq!(outcome.status, RunStatus::Stopped);
}

#[test]
fn closed_sink_ends_a_statement() {
    let budget = TestBudget::new(64 << 20);
    let control = RunControl { memory: &budget, cancelled: None, timeout: None };
    let mut sink = Rows { bound: Some(3), ..Rows::default() };
    let request = QueryRequest::of("SELECT * FROM k");
    let outcome = Service::new().run(&store(), &request, &control, &mut sink);
    assert_eq!((outcome.status, sink.rows.len()), (RunStatus::Closed, 3));
}

#[test]
fn conditions_on_keys_read_only_those_keys() {
    let store = store();
    let n = |condition: &str| {
        rows(&store, &format!("SELECT RAW n FROM k WHERE {condition} ORDER BY n"))
    };
    assert_eq!(n("META().id = 'key00007'"), ["7"]);
    assert_eq!(n("META().id IN ['key00002', 'key00001', 'key00002', 5]"), ["1", "2"]);
    assert_eq!(n("META().id LIKE 'key0001_' AND n > 17"), ["18", "19"]);
    assert_eq!(n("META().id > 'key04998' OR false"), ["4999"]);
    assert_eq!(n("META().id >= 'key00010' AND META().id < 'key00012'"), ["10", "11"]);
    assert_eq!(n("META().id BETWEEN 'key00003' AND 'key00004'"), ["3", "4"]);
}

#[test]
fn window_functions_answer_by_partition() {
    let store = store();
    let answer = rows(
        &store,
        "SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, RANK() OVER (ORDER BY x) AS k,
         SUM(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s,
         LAG(x) OVER (ORDER BY x) AS l, NTILE(2) OVER (ORDER BY x) AS t
         FROM [3, 1, 1, 2] x ORDER BY r",
    );
    assert_eq!(
        answer,
        [
            r#"{"x":1,"r":1,"k":1,"s":1,"l":null,"t":1}"#,
            r#"{"x":1,"r":2,"k":1,"s":2,"l":1,"t":1}"#,
            r#"{"x":2,"r":3,"k":3,"s":3,"l":1,"t":2}"#,
            r#"{"x":3,"r":4,"k":4,"s":5,"l":2,"t":2}"#,
        ]
    );
    let sums = rows(&store, "SELECT RAW SUM(x) OVER (PARTITION BY x % 2) FROM [1, 2, 3] x");
    assert_eq!(sums, ["4", "2", "4"]);
}

#[test]
fn prepared_statement_runs_at_once_and_by_name() {
    let (service, store) = (Service::new(), store());
    let request = br#"{"statement":"PREPARE SELECT $1 AS a","args":[5],"auto_execute":true}"#;
    let (outcome, answer) =
        support::run(&service, &store, &QueryRequest::from_json(request).unwrap());
    assert_eq!((outcome.errors, answer.rows), (vec![], vec![r#"{"a":5}"#.to_owned()]));
    let name = answer.head.unwrap().prepared.unwrap();
    let request = format!(r#"{{"prepared":"{name}","args":[6]}}"#);
    let request = QueryRequest::from_json(request.as_bytes()).unwrap();
    let (_, answer) = support::run(&service, &store, &request);
    assert_eq!(answer.rows, [r#"{"a":6}"#]);
}

#[test]
fn index_definitions_have_canonical_texts() {
    let store = store();
    rows(&store, "CREATE PRIMARY INDEX ON k");
    rows(
        &store,
        "CREATE INDEX i ON k (fld1, n DESC) WHERE fld1 = 1 AND fld2 > 2 USING GSI WITH {'defer_build': true}",
    );
    let answer = rows(
        &store,
        "SELECT name, state, index_key, `condition`, is_primary FROM system:indexes ORDER BY name",
    );
    assert_eq!(
        answer,
        [
            r##"{"name":"#primary","state":"online","index_key":[],"is_primary":true}"##,
            r#"{"name":"i","state":"deferred","index_key":["`fld1`","`n` DESC"],"condition":"((`fld1` = 1) and (2 < `fld2`))"}"#,
        ]
    );
    rows(&store, "BUILD INDEX ON k (i)");
    assert_eq!(
        rows(&store, "SELECT RAW state FROM system:indexes WHERE name = 'i'"),
        [r#""online""#]
    );
    rows(&store, "DROP INDEX k.i");
    rows(&store, "DROP PRIMARY INDEX IF EXISTS ON k");
    assert!(rows(&store, "SELECT * FROM system:indexes").is_empty());
}

#[test]
fn build_index_takes_many_names() {
    for (names, built) in [
        ("a, b", "a b"),
        ("'a', 'b'", "a b"),
        ("'a', b, 'c'", "a b c"),
        ("['a', 'b'], 'c'", "a b c"),
        ("'a', 'c', 'b'", "a b c"),
        ("(SELECT RAW 'a'), (SELECT RAW 'b')", "a b"),
        ("(SELECT RAW name FROM system:indexes WHERE name < 'c'), 'c'", "a b c"),
        ("(SELECT RAW 'a'), ['b'], (SELECT RAW 'c' FROM system:dual)", "a b c"),
    ] {
        let store = store();
        for name in ["a", "b", "c"] {
            let create = format!("CREATE INDEX {name} ON k (n) WITH {{'defer_build': true}}");
            rows(&store, &create);
        }
        rows(&store, &format!("BUILD INDEX ON k ({names})"));
        let online = rows(
            &store,
            "SELECT RAW name FROM system:indexes WHERE state = 'online' ORDER BY name",
        );
        assert_eq!(online.join(" ").replace('"', ""), built, "{names}");
    }
}

#[test]
fn dates_out_of_range_are_null() {
    let store = store();
    for part in [
        "millennium",
        "century",
        "decade",
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
    ] {
        for moment in ["0", "1.8e20", "-1.8e20"] {
            for count in ["9223372036854775807", "-9223372036854775807", "9e17", "-9e17"] {
                let statement = format!("SELECT RAW DATE_ADD_MILLIS({moment}, {count}, '{part}')");
                let answer = rows(&store, &statement);
                let sum = moment.parse::<f64>().unwrap() + count.parse::<f64>().unwrap();
                let is_near = part == "millisecond" && sum.abs() <= 1.86e20;
                assert_eq!(answer != ["null"], is_near, "{statement}: {answer:?}");
            }
        }
        let text = format!("DATE_ADD_STR('2024-02-29', -9223372036854775807, '{part}')");
        let answer = rows(&store, &format!("SELECT RAW {text}"));
        assert_eq!(answer != ["null"], part == "millisecond", "{text}: {answer:?}");
        for step in ["9223372036854775807", "-9223372036854775807"] {
            let (first, last) = if step.starts_with('-') { ("1", "-1e20") } else { ("1", "1e20") };
            let statement =
                format!("SELECT RAW DATE_RANGE_MILLIS({first}, {last}, '{part}', {step})");
            let count = if part == "millisecond" { 11 } else { 1 };
            assert_eq!(
                rows(&store, &format!("SELECT RAW ARRAY_LENGTH(a) FROM ({statement}) a")),
                [count.to_string()],
                "{statement}"
            );
        }
    }
}

#[test]
fn the_distance_of_far_dates_does_not_wrap() {
    let store = store();
    for (part, expected) in [
        ("millisecond", "360000000000000000000"),
        ("second", "360000000000000000"),
        ("week", "595238095238"),
        ("year", "11407945863"),
    ] {
        for (name, left, right, sign) in [
            ("DATE_DIFF_MILLIS", "1.8e20", "-1.8e20", ""),
            ("DATE_DIFF_MILLIS", "-1.8e20", "1.8e20", "-"),
            ("DATE_DIFF_ABS_MILLIS", "-1.8e20", "1.8e20", ""),
        ] {
            let statement = format!("SELECT RAW {name}({left}, {right}, '{part}')");
            let answer = rows(&store, &statement);
            let number: f64 = answer[0].parse().unwrap();
            let expected: f64 = format!("{sign}{expected}").parse().unwrap();
            assert!((number / expected - 1.0).abs() < 1e-9, "{statement}: {answer:?}");
        }
    }
}

#[test]
fn expressions_that_a_loop_compiles_stay_reserved() {
    let store = store();
    rows(&store, "UPSERT INTO k VALUES ('loop', {'a': [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]})");
    // Twelve expressions of more than half a MiB each.
    let statement = "UPDATE k USE KEYS 'loop' SET x = REGEXP_LIKE('a', w || TO_STRING(v)) \
        FOR w IN ['p'] FOR v IN a END";
    let codes = |budget_bytes| -> Vec<u32> {
        let outcome = with_budget(&store, statement, &TestBudget::new(budget_bytes));
        outcome.errors.iter().map(|error| error.code).collect()
    };
    assert_eq!(codes(4 << 20), [5500]);
    assert_eq!(codes(16 << 20), [0; 0]);
}

#[test]
fn values_that_share_parts_stay_small() {
    let chain = |first: &str, next: &str, count: usize, end: &str| {
        let mut text = format!("WITH a0 AS ({first})");
        for number in 1..count {
            let before = format!("a{}", number - 1);
            text.push_str(&format!(", a{number} AS ({})", next.replace('@', &before)));
        }
        format!("{text} {}", end.replace('@', &format!("a{}", count - 1)))
    };
    let from = |levels: usize| {
        let mut text = "[1] t".to_owned();
        (0..levels).for_each(|_| text = format!("(SELECT t AS x, t AS y FROM {text}) t"));
        format!("SELECT * FROM {text}")
    };
    let repeats = format!("{}1{}", "ARRAY_REPEAT(".repeat(45), ", 2)".repeat(45));
    let store = store();
    for statement in [
        chain("[1]", "[@, @]", 45, "SELECT RAW @"),
        chain("[1]", "[@, @]", 45, "SELECT RAW LENGTH(ENCODE_JSON(@))"),
        chain("[1]", "[@, @]", 45, "SELECT DISTINCT @ AS d"),
        chain("[1]", "[@, @]", 45, "SELECT COUNT(*) FROM [1] x GROUP BY @"),
        chain("[1]", "[@, @]", 45, "SELECT RAW @ = ARRAY_SORT(@)"),
        chain("1", "{\"l\": @, \"r\": @}", 45, "SELECT RAW OBJECT_LENGTH(@)"),
        chain("[1]", "ARRAY i FOR i IN [@, @] END", 45, "SELECT RAW @"),
        chain("[1]", "SELECT RAW x FROM [@, @] x", 45, "SELECT RAW @"),
        chain("[1]", "[@]", 2_000, "SELECT RAW @"),
        chain("[1]", "SELECT RAW @", 1_000, "SELECT RAW @"),
        from(45),
        format!("SELECT RAW {repeats}"),
    ] {
        let budget = TestBudget::new(128 << 20);
        let outcome = with_budget(&store, &statement, &budget);
        let code = outcome.errors.first().map(|error| error.code);
        assert!(matches!(code, Some(5010 | 5500)), "{code:?} {}", &statement[..60]);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn prepared_statements_belong_to_their_user() {
    let (service, store) = (Service::new(), store());
    let run = |user: &str, statement: &str| {
        let mut request = QueryRequest::of(statement);
        request.user = user.to_owned();
        let (outcome, rows) = support::run(&service, &store, &request);
        outcome.errors.first().map_or_else(|| rows.rows.join(","), |error| error.code.to_string())
    };
    run("ann", "PREPARE p AS SELECT RAW 'of ann'");
    assert_eq!(run("bob", "EXECUTE p"), "4040");
    assert_eq!(run("bob", "SELECT * FROM system:prepareds"), "");
    run("bob", "PREPARE FORCE p AS SELECT RAW 'of bob'");
    assert_eq!(run("ann", "EXECUTE p"), r#""of ann""#);
    for number in 0..12 {
        let text = "x".repeat(1 << 20);
        run("bob", &format!("PREPARE q{number} AS SELECT RAW '{text}'"));
    }
    // A text, its tree and its plan have five megabytes at most, of sixteen.
    assert_eq!(run("bob", "SELECT RAW COUNT(*) FROM system:prepareds"), "3");
}

#[test]
fn form_fields_have_types() {
    let pairs =
        [("statement", "SELECT $1, $a"), ("args", "[1]"), ("$a", "{}"), ("readonly", "true")];
    let request = QueryRequest::from_form(pairs).unwrap();
    let (outcome, answer) = support::run(&Service::new(), &store(), &request);
    assert_eq!((outcome.errors, answer.rows.len(), request.readonly), (vec![], 1, true));
    assert_eq!(
        QueryRequest::from_form([("statement", "x"), ("args", "[")]).unwrap_err().code,
        1040
    );
    assert_eq!(QueryRequest::from_form([]).unwrap_err().code, 1050);
}

#[test]
fn right_join_keeps_rows_of_its_right_side() {
    let store = MemoryDatastore::default();
    let list = |name: &str, numbers: &str| format!("(SELECT n FROM {numbers} n) AS {name}");
    let of = |from: &str| {
        rows(&store, &format!("SELECT a.n AS a, b.n AS b, c.n AS c FROM {from} ORDER BY c, a, b"))
    };
    let (a, b, c) = (list("a", "[1,2,3]"), list("b", "[2,3,4]"), list("c", "[3,9]"));
    assert_eq!(
        of(&format!("{a} JOIN {b} ON a.n = b.n RIGHT JOIN {c} ON c.n = b.n")),
        [r#"{"a":3,"b":3,"c":3}"#, r#"{"c":9}"#]
    );
    assert_eq!(
        of(&format!("{a} RIGHT JOIN {b} ON a.n = b.n RIGHT OUTER JOIN {c} ON c.n < b.n")),
        [r#"{"b":4,"c":3}"#, r#"{"c":9}"#]
    );
    assert_eq!(
        of(&format!("{a} JOIN {b} ON a.n < b.n RIGHT JOIN {c} ON c.n = a.n JOIN [1] x ON true")),
        [r#"{"a":3,"b":4,"c":3}"#, r#"{"c":9}"#]
    );
}

#[test]
fn right_join_hides_its_alias_from_its_left_side() {
    let store = MemoryDatastore::default();
    let ran = |text: &str| support::run(&Service::new(), &store, &QueryRequest::of(text));
    let right = "RIGHT JOIN [{'list':[1,2]}] AS c ON TRUE";
    for left in ["c.list AS u", "[1] AS a UNNEST c.list AS u"] {
        let (outcome, _) = ran(&format!("SELECT u FROM {left} {right}"));
        assert_ne!(outcome.errors, [], "{left}");
    }
    let (outcome, _) = ran(&format!("SELECT c FROM [1] AS a JOIN [2] AS c ON TRUE {right}"));
    assert_eq!(outcome.errors.first().map(|error| error.code), Some(4020), "an alias twice");
}

#[test]
fn exclude_removes_fields_of_the_result() {
    let store = MemoryDatastore::default();
    let of = |statement: &str| rows(&store, statement);
    let from = "FROM [{'a':1,'b':{'c':2,'d':3}}] AS t";
    assert_eq!(of(&format!("SELECT * EXCLUDE t.a {from}")), [r#"{"t":{"b":{"c":2,"d":3}}}"#]);
    assert_eq!(of(&format!("SELECT t.* EXCLUDE a, b.c {from}")), [r#"{"b":{"d":3}}"#]);
    assert_eq!(of(&format!("SELECT t.* EXCLUDE 'b.d, `a`' {from}")), [r#"{"b":{"c":2}}"#]);
    assert_eq!(of(&format!("SELECT t.a, 5 AS x EXCLUDE x, none.y {from}")), [r#"{"a":1}"#]);
}

/// A budget that stops the statement when it has granted so much.
struct StoppingBudget {
    inner: TestBudget,
    stop_bytes: usize,
    stopped: AtomicBool,
}

impl MemoryBudget for StoppingBudget {
    fn reserve(&self, bytes: usize) -> bool {
        let granted = self.inner.reserve(bytes);
        if self.inner.used() >= self.stop_bytes {
            self.stopped.store(true, Ordering::Relaxed);
        }
        granted
    }

    fn release(&self, bytes: usize) {
        self.inner.release(bytes);
    }
}

/// The work after the stop is measured by the memory that it reserves, not by time.
#[test]
fn a_search_for_all_matches_stops_in_the_middle() {
    let store = MemoryDatastore::default();
    let budget = StoppingBudget {
        inner: TestBudget::new(1 << 30),
        stop_bytes: 8 << 20,
        stopped: AtomicBool::new(false),
    };
    let control = RunControl { memory: &budget, cancelled: Some(&budget.stopped), timeout: None };
    for function in ["REGEXP_MATCHES", "REGEXP_SPLIT"] {
        budget.stopped.store(false, Ordering::Relaxed);
        let request = QueryRequest::of(format!("SELECT {function}(REPEAT('ab', 500000), 'a|b')"));
        let outcome = Service::new().run(&store, &request, &control, &mut Rows::default());
        assert_eq!(outcome.errors[0].code, 1181, "{function}");
        // All matches take ten times as much.
        assert!(budget.inner.most() < 10 << 20, "{function}: {}", budget.inner.most());
    }
}

#[test]
fn a_search_has_bounded_steps() {
    let store = MemoryDatastore::default();
    let large = "(x{1,40}y{1,40}){30}z";
    let small_text = format!("SELECT RAW REGEXP_CONTAINS(REPEAT('xy', 5000), '{large}')");
    let large_text = format!("SELECT RAW REGEXP_CONTAINS(REPEAT('xy', 2000000), '{large}')");
    let small = "SELECT RAW REGEXP_CONTAINS(REPEAT('xy', 2000000), 'y+z')";
    for (statement, code) in [(&small_text[..], 0), (&large_text, 5010), (small, 0)] {
        let outcome = support::run(&Service::new(), &store, &QueryRequest::of(statement)).0;
        let found = outcome.errors.first().map_or(0, |error| error.code);
        assert_eq!(found, code, "{statement}: {:?}", outcome.errors);
    }
}
