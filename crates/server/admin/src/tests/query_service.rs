//! Statements of SQL++ over HTTP: answers, parameters, errors, rights and memory.

use serde_json::{Value, json};

use super::{ADMIN, Answer, Fixture, add_user, basic};

const PATH: &str = "/query/service";

impl Fixture {
    /// The answer to a request in JSON.
    pub(super) fn service(&self, credentials: &str, body: &Value) -> Answer {
        let headers = match basic(credentials).as_str() {
            "" => String::new(),
            login => format!("{login}\r\nContent-Type: application/json"),
        };
        let mut answer = self.ask_as("POST", PATH, &headers, &body.to_string());
        answer.body = unchunked(&answer.head, &answer.body);
        answer
    }

    /// The answer to an administrator's request.
    #[track_caller]
    pub(super) fn service_json(&self, body: &Value) -> Value {
        self.service(ADMIN, body).json()
    }

    /// The answer to an administrator's statement.
    #[track_caller]
    pub(super) fn statement(&self, statement: &str) -> Value {
        self.service_json(&json!({ "statement": statement }))
    }
}

/// The body of a chunked answer.
pub(super) fn unchunked(head: &str, body: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = &after[(size + 2).min(after.len())..];
    }
    whole
}

#[test]
fn documents_are_written_read_and_grouped() {
    let fixture = Fixture::development();
    let inserted = fixture.statement(
        r#"INSERT INTO `default` (KEY, VALUE) VALUES ("a", {"n": 1, "t": "x"}),
           ("b", {"n": 2, "t": "x"}), ("c", {"n": 3, "t": "y"}) RETURNING META().id"#,
    );
    assert_eq!(inserted["status"], "success", "{inserted}");
    assert_eq!(inserted["metrics"]["mutationCount"], 3, "{inserted}");
    let grouped = fixture
        .statement("SELECT t, SUM(n) AS s, COUNT(*) AS c FROM `default` GROUP BY t ORDER BY t");
    let expected = json!([{ "t": "x", "s": 3, "c": 2 }, { "t": "y", "s": 3, "c": 1 }]);
    assert_eq!(grouped["results"], expected, "{grouped}");
    let keys = fixture.statement(r#"SELECT RAW n FROM `default` USE KEYS ["c", "none", "a"]"#);
    assert_eq!(keys["results"], json!([3, 1]), "{keys}");
    fixture.statement(r#"UPDATE `default` SET n = n + 10 WHERE t = "x""#);
    fixture.statement(r#"DELETE FROM `default` USE KEYS "c""#);
    let left = fixture.statement("SELECT RAW n FROM `default` ORDER BY n");
    assert_eq!(left["results"], json!([11, 12]), "{left}");
    let twice = fixture.statement(r#"INSERT INTO `default` VALUES ("a", 1)"#);
    assert_eq!(twice["errors"][0]["code"], 12009, "{twice}");
    assert_eq!(twice["errors"][0]["reason"]["code"], 17012, "{twice}");
}

#[test]
fn parameters_and_prepared_statements_work() {
    let fixture = Fixture::development();
    let body = json!({ "statement": "SELECT RAW $1 + $n", "args": [1], "$n": 2 });
    assert_eq!(fixture.service_json(&body)["results"], json!([3]));
    let body = json!({ "statement": "PREPARE SELECT RAW $1", "auto_execute": true, "args": [7] });
    let answer = fixture.service_json(&body);
    assert_eq!(answer["results"], json!([7]), "{answer}");
    let again = json!({ "prepared": answer["prepared"], "args": [8] });
    let answer = fixture.service_json(&again);
    assert_eq!(answer["results"], json!([8]), "{answer}");
    let unknown = fixture.service(ADMIN, &json!({ "prepared": "none" }));
    assert_eq!(unknown.status, 404, "{}", unknown.body);
}

#[test]
fn wrong_requests_have_codes_and_statuses() {
    let fixture = Fixture::development();
    for (body, status, code) in [
        (json!({}), 400, 1050),
        (json!({ "statement": "SELEC 1" }), 400, 3000),
        (json!({ "statement": "SELECT 1", "nonsense": 1 }), 400, 1065),
        (json!({ "statement": "DELETE FROM `default`", "readonly": true }), 403, 1000),
        (json!({ "statement": "SELECT * FROM nowhere" }), 424, 12003),
        (json!({ "statement": "SELECT * FROM nowhere.s.c" }), 424, 12020),
        (json!({ "statement": "SELECT * FROM `default`.nowhere.c" }), 500, 12021),
        (json!({ "statement": "EXECUTE nowhere" }), 404, 4040),
    ] {
        let answer = fixture.service(ADMIN, &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let answer = answer.json();
        assert_eq!(answer["errors"][0]["code"], code, "{body}: {answer}");
        assert_eq!(answer["status"], "fatal", "{answer}");
    }
    let form = fixture.ask("POST", PATH, ADMIN, "statement=SELECT+RAW+1");
    assert_eq!(form.status, 200, "{}", form.body);
    let changing = format!("{PATH}?statement=DELETE+FROM+%60default%60");
    assert_eq!(fixture.ask("GET", &changing, ADMIN, "").status, 403);
    assert_eq!(fixture.service("", &json!({ "statement": "SELECT 1" })).status, 401);
}

#[test]
fn rights_hold_for_each_statement() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "reader", &["read-only:default"]);
        add_user(data_dir, "other", &["read-write:elsewhere"]);
    };
    let fixture = Fixture::start(prepare, false);
    fixture.put("a", br#"{"n":1}"#);
    let code = |name: &str, statement: &str| {
        let login = format!("{name}:secret1");
        fixture.service(&login, &json!({ "statement": statement })).json()["errors"][0]["code"]
            .as_u64()
    };
    assert_eq!(code("root", "SELECT * FROM `default`"), None);
    assert_eq!(code("reader", "SELECT * FROM `default`"), None);
    assert_eq!(code("reader", "DELETE FROM `default`"), Some(13014));
    assert_eq!(code("reader", "CREATE PRIMARY INDEX ON `default`"), Some(13014));
    assert_eq!(code("other", "SELECT * FROM `default`"), Some(12003));
}

#[test]
fn statements_beyond_their_memory_end_with_5500() {
    let fixture = Fixture::development();
    let statement = r#"SELECT RAW ARRAY_LENGTH(ARRAY_AGG(REPEAT("x", 1000000) || TOSTRING(n)))
                       FROM ARRAY_RANGE(0, 1000) AS n"#;
    for _ in 0..3 {
        let answer = fixture.statement(statement);
        assert_eq!(answer["errors"][0]["code"], 5500, "{answer}");
    }
    assert_eq!(fixture.statement("SELECT RAW 1")["results"], json!([1]));
}

#[test]
fn the_largest_document_is_a_row() {
    let fixture = Fixture::development();
    let text = "a".repeat(20 * 1024 * 1024 - 16);
    fixture.put("large", format!("{{\"t\":\"{text}\"}}").as_bytes());
    let whole = fixture.statement("SELECT RAW d FROM `default` d");
    assert_eq!(whole["results"][0]["t"].as_str().map(str::len), Some(text.len()));
    let part = fixture.statement("SELECT RAW LENGTH(t) FROM `default` USE KEYS \"large\"");
    assert_eq!(part["results"], json!([text.len()]), "{part}");
}

#[test]
fn buckets_in_memory_have_rows() {
    let fixture = Fixture::development();
    let form = "name=cache&ramQuota=100&bucketType=ephemeral";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    let insert = "INSERT INTO `cache` (KEY \"k\" || TOSTRING(n), VALUE {\"n\": 1}) \
                  SELECT n FROM ARRAY_RANGE(0, 50) AS n";
    assert_eq!(fixture.statement(insert)["metrics"]["mutationCount"], 50);
    let all = fixture.statement("SELECT COUNT(*) AS c, SUM(n) AS s FROM `cache`");
    assert_eq!(all["results"], json!([{ "c": 50, "s": 50 }]), "{all}");
    let one = fixture.statement("SELECT RAW META().id FROM `cache` WHERE META().id = \"k7\"");
    assert_eq!(one["results"], json!(["k7"]), "{one}");
}

#[test]
fn key_ranges_include_and_exclude_their_ends() {
    let fixture = Fixture::development();
    let insert = "INSERT INTO `default` (KEY \"user-\" || LPAD(TOSTRING(n), 3, \"0\"), VALUE n) \
                  SELECT n FROM ARRAY_RANGE(0, 100) AS n";
    assert_eq!(fixture.statement(insert)["metrics"]["mutationCount"], 100);
    for (condition, count) in [
        ("META(d).id = \"user-005\"", 1),
        ("META(d).id IN [\"user-005\", \"user-006\", \"none\"]", 2),
        ("META(d).id LIKE \"user-01%\"", 10),
        ("META(d).id >= \"user-090\" AND META(d).id < \"user-095\"", 5),
        ("META(d).id > \"user-090\" AND META(d).id <= \"user-095\"", 5),
        ("META(d).id > \"user-098\" OR META(d).id = \"user-001\"", 2),
    ] {
        let answer =
            fixture.statement(&format!("SELECT RAW COUNT(*) FROM `default` d WHERE {condition}"));
        assert_eq!(answer["results"], json!([count]), "{condition}: {answer}");
    }
}

#[test]
fn pages_of_other_sites_get_nothing() {
    let fixture = Fixture::development();
    let headers = format!("{}\r\nOrigin: http://elsewhere.example", basic(ADMIN));
    let answer = fixture.ask_as("POST", PATH, &headers, "statement=SELECT+1");
    assert_eq!(answer.status, 403, "{}", answer.body);
}
