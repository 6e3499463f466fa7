//! Serves requests that read documents or vbuckets.
//!
//! A GET borrows its key from the frame and its document from the table: it allocates nothing, and
//! for most documents it writes nothing that another worker reads.

use oribi_auth::Privilege;
use oribi_engine::{GetOutcome, LOCKED_CAS, MetaOutcome, OperationRejection, SharedOutcome};
use oribi_protocol::feature::Feature;
use oribi_protocol::request::ExpiryExtras;
use oribi_protocol::status::Status;
use oribi_storage::VbucketPhase;
use oribi_types::{CollectionId, VbUuid};
use smallvec::SmallVec;

use super::encoding;
use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use crate::connection::parked::Answer;

#[inline(always)]
pub(super) fn get<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    read(req, &[])
}

/// Getk: the answer repeats the key field, collection prefix included.
pub(super) fn get_with_key<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    read(req, req.frame.key)
}

#[inline(always)]
fn read<'a>(req: &mut Request<'a>, shown: &'a [u8]) -> Outcome<'a> {
    let document = req.locate()?;
    match document.get_shared(req) {
        SharedOutcome::Hit(item) => {
            req.count(|counters| &counters.cmd_get);
            req.counters().get_hits.add(1);
            req.collection_counters(document.key.collection).gets.add(1);
            return Ok(HandlerReply::Shared { item, key: shown });
        }
        SharedOutcome::Miss => {
            req.count(|counters| &counters.cmd_get);
            req.counters().get_misses.add(1);
            return Ok(HandlerReply::Miss { key: shown });
        }
        SharedOutcome::Undecided => {}
    }
    let found = document.get(req);
    if let GetOutcome::Hit(item) | GetOutcome::HitLocked(item) = &found {
        req.reserve_in_place(item)?;
    }
    req.count(|counters| &counters.cmd_get);
    let (item, cas) = match found {
        GetOutcome::Hit(item) => {
            let cas = item.cas();
            (item, cas)
        }
        GetOutcome::HitLocked(item) => (item, LOCKED_CAS),
        GetOutcome::Refused(refused) => return Err(refused.into()),
        GetOutcome::Miss => {
            req.counters().get_misses.add(1);
            return Ok(HandlerReply::Miss { key: shown });
        }
    };
    req.counters().get_hits.add(1);
    req.collection_counters(document.key.collection).gets.add(1);
    Ok(HandlerReply::Document { item, cas, key: shown })
}

/// GetReplica: the document as a copy of another node's vbucket has it.
pub(super) fn get_replica<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    let found = document.vbucket(req)?.get_replica(&req.context(), document.key);
    if let GetOutcome::Hit(item) = &found {
        req.reserve_in_place(item)?;
    }
    req.count(|counters| &counters.cmd_get);
    match found {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
            req.counters().get_hits.add(1);
            req.collection_counters(document.key.collection).gets.add(1);
            Ok(HandlerReply::Document { cas: item.cas(), item, key: &[] })
        }
        GetOutcome::Refused(refused) => Err(refused.into()),
        GetOutcome::Miss => {
            req.counters().get_misses.add(1);
            Ok(HandlerReply::Miss { key: &[] })
        }
    }
}

/// Gat. The answer to memcached's GATK, which has another opcode, repeats the key.
pub(super) fn get_and_touch<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    let ExpiryExtras { expiry } = ExpiryExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    req.admit_durable()?;
    req.reserve_document(document)?;
    req.count(|counters| &counters.cmd_touch);
    req.count(|counters| &counters.cmd_get);
    let repeats_key = encoding::repeats_key(req.frame.header.opcode);
    match document.vbucket(req)?.get_and_touch(&req.write_context(), document.key, expiry) {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
            req.counters().get_hits.add(1);
            req.counters().touch_hits.add(1);
            req.collection_counters(document.key.collection).gets.add(1);
            Ok(HandlerReply::Written(Answer::Document(item)))
        }
        GetOutcome::Refused(refused) => Err(refused.into()),
        GetOutcome::Miss => {
            req.counters().touch_misses.add(1);
            req.counters().get_misses.add(1);
            Ok(HandlerReply::Miss { key: if repeats_key { req.frame.key } else { &[] } })
        }
    }
}

/// GetMeta: the metadata of a document, also of a deleted one.
pub(super) fn get_meta<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    let version = match req.frame.extras {
        [] => 1,
        [version @ (1 | 2)] => *version,
        _ => return Err(Rejection::Because(Status::Einval, "there are versions 1 and 2")),
    };
    let (item, cas) = match document.vbucket(req)?.get_meta(&req.context(), document.key) {
        MetaOutcome::Found(item, cas) => (item, cas),
        MetaOutcome::Refused(refused) => return Err(refused.into()),
        MetaOutcome::Miss => return Ok(HandlerReply::Miss { key: &[] }),
    };
    // Layout: deleted u32, flags u32, expiry u32, revision u64, and in version 2 a datatype byte.
    let mut extras = SmallVec::new();
    extras.extend_from_slice(&u32::from(item.is_deleted()).to_be_bytes());
    extras.extend_from_slice(&item.flags().to_be_bytes());
    extras.extend_from_slice(&item.expiry().to_be_bytes());
    extras.extend_from_slice(&item.rev_seqno().0.to_be_bytes());
    if version == 2 {
        extras.push(item.datatype().0);
    }
    Ok(HandlerReply::Extras { cas, extras })
}

/// ObserveSeqno: how far a vbucket, or a copy of it, is persisted. A client that names an earlier
/// history of the vbucket also learns where that history ended, and so which of its writes may be
/// lost.
pub(super) fn observe_seqno<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    const NO_UUID: Rejection =
        Rejection::Because(Status::Einval, "the value is the vbucket's UUID, eight bytes");
    const NO_HISTORY: Rejection =
        Rejection::Because(Status::KeyEnoent, "the vbucket has no history with this UUID");
    // Couchbase's Java client ends its connection at any other status, in the middle of reopening
    // its streams.
    const JUST_EMPTIED: Rejection =
        Rejection::Because(Status::Etmpfail, "the bucket was emptied; ask for the failover log");
    let uuid = <[u8; 8]>::try_from(req.frame.value).map_err(|_| NO_UUID)?;
    let vbid = req.named_vbucket();
    let vbucket = req.bucket().readable_vbucket(vbid)?;
    let (stats, table) = (vbucket.stats(), vbucket.failover_table());
    let asked = VbUuid(u64::from_be_bytes(uuid));
    // Newest first: the history at an index ended where the one before it in the table began.
    let index = table.iter().position(|entry| entry.uuid == asked);
    let index = index.ok_or_else(|| match req.handle().is_settling(req.env.now) {
        true => JUST_EMPTIED,
        false => NO_HISTORY,
    })?;
    let ended = index.checked_sub(1).map(|newer| table[newer].seqno);
    // Layout: format u8 (1 after a change of history), vbucket u16, uuid u64, persisted u64,
    // current u64. Format 1 adds the requested uuid and its last seqno.
    let mut value = vec![u8::from(ended.is_some())];
    value.extend_from_slice(&vbid.0.to_be_bytes());
    for number in [stats.uuid.0, stats.persisted_seqno.0, stats.high_seqno.0] {
        value.extend_from_slice(&number.to_be_bytes());
    }
    if let Some(ended) = ended {
        value.extend_from_slice(&uuid);
        value.extend_from_slice(&ended.0.to_be_bytes());
    }
    Ok(HandlerReply::value(value))
}

/// Wire code of "any vbucket that is not dead" in GetAllVbSeqnos.
const ANY_LIVE_PHASE: u32 = 0;

/// GetAllVbSeqnos: vbucket u16 and high seqno u64 of each vbucket. They are a collection's if the
/// request names one, and the default collection's for a client without collections.
pub(super) fn get_all_vb_seqnos<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let has_collections = req.state.features().has(Feature::Collections);
    let (phase, collection) = match *req.frame.extras {
        [] => (ANY_LIVE_PHASE, None),
        [a, b, c, d] => (u32::from_be_bytes([a, b, c, d]), None),
        [a, b, c, d, e, f, g, h] if has_collections => {
            let id = CollectionId(u32::from_be_bytes([e, f, g, h]));
            (u32::from_be_bytes([a, b, c, d]), Some(id))
        }
        _ => return Err(Rejection::Because(Status::Einval, "collections were not negotiated")),
    };
    if phase > VbucketPhase::Dead as u32 {
        return Err(Rejection::Because(Status::Einval, "states of vbuckets are 0 to 4"));
    }
    match collection {
        None => req.demand_everywhere(Privilege::MetaRead.into())?,
        Some(id) => req.demand(id, Privilege::MetaRead.into())?,
    }
    let collection = if has_collections { collection } else { Some(CollectionId::DEFAULT) };
    if collection.is_some_and(|id| !req.bucket().manifest().contains(id)) {
        return Err(OperationRejection::UnknownCollection.into());
    }
    let mut value = Vec::new();
    for vbucket in req.bucket().vbuckets() {
        let is_wanted = match phase {
            ANY_LIVE_PHASE => vbucket.phase() != VbucketPhase::Dead,
            phase => vbucket.phase() as u32 == phase,
        };
        if is_wanted {
            let seqno = match collection {
                None => vbucket.stats().visible_seqno,
                Some(collection) => vbucket.collection_high_seqno(collection),
            };
            value.extend_from_slice(&vbucket.id().0.to_be_bytes());
            value.extend_from_slice(&seqno.0.to_be_bytes());
        }
    }
    Ok(HandlerReply::value(value))
}
