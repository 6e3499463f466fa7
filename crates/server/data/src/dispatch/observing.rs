//! Reports to clients whether writes are safe, and which histories a vbucket had.
//!
//! Owns: the failover log and OBSERVE, which clients older than durability levels poll. OBSERVE may
//! have to ask the store about each of its keys, so the blocking thread answers it.

use oribi_auth::Privilege;
use oribi_engine::{MetaOutcome, OperationRejection, histories};
use oribi_protocol::dcp::stream_request::FailoverLog;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use crate::buckets::BucketHandle;
use crate::dispatch::job::{BlockingJob, Lane};

/// Most keys of one request: as many disk reads as one client may cause at once.
const KEYS_MAX: usize = 1024;
const _: () = assert!(KEYS_MAX == 1024, "a refusal names the limit");

/// States of a key in the answer to OBSERVE.
const FOUND: u8 = 0x00;
const PERSISTED: u8 = 0x01;
const NOT_FOUND: u8 = 0x80;
const DELETED: u8 = 0x81;

/// One requested key: its location, and its field, which the answer repeats.
struct ObservedKey {
    vbid: Vbid,
    collection: CollectionId,
    key: Box<[u8]>,
    field: Box<[u8]>,
}

/// GetFailoverLog: uuid u64 and seqno u64 of each history, newest first. A copy answers, too:
/// Couchbase's Java client of streams asks every copy for its log before it observes it.
pub(super) fn failover_log<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let vbucket = req.bucket().readable_vbucket(req.named_vbucket())?;
    let table = vbucket.failover_table();
    if table.is_empty() {
        // A copy that begins has no history before its first stream.
        return Err(OperationRejection::NotMyVbucket.into());
    }
    let mut value = Vec::with_capacity(table.len() * FailoverLog::ENTRY_BYTES);
    for entry in histories(&table) {
        FailoverLog::write_entry(&mut value, entry.uuid, entry.seqno);
    }
    assert!(FailoverLog::decode(&value).is_some(), "a log has whole entries");
    Ok(HandlerReply::value(value))
}

/// Observe: the request holds vbucket u16, key length u16 and key, for each key. The answer adds a
/// state u8 and a CAS u64 to each.
pub(super) fn observe<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    const CUT_OFF: Rejection =
        Rejection::Because(Status::Einval, "the list of keys is cut off, or a key is not valid");
    let mut asked = Vec::new();
    let mut rest = req.frame.value;
    while !rest.is_empty() {
        let (one, behind) = next_observed(req, rest).ok_or(CUT_OFF)?;
        req.bucket().readable_vbucket(one.vbid)?;
        req.demand(one.collection, Privilege::MetaRead.into())?;
        if asked.len() == KEYS_MAX {
            return Err(Rejection::Because(Status::Einval, "more than 1024 keys"));
        }
        asked.push(one);
        debug_assert!(behind.len() < rest.len(), "a walk goes forward");
        rest = behind;
    }
    let (bucket, now) = (req.handle().clone(), req.env.now);
    Ok(HandlerReply::Job(BlockingJob::answer(Lane::Others, move || states(&bucket, &asked, now))))
}

fn next_observed<'a>(req: &Request<'_>, bytes: &'a [u8]) -> Option<(ObservedKey, &'a [u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let [a, b, c, d] = *head;
    let (field, behind) = rest.split_at_checked(usize::from(u16::from_be_bytes([c, d])))?;
    let DocKey { collection, key } = req.state.doc_key(field)?;
    let vbid = Vbid(u16::from_be_bytes([a, b]));
    Some((ObservedKey { vbid, collection, key: key.into(), field: field.into() }, behind))
}

fn states(bucket: &BucketHandle, asked: &[ObservedKey], now: Timestamp) -> (Status, Vec<u8>) {
    let mut value = Vec::new();
    for one in asked {
        let key = DocKey { collection: one.collection, key: &one.key };
        let (state, cas) = match state_of(bucket, one.vbid, key, now) {
            Ok(found) => found,
            Err(status) => return (status, Vec::new()),
        };
        value.extend_from_slice(&one.vbid.0.to_be_bytes());
        debug_assert!(one.field.len() <= usize::from(u16::MAX), "a length has 16 bits");
        value.extend_from_slice(&(one.field.len() as u16).to_be_bytes());
        value.extend_from_slice(&one.field);
        value.push(state);
        value.extend_from_slice(&cas.to_be_bytes());
    }
    (Status::Success, value)
}

/// State and CAS of one key. A durable deletion counts as a missing key.
fn state_of(
    handle: &BucketHandle,
    vbid: Vbid,
    key: DocKey<'_>,
    now: Timestamp,
) -> Result<(u8, u64), Status> {
    let bucket = handle.bucket();
    let vbucket = bucket.vbucket(vbid).ok_or(Status::NotMyVbucket)?;
    let found = match vbucket.is_replica() {
        true => vbucket.get_replica_meta(&bucket.context(now), key),
        false => vbucket.get_meta(&bucket.context(now), key),
    };
    match found {
        MetaOutcome::Found(item, cas) => {
            let is_persisted = item.seqno() <= vbucket.persisted_seqno();
            let state = match (item.is_deleted(), is_persisted) {
                (true, true) => NOT_FOUND,
                (true, false) => DELETED,
                (false, true) if !handle.is_in_memory() => PERSISTED,
                (false, _) => FOUND,
            };
            Ok((state, cas.0))
        }
        MetaOutcome::Miss => Ok((NOT_FOUND, 0)),
        MetaOutcome::Refused(OperationRejection::NeedsFetch) => match bucket.key_on_disk(vbid, key)
        {
            Ok(Some(found)) if !found.is_deleted => Ok((PERSISTED, found.cas.0)),
            Ok(_) => Ok((NOT_FOUND, 0)),
            Err(_) => Err(Status::Etmpfail),
        },
        MetaOutcome::Refused(refused) => Err(crate::dispatch::status::of_refused(refused)),
    }
}
