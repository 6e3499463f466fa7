//! Serves documents at random, and evicts documents from memory, for tools and tests.
//!
//! A document at random may come with its attributes. Only users with the right to read the
//! system's attributes get those.

use oribi_auth::Privilege;
use oribi_engine::{ItemRef, MetaOutcome, OperationRejection};
use oribi_protocol::feature::Feature;
use oribi_protocol::leb128::encode_u32;
use oribi_protocol::status::Status;
use oribi_subdoc::xattr::{self, MalformedBlock, XattrDraft};
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use super::outcome::{HandlerReply, Outcome, Rejection, SampledDocument};
use super::request::Request;
use crate::buckets::BucketHandle;
use crate::dispatch::job::{BlockingJob, Lane};

const MISFIT: Rejection =
    Rejection::Because(Status::Einval, "collections were not negotiated, or a flag is not 0 or 1");

/// GetRandomKey: flags, key and value of a document of a collection. Extras: collection u32, then a
/// u8 that requests attributes; each may be missing.
pub(super) fn get_random_key<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let has_collections = req.state.features().has(Feature::Collections);
    let (collection, with_attributes) = match *req.frame.extras {
        [] => (CollectionId::DEFAULT, false),
        [a, b, c, d] if has_collections => (CollectionId(u32::from_be_bytes([a, b, c, d])), false),
        [a, b, c, d, flag @ (0 | 1)] if has_collections => {
            (CollectionId(u32::from_be_bytes([a, b, c, d])), flag == 1)
        }
        _ => return Err(MISFIT),
    };
    if with_attributes && !req.state.features().has(Feature::Xattr) {
        return Err(Rejection::Because(Status::Einval, "attributes were not negotiated"));
    }
    req.demand(collection, Privilege::Read.into())?;
    let found = req.bucket().random_document(collection, req.env.now);
    if let Ok(Some((item, _))) = &found {
        req.reserve_answer(held_by_answer(item))?;
    }
    req.count(|counters| &counters.cmd_get);
    let Some((item, cas)) = found? else { return Ok(HandlerReply::Miss { key: &[] }) };
    let mut key = Vec::new();
    if has_collections {
        let (prefix, prefix_bytes) = encode_u32(collection.0);
        key.extend_from_slice(&prefix[..prefix_bytes]);
    }
    key.extend_from_slice(item.key().key);
    let with_attributes = match with_attributes && item.has_attributes() {
        true => {
            let sees_system = req.holds(collection, Privilege::SystemXattrRead.into());
            with_attributes_of(&item, sees_system)?
        }
        false => None,
    };
    Ok(HandlerReply::Sampled(Box::new(SampledDocument { key, item, cas, with_attributes })))
}

/// The visible attributes as a block, and after them the body; `None` without visible attributes.
fn with_attributes_of(item: &ItemRef, sees_system: bool) -> Result<Option<Vec<u8>>, Status> {
    let mut value =
        shown_attributes(item.attributes(), sees_system).map_err(|_| Status::Etmpfail)?;
    if value.is_empty() {
        return Ok(None);
    }
    let mut scratch = Vec::new();
    value.extend_from_slice(item.plain_body(&mut scratch).map_err(|_| Status::Etmpfail)?);
    Ok(Some(value))
}

/// Bytes that an answer with the whole document may hold.
fn held_by_answer(item: &ItemRef) -> usize {
    item.value_bytes().max(item.plain_body_bytes().unwrap_or(0))
}

/// The visible attributes as a block; empty when there are none.
fn shown_attributes(block: &[u8], sees_system: bool) -> Result<Vec<u8>, MalformedBlock> {
    if sees_system {
        return Ok(block.to_vec());
    }
    let mut shown = XattrDraft::new(xattr::split(block)?.0);
    shown.retain(|key| !xattr::is_system(key));
    let mut written = Vec::new();
    shown.write(&mut written);
    Ok(written)
}

/// The answer about a document that exists, but not in memory.
const ALREADY_EVICTED: &str = "Already evicted.";

/// EvictKey: takes the value of a durable document out of memory; the answer says the result in
/// words.
pub(super) fn evict_key<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    const KEPT: Rejection = Rejection::Because(
        Status::KeyEexists,
        "the document is not durable yet, in use, or too small",
    );
    let document = req.locate()?;
    let (vbid, key) = (document.vbid(req), document.key);
    match document.vbucket(req)?.get_meta(&req.context(), key) {
        MetaOutcome::Refused(OperationRejection::NeedsFetch) => Ok(look_on_disk(req, vbid, key)),
        MetaOutcome::Refused(refused) => Err(refused.into()),
        MetaOutcome::Found(item, _) if item.is_in_store_only() => {
            Ok(HandlerReply::text(ALREADY_EVICTED))
        }
        MetaOutcome::Found(item, _) if !item.is_deleted() => {
            // The eviction needs the item unreferenced.
            drop(item);
            if req.bucket().evict(vbid, key) {
                Ok(HandlerReply::text("Evicted."))
            } else {
                Err(KEPT)
            }
        }
        MetaOutcome::Found(..) | MetaOutcome::Miss => Err(Status::KeyEnoent.into()),
    }
}

/// Looks a key up on disk that memory does not know: only the store can tell a document from a
/// deleted one. No document is fetched for that, as it would have to be evicted again.
fn look_on_disk(req: &Request<'_>, vbid: Vbid, key: DocKey<'_>) -> HandlerReply<'static> {
    let (bucket, now) = (req.handle().clone(), req.env.now);
    let (collection, key) = (key.collection, Box::<[u8]>::from(key.key));
    let work = move || evicted_state(&bucket, vbid, DocKey { collection, key: &key }, now);
    HandlerReply::Job(BlockingJob::answer(Lane::Others, work))
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
            (Status::Success, ALREADY_EVICTED.into())
        }
        Ok(_) => (Status::KeyEnoent, Vec::new()),
        Err(_) => (Status::Etmpfail, Vec::new()),
    }
}
