//! The oracle of DCP streams: the messages that the consumer received, and the rules they must
//! satisfy.
//!
//! 1. The output is whole frames: answers with a known status, and messages that decode.
//! 2. A message belongs to a stream that was opened, with its vbucket and id, after the answer to
//!    its request and before its end.
//! 3. Snapshots follow each other and are whole, unless a scan left the consumer behind; then
//!    another one continues where it stopped. Seqnos ascend in them, and a document is in one once.
//! 4. Nothing is outside of the filter. What is shown was written, with its value.
//! 5. No message goes out while the window is full.
//! 6. A consumer that is sent back is sent below where it was.
//! 7. At the end an open stream has shown the newest version of each of its documents.
//!
//! After arbitrary bytes only the first rule holds: they may have asked for anything.

use std::collections::{BTreeMap, BTreeSet};

use oribi_engine::compression::inflate_into;
use oribi_engine::dcp::StreamFilter;
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::control;
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::marker::SnapshotMarker;
use oribi_protocol::dcp::message::{Message, decode};
use oribi_protocol::dcp::open::OpenFlags;
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras, decode_rollback};
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::leb128;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Datatype, Seqno, Vbid};

use crate::dcp::stream_value::StreamRequestJson;

/// Opaques of requests have the highest bit set, as those of some clients do.
const OPAQUE_BASE: u32 = 0x8000_0000;

/// Counts of a run's checks, to show that inputs reach their targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerTally {
    /// Streams that the server opened.
    pub streams: u64,
    /// Streams that were sent back.
    pub rollbacks: u64,
    pub changes: u64,
    pub backfills: u64,
    /// Cursors dropped because memory was short.
    pub cursors_dropped: u64,
    pub ends: u64,
    /// Documents that a stream was compared with at the end.
    pub compared: u64,
}

/// A written version: its document, and the value that a stream shows of it.
pub(super) struct WrittenVersion {
    pub(super) collection: CollectionId,
    pub(super) key: Vec<u8>,
    /// `None` for a deletion, or where the form of the value depends on the consumer.
    pub(super) value: Option<Vec<u8>>,
    pub(super) is_deletion: bool,
}

/// A request for a stream, and what the vbucket was like.
pub(super) struct Request {
    pub(super) vbid: Vbid,
    pub(super) extras: StreamRequestExtras,
    /// `None` when the value says nothing that is understood.
    pub(super) wanted: Option<StreamRequestJson>,
    pub(super) high_seqno: Seqno,
    /// Collections of the scope that it asks for.
    pub(super) collections: Vec<CollectionId>,
}

/// A request that changes the messages the consumer may receive.
pub(super) enum ConsumerRequest {
    Control { name: Vec<u8>, value: Vec<u8> },
    Stream(Request),
    Close { vbid: Vbid, stream_id: Option<u16> },
}

/// A stream that was opened.
struct Stream {
    vbid: Vbid,
    stream_id: Option<u16>,
    filter: StreamFilter,
    /// Collections of the scope when it was opened.
    collections: Vec<CollectionId>,
    start: u64,
    end: u64,
    reached: u64,
    is_first_marker: bool,
    marker: Option<(u64, u64)>,
    in_snapshot: BTreeSet<(CollectionId, Vec<u8>)>,
    shown: BTreeSet<u64>,
    is_over: bool,
}

/// A document that was shown and is not compared yet.
struct ShownDocument {
    vbid: Vbid,
    seqno: u64,
    collection: CollectionId,
    key: Vec<u8>,
    /// The value, where its form is that of the write.
    value: Option<Vec<u8>>,
    is_deletion: bool,
}

/// See the module text.
pub(super) struct ConsumerOracle {
    has_collections: bool,
    flags: OpenFlags,
    asked: BTreeMap<u32, ConsumerRequest>,
    streams: BTreeMap<u32, Stream>,
    requests: u32,
    /// Opaque of the server's last noop.
    question: Option<u32>,
    window: u32,
    in_flight: u64,
    compresses: bool,
    uncompared: Vec<ShownDocument>,
    trusts: bool,
    /// Versions that were written before a flush are gone.
    was_flushed: bool,
    pub(super) tally: ConsumerTally,
}

impl ConsumerOracle {
    pub(super) fn new(has_collections: bool) -> ConsumerOracle {
        ConsumerOracle {
            has_collections,
            flags: OpenFlags(0),
            asked: BTreeMap::new(),
            streams: BTreeMap::new(),
            requests: 0,
            question: None,
            window: 0,
            in_flight: 0,
            compresses: false,
            uncompared: Vec::new(),
            trusts: true,
            was_flushed: false,
            tally: ConsumerTally::default(),
        }
    }

    pub(super) fn note_flags(&mut self, flags: OpenFlags) {
        self.flags = flags;
    }

    /// Notes a request that is about to be sent; its opaque.
    pub(super) fn expect_answer(&mut self, asked: ConsumerRequest) -> u32 {
        self.requests += 1;
        let opaque = OPAQUE_BASE | self.requests;
        self.asked.insert(opaque, asked);
        opaque
    }

    pub(super) fn acknowledged(&mut self, bytes: u32) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(bytes));
    }

    /// Takes the opaque of the server's unanswered noop.
    pub(super) fn take_noop(&mut self) -> Option<u32> {
        self.question.take()
    }

    pub(super) fn trust_nothing(&mut self) {
        self.trusts = false;
    }

    /// The bucket lost its documents; streams may end, and miss what they had not read.
    pub(super) fn bucket_flushed(&mut self) {
        self.was_flushed = true;
    }

    /// Takes what the server sent.
    pub(super) fn hear(&mut self, mut output: &[u8]) {
        while !output.is_empty() {
            let decoded = frame::decode(output).expect("the server sends well-formed frames");
            let DecodedFrame::Complete { frame, consumed } = decoded else {
                panic!("the server sent a part of a frame: {decoded:?}");
            };
            output = &output[consumed..];
            if frame.header.magic.is_request() {
                let (head, message) = decode(&frame).expect("messages are well-formed");
                if self.trusts {
                    self.take_message(head, &message, consumed);
                }
            } else {
                let status = Status::from_u16(frame.header.vbucket_or_status);
                let status = status.expect("the status is a known one");
                if self.trusts {
                    self.take_answer(&frame, status);
                }
            }
        }
    }

    fn take_answer(&mut self, frame: &Frame<'_>, status: Status) {
        let Some(asked) = self.asked.remove(&frame.header.opaque) else { return };
        match (asked, status) {
            (ConsumerRequest::Control { name, value }, Status::Success) => {
                self.choose(&name, &value)
            }
            (ConsumerRequest::Stream(request), Status::Success) => self.open(frame, request),
            (ConsumerRequest::Stream(request), Status::Rollback) => {
                let to = decode_rollback(frame.value).expect("a rollback says where to");
                let extras = request.extras;
                // A consumer at 0 that names a wrong history, and wants that to count.
                let names_another = extras.start == Seqno(0)
                    && extras.vb_uuid.0 != 0
                    && extras.flags.has(StreamFlags::STRICT_VB_UUID);
                // The server takes the highest seqno instead of the start.
                let from_latest =
                    extras.vb_uuid.0 != 0 && extras.flags.has(StreamFlags::FROM_LATEST);
                let is_below = to < extras.start || from_latest || names_another && to == Seqno(0);
                assert!(is_below, "sent back from {extras:?} to {to:?}");
                self.tally.rollbacks += 1;
            }
            (ConsumerRequest::Close { vbid, stream_id }, Status::Success) => {
                let closed = self.streams.values_mut().filter(|stream| {
                    !stream.is_over && (stream.vbid, stream.stream_id) == (vbid, stream_id)
                });
                // An end may follow, and no change.
                closed.for_each(|stream| stream.marker = Some((u64::MAX, 0)));
            }
            _ => {}
        }
    }

    fn choose(&mut self, name: &[u8], value: &[u8]) {
        match name {
            control::CONNECTION_BUFFER_SIZE => {
                let text = std::str::from_utf8(value).expect("only numbers are accepted");
                self.window = text.parse().expect("only numbers are accepted");
            }
            control::FORCE_VALUE_COMPRESSION => self.compresses = value == b"true",
            _ => {}
        }
    }

    fn open(&mut self, frame: &Frame<'_>, request: Request) {
        let is_log = !frame.value.is_empty() && frame.value.len().is_multiple_of(16);
        assert!(is_log, "the answer is no failover log: {:?}", frame.value);
        let Request { vbid, extras, wanted, high_seqno, collections } = request;
        let wanted = wanted.expect("a value that says nothing opens no stream");
        let from_latest = extras.flags.has(StreamFlags::FROM_LATEST);
        let start = if from_latest { high_seqno } else { extras.start }.0;
        let is_legacy = !self.has_collections;
        let filter = if is_legacy { StreamFilter::Default } else { wanted.filter };
        let stream = Stream {
            vbid,
            stream_id: wanted.stream_id.map(|id| id as u16),
            filter,
            collections,
            start,
            end: extras.end.0,
            reached: start,
            is_first_marker: true,
            marker: None,
            in_snapshot: BTreeSet::new(),
            shown: BTreeSet::new(),
            is_over: false,
        };
        self.tally.streams += 1;
        self.streams.insert(frame.header.opaque, stream);
    }

    fn take_message(&mut self, head: StreamHead, message: &Message<'_>, frame_bytes: usize) {
        if *message == Message::Noop {
            self.question = Some(head.opaque);
            return;
        }
        if self.window != 0 {
            assert!(self.in_flight < u64::from(self.window), "{message:?} with a full window");
            self.in_flight += frame_bytes as u64;
        }
        let has_collections = self.has_collections;
        let Some(stream) = self.streams.get_mut(&head.opaque) else {
            panic!("{message:?} of no stream: {head:?}");
        };
        assert_eq!((head.vbid, head.stream_id), (stream.vbid, stream.stream_id), "{message:?}");
        assert!(!stream.is_over, "{message:?} after the end");
        let (seqno, key, cut, is_deletion) = match message {
            Message::SnapshotMarker(marker) => return stream.begin_snapshot(marker),

            Message::StreamEnd(reason) => {
                self.tally.ends += 1;
                return stream.finish(*reason);
            }
            Message::SeqnoAdvanced(seqno) => return stream.advance(seqno.0),
            Message::SystemEvent(event) => {
                assert!(has_collections, "an event for a consumer without collections");
                return stream.advance(event.by_seqno.0);
            }
            Message::Mutation(it) => {
                (it.extras.by_seqno, it.key, Some((it.value, Datatype(it.datatype))), false)
            }
            Message::Deletion(it) | Message::Expiration(it) => {
                (it.extras.by_seqno, it.key, None, true)
            }
            Message::Noop => return,
        };
        self.tally.changes += 1;
        let (collection, key) = match has_collections {
            true => {
                let key = leb128::split_collection_key(key).expect("keys have a collection");
                (key.collection, key.key.to_vec())
            }
            false => (CollectionId::DEFAULT, key.to_vec()),
        };
        stream.advance(seqno.0);
        stream.shown.insert(seqno.0);
        stream.check_filter(collection);
        let is_new = stream.in_snapshot.insert((collection, key.clone()));
        assert!(is_new, "a document is twice in a snapshot: seqno {}", seqno.0);
        let vbid = stream.vbid;
        let value = cut.and_then(|(value, datatype)| self.shown_value(value, datatype));
        self.uncompared.push(ShownDocument {
            vbid,
            seqno: seqno.0,
            collection,
            key,
            value,
            is_deletion,
        });
    }

    /// The value that was written, unless the consumer wanted another form of it.
    fn shown_value(&self, value: &[u8], datatype: Datatype) -> Option<Vec<u8>> {
        let has_none = self.flags.has(OpenFlags::NO_VALUE)
            || self.flags.has(OpenFlags::NO_VALUE_WITH_DATATYPE);
        if has_none {
            assert!(value.is_empty() || datatype.contains(Datatype::XATTR), "a value: {value:?}");
            return None;
        }
        if datatype.contains(Datatype::XATTR) {
            assert!(self.flags.has(OpenFlags::INCLUDE_XATTRS), "attributes that were not wanted");
            return None;
        }
        if !datatype.contains(Datatype::SNAPPY) {
            return Some(value.to_vec());
        }
        let mut inflated = Vec::new();
        inflate_into(value, VALUE_BYTES_MAX, &mut inflated)
            .expect("a value that says it is compressed is");
        Some(inflated)
    }

    /// Compares what was shown with what was written.
    pub(super) fn compare(
        &mut self,
        written: &BTreeMap<(Vbid, u64), Vec<WrittenVersion>>,
        may_expire: bool,
    ) {
        for shown in std::mem::take(&mut self.uncompared) {
            let ShownDocument { vbid, seqno, collection, key, value, is_deletion } = shown;
            let versions = written.get(&(vbid, seqno)).map_or(&[][..], Vec::as_slice);
            let is_written = versions.iter().any(|version| {
                let same_value = match (&version.value, &value) {
                    (Some(written), Some(shown)) => written == shown,
                    _ => true,
                };
                (version.collection, version.key.as_slice()) == (collection, key.as_slice())
                    && version.is_deletion == is_deletion
                    && same_value
            });
            let is_expiration = is_deletion && may_expire && versions.is_empty();
            assert!(is_written || is_expiration, "{vbid:?} seqno {seqno} was never written");
        }
    }

    /// Looks for the newest versions in the streams that are open.
    pub(super) fn look_for(&mut self, newest: &BTreeMap<(Vbid, CollectionId, Vec<u8>), u64>) {
        let has_room = self.window == 0 || self.in_flight < u64::from(self.window);
        if !self.trusts || self.was_flushed || !has_room {
            return;
        }
        for stream in self.streams.values().filter(|stream| !stream.is_over && !stream.is_closed())
        {
            let range = stream.start + 1..=stream.end;
            for ((vbid, collection, key), seqno) in newest {
                if *vbid == stream.vbid && range.contains(seqno) && stream.surely_shows(*collection)
                {
                    let is_shown = stream.shown.contains(seqno);
                    assert!(
                        is_shown,
                        "{vbid:?} seqno {seqno} of {collection:?} {key:?} is missing"
                    );
                    self.tally.compared += 1;
                }
            }
        }
    }
}

impl Stream {
    fn is_closed(&self) -> bool {
        self.marker == Some((u64::MAX, 0))
    }

    fn begin_snapshot(&mut self, marker: &SnapshotMarker) {
        let (start, end) = (marker.start.0, marker.end.0);
        assert!(!self.is_closed(), "a snapshot after the stream was closed");
        assert!(start <= end && end > self.reached, "snapshot {start}..{end} has nothing new");
        let is_whole = self.marker.is_none_or(|(_, end)| end == self.reached);
        // The server repeats a snapshot from its beginning when it was cut short by a lack of
        // memory or by a scan that continued without this reader.
        let is_again = !is_whole && self.marker.is_some_and(|(begin, _)| begin == start);
        assert!(is_whole || is_again, "snapshot {start}..{end} in the middle of another");
        let is_first = std::mem::take(&mut self.is_first_marker);
        let is_behind = is_first || is_again || start >= self.reached;
        assert!(is_behind, "snapshot {start}..{end} begins too early");
        self.marker = Some((start, end));
        self.in_snapshot.clear();
    }

    fn advance(&mut self, seqno: u64) {
        let (start, end) = self.marker.expect("something outside of a snapshot");
        assert!(start <= seqno && seqno <= end, "seqno {seqno} outside of {start}..{end}");
        assert!(seqno > self.reached, "seqno {seqno} after {}", self.reached);
        self.reached = seqno;
    }

    fn finish(&mut self, reason: EndReason) {
        let is_whole = self.marker.is_none_or(|(_, end)| end == self.reached);
        assert!(reason != EndReason::Ok || is_whole, "an end in the middle of a snapshot");
        assert!(reason != EndReason::Closed || self.is_closed(), "the stream was not closed");
        assert_ne!(reason, EndReason::BackfillFail, "a store in memory can be read");
        self.is_over = true;
    }

    fn check_filter(&self, collection: CollectionId) {
        let may_be = match &self.filter {
            StreamFilter::All | StreamFilter::Replica => true,
            StreamFilter::Default => collection == CollectionId::DEFAULT,
            StreamFilter::Collections(ids) => ids.contains(&collection),
            // The default collection is in the default scope for ever; others come and go.
            StreamFilter::Scope(id) => collection != CollectionId::DEFAULT || id.0 == 0,
        };
        assert!(may_be, "{collection:?} leaks through {:?}", self.filter);
    }

    fn surely_shows(&self, collection: CollectionId) -> bool {
        match &self.filter {
            StreamFilter::All | StreamFilter::Replica => true,
            StreamFilter::Default => collection == CollectionId::DEFAULT,
            StreamFilter::Collections(ids) => ids.contains(&collection),
            StreamFilter::Scope(_) => self.collections.contains(&collection),
        }
    }
}

#[cfg(test)]
mod tests;
