//! Servers that start with an initial state, again and again.

use std::path::Path;

use oribi_config::Settings;
use oribi_engine::{EvictionPolicy, GetOutcome, MutationOutcome};
use oribi_protocol::hash::vbucket_of;
use oribi_system::clock::wall_clock;
use oribi_types::{Cas, CollectionId, DocKey};

use super::Administrator;
use crate::server::{Server, StartError};

const FILE: &str = r#"
[[user]]
name = "app"
password = "secret-app"
roles = ["data_reader[shop]", "read-write:shop/eu"]
memcached_bucket = "shop"

[[user]]
name = "root"
password = "secret-root"
roles = ["admin"]

[[bucket]]
name = "shop"
vbuckets = 8
memory_quota_mib = 64
eviction = "value"
flush_enabled = true
scopes = ["archive"]
collections = ["eu.orders", { name = "eu.sessions", max_ttl_s = 3600 }]

[[bucket.documents]]
collection = "eu.orders"
key = "order-1"
value = { total = 12, lines = ["a", "b"] }

[[bucket.documents]]
file = "lines.jsonl"

[[bucket]]
name = "scratch"
storage = "memory"

[[bucket.documents]]
key = "k"
value = "text"
"#;

const LINES: &str = "{\"_key\":\"one\", \"n\": 1e2, \"a\":1}\n\n{\"_key\":\"two\",\"_json\":[2.0]}\n{\"_key\":\"raw\",\"_base64\":\"AAE=\"}\n";

struct Place {
    scratch: tempfile::TempDir,
    settings: Settings,
}

impl Place {
    fn new() -> Place {
        let scratch = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: scratch.path().join("data"),
            init: Some(scratch.path().join("init.toml")),
            port: 0,
            admin_port: 0,
            workers: 1,
            vbuckets: 4,
            memory_quota_mib: Some(64),
            ..Settings::default()
        };
        let place = Place { scratch, settings };
        place.write("lines.jsonl", LINES);
        place.write("init.toml", FILE);
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.path().join(name), text).unwrap();
    }

    fn start(&self) -> Result<Server, StartError> {
        Server::start(&self.settings)
    }

    /// The files that a start with nothing to do must leave alone.
    fn kept(&self) -> Vec<Vec<u8>> {
        let names = ["users.json", "init.json", "buckets/shop/bucket.json"];
        let read = |name: &&str| std::fs::read(self.settings.data_dir.join(name)).unwrap();
        names.iter().map(read).collect()
    }

    fn refusal(&self, text: &str) -> String {
        self.write("init.toml", text);
        match self.start() {
            Ok(server) => {
                server.shutdown().unwrap();
                panic!("{text} must be refused");
            }
            Err(error) => error.to_string(),
        }
    }
}

/// The value and flags of a document, once it is loaded.
fn document(
    server: &Server,
    bucket: &str,
    (scope, collection): (&str, &str),
    key: &str,
) -> Option<(Vec<u8>, u32)> {
    let handle = server.context().buckets.get(bucket).unwrap();
    let id = handle.bucket().manifest().collection_id(scope, collection).unwrap();
    let vbid = vbucket_of(key.as_bytes(), handle.vbuckets());
    let key = DocKey { collection: id, key: key.as_bytes() };
    let vbucket = handle.bucket().vbucket(vbid).unwrap();
    when_loaded(|| match vbucket.get(&handle.bucket().context(wall_clock()), key) {
        GetOutcome::Hit(item) => Some(Some((item.value().to_vec(), item.flags()))),
        GetOutcome::Miss => Some(None),
        _ => None,
    })
}

/// Asks until there is an answer.
fn when_loaded<T>(ask: impl FnMut() -> Option<T>) -> T {
    oribi_testkit::poll_until(oribi_testkit::PATIENCE, ask).expect("the bucket is loaded")
}

const DEFAULT: (&str, &str) = ("_default", "_default");

#[test]
fn contents_exist_before_the_server_serves() {
    let place = Place::new();
    let server = place.start().unwrap();
    assert!(!server.context().access.users.is_development());
    let app = server.context().access.users.verify_basic("app", b"secret-app").unwrap();
    assert_eq!((app.access.roles().len(), app.bucket.as_deref()), (2, Some("shop")));
    let root = server.context().access.users.verify_basic("root", b"secret-root").unwrap();
    assert!(root.access.is_admin());

    let shop = server.context().buckets.get("shop").unwrap();
    assert_eq!((shop.vbuckets(), shop.bucket().memory_quota_bytes()), (8, 64 << 20));
    assert!(shop.bucket().is_flush_enabled());
    let manifest = shop.bucket().manifest();
    assert!(manifest.scope_id("archive").is_ok());
    let sessions = manifest.collection_id("eu", "sessions").unwrap();
    assert_eq!(manifest.collection(sessions).unwrap().max_ttl_s, Some(3600));

    let order = document(&server, "shop", ("eu", "orders"), "order-1").unwrap();
    let json: serde_json::Value = serde_json::from_slice(&order.0).unwrap();
    assert_eq!(json, serde_json::json!({ "total": 12, "lines": ["a", "b"] }));
    let expected: [(&str, &[u8], u32); 3] = [
        ("one", br#"{"n": 1e2, "a":1}"#, super::seeds::FLAGS_JSON),
        ("two", b"[2.0]", super::seeds::FLAGS_JSON),
        ("raw", &[0, 1], super::seeds::FLAGS_RAW),
    ];
    for (key, value, flags) in expected {
        assert_eq!(document(&server, "shop", DEFAULT, key), Some((value.to_vec(), flags)), "{key}");
    }
    let text = document(&server, "scratch", DEFAULT, "k").unwrap();
    assert_eq!(text.0, b"\"text\"");
    drop(shop);
    server.shutdown().unwrap();
}

// Invariant: The same file of `--init` twice changes nothing; a file with a mistake changes nothing
// at all.
#[test]
fn an_unchanged_init_file_changes_nothing() {
    let place = Place::new();
    place.start().unwrap().shutdown().unwrap();
    let kept = place.kept();
    let server = place.start().unwrap();
    assert_eq!(place.kept(), kept);
    let handle = server.context().buckets.get("shop").unwrap();
    let uid = handle.bucket().manifest().uid();
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"one" };
    let vbid = vbucket_of(b"one", 8);
    let vbucket = handle.bucket().vbucket(vbid).unwrap();
    when_loaded(|| match vbucket.delete(&handle.bucket().context(wall_clock()), key, Cas(0)) {
        MutationOutcome::Done(_) => Some(()),
        _ => None,
    });
    assert!(document(&server, "scratch", DEFAULT, "k").is_some(), "memory is filled again");
    drop(handle);
    server.shutdown().unwrap();

    let server = place.start().unwrap();
    let handle = server.context().buckets.get("shop").unwrap();
    assert_eq!(handle.bucket().manifest().uid(), uid);
    drop(handle);
    assert_eq!(document(&server, "shop", DEFAULT, "one"), None);
    assert!(document(&server, "shop", DEFAULT, "two").is_some());
    assert_eq!(place.kept(), kept);
    server.shutdown().unwrap();
}

#[test]
fn a_file_that_differs_is_applied_where_it_can_be() {
    let place = Place::new();
    place.start().unwrap().shutdown().unwrap();
    let changed = FILE
        .replace("secret-app", "secret-new")
        .replace("memory_quota_mib = 64", "memory_quota_mib = 32")
        .replace("eviction = \"value\"", "eviction = \"full\"")
        .replace("max_ttl_s = 3600", "max_ttl_s = 60")
        .replace("\"archive\"", "\"archive\", \"more\"");
    place.write("init.toml", &changed);
    place.write("lines.jsonl", &LINES.replace("\"n\":1", "\"n\":9").replace("two", "three"));
    let server = place.start().unwrap();
    assert!(server.context().access.users.verify_basic("app", b"secret-new").is_some());
    let shop = server.context().buckets.get("shop").unwrap();
    assert_eq!(shop.bucket().memory_quota_bytes(), 32 << 20);
    assert_eq!(shop.bucket().eviction(), EvictionPolicy::Full);
    let manifest = shop.bucket().manifest();
    let sessions = manifest.collection_id("eu", "sessions").unwrap();
    assert_eq!(manifest.collection(sessions).unwrap().max_ttl_s, Some(60));
    assert!(manifest.scope_id("more").is_ok());
    assert!(document(&server, "shop", DEFAULT, "three").is_some());
    drop(shop);
    server.shutdown().unwrap();
    let fixed = changed.replace("vbuckets = 8", "vbuckets = 16");
    let refusal = place.refusal(&fixed);
    assert!(refusal.contains("\"shop\"") && refusal.contains("vbuckets 8"), "{refusal}");
}

// Invariant: The same file of `--init` twice changes nothing; a file with a mistake changes nothing
// at all.
#[test]
fn a_bad_init_file_ends_the_start_without_changes() {
    let place = Place::new();
    let user = "[[user]]\nname = \"a\"\npassword = \"secret1\"\nroles = ";
    let refused = [
        ("colour = 1".to_owned(), "colour"),
        ("[[bucket]]\nname = \"a\"\nmemory = 1".to_owned(), "memory"),
        ("[[bucket]]\nname = \"a b\"".to_owned(), "name of a bucket"),
        ("[[bucket]]\nname = \"a\"\n[[bucket]]\nname = \"a\"".to_owned(), "twice"),
        ("[[bucket]]\nname = \"a\"\nvbuckets = 3".to_owned(), "power of two"),
        ("[[bucket]]\nname = \"a\"\neviction = \"some\"".to_owned(), "eviction"),
        ("[[bucket]]\nname = \"a\"\ncollections = [\"x\"]".to_owned(), "SCOPE.COLLECTION"),
        ("[[bucket]]\nname = \"a\"\n[[bucket.documents]]\nkey = \"k\"".to_owned(), "key and value"),
        (format!("{user}[\"query_select[b]\"]"), "query_select"),
        (format!("{user}[\"admin\"]\npassword_file = \"p\""), "either password"),
        (
            "\n[[user]]\nname = \"a\"\npassword = \"short\"\nroles = []".to_owned(),
            "line 3: a password",
        ),
    ];
    for (text, word) in refused {
        let refusal = place.refusal(&text);
        assert!(refusal.contains(word) && refusal.contains("init.toml"), "{text}: {refusal}");
        assert!(!place.settings.data_dir.exists(), "{text}");
    }
    let refusal = place.refusal(&format!("{user}[\"read-only:*\"]"));
    assert!(refusal.contains("user \"a\"") && refusal.contains("role admin"), "{refusal}");
    let no_file = "[[bucket]]\nname = \"a\"\n[[bucket.documents]]\nfile = \"none.jsonl\"";
    let refusal = place.refusal(no_file);
    assert!(refusal.contains("none.jsonl"), "{refusal}");
}

#[test]
fn an_administrator_from_env_opens_the_server() {
    let place = Place::new();
    let settings = Settings {
        init: None,
        listen: "0.0.0.0".parse().unwrap(),
        admin_user: Some("ci".to_owned()),
        ..place.settings.clone()
    };
    let given = |password: &str| Some(Administrator { password: password.as_bytes().to_vec() });
    let without = Server::start(&settings).map(drop).unwrap_err().to_string();
    assert!(without.contains("ORIBI_ADMIN_PASSWORD"), "{without}");
    let server = Server::start_with(&settings, given("secret-ci"), None).unwrap();
    let users = &server.context().access.users;
    assert!(users.verify_basic("ci", b"secret-ci").is_some_and(|user| user.access.is_admin()));
    assert_eq!(users.verify_basic("Administrator", b"password"), None);
    server.shutdown().unwrap();

    let users_file = || std::fs::read(settings.data_dir.join("users.json")).unwrap();
    let before = users_file();
    Server::start_with(&settings, given("secret-ci"), None).unwrap().shutdown().unwrap();
    assert_eq!(users_file(), before, "the same password changes nothing");
    let server = Server::start_with(&settings, given("secret-two"), None).unwrap();
    assert!(server.context().access.users.verify_basic("ci", b"secret-two").is_some());
    assert_eq!(server.context().access.users.verify_basic("ci", b"secret-ci"), None);
    server.shutdown().unwrap();

    let file = place.scratch.path().join("password");
    place.write("password", "secret-file\n");
    let named = Settings { admin_password_file: Some(file), admin_user: None, ..settings };
    let both = Server::start_with(&named, given("secret-ci"), None).map(drop).unwrap_err();
    assert!(both.to_string().contains("both set"), "{both}");
    let server = Server::start(&named).unwrap();
    assert!(server.context().access.users.verify_basic("Administrator", b"secret-file").is_some());
    server.shutdown().unwrap();
}

#[test]
fn a_line_is_a_document_in_the_forms_of_an_export() {
    let scratch = tempfile::tempdir().unwrap();
    let path: &Path = &scratch.path().join("lines");
    let bad = ["[]", "{}", "{\"_key\":1}", "{\"_key\":\"a\"", "{\"_key\":\"a\",\"_base64\":\"!\"}"];
    for line in bad {
        std::fs::write(path, format!("{{\"_key\":\"a\"}}\n{line}\n")).unwrap();
        let error = super::seeds::rows_of(path, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{line}: {error}");
    }
}
