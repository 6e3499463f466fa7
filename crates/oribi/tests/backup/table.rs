//! Everything that a bucket has, to be compared with another bucket; and a bucket that has
//! something of everything.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use oribi_client::{
    Bytes, ChangeEvent, ChangeKind, ChangeStreamOptions, Client, Collection, DocumentPolicy,
    DurabilityLevel, MutateInOptions, PathMutation, WriteOptions,
};
use oribi_testkit::{PATIENCE, Random};

use crate::Fixture;

/// What is known about a document or a removed one, vbucket, history and seqno aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    pub is_removed: bool,
    pub is_expired: bool,
    pub cas: u64,
    pub rev: u64,
    pub flags: u32,
    /// Or when it was removed.
    pub expiry: u32,
    pub attributes: Vec<(Bytes, Bytes)>,
    pub value: Bytes,
    pub is_json: bool,
}

pub type Table = BTreeMap<(String, Vec<u8>), Version>;

/// All documents and tombstones of a bucket.
pub async fn table_of(client: &Client) -> Table {
    let options = ChangeStreamOptions::new().attributes(true).until_now(true);
    let mut changes = client.changes(&options).await.expect("a stream");
    let mut table = Table::new();
    while let Some(event) = changes.next().await.expect("an event") {
        let ChangeEvent::Change(change) = event else { continue };
        let path = change.path.as_ref().expect("a collection that is there");
        let path = format!("{}.{}", path.scope, path.collection);
        let attributes = change.attributes().expect("attributes").into_iter();
        let mut attributes: Vec<_> = attributes.map(|pair| (pair.name, pair.value)).collect();
        attributes.sort();
        let is_removed = change.kind != ChangeKind::Mutation;
        let version = Version {
            is_removed,
            is_expired: change.kind == ChangeKind::Expiration,
            cas: change.cas.0,
            rev: change.rev.0,
            flags: change.flags,
            expiry: if is_removed { change.deleted_at.unwrap_or(0) } else { change.expiry },
            attributes,
            value: change.value().expect("a value"),
            is_json: change.datatype.contains(oribi_client::Datatype::JSON),
        };
        table.insert((path, change.key.to_vec()), version);
    }
    table
}

/// Names the first difference; whole tables would be unreadable.
pub fn assert_equal(left: &Table, right: &Table) {
    for (key, version) in left {
        let name = String::from_utf8_lossy(&key.1);
        assert_eq!(right.get(key), Some(version), "{} {name}", key.0);
    }
    let more: Vec<_> = right.keys().filter(|key| !left.contains_key(*key)).collect();
    assert!(more.is_empty(), "{more:?}");
}

pub fn durable() -> WriteOptions {
    WriteOptions::new().durability(DurabilityLevel::PersistToMajority)
}

pub async fn write(client: &Client, collection: &Collection, key: &str, value: &str) {
    let value = Bytes::copy_from_slice(value.as_bytes());
    client.upsert(collection, key.as_bytes(), value, &durable()).await.expect("it is written");
}

pub async fn remove(client: &Client, collection: &Collection, key: &str) {
    client.delete(collection, key.as_bytes(), &durable()).await.expect("it is removed");
}

fn in_an_hour() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_secs() as u32 + 3600
}

/// Fills the bucket `default` with something of everything.
pub async fn fill(fixture: &Fixture, client: &Client) {
    let scopes = "/pools/default/buckets/default/scopes";
    fixture.create_collections("shop", &["orders", "carts"]);
    fixture.post(scopes, &[("name", "empty")]);
    fixture.post(&format!("{scopes}/shop/collections"), &[("name", "short"), ("maxTTL", "7200")]);
    let default = client.default_collection();
    let orders = client.collection("shop.orders").await.expect("it exists");
    let short = client.collection("shop.short").await.expect("it exists");

    write(client, default, "json", r#"{"a": [1, 2.5, "x"],  "b" : null}"#).await;
    write(client, default, "text", "no JSON {").await;
    write(client, default, "empty", "").await;
    write(client, default, "compressed", &"many times the same ".repeat(300)).await;
    let options = durable().flags(0xdead_beef).expiry(in_an_hour());
    let binary = Bytes::from_static(&[0, 255, 1, 254, 0]);
    client.upsert(default, &[0xff, 0, 1], binary, &options).await.expect("it is written");
    let mut random = Random::new(7);
    let large: Vec<u8> = (0..3_000_000).map(|_| random.below(256) as u8).collect();
    client.upsert(default, b"large", large.into(), &durable()).await.expect("it is written");
    for number in 0..5 {
        write(client, default, "often", &number.to_string()).await;
    }
    for number in 0..300 {
        write_soon(client, &orders, &format!("order:{number}"), number).await;
    }
    write(client, &short, "limited", "{}").await;

    // Attributes: with a body, compressed, without one, and of a document that never lived.
    let attributes = [
        PathMutation::upsert("user", br#"{"deep":{"er":1}}"#).xattr(),
        PathMutation::upsert("_sync", br#""revision""#).xattr(),
    ];
    let upsert = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
    for key in [&b"json"[..], b"compressed", b"bare"] {
        let changed = client.mutate_in(default, key, &attributes, &upsert).await;
        changed.expect("attributes are written");
    }
    let staged = upsert.create_as_deleted(true).access_deleted(true);
    let changed = client.mutate_in(default, b"staged", &attributes[1..], &staged).await;
    changed.expect("a deleted document is written");

    // Removals: plain, with a system attribute, created anew, and by time.
    write(client, default, "removed", "1").await;
    remove(client, default, "removed").await;
    let changed = client.mutate_in(default, b"removed-sync", &attributes, &upsert).await;
    changed.expect("attributes are written");
    remove(client, default, "removed-sync").await;
    write(client, &orders, "again", "1").await;
    remove(client, &orders, "again").await;
    write(client, &orders, "again", "2").await;
    let soon = durable().expiry(1);
    client.upsert(default, b"expired", Bytes::from_static(b"1"), &soon).await.expect("written");
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.get(default, b"expired").await.expect("an answer").is_some() {
        assert!(std::time::Instant::now() < deadline, "it never expires");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn write_soon(client: &Client, collection: &Collection, key: &str, number: u64) {
    let value = Bytes::from(format!(r#"{{"number":{number}}}"#));
    let written = client.upsert(collection, key.as_bytes(), value, &WriteOptions::json()).await;
    written.expect("it is written");
}
