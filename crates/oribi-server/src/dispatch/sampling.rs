//! Documents at random, and documents out of memory: for tools and tests.

use oribi_engine::{MetaOutcome, Refused};
use oribi_protocol::feature::Feature;
use oribi_protocol::leb128::encode_u32;
use oribi_protocol::response::ResponseParts;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Datatype};

use super::exchange::{Exchange, write_item_as};
use crate::auth::Privilege;

/// GetRandomKey: flags, key and value of a document of a collection. Extras: collection u32, then whether attributes are to
/// come along u8; each may be missing.
pub(super) fn get_random_key(x: &mut Exchange<'_>) {
    let has_collections = x.state.features.has(Feature::Collections);
    let (collection, with_attributes) = match *x.frame.extras {
        [] => (CollectionId::DEFAULT, false),
        [a, b, c, d] if has_collections => (CollectionId(u32::from_be_bytes([a, b, c, d])), false),
        [a, b, c, d, flag @ (0 | 1)] if has_collections => {
            (CollectionId(u32::from_be_bytes([a, b, c, d])), flag == 1)
        }
        _ => return x.fail(Status::Einval),
    };
    if with_attributes && !x.state.features.has(Feature::Xattr) {
        return x.fail(Status::Einval);
    }
    if !x.allows(collection, Privilege::Read.into()) {
        return;
    }
    x.count(|counters| &counters.cmd_get);
    let (item, cas) = match x.bucket().bucket().random_document(collection, x.env.now) {
        Err(refused) => return x.refuse(refused),
        Ok(None) => return x.fail(Status::KeyEnoent),
        Ok(Some(found)) => found,
    };
    let mut key = Vec::new();
    if has_collections {
        let (prefix, prefix_bytes) = encode_u32(collection.0);
        key.extend_from_slice(&prefix[..prefix_bytes]);
    }
    key.extend_from_slice(item.key().key);
    let parts = ResponseParts { key: &key, ..x.parts(Status::Success) };
    if !with_attributes || !item.has_attributes() {
        return write_item_as(x.out, x.state.features, &parts, &item, cas);
    }
    let mut scratch = Vec::new();
    let Ok(body) = item.plain_body(&mut scratch) else { return x.fail(Status::Etmpfail) };
    let value = [item.attributes(), body].concat();
    let shown = x.state.features.datatype_shown(item.datatype()) & !Datatype::SNAPPY.0;
    let datatype = shown | Datatype::XATTR.0;
    let flags = item.flags().to_be_bytes();
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, value: &value, ..parts };
    x.send(&parts);
}

/// EvictKey: takes the value of a durable document out of memory; the answer says in words what came of it.
pub(super) fn evict_key(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let vbid = x.vbid(key);
    let bucket = x.bucket().bucket();
    match bucket.get_meta(vbid, key, x.env.now) {
        MetaOutcome::Refused(Refused::NeedsFetch) => x.send_value(b"Already evicted."),
        MetaOutcome::Refused(refused) => x.refuse(refused),
        MetaOutcome::Found(item, _) if item.is_evicted() => x.send_value(b"Already evicted."),
        MetaOutcome::Found(item, _) if !item.is_deleted() => {
            // Nobody may be at it while it goes.
            drop(item);
            match bucket.evict(vbid, key) {
                true => x.send_value(b"Evicted."),
                false => x.fail(Status::KeyEexists),
            }
        }
        MetaOutcome::Found(..) | MetaOutcome::Miss => x.fail(Status::KeyEnoent),
    }
}
