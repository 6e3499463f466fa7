//! Absurd statements, and keyspaces that are dropped while a statement reads them.

use std::io::Read;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::query_service::unchunked;
use super::{ADMIN, Fixture};

impl Fixture {
    #[track_caller]
    fn refused(&self, body: &Value) -> u64 {
        let answer = self.service_json(body);
        let code = answer["errors"][0]["code"].as_u64();
        code.unwrap_or_else(|| panic!("{}", &answer.to_string()[..200]))
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let fixture = Fixture::development();
    for (open, close) in [("(", ")"), ("[", "]"), ("{\"a\":", "}"), ("NOT ", ""), ("- ", "")] {
        let statement = format!("SELECT RAW {}1{}", open.repeat(20_000), close.repeat(20_000));
        let code = fixture.refused(&json!({ "statement": statement }));
        assert!((1000..6000).contains(&code), "{open}: {code}");
    }
    let subqueries = format!("SELECT {}1{}", "(SELECT ".repeat(5_000), ")".repeat(5_000));
    assert!(fixture.refused(&json!({ "statement": subqueries })) >= 1000);
    let argument = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"statement":"SELECT RAW $1","args":[{argument}]}}"#);
    let headers = format!("{}\r\nContent-Type: application/json", super::basic(ADMIN));
    let answer = fixture.ask_as("POST", "/query/service", &headers, &text);
    assert!(answer.status == 200 || answer.status == 400, "{}", answer.status);
    assert_eq!(fixture.statement("SELECT RAW 1")["results"], json!([1]));
}

#[test]
fn long_statements_and_many_parameters_work() {
    const PARAMETERS: usize = 10_000;
    let fixture = Fixture::development();
    let long = format!("SELECT RAW LENGTH(\"{}\")", "x".repeat(1 << 20));
    assert_eq!(fixture.statement(&long)["results"], json!([1 << 20]));
    let places: Vec<String> = (1..=PARAMETERS).map(|number| format!("${number}")).collect();
    let statement = format!("SELECT RAW ARRAY_SUM([{}])", places.join(","));
    let arguments: Vec<usize> = (1..=PARAMETERS).collect();
    let answer = fixture.service_json(&json!({ "statement": statement, "args": arguments }));
    assert_eq!(answer["results"], json!([PARAMETERS * (PARAMETERS + 1) / 2]));
    let mut named = json!({ "statement": "SELECT RAW $p9999" });
    for number in 0..PARAMETERS {
        named[format!("$p{number}")] = json!(number);
    }
    assert_eq!(fixture.service_json(&named)["results"], json!([9_999]));
}

#[test]
fn names_and_values_are_not_statements() {
    let fixture = Fixture::development();
    fixture.put("a", br#"{"n":1}"#);
    let evil = "`; DELETE FROM `default`; --";
    let body = json!({ "statement": "SELECT RAW n FROM `default` WHERE t = $t", "$t": evil });
    assert_eq!(fixture.service_json(&body)["results"], json!([]));
    let two = fixture.refused(&json!({ "statement": "SELECT 1; DELETE FROM `default`" }));
    assert_eq!(two, 3000);
    assert_eq!(fixture.statement("SELECT RAW n FROM `default`")["results"], json!([1]));
}

/// Names of a request come back in its errors as texts, whatever they look like.
#[test]
fn names_in_errors_are_texts() {
    const EVIL: &str = "x\"}],\"status\":\"success\"}\r\n\r\nX-Evil: 1\u{1b}[31m';--";
    let fixture = Fixture::development();
    fixture.put("a", br#"{"n":1}"#);
    for (statement, code) in [
        ("SELECT * FROM `EVIL`", 12003),
        ("SELECT * FROM `EVIL`.s.c", 12020),
        ("SELECT * FROM `default`.`EVIL`.c", 12021),
        ("CREATE PRIMARY INDEX ON `EVIL`", 12003),
        ("DROP INDEX `EVIL` ON `default`", 12016),
        ("EXECUTE `EVIL`", 4040),
    ] {
        let body =
            json!({ "statement": statement.replace("EVIL", EVIL), "client_context_id": EVIL });
        let answer = fixture.service(ADMIN, &body);
        assert!(!answer.head.contains("Evil"), "{}", answer.head);
        let answer = answer.json();
        assert_eq!(answer["errors"][0]["code"], code, "{statement}: {answer}");
        assert_eq!(answer["status"], "fatal", "{statement}: {answer}");
        let msg = answer["errors"][0]["msg"].as_str().unwrap();
        assert!(msg.contains(EVIL), "{statement}: {msg:?}");
    }
    for (statement, results) in [
        ("CREATE INDEX `EVIL` ON `default`(n)", json!([])),
        ("SELECT RAW name FROM system:indexes", json!([EVIL])),
        ("DROP INDEX `EVIL` ON `default`", json!([])),
        ("SELECT RAW name FROM system:indexes", json!([])),
    ] {
        let answer = fixture.statement(&statement.replace("EVIL", EVIL));
        assert_eq!(answer["results"], results, "{statement}: {answer}");
    }
    assert_eq!(fixture.statement("SELECT RAW n FROM `default`")["results"], json!([1]));
}

#[test]
fn patterns_that_explode_end() {
    let fixture = Fixture::development();
    for condition in [
        r#"REGEXP_LIKE(REPEAT("a", 5000) || "b", "(a*)*(a*)*(a*)*c")"#,
        r#"REPEAT("a", 5000) LIKE "%a%a%a%a%a%a%a%a%a%b""#,
        r#"REGEXP_CONTAINS(REPEAT("a", 5000), "(a|a)*(a|aa)+$x")"#,
    ] {
        let body = json!({ "statement": format!("SELECT RAW {condition}"), "timeout": "10s" });
        let answer = fixture.service_json(&body);
        assert_eq!(answer["results"], json!([false]), "{condition}: {answer}");
    }
}

/// The statement reads while its client does not; then its collection goes.
#[test]
fn a_keyspace_dropped_in_mid_statement_is_an_error() {
    const DOCUMENTS: usize = 500;
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(fixture.post(scopes, "name=s").status, 200);
    assert_eq!(fixture.post(&format!("{scopes}/s/collections"), "name=c").status, 200);
    let filled = fixture.statement(&format!(
        "INSERT INTO `default`.s.c (KEY TOSTRING(n), VALUE {{\"v\": REPEAT(\"x\", 10000)}}) \
         SELECT n FROM ARRAY_RANGE(0, {DOCUMENTS}) AS n"
    ));
    assert_eq!(filled["metrics"]["mutationCount"], DOCUMENTS, "{filled}");
    let form = "statement=SELECT c.v, o.v AS o FROM `default`.s.c UNNEST [1,2,3] AS u \
                JOIN `default`.s.c AS o ON KEYS META(c).id";
    let mut stream: TcpStream = fixture.connect("POST", "/query/service", ADMIN, form);
    stream.read_exact(&mut [0; 4]).unwrap();
    let path = format!("{scopes}/s/collections/c");
    assert_eq!(fixture.ask("DELETE", &path, ADMIN, "").status, 200);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let (head, body) = rest.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(&unchunked(head, body)).unwrap();
    let rows = answer["results"].as_array().unwrap().len();
    assert!(rows < 3 * DOCUMENTS, "{rows} rows");
    assert_ne!(answer["status"], "success", "{} rows, no error", rows);
    assert!(answer["errors"][0]["code"].is_u64(), "{}", answer["errors"]);
    assert_eq!(fixture.statement("SELECT RAW 1")["results"], json!([1]));
}
