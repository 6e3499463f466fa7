//! INFER: flavors, counts, samples, options and bounds.

#![allow(clippy::unwrap_used)]

mod support;

use oribi_query::{QueryRequest, RunControl, Service};
use serde_json::{Value, json};
use support::{MemoryDatastore, Rows, TestBudget};

fn store() -> MemoryDatastore {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    for number in 0..30 {
        let note = match number % 3 {
            0 => r#","note":null"#,
            1 => r#","note":"n""#,
            _ => "",
        };
        let tags = vec!["1"; number % 4].join(",");
        let text = format!(
            r#"{{"type":"user","name":"u{number}","age":{number},"tags":[{tags}],"at":{{"x":0.5}}{note}}}"#
        );
        keyspace.put(&format!("user-{number:02}"), &text);
    }
    for number in 0..10 {
        keyspace
            .put(&format!("order-{number}"), r#"{"total":1,"paid":true,"lines":[{"sku":"a"}]}"#);
    }
    store
}

/// The flavors of an answer, which is one row.
fn infer(store: &MemoryDatastore, statement: &str) -> Vec<Value> {
    let (outcome, rows) = support::run(&Service::new(), store, &QueryRequest::of(statement));
    assert_eq!(outcome.errors, [], "{statement}");
    let [row] = &rows.rows[..] else { panic!("{statement}: {:?}", rows.rows) };
    serde_json::from_str(row).unwrap()
}

// Compat (SQL++ over HTTP): INFER
#[test]
fn flavors_have_counts_types_and_samples() {
    let store = store();
    for statement in ["INFER k", "infer keyspace `k` WITH {}", "INFER COLLECTION default:k;"] {
        let flavors = infer(&store, statement);
        let [users, orders] = &flavors[..] else { panic!("{statement}: {flavors:?}") };
        assert_eq!((&users["#docs"], &orders["#docs"]), (&json!(30), &json!(10)), "{statement}");
        assert_eq!(users["Flavor"], "`type` = \"user\"");
        assert_eq!(users["type"], "object");
        assert_eq!(users["$schema"], "http://json-schema.org/draft-06/schema");
        let fields = &users["properties"];
        let name = json!({
            "#docs": 30, "%docs": 100, "type": "string",
            "samples": fields["name"]["samples"],
        });
        assert_eq!(fields["name"], name);
        assert_eq!(fields["name"]["samples"].as_array().unwrap().len(), 5);
        assert_eq!(fields["age"]["type"], "integer");
        let (tags, at) = (&fields["tags"], &fields["at"]);
        assert_eq!((&tags["minItems"], &tags["maxItems"]), (&json!(0), &json!(3)));
        assert_eq!(tags["items"]["type"], "integer");
        assert_eq!(at["properties"]["x"]["type"], "number");
        let note = json!({
            "#docs": [10, 10], "%docs": [33.33, 33.33], "type": ["null", "string"],
            "samples": [[null], ["n"]],
        });
        assert_eq!(fields["note"], note);
        assert_eq!(fields["~meta"]["properties"]["id"]["type"], "string");
        assert_eq!(orders["properties"]["lines"]["items"]["properties"]["sku"]["#docs"], 10);
    }
}

#[test]
fn options_bound_the_sample_and_the_flavors() {
    let store = store();
    let one = infer(&store, "INFER k WITH {'similarity_metric': 0, 'num_sample_values': 2}");
    assert_eq!((one.len(), &one[0]["#docs"]), (1, &json!(40)));
    assert_eq!(one[0]["properties"]["name"]["samples"].as_array().unwrap().len(), 2);
    let all = infer(&store, "INFER k WITH {'similarity_metric': 1}");
    assert!(all.len() > 2, "each set of fields is a flavor: {}", all.len());
    let few = infer(&store, "INFER k WITH {'sample_size': 7}");
    assert_eq!(few.iter().map(|one| one["#docs"].as_u64().unwrap()).sum::<u64>(), 7);
    assert_eq!(infer(&store, "INFER k WITH {'sample_size': 0}"), Vec::<Value>::new());
    for (statement, code) in [
        ("INFER k WITH {'sample_size': -1}", 5010),
        ("INFER k WITH {'similarity_metric': 2}", 5010),
        ("INFER k WITH {'sample': 1}", 5010),
        ("INFER k WITH 1", 5010),
        ("INFER nothing", 12003),
        ("INFER", 3000),
        ("ADVISE SELECT 1", 3000),
    ] {
        let (outcome, _) = support::run(&Service::new(), &store, &QueryRequest::of(statement));
        assert_eq!(outcome.errors.first().map(|error| error.code), Some(code), "{statement}");
    }
}

#[test]
fn other_values_are_flavors_as_well() {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    keyspace.put("a", "[1,2]");
    keyspace.put("b", "\"text\"");
    keyspace.put("c", "\"other\"");
    let flavors = infer(&store, "INFER k");
    assert_eq!((&flavors[0]["type"], &flavors[0]["#docs"]), (&json!("string"), &json!(2)));
    assert_eq!((&flavors[1]["type"], &flavors[1]["maxItems"]), (&json!("array"), &json!(2)));
}

#[test]
fn a_schema_without_end_is_refused_and_given_back() {
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    for number in 0..200 {
        let fields: Vec<String> =
            (0..200).map(|field| format!("\"f{number}-{field}\":{field}")).collect();
        keyspace.put(&format!("k{number}"), &format!("{{{}}}", fields.join(",")));
    }
    keyspace.put("deep", &format!("{}1{}", "[".repeat(400), "]".repeat(400)));
    assert!(infer(&store, "INFER k").len() <= 100);
    let budget = TestBudget::new(256 << 10);
    let control = RunControl { memory: &budget, cancelled: None, timeout: None };
    let request = QueryRequest::of("INFER k");
    let outcome = Service::new().run(&store, &request, &control, &mut Rows::default());
    assert_eq!(outcome.errors.first().map(|error| error.code), Some(5500));
    assert_eq!(budget.used(), 0);
}
