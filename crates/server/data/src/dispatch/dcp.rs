//! Serves the requests of a consumer of change streams (DCP).
//!
//! Owns: the order of the checks that consumers can tell apart, and the statuses. A refused request
//! changes nothing. [`crate::dcp`] sends the streams themselves.
//!
//! Invariant: the requests other than open are served only on a connection that was opened, which
//! cannot change its user, bucket or features any more.

use std::sync::Arc;

use oribi_auth::NODE_NAME;
use oribi_engine::dcp::{
    StreamFilter, StreamOpenError, StreamOptions as EngineFlags, StreamRequest,
};
use oribi_engine::{OperationRejection, histories};
use oribi_protocol::dcp::durability::decode_seqno_acknowledged;
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::dcp::stream_request::{
    FailoverLog, ReplicaStreamAnswer, StreamFlags, StreamRequestExtras,
};
use oribi_protocol::dcp::{StreamHead, decode_buffer_ack};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_storage::FailoverEntry;
use oribi_types::CopiesEpoch;

use super::outcome::{HandlerReply, Outcome, Rejection, RuleRejection};
use super::request::Request;
use super::reservation;
use crate::buckets::dcp_registry::DcpProducerRecord;
use crate::connection::close_reason::CloseReason;
use crate::connection::pending::HeadWait;
use crate::dcp::inbox::Inbox;
use crate::dcp::stream_value::StreamRequestJson;
use crate::dcp::streams::{DcpProducerStream, DcpStreamKey};
use crate::dcp::{DcpProducer, StreamRejection, may_stream};
use crate::dispatch::connection_state::ConnectionState;

/// Longest name of a connection.
const NAME_BYTES_MAX: usize = 251;

/// Longest settings of a replica.
const SETTINGS_BYTES_MAX: usize = 1024;

const OTHER_EPOCH: Rejection =
    Rejection::Because(Status::Etmpfail, "the vbucket is not active in this epoch");

const NOT_OPEN: Rejection =
    Rejection::Because(Status::Einval, "open the connection for change streams first");

/// Open: the connection becomes a producer.
pub(super) fn open<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let refuse = |status, context| Err(Rejection::Because(status, context));
    let extras = OpenExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    let flags = extras.flags;
    if req.state.producer.is_some() {
        return refuse(Status::Einval, "the connection is open for change streams already");
    }
    let name = req.frame.key;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return refuse(Status::Einval, "the name has 1 to 251 bytes");
    }
    let follower = introduced_node(req)?;
    let feeds_replicas = follower.is_some();
    check_flags(flags)?;
    if req.state.features().has(Feature::UnorderedExecution) {
        return refuse(Status::NotSupported, "unordered execution was negotiated");
    }
    if !flags.has(OpenFlags::PRODUCER) {
        return refuse(Status::NotSupported, "this server is no consumer");
    }
    let inbox = Inbox::new(Arc::clone(&req.env.waker), req.connection);
    let user = req.state.user.name().to_owned();
    let number = req.state.record().number;
    let sink = Arc::clone(&inbox) as _;
    let record = DcpProducerRecord::new(name, number, (user, follower), req.env.now, sink);
    let (record, bucket) = (Arc::new(record), Arc::clone(req.handle()));
    bucket.producers().enter(&record);
    let (features, now_ms) = (req.state.features(), req.env.now_ms);
    let mut producer = DcpProducer::new(bucket, flags, features, inbox, record, now_ms);
    producer.options.feeds_replicas = feeds_replicas;
    req.state.producer = Some(Box::new(producer));
    Ok(HandlerReply::Success)
}

/// The node that opens the connection for its replicas of this bucket. It says so with the name of
/// its consumer and the uuid of its bucket.
fn introduced_node(req: &Request<'_>) -> Result<Option<String>, Rejection> {
    let refuse = |context| Err(Rejection::Because(Status::Einval, context));
    let value = req.frame.value;
    if value.is_empty() || is_empty_object(value) {
        return Ok(None);
    }
    if req.state.user.name() != NODE_NAME {
        return refuse("a producer takes no settings with open");
    }
    let text = value.len() <= SETTINGS_BYTES_MAX;
    let settings = text.then(|| serde_json::from_slice(value).ok()).flatten();
    let Some(ReplicaSettings { consumer_name, bucket_uuid }) = settings else {
        return refuse("a replica opens with consumer_name and bucket_uuid");
    };
    if consumer_name.is_empty() || consumer_name.len() > NAME_BYTES_MAX {
        return refuse("the consumer's name has 1 to 251 bytes");
    }
    if bucket_uuid != req.bucket().config().uuid {
        return refuse("the bucket here is another one of this name");
    }
    Ok(Some(consumer_name))
}

/// What another node says of itself when it opens a connection.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaSettings {
    consumer_name: String,
    bucket_uuid: String,
}

fn is_empty_object(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let inside = value.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn check_flags(flags: OpenFlags) -> Result<(), Rejection> {
    let refuse = |context| Err(Rejection::Because(Status::Einval, context));
    if !flags.are_known() {
        return refuse("unknown flag");
    }
    if flags.has(OpenFlags::NO_VALUE) && flags.has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
        return refuse("two flags for messages without a value");
    }
    let has_users = flags.has(OpenFlags::INCLUDE_DELETED_USER_XATTRS);
    if has_users && !flags.has(OpenFlags::INCLUDE_XATTRS) {
        return refuse("attributes of deleted documents without attributes");
    }
    Ok(())
}

/// Control: one option of the connection.
pub(super) fn control<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let now_ms = req.env.now_ms;
    let producer = req.state.producer.as_mut().ok_or(NOT_OPEN)?;
    producer
        .choose(req.frame.key, req.frame.value, now_ms)
        .map_err(|(status, context)| Rejection::Because(status, context))?;
    producer.changed();
    Ok(HandlerReply::Success)
}

/// StreamReq: the answer is the vbucket's failover log, or where to roll back to.
pub(super) fn request_stream<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let extras = StreamRequestExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    let vbid = req.named_vbucket();
    check_request(req, &extras)?;
    let wanted = wanted_stream(req)?;
    let epoch = replica_epoch(req, &wanted)?;
    let key = (vbid, stream_id(req, &wanted)?);
    let filter = wanted.filter.clone();
    let producer = req.state.producer.as_mut().ok_or(NOT_OPEN)?;
    if let Some(position) = producer.streams.find(key) {
        let is_ending =
            producer.streams.get_mut(position).is_some_and(|open| open.ending.is_some());
        if !is_ending {
            return Err(Rejection::Because(Status::KeyEexists, "the vbucket has a stream already"));
        }
    }
    let request = StreamRequest {
        vbid,
        start: extras.start,
        end: extras.end,
        uuid: extras.vb_uuid,
        snapshot: (extras.snapshot_start, extras.snapshot_end),
        client_purge_seqno: wanted.purge_seqno,
        flags: engine_flags(extras.flags),
        filter: match epoch {
            Some(_) => StreamFilter::Replica,
            None => wanted.filter,
        },
    };
    let sink = Arc::clone(&producer.inbox);
    let token = producer.streams.next_position() as u64;
    let opened = producer.bucket.bucket().open_stream(&request, sink, token);
    let stream = match opened {
        Ok(stream) => stream,
        Err(StreamOpenError::TryLater) if reservation::waits_to_load(req) => {
            return Err(Rejection::Retry(HeadWait::Bucket));
        }
        Err(refused) => return refuse_stream(refused),
    };
    let mut log = Vec::new();
    let table = stream.failover_table();
    if epoch.is_some_and(|epoch| !begins_with(table, epoch)) {
        return Err(OTHER_EPOCH);
    }
    if epoch.is_some() {
        let bucket = producer.bucket.bucket();
        let high_seqno = bucket.serving_vbucket(vbid)?.stats().high_seqno;
        ReplicaStreamAnswer::write_high_seqno(&mut log, high_seqno);
    }
    match epoch {
        Some(_) => table.iter().for_each(|entry| {
            ReplicaStreamAnswer::write_history(&mut log, (entry.uuid, entry.seqno), entry.epoch);
        }),
        None => histories(table).for_each(|entry| {
            FailoverLog::write_entry(&mut log, entry.uuid, entry.seqno);
        }),
    }
    let head = StreamHead { opaque: req.frame.header.opaque, vbid, stream_id: key.1 };
    let generation = producer.rights_generation();
    debug_assert_eq!(producer.streams.next_position() as u64, token, "the token is the position");
    let mut stream = DcpProducerStream::new(head, stream, extras, filter, generation);
    stream.acknowledged_seqno = epoch.map(|_| extras.snapshot_start);
    stream.copy = wanted.copy.zip(epoch);
    producer.streams.add(stream);
    producer.changed();
    Ok(HandlerReply::value(log))
}

/// The epoch that a replica names. Replicas name one, and nothing else does.
fn replica_epoch(
    req: &Request<'_>,
    wanted: &StreamRequestJson,
) -> Result<Option<CopiesEpoch>, Rejection> {
    let producer = req.state.producer.as_ref().ok_or(NOT_OPEN)?;
    let Some(epoch) = wanted.copies_epoch else {
        return match producer.options.feeds_replicas {
            true => Err(Rejection::Because(Status::Einval, "a replica names its epoch")),
            false => Ok(None),
        };
    };
    if !producer.options.feeds_replicas || wanted.filter != StreamFilter::All {
        return Err(Rejection::Because(Status::Einval, "copies_epoch is for replicas"));
    }
    let vbucket = req.bucket().serving_vbucket(req.named_vbucket())?;
    match begins_with(&vbucket.failover_table(), epoch) {
        true => Ok(Some(epoch)),
        false => Err(OTHER_EPOCH),
    }
}

/// True when the newest history began in this epoch.
fn begins_with(table: &[FailoverEntry], epoch: CopiesEpoch) -> bool {
    table.first().is_some_and(|newest| newest.epoch == epoch)
}

/// SeqnoAcknowledged: a replica has everything up to a seqno. Has no answer.
pub(super) fn acknowledge_seqno<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let seqno = decode_seqno_acknowledged(req.frame.extras).ok_or(Status::Einval)?;
    let key = (req.named_vbucket(), None);
    let producer = req.state.producer.as_mut().ok_or(NOT_OPEN)?;
    if !producer.options.feeds_replicas {
        return Err(Rejection::Because(Status::Einval, "only replicas acknowledge seqnos"));
    }
    if !producer.acknowledge_seqno(key, seqno) {
        return Err(Rejection::Because(Status::Erange, "that was not sent yet"));
    }
    let position = producer.streams.find(key);
    let stream = position.and_then(|position| producer.streams.get_mut(position));
    if let Some(copy) = stream.and_then(|stream| stream.copy) {
        let bucket = producer.bucket.bucket();
        if let Some(vbucket) = bucket.vbucket(key.0) {
            vbucket.copy_acknowledged(&bucket.context(req.env.now), copy, seqno);
        }
    }
    Ok(HandlerReply::Nothing)
}

/// The checks before those of the filter.
fn check_request(req: &Request<'_>, extras: &StreamRequestExtras) -> Result<(), Rejection> {
    let refuse = |status, context| Err(Rejection::Because(status, context));
    let producer = req.state.producer.as_ref().ok_or(NOT_OPEN)?;
    let has_collections = producer.features.has(Feature::Collections);
    if !extras.flags.are_known() {
        return refuse(Status::Einval, "unknown flag");
    }
    if !req.frame.value.is_empty() && !has_collections {
        return refuse(Status::Einval, "collections were not negotiated");
    }
    req.bucket().serving_vbucket(req.named_vbucket())?;
    if extras.flags.has(StreamFlags::TAKEOVER) {
        return refuse(Status::NotSupported, "this server hands vbuckets over in another way");
    }
    let needs_noop = has_collections || producer.flags.has(OpenFlags::INCLUDE_XATTRS);
    if needs_noop && !producer.noop.is_on() {
        return refuse(Status::NotSupported, "turn enable_noop on first");
    }
    let (start, snapshot) = (extras.start, extras.snapshot_start..=extras.snapshot_end);
    if start > extras.end || !snapshot.contains(&start) {
        return refuse(Status::Erange, "start, end and snapshot contradict each other");
    }
    Ok(())
}

/// The part of the vbucket that the consumer wants, if the user may read it.
fn wanted_stream(req: &mut Request<'_>) -> Result<StreamRequestJson, Rejection> {
    const INVALID: Rejection =
        Rejection::Because(Status::Einval, "this does not say which documents are wanted");
    let mut wanted = match req.frame.value {
        [] => StreamRequestJson::all(),
        value => StreamRequestJson::parse(value).ok_or(INVALID)?,
    };
    let producer = req.state.producer.as_ref().ok_or(NOT_OPEN)?;
    if !producer.features.has(Feature::Collections) {
        wanted.filter = StreamFilter::Default;
    }
    let manifest = req.bucket().manifest();
    // A scope that the user may not see is answered like one that does not exist.
    let visible = req.state.user.rights_mut().visible(Arc::clone(&manifest));
    match &wanted.filter {
        StreamFilter::Scope(id) if !visible.scopes().iter().any(|scope| scope.id == *id) => {
            return Err(Rejection::Unknown(Status::UnknownScope));
        }
        StreamFilter::Collections(ids) if !ids.iter().all(|id| manifest.contains(*id)) => {
            return Err(Rejection::Unknown(Status::UnknownCollection));
        }
        _ => {}
    }
    let bucket = Arc::clone(req.handle());
    may_stream(req.state.user.rights_mut(), &bucket, &wanted.filter).map_err(|may_not| {
        match may_not {
            StreamRejection::SeeIt => Rejection::Refused(RuleRejection::UnknownCollection),
            StreamRejection::Read(missing) => Rejection::Refused(RuleRejection::Access(missing)),
        }
    })?;
    Ok(wanted)
}

/// The stream's id, given exactly when streams have ids.
fn stream_id(req: &Request<'_>, wanted: &StreamRequestJson) -> Result<Option<u16>, Rejection> {
    const INVALID: Rejection =
        Rejection::Because(Status::DcpStreamIdInvalid, "streams have ids, or none has");
    let has_ids = req.state.producer.as_ref().is_some_and(|producer| producer.options.stream_ids);
    match (has_ids, wanted.stream_id) {
        (false, None) => Ok(None),
        // Larger numbers lose their high bits, as in the frame of the messages.
        (true, Some(id)) if id as u16 != 0 => Ok(Some(id as u16)),
        _ => Err(INVALID),
    }
}

fn engine_flags(flags: StreamFlags) -> EngineFlags {
    EngineFlags {
        to_latest: flags.has(StreamFlags::TO_LATEST),
        from_latest: flags.has(StreamFlags::FROM_LATEST),
        disk_only: flags.has(StreamFlags::DISK_ONLY),
        active_only: flags.has(StreamFlags::ACTIVE_ONLY),
        strict_uuid: flags.has(StreamFlags::STRICT_VB_UUID),
        ignore_purged: flags.has(StreamFlags::IGNORE_PURGED_TOMBSTONES),
    }
}

fn refuse_stream<'a>(refused: StreamOpenError) -> Outcome<'a> {
    let because = |status, context| Err(Rejection::Because(status, context));
    match refused {
        StreamOpenError::NotMyVbucket => Err(OperationRejection::NotMyVbucket.into()),
        StreamOpenError::Range => because(Status::Erange, "the vbucket is not that far"),
        StreamOpenError::Rollback(seqno) => Ok(HandlerReply::Value {
            status: Status::Rollback,
            value: seqno.0.to_be_bytes().to_vec().into(),
        }),
        StreamOpenError::UnknownCollection => Err(Rejection::Unknown(Status::UnknownCollection)),
        StreamOpenError::UnknownScope => Err(Rejection::Unknown(Status::UnknownScope)),
        StreamOpenError::NoMemory => because(Status::Enomem, "the bucket's memory is full"),
        StreamOpenError::TryLater => because(Status::Etmpfail, "the vbucket is still loading"),
    }
}

pub(super) fn close_stream<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let id = req.infos.stream_id;
    let key: DcpStreamKey = (req.named_vbucket(), id);
    let producer = req.state.producer.as_mut().ok_or(NOT_OPEN)?;
    let missing = match producer.options.stream_ids {
        true => Status::DcpStreamIdInvalid,
        false if id.is_some() => return Err(Status::DcpStreamIdInvalid.into()),
        false => Status::KeyEnoent,
    };
    match producer.close_stream(key) {
        true => Ok(HandlerReply::Success),
        false => Err(missing.into()),
    }
}

/// GetFailoverLog on a connection with streams.
pub(super) fn failover_log<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    if req.state.producer.is_none() {
        return Err(NOT_OPEN);
    }
    super::observing::failover_log(req)
}

/// BufferAcknowledgement: has no answer.
pub(super) fn acknowledge<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let producer = req.state.producer.as_mut().ok_or(NOT_OPEN)?;
    let bytes = decode_buffer_ack(req.frame.extras).ok_or(Status::Einval)?;
    producer.window.acknowledge(bytes);
    producer.changed();
    Ok(HandlerReply::Nothing)
}

/// True for requests that belong to change streams.
pub(super) fn is_dcp(opcode: Opcode) -> bool {
    (Opcode::DcpOpen as u8..=Opcode::DcpCacheTransferEnd as u8).contains(&(opcode as u8))
}

/// Takes the answer of a consumer to a message of the server.
pub(crate) fn take_answer(state: &mut ConnectionState, frame: &Frame<'_>) {
    let Some(producer) = &mut state.producer else { return };
    let status = Status::from_u16(frame.header.vbucket_or_status);
    let is_right = match Opcode::from_u8(frame.header.opcode) {
        Some(Opcode::DcpNoop) => producer.noop.answered(frame.header.opaque),
        // The consumer may have closed the stream before its answer.
        _ => matches!(
            status,
            Some(
                Status::Success
                    | Status::KeyEnoent
                    | Status::KeyEexists
                    | Status::DcpStreamNotFound
                    | Status::OpaqueNoMatch
            )
        ),
    };
    if !is_right {
        state.close(CloseReason::WrongAnswer);
    }
}
