//! Index definitions in a backup and in a snapshot.

use oribi_testkit::http::HttpClient;
use serde_json::{Value, json};

use crate::backup::Fixture;
use crate::backup::table::write;

/// Runs a statement; it must succeed.
fn query(admin: &HttpClient, statement: &str) -> Value {
    let body = json!({ "statement": statement }).to_string();
    let kind = "application/json";
    let answer = admin.request("POST", "/query/service", kind, body.as_bytes()).expect("an answer");
    let json = answer.json().expect("JSON");
    assert_eq!(json["status"], "success", "{statement}: {json}");
    json["results"].clone()
}

/// The definitions, without what a server chooses itself.
fn definitions(admin: &HttpClient) -> Value {
    let fields = "i.name, i.bucket_id, i.scope_id, i.keyspace_id, i.index_key, i.is_primary, \
                  i.`condition`, i.`partition`, i.state";
    query(admin, &format!("SELECT {fields} FROM system:indexes AS i ORDER BY i.name"))
}

#[tokio::test]
async fn backups_and_snapshots_have_indexes() {
    let source = Fixture::start();
    let client = source.client().await;
    write(&client, client.default_collection(), "key", "{}").await;
    source.post("/pools/default/buckets/default/scopes", &[("name", "shop")]);
    source.post("/pools/default/buckets/default/scopes/shop/collections", &[("name", "orders")]);
    for statement in [
        "CREATE PRIMARY INDEX ON `default`",
        "CREATE INDEX `by``name` ON `default`(name, `age-years` DESC) WHERE age > 3",
        "CREATE INDEX parts ON `default`.shop.orders(DISTINCT ARRAY p.id FOR p IN parts END) \
         PARTITION BY HASH(META().id) WITH {\"defer_build\": true}",
    ] {
        query(&source.admin(), statement);
    }
    let before = definitions(&source.admin());
    assert_eq!(before.as_array().map(Vec::len), Some(3), "{before}");
    let archive = source.archive();
    source.backup(&["create", &archive]);

    let target = Fixture::start();
    target.backup(&["restore", &archive, "--dry-run"]);
    assert_eq!(definitions(&target.admin()), json!([]));
    target.backup(&["restore", &archive]);
    assert_eq!(definitions(&target.admin()), before);
    // Those that exist stay.
    target.backup(&["restore", &archive, "--overwrite"]);
    assert_eq!(definitions(&target.admin()), before);

    let snapshot = source.path("snapshot");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oribi"));
    command.args(["backup", "snapshot", "--json", "--data-dir"]);
    let output = command.arg(source.path("data")).arg(&snapshot).output().expect("it runs");
    assert!(output.status.success(), "{}", crate::backup::text(&output.stderr));
    let file = "buckets/default/indexes.json";
    let read = |directory: std::path::PathBuf| std::fs::read(directory.join(file)).expect(file);
    assert_eq!(read(snapshot), read(source.path("data")));
}
