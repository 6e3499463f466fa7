//! Everything that a bucket has, to be compared with another bucket.

use std::collections::BTreeMap;

use oribi_client::{
    Bytes, ChangeKind, Client, Collection, DcpEvent, DcpStreamOptions, DurabilityLevel,
    WriteOptions,
};

/// Properties of a document or tombstone, except vbucket, history and seqno.
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
    let options = DcpStreamOptions::new().attributes(true).until_now(true);
    let mut changes = client.dcp_stream(&options).await.expect("a stream");
    let mut table = Table::new();
    while let Some(event) = changes.next().await.expect("an event") {
        let DcpEvent::Change(change) = event else { continue };
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

/// Without tombstones, which a bucket in memory keeps only while a stream needs them.
pub fn documents_of(table: &Table) -> Table {
    let documents = table.iter().filter(|(_, version)| !version.is_removed);
    documents.map(|(key, version)| (key.clone(), version.clone())).collect()
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
