//! An export with metadata and its import give back everything: attributes, collections, flags,
//! expiry.

use std::collections::BTreeMap;

use oribi_client::{
    Bytes, Client, ConnectOptions, DocumentPolicy, DocumentVersion, MutateInOptions, Operation,
    PathMutation, VersionKind,
};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{Random, ServerProcess, seed};
use oribi_types::{Cas, Datatype, RevSeqno};
use serde_json::Value;

use crate::doc::{Fixture, stderr, stdout};

const SEED: u64 = 1;
const DOCUMENTS: usize = 400;
const COLLECTIONS: [&str; 3] = ["_default._default", "shop.orders", "shop.carts"];

async fn client(server: &ServerProcess) -> Client {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    Client::connect(options.port(server.port())).await.expect("a client")
}

fn text(fixture: &Fixture, name: &str) -> String {
    fixture.directory.path().join(name).to_str().expect("temporary paths are text").to_owned()
}

/// A block of attributes, up to 20 of them.
fn attributes(random: &mut Random) -> Vec<u8> {
    let mut pairs = Vec::new();
    for number in 0..random.below(20) {
        let name = if random.below(3) == 0 { "_system" } else { "user" };
        let pair = match random.below(4) {
            0 => format!("{name}{number}\0[1.50, {number},null]\0"),
            1 => format!("{name}{number}\0\"{}\"\0", "\u{e9}".repeat(random.below(300) as usize)),
            _ => format!("{name}{number}\0{{\"_flags\":{number}}}\0"),
        };
        pairs.extend((pair.len() as u32).to_be_bytes());
        pairs.extend(pair.as_bytes());
    }
    match pairs.is_empty() {
        true => Vec::new(),
        false => [&(pairs.len() as u32).to_be_bytes()[..], &pairs].concat(),
    }
}

async fn fill(client: &Client, random: &mut Random) {
    for number in 0..DOCUMENTS {
        let path = COLLECTIONS[random.below(3) as usize];
        let collection = client.collection(path).await.expect("it exists");
        let key = format!("key {number} \u{e9}");
        let body = match random.below(5) {
            0 => b"\x00\xff raw".to_vec(),
            1 => format!("[{number}]").into_bytes(),
            2 => format!("{{\"_xattrs\":{number},\"_scope\":\"x\"}}").into_bytes(),
            3 => Vec::new(),
            _ => format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(number)).into_bytes(),
        };
        let block = attributes(random);
        let datatype = if block.is_empty() { Datatype::RAW } else { Datatype::XATTR };
        let version = DocumentVersion::new(VersionKind::Mutation, Cas(1), RevSeqno(1))
            .new_cas(true)
            .flags(random.below(u64::from(u32::MAX)) as u32)
            .expiry([0, 4_000_000_000][number % 2])
            .datatype(datatype);
        let value = Bytes::from([block, body].concat());
        let operation = Operation::with_meta(key.as_bytes(), value, &version);
        client.run(&collection, &operation).await.expect("a write");
    }
}

/// Lines by collection and key, without the CAS.
fn documents(exported: &str) -> BTreeMap<(String, String), Value> {
    let mut documents = BTreeMap::new();
    for line in std::fs::read_to_string(exported).expect("an export").lines() {
        let mut line: Value = serde_json::from_str(line).expect("it is JSON");
        let fields = line.as_object_mut().expect("an object");
        fields.remove("_cas").expect("a CAS");
        let text = |field: &Value| field.as_str().expect("text").to_owned();
        let path = format!("{}.{}", text(&fields["_scope"]), text(&fields["_collection"]));
        let key = (path, text(&fields["_key"]));
        assert!(documents.insert(key, line).is_none(), "each document comes once");
    }
    documents
}

#[tokio::test(flavor = "multi_thread")]
async fn random_documents_survive_export_and_import() {
    let mut source = Fixture::start();
    source.create_collections("shop", &["orders", "carts"]);
    fill(&client(&source.server).await, &mut Random::new(seed(SEED))).await;
    let (first, second, offline) =
        (text(&source, "first"), text(&source, "second"), text(&source, "offline"));
    stdout(&source.doc(&["export", &first, "--meta", "--all-collections"]));
    let expected = documents(&first);
    assert_eq!(expected.len(), DOCUMENTS);
    let has = |field: &str| expected.values().filter(|line| line.get(field).is_some()).count();
    assert!(has("_xattrs") > DOCUMENTS / 2 && has("_json") > 10 && has("_base64") > 10);

    let target = Fixture::start();
    let admin_port = target.server.admin_port().to_string();
    let output = target.doc(&["import", &first, "--meta"]);
    assert!(stderr(&output).contains("--create-collections creates it"), "{}", stderr(&output));
    let create = ["--create-collections", "--admin-port", &admin_port];
    stdout(&target.doc(&[&["import", &first, "--meta"][..], &create].concat()));
    stdout(&target.doc(&["export", &second, "--meta", "--all-collections"]));
    assert!(documents(&second) == expected, "an import gives back what was exported");

    // Once more over what is present, and some collections, and from the files.
    stdout(&target.doc(&["import", &second, "--meta"]));
    let some = ["--collection", "shop.carts", "--collection", "shop.orders"];
    stdout(&target.doc(&[&["export", &second, "--meta"][..], &some].concat()));
    let of_shop = expected.iter().filter(|((path, _), _)| path.starts_with("shop"));
    assert!(documents(&second).iter().eq(of_shop));
    assert!(source.server.terminate().expect("it stops").success());
    let data_dir = source.server.data_dir().to_str().expect("text").to_owned();
    let arguments = ["export", &offline, "--meta", "--all-collections", "--data-dir", &data_dir];
    stdout(&source.doc(&arguments));
    assert!(documents(&offline) == expected, "files have the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn xattrs_are_exported_and_replaced_by_an_import() {
    let fixture = Fixture::start();
    let client = client(&fixture.server).await;
    let collection = client.default_collection();
    let options = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
    let paths = [
        PathMutation::upsert("user", b"{\"a\":1}").xattr(),
        PathMutation::upsert("_system", b"2").xattr(),
    ];
    client.mutate_in(collection, b"a", &paths, &options).await.expect("a write");
    let rev = async || {
        let meta = client.get_meta(collection, b"a").await.expect("an answer");
        meta.expect("a document").rev_seqno
    };
    let before = rev().await;
    let (keys, exported) = (text(&fixture, "keys"), text(&fixture, "exported"));
    std::fs::write(&keys, "a\n").expect("a file");
    stdout(&fixture.doc(&["export", &exported, "--keys", &keys, "--meta"]));
    let line = std::fs::read_to_string(&exported).expect("an export");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["_xattrs"], serde_json::json!({"user": {"a": 1}, "_system": 2}));

    // What an import brings replaces everything, as a later version.
    std::fs::write(&exported, "{\"_key\":\"a\",\"_xattrs\":{\"new\":[]},\"n\":1}\n")
        .expect("a file");
    stdout(&fixture.doc(&["import", &exported, "--meta", "--expiry", "1h"]));
    assert!(rev().await > before);
    let by_scan = stdout(&fixture.doc(&["export", "-", "--meta"]));
    let line: Value = serde_json::from_str(&by_scan).expect("JSON");
    assert_eq!((&line["_xattrs"], &line["n"]), (&serde_json::json!({"new": []}), &1.into()));
    assert!(line["_expiry"].as_u64().is_some_and(|expiry| expiry > 1_700_000_000), "{line}");

    let durable = ["import", &exported, "--meta", "--durability", "persist"];
    let output = fixture.doc(&durable);
    assert!(stderr(&output).contains("line 1: a document with attributes"), "{}", stderr(&output));
}

#[test]
fn several_collections_need_lines_that_name_them() {
    let fixture = Fixture::start();
    fixture.create_collections("shop", &["orders", "carts"]);
    let both = ["--collection", "shop.orders", "--collection", "shop.carts"];
    let output = fixture.doc(&[&["export", "-"][..], &both].concat());
    assert!(stderr(&output).contains("need --meta"), "{}", stderr(&output));
    assert_eq!(fixture.doc(&["export", "-", "--all-collections"]).status.code(), Some(2));

    let path = text(&fixture, "lines");
    let line = r#"{"_key":"a","_scope":"shop","_collection":"orders"}"#;
    std::fs::write(&path, line).expect("a file");
    let import = ["import", &path, "--meta", "--collection"];
    let output = fixture.doc(&[&import[..], &["shop.carts"]].concat());
    let said = stderr(&output);
    assert!(
        said.contains("line 1: the line belongs to shop.orders, and --collection names shop.carts"),
        "{said}"
    );
    stdout(&fixture.doc(&[&import[..], &["shop.orders"]].concat()));
    assert_eq!(stdout(&fixture.doc(&["get", "a", "--collection", "shop.orders"])), "{}\n");
}
