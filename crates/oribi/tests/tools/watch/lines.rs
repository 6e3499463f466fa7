//! What lines say, which are shown, and how a watch ends.

use std::process::Stdio;

use oribi_client::{
    Bytes, ChangeToken, Client, DurabilityLevel, MutateInOptions, PathMutation, WriteOptions,
};
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, poll_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::watch::{FLAGS, Fixture, WatchProcess, remove, write};

fn keys(lines: &[Value]) -> Vec<&str> {
    let mut keys: Vec<&str> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn writes_and_removals_are_lines() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    write(&client, default, "a", 1).await;
    write(&client, default, "b", 2).await;
    remove(&client, "b").await;
    let lines = fixture.watched_until_now(&["--from", "beginning", "--with-values"]);
    let a = lines.iter().find(|line| line["key"] == "a").expect("it is there");
    assert_eq!(a["type"], "mutation");
    assert_eq!((&a["scope"], &a["collection"]), (&json!("_default"), &json!("_default")));
    assert_eq!((&a["value"], &a["datatype"]), (&json!({"n": 1}), &json!(["json"])));
    assert_eq!((&a["flags"], &a["expiry"], &a["rev"]), (&json!(FLAGS), &json!(0), &json!(1)));
    let document = client.get(default, b"a").await.expect("an answer").expect("a document");
    assert_eq!(a["cas"], document.cas.0.to_string());
    let b: Vec<&Value> = lines.iter().filter(|line| line["key"] == "b").collect();
    assert_eq!(b.last().expect("it is there")["type"], "deletion");
    assert!(b.last().is_some_and(|line| line["value"].is_null()));

    // Without values, and after a token of a line.
    let token = a["token"].as_str().expect("a token");
    token.parse::<ChangeToken>().expect("a token parses");
    let lines = fixture.watched_until_now(&["--from", token]);
    assert_eq!(keys(&lines).iter().filter(|key| **key == "a").count(), 0);
    assert!(lines.iter().all(|line| line["value"].is_null()));
}

#[tokio::test]
async fn only_the_named_collections_are_shown() {
    let fixture = Fixture::start();
    fixture.create_collections("shop", &["orders", "carts"]);
    let client = fixture.client().await;
    for path in ["shop.orders", "shop.carts", "_default._default"] {
        let collection = client.collection(path).await.expect("it exists");
        write(&client, &collection, path, 1).await;
    }
    let begin = ["--from", "beginning"];
    let lines = fixture.watched_until_now(&[&begin[..], &["--collection", "shop.orders"]].concat());
    assert_eq!(keys(&lines), ["shop.orders"]);
    assert!(lines.iter().any(|line| line["type"] == "collection_created"));
    assert!(lines.iter().all(|line| line["collection"] == "orders"), "{lines:?}");
    let lines = fixture.watched_until_now(&[&begin[..], &["--scope", "shop"]].concat());
    assert_eq!(keys(&lines), ["shop.carts", "shop.orders"]);
    let lines = fixture.watched_until_now(&begin);
    assert_eq!(keys(&lines), ["_default._default", "shop.carts", "shop.orders"]);

    let unknown = fixture.command(&["watch", "--collection", "shop.none"]).output().unwrap();
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && error.contains("collection"), "{error}");
}

/// Writes until the watch has shown one: only what is written after it began counts.
async fn wait_until_it_watches(fixture: &Fixture, watch: &WatchProcess) {
    let client = fixture.client().await;
    for number in 0.. {
        write(&client, client.default_collection(), "probe", number).await;
        if watch.lines.try_recv().is_ok() {
            return;
        }
    }
}

#[tokio::test]
async fn watch_shows_changes_until_a_signal() {
    let fixture = Fixture::start();
    for signal in [Signal::INT, Signal::TERM] {
        let watch = fixture.watch(&[]);
        wait_until_it_watches(&fixture, &watch).await;
        let client = fixture.client().await;
        write(&client, client.default_collection(), "live", 1).await;
        assert_eq!(watch.change_of("live")["type"], "mutation");
        assert_eq!(watch.end(signal), Some(130));
    }
}

/// The reader of the pipe leaves, and nothing is written any more.
#[tokio::test]
async fn ends_when_its_reader_leaves() {
    let fixture = Fixture::start();
    let mut command = fixture.command(&["watch", "--from", "beginning"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
    drop(child.stdout.take());
    let status = poll_until(PATIENCE, || child.try_wait().expect("it can be waited for"));
    assert_eq!(status.expect("it ends").code(), Some(0));
}

/// The admin port's answer to the same query.
fn events_until_now(fixture: &Fixture, query: &str) -> Vec<Value> {
    let admin = HttpClient::new(fixture.server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let path = format!("/pools/default/buckets/default/changes?until-now&{query}");
    let response = admin.get(&path).expect("an answer");
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut lines: Vec<Value> = data.map(crate::watch::parse).collect();
    let end = lines.pop().expect("the last event is the end");
    assert_eq!(end, json!({"type": "end", "reason": "complete"}));
    lines
}

/// Gives a document an attribute of users and one of the system.
async fn tag(client: &Client, key: &str) {
    let paths = [
        PathMutation::upsert("tag", br#"{"by": "ann"}"#).xattr(),
        PathMutation::upsert("_sys", b"[1]").xattr(),
    ];
    let (default, options) = (client.default_collection(), MutateInOptions::default());
    client.mutate_in(default, key.as_bytes(), &paths, &options).await.expect("it is tagged");
}

#[tokio::test]
async fn attributes_are_shown_on_request() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    for key in ["tagged", "gone", "plain"] {
        write(&client, client.default_collection(), key, 1).await;
    }
    tag(&client, "tagged").await;
    tag(&client, "gone").await;
    remove(&client, "gone").await;
    let shown = |options: &[&str], key: &str| {
        let lines = fixture.watched_until_now(&[&["--from", "beginning"], options].concat());
        let last = lines.into_iter().rfind(|line| line["key"] == key);
        last.expect("it is shown")
    };
    let both = json!({"tag": {"by": "ann"}, "_sys": [1]});
    let tagged = shown(&["--with-xattrs"], "tagged");
    assert_eq!((&tagged["xattrs"], tagged.get("value")), (&both, None));
    assert_eq!(tagged["datatype"], json!(["json"]));
    let tagged = shown(&["--with-xattrs", "--with-values"], "tagged");
    assert_eq!((&tagged["xattrs"], &tagged["value"]), (&both, &json!({"n": 1})));
    assert_eq!(shown(&["--with-values"], "tagged").get("xattrs"), None);
    assert_eq!(shown(&["--with-xattrs"], "plain").get("xattrs"), None);
    let gone = shown(&["--with-xattrs"], "gone");
    assert_eq!((&gone["type"], &gone["xattrs"]), (&json!("deletion"), &json!({"_sys": [1]})));
}

// Invariant: An event over HTTP is a line of `oribi watch`, and its id covers exactly the events
// before it.
/// `oribi watch` and Server-Sent Events have the same lines and the same tokens.
#[tokio::test]
async fn events_over_http_are_the_same_lines() {
    let fixture = Fixture::start();
    fixture.create_collections("shop", &["orders", "carts", "gone"]);
    fixture.create_collections("old", &["stock"]);
    let client = fixture.client().await;
    for path in ["shop.orders", "shop.carts", "shop.gone", "_default._default"] {
        let collection = client.collection(path).await.expect("it exists");
        for number in 0..20 {
            write(&client, &collection, &format!("{path} {number} \"\u{e9}\u{7f}"), number).await;
        }
    }
    let default = client.default_collection();
    let durable = WriteOptions::new().durability(DurabilityLevel::PersistToMajority);
    for (key, value) in [(&b"binary"[..], &b"\0\xff"[..]), (b"\xff", b"[1,\r\n2]"), (b"empty", b"")]
    {
        let value = Bytes::copy_from_slice(value);
        client.upsert(default, key, value, &durable).await.expect("it is written");
    }
    // Compressed in the store.
    let long = Bytes::from(format!("{{\"long\":\"{}\"}}", "abc".repeat(10_000)));
    let options = WriteOptions::json().durability(DurabilityLevel::PersistToMajority);
    client.upsert(default, b"long", long, &options).await.expect("it is written");
    for key in ["long", "_default._default 3 \"\u{e9}\u{7f}", "_default._default 4 \"\u{e9}\u{7f}"]
    {
        tag(&client, key).await;
    }
    remove(&client, "_default._default 3 \"\u{e9}\u{7f}").await;
    let admin = HttpClient::new(fixture.server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    for path in ["shop/collections/gone", "old"] {
        let path = format!("/pools/default/buckets/default/scopes/{path}");
        assert_eq!(admin.delete(&path).expect("an answer").status, 200);
    }
    for (options, query) in [
        (&["--with-values"][..], "with-values"),
        (&["--with-xattrs"], "with-xattrs"),
        (&["--with-values", "--with-xattrs"], "with-values&with-xattrs"),
        (&[], ""),
        (&["--snapshots"], "snapshots"),
        (&["--collection", "shop.orders"], "collection=shop.orders"),
        (&["--scope", "shop"], "scope=shop"),
    ] {
        let options = [&["--from", "beginning"], options].concat();
        // Vbuckets take turns in no certain order; one vbucket's lines are in order.
        let in_order = |mut lines: Vec<Value>| {
            lines.sort_by_key(|line| line["vbucket"].as_u64());
            lines
        };
        // The history changes until it is flushed and dropped collections are gone from it, so
        // what comes between two equal answers counts.
        let settled = poll_until(PATIENCE, || {
            let before = in_order(fixture.watched_until_now(&options));
            let sent = in_order(events_until_now(&fixture, &format!("from=beginning&{query}")));
            let after = in_order(fixture.watched_until_now(&options));
            (before == after).then_some((sent, after))
        });
        let (sent, watched) = settled.expect("the history settles");
        assert!(watched.len() > 20, "{query}");
        assert_eq!(sent, watched, "{query}");
    }
}
