//! Documents and stores for the tests of this crate.

use oribi_types::{Cas, CollectionId, Datatype, RevSeqno, Seqno, Vbid};
use proptest::prelude::*;

use crate::archive::Archive;
use crate::manifest::{BackupCollection, BackupKind, Begin};
use crate::record::{ArchiveRecord, RecordKind};
use crate::store::MemoryArchiveStore;

/// A record that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestDocument {
    pub kind: RecordKind,
    pub vbid: u16,
    pub seqno: u64,
    pub numbers: (u64, u64, u32, u32),
    pub collection: u32,
    pub datatype: u8,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Default for TestDocument {
    fn default() -> TestDocument {
        TestDocument {
            kind: RecordKind::Mutation,
            vbid: 0,
            seqno: 1,
            numbers: (1, 1, 0, 0),
            collection: 0,
            datatype: 0,
            key: b"key".to_vec(),
            value: b"value".to_vec(),
        }
    }
}

impl TestDocument {
    pub fn as_record(&self) -> ArchiveRecord<'_> {
        let (cas, rev, flags, expiry) = self.numbers;
        ArchiveRecord {
            kind: self.kind,
            vbid: Vbid(self.vbid),
            seqno: Seqno(self.seqno),
            cas: Cas(cas),
            rev: RevSeqno(rev),
            flags,
            expiry,
            collection: CollectionId(self.collection),
            datatype: Datatype(self.datatype),
            key: &self.key,
            value: &self.value,
        }
    }

    pub fn of(record: &ArchiveRecord<'_>) -> TestDocument {
        TestDocument {
            kind: record.kind,
            vbid: record.vbid.0,
            seqno: record.seqno.0,
            numbers: (record.cas.0, record.rev.0, record.flags, record.expiry),
            collection: record.collection.0,
            datatype: record.datatype.0,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
        }
    }
}

pub fn any_document() -> impl Strategy<Value = TestDocument> {
    let kind = prop_oneof![
        4 => Just(RecordKind::Mutation),
        1 => Just(RecordKind::Deletion),
        1 => Just(RecordKind::Expiration)
    ];
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    (
        kind,
        0..4_u16,
        any::<u64>(),
        any::<(u64, u64, u32, u32)>(),
        0..3_u32,
        0..8_u8,
        bytes(20),
        bytes(300),
    )
        .prop_map(|(kind, vbid, seqno, numbers, collection, datatype, key, value)| {
            TestDocument { kind, vbid, seqno, numbers, collection, datatype, key, value }
        })
}

/// The beginning of a backup of the bucket `default` with four vbuckets.
pub fn begin(id: &str, parent: Option<&str>, from: &str) -> Begin {
    Begin {
        id: id.to_owned(),
        kind: if parent.is_some() { BackupKind::Incremental } else { BackupKind::Full },
        parent: parent.map(str::to_owned),
        bucket: "default".to_owned(),
        source: "test".to_owned(),
        tool: "test".to_owned(),
        started_at: 1_000,
        vbuckets: 4,
        collections: Vec::new(),
        key_pattern: None,
        manifest_uid: 1,
        places: vec![
            place(0, "_default", "_default"),
            place(1, "shop", "orders"),
            place(2, "shop", "carts"),
        ],
        scopes: vec!["_default".to_owned(), "shop".to_owned()],
        bucket_settings: None,
        users: None,
        indexes: Vec::new(),
        from: from.to_owned(),
    }
}

pub fn place(id: u32, scope: &str, collection: &str) -> BackupCollection {
    BackupCollection {
        id,
        scope: scope.to_owned(),
        collection: collection.to_owned(),
        max_ttl_s: None,
    }
}

/// The archive in a store, or a new one.
pub fn archive_of(store: &MemoryArchiveStore) -> Archive {
    Archive::open_or_create(Box::new(store.clone()), None).expect("the store works")
}
