//! What a statement has to see, how long it may take, and which keyspaces its user may use.

use std::cell::Cell;

use oribi_query::{Consistency, QueryError};
use serde_json::{Value, json};

use crate::query_indexes::QueryIndexes;

use super::{ADMIN, Fixture, add_user};

impl Fixture {
    /// The newest tokens of a bucket, as SDKs send them.
    fn tokens(&self, lead: u64) -> Value {
        let handle = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        let vbuckets = handle.bucket().vbuckets().iter().enumerate();
        let token = |(vbid, vbucket): (usize, &oribi_engine::VBucket)| {
            let seqno = vbucket.stats().high_seqno.0 + lead;
            (vbid.to_string(), json!([seqno, vbucket.uuid().0.to_string()]))
        };
        Value::Object(vbuckets.map(token).collect())
    }

    fn at_plus(&self, vectors: &Value) -> Value {
        self.service_json(&json!({
            "statement": "SELECT RAW n FROM `default`",
            "scan_consistency": "at_plus",
            "scan_vectors": vectors,
        }))
    }
}

// Compat (SQL++ over HTTP): `scan_consistency`
#[test]
fn statements_see_the_writes_of_their_tokens() {
    let fixture = Fixture::development();
    fixture.put("a", br#"{"n":1}"#);
    let seen = fixture.at_plus(&json!({ "default": fixture.tokens(0) }));
    assert_eq!(seen["results"], json!([1]), "{seen}");
    let absent = json!({ "9": [1, "12345"] });
    for lost in [fixture.tokens(1), json!({ "0": [0, "12345"] }), absent] {
        let refused = fixture.at_plus(&json!({ "default": lost }));
        assert_eq!(refused["errors"][0]["code"], 12015, "{refused}");
    }
    for malformed in [json!([1]), json!({ "default": [1] }), json!({ "default": { "0": [1] } })] {
        let refused = fixture.at_plus(&malformed);
        assert_eq!(refused["errors"][0]["code"], 1040, "{malformed}: {refused}");
    }
    let without = json!({ "statement": "SELECT 1", "scan_consistency": "at_plus" });
    assert_eq!(fixture.service_json(&without)["errors"][0]["code"], 1050);
    fixture.put("b", br#"{"n":2}"#);
    let statement = "SELECT RAW n FROM `default` ORDER BY n";
    let plus = json!({ "statement": statement, "scan_consistency": "request_plus" });
    assert_eq!(fixture.service_json(&plus)["results"], json!([1, 2]));
}

/// The history of a token may end after the statement's first check. Such a statement once waited
/// for the index until its time was over.
#[test]
fn a_wait_for_a_lost_write_ends_by_name() {
    let fixture = Fixture::development();
    fixture.define("CREATE INDEX by_n ON `default`(n)");
    let context = fixture.server.as_ref().unwrap().context();
    let indexes = QueryIndexes::default();
    indexes.tend(context);
    let handle = context.buckets.get("default").unwrap();
    let catch_up = |tokens: &Value| {
        let consistency = Consistency::AtPlus(json!({ "default": tokens }).to_string());
        let waits = Cell::new(0);
        let check = || {
            waits.set(waits.get() + 1);
            match waits.get() < 3 {
                true => Ok(()),
                false => Err(QueryError::datastore(1080, "it waits")),
            }
        };
        indexes.catch_up(&handle, &consistency, &check).map_err(|error| error.code)
    };
    let refused = catch_up(&fixture.tokens(1));
    indexes.stop();
    assert_eq!(refused, Err(12015));
}

#[test]
fn a_statement_ends_with_its_time() {
    let fixture = Fixture::development();
    let statement = "SELECT COUNT(*) FROM ARRAY_RANGE(0,100000) a UNNEST ARRAY_RANGE(0,100000) b \
                     WHERE a = -1 - b";
    let answer = fixture.service(ADMIN, &json!({ "statement": statement, "timeout": "200ms" }));
    assert_eq!(answer.status, 200, "it has begun: {}", answer.body);
    let answer = answer.json();
    assert_eq!(
        (&answer["status"], &answer["errors"][0]["code"]),
        (&json!("timeout"), &json!(1080))
    );
}

// Compat (SQL++ over HTTP): rights
#[test]
fn rights_hold_for_each_collection() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "app", &["read-write:default/s/open", "read-only:default/s/shown"]);
    };
    let fixture = Fixture::start(prepare, false);
    let root = "root:secret1";
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(fixture.ask("POST", scopes, root, "name=s").status, 200);
    for name in ["open", "shown", "hidden"] {
        let path = format!("{scopes}/s/collections");
        assert_eq!(fixture.ask("POST", &path, root, &format!("name={name}")).status, 200);
    }
    let code = |statement: &str| {
        let body = json!({ "statement": statement, "query_context": "default:`default`.`s`" });
        let answer = fixture.service("app:secret1", &body).json();
        answer["errors"][0]["code"].as_u64()
    };
    for (statement, expected) in [
        ("INSERT INTO open VALUES ('a', {'n': 1})", None),
        ("UPDATE open SET n = 2", None),
        ("SELECT * FROM open JOIN shown ON KEYS open.k", None),
        ("UPSERT INTO open (KEY META(s).id, VALUE s) SELECT s.* FROM shown s", None),
        ("INSERT INTO shown VALUES ('a', 1)", Some(13014)),
        ("DELETE FROM shown", None),
        ("DELETE FROM shown USE KEYS 'a'", None),
        ("SELECT * FROM hidden", Some(12003)),
        ("SELECT (SELECT * FROM hidden) FROM open", Some(12003)),
        ("UPSERT INTO hidden VALUES ('a', 1)", Some(12003)),
        ("SELECT * FROM `default`", Some(12003)),
    ] {
        assert_eq!(code(statement), expected, "{statement}");
    }
    let names = json!({ "statement": "SELECT RAW name FROM system:keyspaces ORDER BY name" });
    let names = fixture.service("app:secret1", &names).json()["results"].clone();
    assert_eq!(names, json!(["open", "shown"]));
}
