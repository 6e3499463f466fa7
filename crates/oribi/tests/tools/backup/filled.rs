//! A bucket that has something of everything.

use oribi_client::{
    Bytes, Client, Collection, DocumentPolicy, MutateInOptions, PathMutation, WriteOptions,
};
use oribi_testkit::{PATIENCE, Random};

use crate::backup::Fixture;
use crate::backup::random::in_an_hour;
use crate::backup::table::{durable, remove, write};

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
