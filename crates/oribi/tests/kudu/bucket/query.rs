//! What clients have stored in a bucket, as `oribi query` shows it.

use std::process::{Command, Stdio};

use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{KuduCluster, RawConnection, Request, ServerProcess};
use oribi_types::{CollectionId, Datatype};
use serde_json::{Value, json};

use crate::bucket::documents::{durable, expect, login_with, on_attribute};
use crate::bucket::{CLUSTER, ORIBI, start};

/// Attributes that do not fit a cell of Kudu, with their JSON.
const LONG_ATTRIBUTE_BYTES: usize = 70_000;

/// The rows of a statement.
fn rows(cluster: &KuduCluster, statement: &str) -> Vec<Value> {
    let masters = cluster.master_addresses();
    let output = Command::new(ORIBI)
        .args(["query", "--kudu", &masters, "--database", "seen", "--json", statement])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{statement}: {problems}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Makes `app.users` and tells its id.
fn create_collection(admin: &HttpClient, connection: &mut RawConnection) -> CollectionId {
    const SCOPES: &str = "/pools/default/buckets/default/scopes";
    for (path, name) in [(SCOPES, "app"), (&format!("{SCOPES}/app/collections"), "users")] {
        let answer = admin.post_form(path, &[("name", name)]).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let look_up = Request::new(Opcode::CollectionsGetId).value("app.users");
    let found = expect(connection, &look_up);
    CollectionId(u32::from_be_bytes(*found.extras.last_chunk().unwrap()))
}

fn write_all(connection: &mut RawConnection, users: CollectionId) {
    expect(connection, &durable(Request::set("plain", r#"{"n":1}"#)));
    expect(connection, &durable(Request::set("binary", "no JSON")));
    let compressed = snap::raw::Encoder::new().compress_vec(br#"{"n":2}"#).unwrap();
    let compressed = Request::set("compressed", compressed).datatype(Datatype::SNAPPY.0);
    expect(connection, &durable(compressed));
    expect(connection, &durable(Request::set("attributes", r#"{"n":3}"#)));
    let long = format!("\"{}\"", "a".repeat(LONG_ATTRIBUTE_BYTES - 2));
    let long = on_attribute(Opcode::SubdocDictUpsert, "attributes", "long", 0, &long);
    expect(connection, &durable(long));
    expect(connection, &durable(Request::set("user", r#"{"n":4}"#).collection(users)));
}

#[test]
fn statements_show_what_clients_have_stored() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server: ServerProcess = start(cluster, "seen", &directory);
    let admin = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let mut connection = login_with(server.port(), &[Feature::Snappy]);
    let users = create_collection(&admin, &mut connection);
    write_all(&mut connection, users);

    let statement = "select meta().id, meta().type, n from `default` order by meta().id";
    let in_default = [
        json!({"id": "attributes", "type": "json", "n": 3}),
        json!({"id": "binary", "type": "base64"}),
        json!({"id": "compressed", "type": "json", "n": 2}),
        json!({"id": "plain", "type": "json", "n": 1}),
    ];
    assert_eq!(rows(cluster, statement), in_default);
    let of_users = "select meta().id, n from `default`.app.`users`";
    assert_eq!(rows(cluster, of_users), [json!({"id": "user", "n": 4})]);

    // At once, wherever the removal of its rows has got to.
    let answer = admin.delete("/pools/default/buckets/default/scopes/app/collections/users");
    assert_eq!(answer.unwrap().status, 200);
    let listed = rows(cluster, "select raw name from system:keyspaces");
    assert_eq!(listed, [json!("default")]);
    assert!(server.terminate().unwrap().success(), "{}", server.output());
}
