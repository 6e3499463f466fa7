//! Index definitions: what index managers of SDKs send and read, and how long definitions live.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Fixture, add_user};

const LIST: &str = "SELECT idx.* FROM system:indexes AS idx WHERE \
    ((bucket_id = $bucketName AND scope_id = $scopeName AND keyspace_id = $collectionName) \
    OR (bucket_id IS MISSING AND keyspace_id = $bucketName)) AND `using` = \"gsi\" \
    ORDER BY is_primary DESC, name ASC";

impl Fixture {
    #[track_caller]
    pub(super) fn define(&self, statement: &str) {
        let answer = self.statement(statement);
        assert_eq!(answer["status"], "success", "{statement}: {answer}");
    }

    fn indexes(&self, bucket: &str, scope: &str, collection: &str) -> Value {
        let body = json!({ "statement": LIST, "$bucketName": bucket, "$scopeName": scope,
                           "$collectionName": collection });
        self.service_json(&body)["results"].clone()
    }

    /// Waits until `system:indexes` shows an index in a state, as `watchIndexes` of SDKs does.
    #[track_caller]
    pub(super) fn wait_for_state(&self, name: &str, state: &str) {
        let statement = format!("SELECT RAW state FROM system:indexes WHERE name = \"{name}\"");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let seen = self.statement(&statement)["results"].clone();
            if seen == json!([state]) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is {seen} and not {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn codes(&self, login: &str, statement: &str) -> Option<u64> {
        let answer = self.service(login, &json!({ "statement": statement })).json();
        answer["errors"][0]["code"].as_u64()
    }
}

// Compat (SQL++ over HTTP): indexes
#[test]
fn index_definitions_outlive_the_process() {
    let mut fixture = Fixture::development();
    fixture.define("CREATE PRIMARY INDEX ON `default` USING GSI");
    fixture.define(
        "CREATE INDEX `by_age` ON `default` (`age` DESC, DISTINCT ARRAY v FOR v IN tags END) \
         WHERE age > 3 USING GSI WITH {\"defer_build\": true, \"num_replica\": 1}",
    );
    let before = fixture.indexes("default", "_default", "_default");
    fixture.restart();
    let after = fixture.indexes("default", "_default", "_default");
    assert_eq!(before, after);
    assert_eq!(after[0]["name"], "#primary");
    assert_eq!((&after[0]["is_primary"], &after[0]["index_key"]), (&json!(true), &json!([])));
    let index = &after[1];
    assert_eq!((&index["state"], &index["keyspace_id"]), (&json!("deferred"), &json!("default")));
    assert_eq!(index["index_key"].as_array().unwrap().len(), 2, "{index}");
    assert_eq!(index["condition"], "(3 < `age`)");
    assert_eq!(index["metadata"]["num_replica"], 1);
    assert!(index.get("is_primary").is_none() && index.get("bucket_id").is_none(), "{index}");
    fixture.define("BUILD INDEX ON `default`(`by_age`)");
    fixture.wait_for_state("by_age", "online");
    fixture.restart();
    fixture.wait_for_state("by_age", "online");
    fixture.define("DROP INDEX `default`.`by_age` USING GSI");
    fixture.define("DROP PRIMARY INDEX ON `default`");
    fixture.restart();
    assert_eq!(fixture.indexes("default", "_default", "_default"), json!([]));
}

#[test]
fn wrong_index_statements_have_their_codes() {
    let fixture = Fixture::development();
    fixture.define("CREATE INDEX i ON `default` (a)");
    for (statement, code) in [
        ("CREATE INDEX i ON `default` (a)", 4300),
        ("DROP INDEX none ON `default`", 12016),
        ("BUILD INDEX ON `default`(none)", 12016),
        ("CREATE INDEX i ON nowhere (a)", 12003),
    ] {
        let answer = fixture.statement(statement);
        assert_eq!(answer["errors"][0]["code"], code, "{statement}: {answer}");
    }
    let exists = fixture.statement("CREATE INDEX i ON `default` (a)");
    let text = exists["errors"][0]["msg"].as_str().unwrap();
    assert!(text.contains("index i already exist"), "an SDK reads it: {text}");
    fixture.define("CREATE INDEX i IF NOT EXISTS ON `default` (a)");
    fixture.define("DROP INDEX none IF EXISTS ON `default`");
}

#[test]
fn a_dropped_collection_takes_its_indexes_along() {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    let create = || {
        assert_eq!(fixture.post(&format!("{scopes}/s/collections"), "name=c").status, 200);
    };
    assert_eq!(fixture.post(scopes, "name=s").status, 200);
    create();
    fixture.define("CREATE INDEX i ON `default`.s.c (a)");
    let index = &fixture.indexes("default", "s", "c")[0];
    let place = [&index["bucket_id"], &index["scope_id"], &index["keyspace_id"]];
    assert_eq!(place, [&json!("default"), &json!("s"), &json!("c")], "{index}");
    let path = format!("{scopes}/s/collections/c");
    assert_eq!(fixture.ask("DELETE", &path, super::ADMIN, "").status, 200);
    create();
    assert_eq!(fixture.indexes("default", "s", "c"), json!([]), "it is another collection");
    fixture.define("CREATE INDEX i ON `default`.s.c (a)");
}

#[test]
fn a_damaged_index_file_is_reported_and_kept() {
    let mut fixture = Fixture::development();
    fixture.define("CREATE INDEX i ON `default` (a)");
    let file = fixture._scratch.path().join("buckets/default/indexes.json");
    std::fs::write(&file, "{").unwrap();
    fixture.restart();
    let answer = fixture.statement("CREATE INDEX j ON `default` (a)");
    assert_eq!(answer["errors"][0]["code"], 12014, "{answer}");
    assert!(answer["errors"][0]["msg"].as_str().unwrap().contains("indexes.json"), "{answer}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{");
}

#[test]
fn the_index_file_of_a_later_version_is_kept() {
    let mut fixture = Fixture::development();
    fixture.put("k", br#"{"a":1}"#);
    fixture.define("CREATE INDEX i ON `default` (a INCLUDE MISSING DESC, b)");
    let file = fixture._scratch.path().join("buckets/default/indexes.json");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("INCLUDE MISSING DESC"), "{written}");
    let later = r#"{"version":2,"shards":[],"indexes":[{"by":"another"}]}"#;
    std::fs::write(&file, later).unwrap();
    fixture.restart();
    for statement in ["CREATE INDEX j ON `default` (a)", "SELECT * FROM system:indexes"] {
        let answer = fixture.statement(statement);
        assert_eq!(answer["errors"][0]["code"], 12014, "{answer}");
        let text = answer["errors"][0]["msg"].as_str().unwrap();
        assert!(text.contains("has version 2") && text.contains("stays as it is"), "{text}");
    }
    let scanned = fixture.statement("SELECT RAW a FROM `default` WHERE a = 1");
    assert_eq!(scanned["results"], json!([1]), "statements scan: {scanned}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), later);
    std::fs::write(&file, &written).unwrap();
    fixture.restart();
    fixture.wait_for_state("i", "online");
    let keys = &fixture.indexes("default", "_default", "_default")[0]["index_key"];
    assert_eq!(*keys, json!(["`a` INCLUDE MISSING DESC", "`b`"]));
}

#[test]
fn long_definitions_are_refused() {
    let fixture = Fixture::development();
    let long = "x".repeat(20 << 10);
    let answer = fixture.statement(&format!("CREATE INDEX i ON `default` (a || \"{long}\")"));
    assert_eq!(answer["errors"][0]["code"], 5010, "{answer}");
    assert!(answer["errors"][0]["msg"].as_str().unwrap().contains("16384"), "{answer}");
    let part = "y".repeat(15 << 10);
    let defer = "WITH {\"defer_build\": true}";
    let mut codes = (0..40).map(|number| {
        let create = format!("CREATE INDEX i{number} ON `default` (a || \"{part}\") {defer}");
        fixture.codes(super::ADMIN, &create)
    });
    let created = codes.by_ref().take_while(Option::is_none).count();
    assert!((30..36).contains(&created), "{created} of 15 KiB are 512 KiB");
}

#[test]
fn indexes_need_all_rights_to_documents() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "app", &["read-write:default"]);
        add_user(data_dir, "reader", &["read-only:default"]);
        add_user(data_dir, "other", &["read-write:elsewhere"]);
    };
    let fixture = Fixture::start(prepare, false);
    let create = "CREATE INDEX i ON `default` (a)";
    assert_eq!(fixture.codes("other:secret1", create), Some(12003));
    assert_eq!(fixture.codes("reader:secret1", create), Some(13014));
    assert_eq!(fixture.codes("app:secret1", create), None);
    let list = json!({ "statement": "SELECT RAW name FROM system:indexes" });
    let of = |login: &str| fixture.service(login, &list).json()["results"].clone();
    assert_eq!(of("reader:secret1"), json!(["i"]));
    assert_eq!(of("other:secret1"), json!([]), "it sees no keyspace");
    assert_eq!(fixture.codes("reader:secret1", "DROP INDEX `default`.i"), Some(13014));
}
