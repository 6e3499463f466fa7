//! The steps of a run: each takes its choices from the input.

use oribi_engine::VBucket;
use oribi_engine::collections::ManifestChange;
use oribi_engine::dcp::StreamFilter;
use oribi_protocol::dcp::control;
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_protocol::frame::{self, DecodedFrame};
use oribi_protocol::frame_info;
use oribi_protocol::leb128;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, SetExtras, encode_request};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Datatype, Seqno, VbUuid, Vbid};

use super::input::Input;
use super::oracle::{ConsumerRequest, Request, WrittenVersion};
use super::{Run, some_vbucket};
use crate::dcp::stream_value::StreamRequestJson;

/// Longest value; the queues of the bucket take about ten of them.
const LONG_VALUE_BYTES: usize = 16 << 10;

/// Names of options: most of them, and one that is unknown.
const OPTIONS: [&[u8]; 21] = [
    control::CONNECTION_BUFFER_SIZE,
    control::ENABLE_NOOP,
    control::SET_NOOP_INTERVAL,
    control::SEND_STREAM_END_ON_CLIENT_CLOSE_STREAM,
    control::ENABLE_EXPIRY_OPCODE,
    control::ENABLE_STREAM_ID,
    control::FORCE_VALUE_COMPRESSION,
    control::MAX_MARKER_VERSION,
    control::SET_PRIORITY,
    control::BACKFILL_ORDER,
    control::INCLUDE_DELETED_USER_XATTRS,
    control::ENABLE_OUT_OF_ORDER_SNAPSHOTS,
    control::SUPPORTS_CURSOR_DROPPING,
    control::SUPPORTS_CURSOR_DROPPING_VULCAN,
    control::SUPPORTS_HIFI_MFU,
    control::ENABLE_SYNC_WRITES,
    control::CONSUMER_NAME,
    control::V7_DCP_STATUS_CODES,
    control::FLATBUFFERS_SYSTEM_EVENTS,
    control::CHANGE_STREAMS,
    control::STREAM_BUFFER_SIZE,
];

const VALUES: [&[u8]; 12] = [
    b"true",
    b"false",
    b"0",
    b"1",
    b"100",
    b"5000",
    b"4294967295",
    b"0.1",
    b"2.2",
    b"high",
    b"round-robin",
    b"true_with_seqno_advanced",
];

/// Flags of stream requests.
const STREAM_FLAGS: [u32; 10] = [0, 0, 0x10, 0x02, 0x04, 0x20, 0x40, 0x80, 0x06, 0xb4];

/// Values of stream requests; ids of collections begin with 8.
const FILTERS: [&str; 16] = [
    "",
    "",
    "",
    r#"{"uid":"0"}"#,
    r#"{"collections":["0"]}"#,
    r#"{"collections":["8"]}"#,
    r#"{"collections":["0","8","9"]}"#,
    r#"{"scope":"0"}"#,
    r#"{"scope":"8"}"#,
    r#"{"collections":[]}"#,
    r#"{"sid":1}"#,
    r#"{"sid":2,"collections":["0"]}"#,
    r#"{"sid":65536}"#,
    r#"{"purge_seqno":"3","uid":"1f"}"#,
    r#"{"collections":["77"]}"#,
    "{}",
];

impl Run {
    /// Takes the next step.
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        // Arbitrary bytes disable the checks of streams, so they are rare.
        let step = input.byte();
        match if step >= 0xfa { 15 } else { step % 15 } {
            0..=2 => self.write(input),
            3..=4 => self.request_stream(input),
            5 => self.close_stream(input),
            6 => {
                let name = input.one_of(&OPTIONS).unwrap_or_else(|| input.bytes());
                let value = input.one_of(&VALUES).unwrap_or_else(|| input.bytes());
                self.control(name, value);
            }
            7 => self.acknowledge(match input.byte() {
                0 => u32::MAX,
                few => u32::from(few) * 16,
            }),
            8 => self.answer(input),
            9 => {
                let ms = u64::from(input.byte()) * 500;
                self.advance_ms(ms);
            }
            10 => {
                let flushed = self.writer.bucket().bucket().flush_step();
                flushed.expect("a store in memory can be written");
                self.send_bytes(&[]);
            }
            11 => self.backfill(u32::from(input.byte() % 4)),
            12 => {
                let report = self.writer.bucket().bucket().recover_checkpoints_step();
                self.oracle.borrow_mut().tally.cursors_dropped += report.cursors_dropped as u64;
            }
            13 => self.change_collections(input),
            14 => self.ask_or_flush(input),
            _ => {
                let bytes = input.bytes();
                self.oracle.borrow_mut().trust_nothing();
                self.send_bytes(bytes);
            }
        }
    }

    pub(super) fn open(&self, input: &mut Input<'_>) {
        // Mostly as a producer and with known flags: everything else is refused.
        let byte = input.byte();
        let mut flags = OpenFlags::PRODUCER.0;
        for (bit, flag) in [0x004, 0x020, 0x100, 0x008, 0x040].iter().enumerate() {
            flags |= if byte >> bit & 1 == 1 { *flag } else { 0 };
        }
        let name: &[u8] = match byte >> 5 {
            7 => input.bytes(),
            _ => b"check:1",
        };
        if byte >> 5 == 6 {
            flags ^= u32::from(input.byte()) << 4 | 1;
        }
        let extras = OpenExtras { flags: OpenFlags(flags) }.encode();
        self.oracle.borrow_mut().note_flags(OpenFlags(flags));
        self.send(&RequestParts {
            extras: &extras,
            key: name,
            ..RequestParts::new(Opcode::DcpOpen)
        });
    }

    pub(super) fn control(&self, key: &[u8], value: &[u8]) {
        let asked = ConsumerRequest::Control { name: key.to_vec(), value: value.to_vec() };
        let opaque = self.oracle.borrow_mut().expect_answer(asked);
        self.send(&RequestParts { opaque, key, value, ..RequestParts::new(Opcode::DcpControl) });
    }

    pub(super) fn acknowledge(&self, bytes: u32) {
        self.oracle.borrow_mut().acknowledged(bytes);
        let extras = bytes.to_be_bytes();
        let opcode = Opcode::DcpBufferAcknowledgement;
        self.send(&RequestParts { extras: &extras, ..RequestParts::new(opcode) });
    }

    fn request_stream(&mut self, input: &mut Input<'_>) {
        let vbid = some_vbucket(input.byte());
        let flags = input.one_of(&STREAM_FLAGS).unwrap_or_else(|| u32::from(input.byte()));
        let flags = StreamFlags(flags);
        let value = match input.one_of(&FILTERS) {
            Some(text) => text.as_bytes(),
            None => input.bytes(),
        };
        let mut extras = StreamRequestExtras { flags, ..StreamRequestExtras::default() };
        extras.end = Seqno(u64::MAX);
        if input.byte() & 1 == 1 {
            (extras.start, extras.end) = (Seqno(input.seqno()), Seqno(input.seqno()));
            extras.snapshot_start = Seqno(input.seqno());
            extras.snapshot_end = Seqno(input.seqno());
        }
        let vbucket = self.writer.bucket().bucket().vbucket(vbid).map(VBucket::stats);
        extras.vb_uuid = match (input.byte(), &vbucket) {
            (0..0x80, _) => VbUuid(0),
            (0x80..0xf0, Some(vbucket)) => vbucket.uuid,
            (byte, _) => VbUuid(u64::from(byte)),
        };
        let high_seqno = vbucket.map_or(Seqno(0), |vbucket| vbucket.high_seqno);
        let wanted = match value {
            [] => Some(StreamRequestJson::all()),
            value => StreamRequestJson::parse(value),
        };
        let manifest = self.writer.bucket().bucket().manifest();
        let mut collections = Vec::new();
        if let Some(StreamRequestJson { filter: StreamFilter::Scope(id), .. }) = &wanted {
            let scope = manifest.scopes().iter().find(|scope| scope.id == *id);
            let inside = scope.into_iter().flat_map(|scope| &scope.collections);
            collections = inside.map(|collection| collection.id).collect();
        }
        let asked =
            ConsumerRequest::Stream(Request { vbid, extras, wanted, high_seqno, collections });
        let opaque = self.oracle.borrow_mut().expect_answer(asked);
        let encoded = extras.encode();
        self.send(&RequestParts {
            vbid,
            opaque,
            extras: &encoded,
            value,
            ..RequestParts::new(Opcode::DcpStreamReq)
        });
    }

    fn close_stream(&self, input: &mut Input<'_>) {
        let vbid = some_vbucket(input.byte());
        let stream_id = match input.byte() % 4 {
            0 | 1 => None,
            id => Some(u16::from(id) - 1),
        };
        let mut framing = Vec::new();
        if let Some(id) = stream_id {
            frame_info::encode_stream_id(id, &mut framing);
        }
        let opaque =
            self.oracle.borrow_mut().expect_answer(ConsumerRequest::Close { vbid, stream_id });
        let close = RequestParts::new(Opcode::DcpCloseStream);
        self.send(&RequestParts { vbid, opaque, framing: &framing, ..close });
    }

    /// An answer to a message of the server: to its last question, or to something else.
    fn answer(&self, input: &mut Input<'_>) {
        let (opaque, opcode, status) = match input.byte() {
            0..0xe0 => match self.oracle.borrow_mut().take_noop() {
                Some(opaque) => (opaque, Opcode::DcpNoop, Status::Success),
                None => return,
            },
            0xe0..0xf8 => (0, Opcode::DcpSnapshotMarker, Status::KeyEnoent),
            // Nothing was asked: this ends the connection.
            byte => (byte.into(), Opcode::DcpNoop, Status::Success),
        };
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &RequestParts { opaque, ..RequestParts::new(opcode) });
        bytes[0] = Magic::ClientResponse as u8;
        bytes[6..8].copy_from_slice(&status.code().to_be_bytes());
        self.send_bytes(&bytes);
    }

    /// Questions that are no streams; a flush of the bucket.
    fn ask_or_flush(&mut self, input: &mut Input<'_>) {
        let opcode = match input.byte() {
            0..0x60 => Opcode::DcpGetFailoverLog,
            0x60..0x80 => Opcode::GetAllVbSeqnos,
            0x80..0xc0 => Opcode::Noop,
            0xc0..0xf0 => Opcode::CollectionsGetManifest,
            _ => {
                let mut bytes = Vec::new();
                encode_request(&mut bytes, &RequestParts::new(Opcode::Flush));
                self.writer.feed(&bytes);
                self.newest.clear();
                self.oracle.borrow_mut().bucket_flushed();
                return self.send_bytes(&[]);
            }
        };
        let vbid = some_vbucket(input.byte());
        self.send(&RequestParts { vbid, ..RequestParts::new(opcode) });
    }

    fn change_collections(&mut self, input: &mut Input<'_>) {
        let scope = ["_default", "s"][usize::from(input.byte() & 1)].to_owned();
        let name = ["a", "b"][usize::from(input.byte() & 1)].to_owned();
        let change = match input.byte() {
            0..0x80 => ManifestChange::CreateCollection { scope, name, max_ttl_s: None },
            0x80..0xb0 => ManifestChange::CreateScope { name: "s".to_owned() },
            0xb0..0xf0 => ManifestChange::DropCollection { scope, name },
            _ => ManifestChange::DropScope { name: "s".to_owned() },
        };
        let bucket = self.writer.bucket().bucket();
        let _may_be_there_already = bucket.update_manifest(&change);
        let manifest = bucket.manifest();
        self.newest.retain(|(_, collection, _), _| manifest.contains(*collection));
        self.send_bytes(&[]);
    }

    /// Writes or removes a document.
    fn write(&mut self, input: &mut Input<'_>) {
        let vbid = Vbid(u16::from(input.byte()) % super::HARNESS_VBUCKETS);
        let collection = CollectionId([0, 0, 0, 8, 9, 10][usize::from(input.byte()) % 6]);
        let key = vec![b'k', b'a' + input.byte() % 12];
        let form = input.byte();
        let text = vec![b'x'; usize::from(input.byte() % 50) + 1];
        let (value, datatype, shown) = match form % 16 {
            0..=3 => (Vec::new(), Datatype::RAW, None),
            4..=6 => {
                let value = vec![b'l'; LONG_VALUE_BYTES];
                (value.clone(), Datatype::RAW, Some(value))
            }
            7 => (with_attributes(&text), Datatype::XATTR, None),
            8 => (as_literal(&text), Datatype::SNAPPY, Some(text)),
            _ => (text.clone(), Datatype::RAW, Some(text)),
        };
        let is_deletion = form % 16 < 4;
        let expires = form >= 0xf0 && !is_deletion;
        self.may_expire |= expires;
        let extras = SetExtras { flags: 7, expiry: u32::from(expires) * 30 }.encode();
        let opcode = if is_deletion { Opcode::Delete } else { Opcode::Set };
        let (prefix, prefix_bytes) = leb128::encode_u32(collection.0);
        let full_key = [&prefix[..prefix_bytes], &key].concat();
        let mut request = Vec::new();
        let parts = RequestParts { vbid, key: &full_key, ..RequestParts::new(opcode) };
        let extras = if is_deletion { &[][..] } else { &extras };
        encode_request(
            &mut request,
            &RequestParts { extras, value: &value, datatype: datatype.0, ..parts },
        );
        let output = self.writer.feed(&request);
        if let Some(seqno) = seqno_of(&output) {
            let written =
                WrittenVersion { collection, key: key.clone(), value: shown, is_deletion };
            self.written.entry((vbid, seqno)).or_default().push(written);
            match expires {
                // It may be gone when a stream comes to it.
                true => self.newest.remove(&(vbid, collection, key)),
                false => self.newest.insert((vbid, collection, key), seqno),
            };
        }
        self.send_bytes(&[]);
    }
}

/// The seqno that a write got, if it succeeded.
fn seqno_of(output: &[u8]) -> Option<u64> {
    let Ok(DecodedFrame::Complete { frame, .. }) = frame::decode(output) else { return None };
    let is_done = frame.header.vbucket_or_status == Status::Success.code();
    let seqno = frame.extras.get(8..16).filter(|_| is_done)?;
    Some(u64::from_be_bytes(seqno.try_into().ok()?))
}

/// A value with one attribute of users and one of the system.
fn with_attributes(body: &[u8]) -> Vec<u8> {
    let pairs: [&[u8]; 2] = [b"mine\x00{\"a\":1}\x00", b"_sys\x00true\x00"];
    let mut section = Vec::new();
    for pair in pairs {
        section.extend_from_slice(&(pair.len() as u32).to_be_bytes());
        section.extend_from_slice(pair);
    }
    let mut value = (section.len() as u32).to_be_bytes().to_vec();
    value.extend_from_slice(&section);
    value.extend_from_slice(body);
    value
}

/// Snappy's form of up to 60 bytes, as one literal.
fn as_literal(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u8;
    let mut compressed = vec![length, (length - 1) << 2];
    compressed.extend_from_slice(bytes);
    compressed
}
