//! Requests that read documents or vbuckets.
//!
//! A GET borrows its key from the frame, clones a reference to the item and encodes straight into the
//! output block: it allocates nothing. A quiet form is silent on a miss and loud otherwise.

use oribi_engine::{GetOutcome, ItemRef, LOCKED_CAS, MetaOutcome, Refused};
use oribi_protocol::feature::Feature;
use oribi_protocol::request::ExpiryExtras;
use oribi_protocol::response::ResponseParts;
use oribi_protocol::status::Status;
use oribi_storage::VbucketPhase;
use oribi_types::{Cas, CollectionId, DurabilityLevel, VbUuid, Vbid};

use super::exchange::{Exchange, write_item_as};
use super::writes::answer_durably;
use crate::auth::Privilege;
use crate::connection::parked::Answer;
use crate::status;

/// Get.
pub(super) fn get(x: &mut Exchange<'_>) {
    read(x, false);
}

/// Getk: the answer repeats the key field, collection prefix included.
pub(super) fn get_with_key(x: &mut Exchange<'_>) {
    read(x, true);
}

fn read(x: &mut Exchange<'_>, with_key: bool) {
    let Some(key) = x.doc_key() else { return };
    x.count(|counters| &counters.cmd_get);
    let bucket = x.bucket().bucket();
    let outcome = match x.ahead {
        Some(ahead) => bucket.get_announced(ahead, key, x.env.now),
        None => bucket.get(x.vbid(key), key, x.env.now),
    };
    match outcome {
        GetOutcome::Hit(item) => answer_hit(x, key.collection, with_key, &item, item.cas()),
        GetOutcome::HitLocked(item) => {
            answer_hit(x, key.collection, with_key, &item, LOCKED_CAS);
        }
        GetOutcome::Refused(refused) => x.refuse(refused),
        miss @ GetOutcome::Miss => answer_miss(x, with_key, status::of_get(&miss)),
    }
}

#[inline]
fn answer_hit(
    x: &mut Exchange<'_>,
    collection: CollectionId,
    with_key: bool,
    item: &ItemRef,
    cas: Cas,
) {
    x.counters().get_hits.add(1);
    x.collection_counters(collection).gets.add(1);
    let key: &[u8] = if with_key { x.frame.key } else { &[] };
    let parts = ResponseParts { key, ..x.parts(Status::Success) };
    write_item_as(x.out, x.state.features, &parts, item, cas);
}

fn answer_miss(x: &mut Exchange<'_>, with_key: bool, status: Status) {
    x.counters().get_misses.add(1);
    if x.opcode.is_quiet() {
        return;
    }
    let key: &[u8] = if with_key { x.frame.key } else { &[] };
    let parts = ResponseParts { key, ..x.parts(status) };
    x.send(&parts);
}

/// Gat.
pub(super) fn get_and_touch(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let Some(ExpiryExtras { expiry }) = ExpiryExtras::decode(x.frame.extras) else {
        return x.fail(Status::Einval);
    };
    if !super::writes::admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_touch);
    x.count(|counters| &counters.cmd_get);
    let vbid = x.vbid(key);
    match x.bucket().bucket().get_and_touch(vbid, key, expiry, x.env.now) {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
            x.counters().get_hits.add(1);
            x.counters().touch_hits.add(1);
            x.collection_counters(key.collection).gets.add(1);
            let seqno = item.seqno();
            answer_durably(x, vbid, seqno, Answer::Document(item));
        }
        GetOutcome::Refused(refused) => x.refuse(refused),
        miss @ GetOutcome::Miss => {
            x.counters().touch_misses.add(1);
            answer_miss(x, false, status::of_get(&miss));
        }
    }
}

/// GetMeta: what is known of a document, also when it is deleted.
pub(super) fn get_meta(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let version = match x.frame.extras {
        [] => 1,
        [version @ (1 | 2)] => *version,
        _ => return x.fail_with(Status::Einval, "there are versions 1 and 2"),
    };
    let vbid = x.vbid(key);
    let (item, cas) = match x.bucket().bucket().get_meta(vbid, key, x.env.now) {
        MetaOutcome::Found(item, cas) => (item, cas),
        MetaOutcome::Miss if x.opcode.is_quiet() => return,
        MetaOutcome::Refused(refused) => return x.refuse(refused),
        miss @ MetaOutcome::Miss => return x.fail(status::of_meta(&miss)),
    };
    // Layout: deleted u32, flags u32, expiry u32, revision u64, and in version 2 a datatype byte.
    let mut extras = [0; 21];
    extras[..4].copy_from_slice(&u32::from(item.is_deleted()).to_be_bytes());
    extras[4..8].copy_from_slice(&item.flags().to_be_bytes());
    extras[8..12].copy_from_slice(&item.expiry().to_be_bytes());
    extras[12..20].copy_from_slice(&item.rev_seqno().0.to_be_bytes());
    extras[20] = item.datatype().0;
    let extras = if version == 2 { &extras[..] } else { &extras[..20] };
    let parts = ResponseParts { cas: cas.0, extras, ..x.parts(Status::Success) };
    x.send(&parts);
}

/// ObserveSeqno: how far a vbucket has persisted. A client that names an earlier history of the vbucket
/// also learns where that history ended, and so which of its writes may be lost.
pub(super) fn observe_seqno(x: &mut Exchange<'_>) {
    let Ok(uuid) = <[u8; 8]>::try_from(x.frame.value) else {
        return x.fail_with(Status::Einval, "the value is the vbucket's UUID, eight bytes");
    };
    let vbid = Vbid(x.frame.header.vbucket_or_status);
    let vbucket = x.bucket().bucket().vbucket(vbid).filter(|vbucket| vbucket.is_serving());
    let Some(vbucket) = vbucket else {
        return x.refuse(Refused::NotMyVbucket);
    };
    let (stats, table) = (vbucket.stats(), vbucket.failover_table());
    let asked = VbUuid(u64::from_be_bytes(uuid));
    // Newest first: the history at an index ended where the one before it in the table began.
    let Some(index) = table.iter().position(|entry| entry.uuid == asked) else {
        return x.fail_with(Status::KeyEnoent, "the vbucket has no history with this UUID");
    };
    let ended = index.checked_sub(1).map(|newer| table[newer].seqno);
    // Layout: format u8 (1 after a change of history), vbucket u16, uuid u64, persisted u64, current
    // u64, and in format 1 the uuid that was asked for and its last seqno.
    let mut value = [0; 43];
    value[0] = u8::from(ended.is_some());
    value[1..3].copy_from_slice(&vbid.0.to_be_bytes());
    value[3..11].copy_from_slice(&stats.uuid.0.to_be_bytes());
    value[11..19].copy_from_slice(&stats.persisted_seqno.0.to_be_bytes());
    value[19..27].copy_from_slice(&stats.high_seqno.0.to_be_bytes());
    let Some(ended) = ended else { return x.send_value(&value[..27]) };
    value[27..35].copy_from_slice(&uuid);
    value[35..43].copy_from_slice(&ended.0.to_be_bytes());
    x.send_value(&value);
}

/// Wire code of "any vbucket that is not dead" in GetAllVbSeqnos.
const ANY_LIVE_PHASE: u32 = 0;

/// GetAllVbSeqnos: vbucket u16 and high seqno u64 of each vbucket; of a collection if one is named, and of the
/// default one for a client that knows no collections.
pub(super) fn get_all_vb_seqnos(x: &mut Exchange<'_>) {
    let has_collections = x.state.features.has(Feature::Collections);
    let (phase, collection) = match *x.frame.extras {
        [] => (ANY_LIVE_PHASE, None),
        [a, b, c, d] => (u32::from_be_bytes([a, b, c, d]), None),
        [a, b, c, d, e, f, g, h] if has_collections => {
            let id = CollectionId(u32::from_be_bytes([e, f, g, h]));
            (u32::from_be_bytes([a, b, c, d]), Some(id))
        }
        _ => return x.fail_with(Status::Einval, "collections were not negotiated"),
    };
    if phase > VbucketPhase::Dead as u32 {
        return x.fail_with(Status::Einval, "states of vbuckets are 0 to 4");
    }
    let may = match collection {
        None => x.allows_everywhere(Privilege::MetaRead.into()),
        Some(id) => x.allows(id, Privilege::MetaRead.into()),
    };
    if !may {
        return;
    }
    let collection = if has_collections { collection } else { Some(CollectionId::DEFAULT) };
    if collection.is_some_and(|id| !x.bucket().bucket().manifest().contains(id)) {
        return x.refuse(Refused::UnknownCollection);
    }
    let mut value = Vec::new();
    for vbucket in x.bucket().bucket().vbuckets() {
        let is_wanted = match phase {
            ANY_LIVE_PHASE => vbucket.phase() != VbucketPhase::Dead,
            phase => vbucket.phase() as u32 == phase,
        };
        if is_wanted {
            let seqno = match collection {
                None => vbucket.stats().high_seqno,
                Some(collection) => vbucket.collection_high_seqno(collection),
            };
            value.extend_from_slice(&vbucket.id().0.to_be_bytes());
            value.extend_from_slice(&seqno.0.to_be_bytes());
        }
    }
    x.send_value(&value);
}

/// True when the answer to this request has to wait for the store.
pub(super) fn waits_for_store(x: &Exchange<'_>) -> bool {
    let level = x.infos.durability.map_or(DurabilityLevel::None, |durability| durability.level);
    level.needs_persistence()
}
