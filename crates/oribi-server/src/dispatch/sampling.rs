//! Documents at random, and documents out of memory: for tools and tests.
//!
//! A document at random may come with its attributes; those of the system only for who may read them.

use std::sync::Arc;

use oribi_engine::{MetaOutcome, Refused};
use oribi_protocol::feature::Feature;
use oribi_protocol::leb128::encode_u32;
use oribi_protocol::response::ResponseParts;
use oribi_protocol::status::Status;
use oribi_subdoc::xattr::{self, Malformed, XattrDraft};
use oribi_types::{CollectionId, Datatype, DocKey, Timestamp, Vbid};

use super::exchange::{Exchange, write_item_as};
use crate::auth::Privilege;
use crate::blocking_thread::Job;
use crate::buckets::BucketHandle;
use crate::connection::state::Wait;

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
        _ => {
            return x.fail_with(
                Status::Einval,
                "collections were not negotiated, or a flag is not 0 or 1",
            );
        }
    };
    if with_attributes && !x.state.features.has(Feature::Xattr) {
        return x.fail_with(Status::Einval, "attributes were not negotiated");
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
    let sees_system = x.holds(collection, Privilege::SystemXattrRead.into());
    let Ok(mut value) = shown_attributes(item.attributes(), sees_system) else {
        return x.fail(Status::Etmpfail);
    };
    if value.is_empty() {
        return write_item_as(x.out, x.state.features, &parts, &item, cas);
    }
    let mut scratch = Vec::new();
    let Ok(body) = item.plain_body(&mut scratch) else { return x.fail(Status::Etmpfail) };
    value.extend_from_slice(body);
    let shown = x.state.features.datatype_shown(item.datatype()) & !Datatype::SNAPPY.0;
    let datatype = shown | Datatype::XATTR.0;
    let flags = item.flags().to_be_bytes();
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, value: &value, ..parts };
    x.send(&parts);
}

/// The attributes that the user may see, as a block; nothing when there are none.
fn shown_attributes(block: &[u8], sees_system: bool) -> Result<Vec<u8>, Malformed> {
    if sees_system {
        return Ok(block.to_vec());
    }
    let mut shown = XattrDraft::new(xattr::split(block)?.0);
    shown.retain(|key| !xattr::is_system(key));
    let mut written = Vec::new();
    shown.write(&mut written);
    Ok(written)
}

/// What is answered about a document that is there, but not in memory.
const ALREADY_EVICTED: &[u8] = b"Already evicted.";

/// EvictKey: takes the value of a durable document out of memory; the answer says in words what came of it.
pub(super) fn evict_key(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let vbid = x.vbid(key);
    let bucket = x.bucket().bucket();
    match bucket.get_meta(vbid, key, x.env.now) {
        MetaOutcome::Refused(Refused::NeedsFetch) => look_on_disk(x, vbid, key),
        MetaOutcome::Refused(refused) => x.refuse(refused),
        MetaOutcome::Found(item, _) if item.is_evicted() => x.send_value(ALREADY_EVICTED),
        MetaOutcome::Found(item, _) if !item.is_deleted() => {
            // Nobody may be at it while it goes.
            drop(item);
            match bucket.evict(vbid, key) {
                true => x.send_value(b"Evicted."),
                false => {
                    let context = "the document is not durable yet, in use, or too small";
                    x.fail_with(Status::KeyEexists, context);
                }
            }
        }
        MetaOutcome::Found(..) | MetaOutcome::Miss => x.fail(Status::KeyEnoent),
    }
}

/// Memory knows nothing of the key: only the store can tell a document from a deleted one. Nothing is fetched
/// for that, as it would have to be evicted again.
fn look_on_disk(x: &mut Exchange<'_>, vbid: Vbid, key: DocKey<'_>) {
    let bucket = Arc::clone(x.state.bucket.as_ref().expect("the rule demands a bucket"));
    let (collection, key, now) = (key.collection, Box::<[u8]>::from(key.key), x.env.now);
    x.state.wait = Wait::Job { opcode: x.frame.header.opcode, opaque: x.frame.header.opaque };
    let work = move || evicted_state(&bucket, vbid, DocKey { collection, key: &key }, now);
    x.env.jobs.push((x.id, Job::Answer(Box::new(work))));
}

fn evicted_state(
    bucket: &BucketHandle,
    vbid: Vbid,
    key: DocKey<'_>,
    now: Timestamp,
) -> (Status, Vec<u8>) {
    let is_live = |expiry: u32| expiry == 0 || expiry > now.unix_s();
    match bucket.bucket().key_on_disk(vbid, key) {
        Ok(Some(found)) if !found.is_deleted && is_live(found.expiry) => {
            (Status::Success, ALREADY_EVICTED.to_vec())
        }
        Ok(_) => (Status::KeyEnoent, Vec::new()),
        Err(_) => (Status::Etmpfail, Vec::new()),
    }
}
