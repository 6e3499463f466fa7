//! Writes with metadata: sizes, compression, and the longest life in a collection.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::compression::CompressionMode;
use oribi_engine::{
    Bucket, GetOutcome, ItemRef, MetaOutcome, MutationOutcome, StoreRequest, WithMetaMode,
    WithMetaRequest,
};
use oribi_storage::MemoryStore;
use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_types::{Cas, Datatype, DocKey, RevSeqno};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key, open};

fn version(value: &[u8], datatype: Datatype) -> WithMetaRequest<'_> {
    WithMetaRequest {
        mode: WithMetaMode::Set,
        value,
        datatype,
        flags: 7,
        expired: false,
        expiry: 0,
        given_cas: Some(Cas(1000)),
        rev_seqno: RevSeqno(10),
        cas: Cas(0),
        resolution: None,
    }
}

fn get(bucket: &Bucket, key: DocKey<'_>) -> ItemRef {
    match bucket.get(VB, key, NOW) {
        GetOutcome::Hit(item) => item,
        other => panic!("{other:?}"),
    }
}

/// A block with one attribute, `bytes` long.
fn block(bytes: usize) -> Vec<u8> {
    let value_bytes = bytes - 4 - 7;
    let pair = [&b"x\0\""[..], &vec![b'y'; value_bytes - 2], b"\"\0"].concat();
    let lengths = [bytes as u32 - 4, pair.len() as u32].map(u32::to_be_bytes);
    [&lengths.concat()[..], &pair].concat()
}

#[test]
fn attributes_and_body_have_a_limit_each() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let body = vec![b'b'; bucket.config().value_bytes_max];
    let send = |attributes: &[u8], body: &[u8]| {
        let value = [attributes, body].concat();
        bucket.store_with_meta(VB, key("k"), &version(&value, Datatype::XATTR), NOW)
    };
    done(send(&block(XATTR_BYTES_MAX), &body));
    let item = get(&bucket, key("k"));
    assert_eq!((item.attributes().len(), item.body().len()), (XATTR_BYTES_MAX, body.len()));
    assert_eq!(send(&block(XATTR_BYTES_MAX + 1), b""), MutationOutcome::TooLarge);
    assert_eq!(send(&block(100), &[&body[..], b"b"].concat()), MutationOutcome::TooLarge);
}

// Compat (Writes with metadata): Compressed values, attributes and body in one stream, are inflated
// and stored by the bucket's mode
#[test]
fn a_bucket_that_compresses_does_so_with_these_too() {
    // Regression: what came with metadata stayed as it was.
    let bucket = open(Arc::new(MemoryStore::new()));
    bucket.set_compression_mode(CompressionMode::Active);
    let (attributes, body) = (block(100), b"text ".repeat(50));
    let value = [&attributes[..], &body].concat();
    done(bucket.store_with_meta(VB, key("k"), &version(&value, Datatype::XATTR), NOW));
    let item = get(&bucket, key("k"));
    assert_eq!(item.datatype().0, Datatype::XATTR.0 | Datatype::SNAPPY.0);
    assert_eq!((item.attributes(), item.flags()), (&attributes[..], 7));
    assert_eq!(item.plain_body(&mut Vec::new()), Ok(&body[..]));
    assert_eq!((item.cas(), item.rev_seqno()), (Cas(1000), RevSeqno(10)));
}

#[test]
fn revisions_go_on_beyond_what_a_header_holds() {
    let bucket = open(Arc::new(MemoryStore::new()));
    for value_bytes in [0, 100, 16_383, 16_384, 100_000] {
        let value = vec![b'v'; value_bytes];
        let request =
            WithMetaRequest { rev_seqno: RevSeqno(0xfffe), ..version(&value, Datatype::RAW) };
        done(bucket.store_with_meta(VB, key("k"), &request, NOW));
        for rev in 0xffff_u64..0x1_0004 {
            done(bucket.store(VB, key("k"), &StoreRequest::set(&value), NOW));
            let item = get(&bucket, key("k"));
            assert_eq!((item.rev_seqno().0, item.value()), (rev, &value[..]));
            let table = bucket.vbucket(VB).unwrap().hash_table_stats();
            assert_eq!(table.item_bytes, item.block_bytes());
            assert_eq!(table.item_bytes, bucket.vbucket(VB).unwrap().stats().item_bytes);
        }
        bucket.flush_step().unwrap();
    }
}

// Compat (Writes with metadata): `maxTTL` of bucket or collection cuts the expiry of documents
#[test]
fn collection_ttl_caps_the_expiry() {
    // Regression: an expiry that came with metadata was taken as it was.
    let bucket = open(Arc::new(MemoryStore::new()));
    let scope = "s".to_owned();
    bucket.update_manifest(&ManifestChange::CreateScope { name: scope.clone() }).unwrap();
    let name = "c".to_owned();
    let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: Some(60) };
    bucket.update_manifest(&create).unwrap();
    let collection = bucket.manifest().collection_id("s", "c").unwrap();
    let limited = DocKey { collection, key: b"k" };
    let now_s = NOW.unix_s();
    for (key, expiry, kept) in [
        (limited, 0, now_s + 60),
        (limited, now_s + 59, now_s + 59),
        (limited, now_s + 61, now_s + 60),
        (key("k"), 0, 0),
        (key("k"), now_s + 61, now_s + 61),
    ] {
        let request = WithMetaRequest { expiry, ..version(b"v", Datatype::RAW) };
        done(bucket.store_with_meta(VB, key, &request, NOW));
        assert_eq!(get(&bucket, key).expiry(), kept, "{expiry}");
    }
    // The time of a deletion is one that has been.
    let deletion =
        WithMetaRequest { mode: WithMetaMode::Delete, expiry: 5, ..version(b"", Datatype::RAW) };
    done(bucket.store_with_meta(VB, limited, &deletion, NOW));
    let found = bucket.get_meta(VB, limited, NOW);
    assert!(matches!(&found, MetaOutcome::Found(item, _) if item.expiry() == 5), "{found:?}");
}
