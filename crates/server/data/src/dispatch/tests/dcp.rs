//! Change streams: the requests of a consumer, and the messages that it gets.

mod backfills;
mod documents;
mod forms;
mod opening;
mod rights;
mod streaming;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::message::{DcpDocument, Message, decode as decode_message};
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::{Seqno, Vbid};

use super::{Client, HandlerReply, bytes, replies};
use crate::harness::ConnectionHarness;

/// Features of a consumer: extended attributes, XERROR, SELECT_BUCKET, Snappy, JSON, alternative
/// requests, collections. Unordered execution excludes change streams.
pub(super) const CONSUMER: [u16; 7] = [6, 7, 8, 0x0a, 0x0b, 0x10, 0x12];

/// The same without collections.
const LEGACY: [u16; 4] = [6, 7, 8, 0x0b];

const NAME: &[u8] = b"test:1";

/// A message that does not borrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DcpEvent {
    Marker { start: u64, end: u64, flags: u32, purge: Option<u64> },
    Mutation { seqno: u64, key: Vec<u8>, value: Vec<u8>, datatype: u8 },
    Deletion { seqno: u64, key: Vec<u8>, value: Vec<u8>, datatype: u8 },
    Expiration { seqno: u64, key: Vec<u8> },
    Event(String),
    Advanced(u64),
    End(EndReason),
    Noop(u32),
}

/// One frame from the server: an answer or a message with its opaque, vbucket and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerFrame {
    Answer(HandlerReply),
    Message { opaque: u32, vbid: u16, stream_id: Option<u16>, told: DcpEvent, frame_bytes: usize },
}

impl ServerFrame {
    fn told(&self) -> &DcpEvent {
        match self {
            ServerFrame::Message { told, .. } => told,
            ServerFrame::Answer(reply) => panic!("{reply:?} is an answer"),
        }
    }
}

pub(super) fn received(mut output: &[u8]) -> Vec<ServerFrame> {
    let mut all = Vec::new();
    while !output.is_empty() {
        let Ok(DecodedFrame::Complete { frame, consumed }) = decode(output) else {
            panic!("the output is not a list of complete frames");
        };
        if frame.header.magic.is_request() {
            let (stream, message) = decode_message(&frame).expect("messages are well-formed");
            all.push(ServerFrame::Message {
                opaque: stream.opaque,
                vbid: stream.vbid.0,
                stream_id: stream.stream_id,
                told: told(message),
                frame_bytes: consumed,
            });
        } else {
            all.extend(replies(&output[..consumed]).into_iter().map(ServerFrame::Answer));
        }
        output = &output[consumed..];
    }
    all
}

fn told(message: Message<'_>) -> DcpEvent {
    match message {
        Message::SnapshotMarker(marker) => DcpEvent::Marker {
            start: marker.start.0,
            end: marker.end.0,
            flags: marker.flags.0,
            purge: marker.purge_seqno.map(|seqno| seqno.0),
        },
        Message::Mutation(DcpDocument { extras, key, value, datatype, .. }) => {
            let (key, value) = (key.to_vec(), value.to_vec());
            DcpEvent::Mutation { seqno: extras.by_seqno.0, key, value, datatype }
        }
        Message::Deletion(DcpDocument { extras, key, value, datatype, .. }) => {
            let (key, value) = (key.to_vec(), value.to_vec());
            DcpEvent::Deletion { seqno: extras.by_seqno.0, key, value, datatype }
        }
        Message::Expiration(DcpDocument { extras, key, .. }) => {
            DcpEvent::Expiration { seqno: extras.by_seqno.0, key: key.to_vec() }
        }
        Message::SystemEvent(event) => DcpEvent::Event(format!("{:?}", event.change)),
        Message::SeqnoAdvanced(seqno) => DcpEvent::Advanced(seqno.0),
        Message::StreamEnd(reason) => DcpEvent::End(reason),
        Message::Noop => DcpEvent::Noop(0),
    }
}

pub(super) fn open(flags: u32) -> [u8; OpenExtras::BYTES] {
    OpenExtras { flags: OpenFlags(flags) }.encode()
}

/// From the beginning, without an end.
pub(super) const EVERYTHING: StreamRequestExtras = StreamRequestExtras {
    flags: StreamFlags(0),
    start: Seqno(0),
    end: Seqno(u64::MAX),
    vb_uuid: oribi_types::VbUuid(0),
    snapshot_start: Seqno(0),
    snapshot_end: Seqno(0),
};

pub(super) const OPAQUE: u32 = 0xfedc_0001;

impl Client {
    /// A client that may follow changes and has not opened the connection for it.
    fn consumer_of(harness: ConnectionHarness, features: &[u16]) -> Client {
        Client::on(harness, features)
    }

    /// A second client: a consumer with these flags.
    pub(super) fn consumer(&self, features: &[u16], flags: u32) -> Client {
        let mut consumer = Client::consumer_of(self.harness.beside(), features);
        assert_eq!(consumer.open_as(NAME, flags).status, Status::Success);
        consumer.choose("enable_noop", "true");
        consumer
    }

    fn open_as(&mut self, name: &[u8], flags: u32) -> HandlerReply {
        let extras = open(flags);
        let open =
            RequestParts { extras: &extras, key: name, ..RequestParts::new(Opcode::DcpOpen) };
        self.ask(&open)
    }

    pub(super) fn control(&mut self, name: &str, value: &str) -> Status {
        let (key, value) = (name.as_bytes(), value.as_bytes());
        self.ask(&RequestParts { key, value, ..RequestParts::new(Opcode::DcpControl) }).status
    }

    pub(super) fn choose(&mut self, name: &str, value: &str) {
        assert_eq!(self.control(name, value), Status::Success, "{name}={value}");
    }

    /// Requests a stream; the answer, and what follows it.
    pub(super) fn stream(
        &mut self,
        vbid: u16,
        extras: &StreamRequestExtras,
        value: &str,
    ) -> (HandlerReply, Vec<ServerFrame>) {
        let parts = RequestParts {
            vbid: Vbid(vbid),
            opaque: OPAQUE + u32::from(vbid),
            extras: &extras.encode(),
            value: value.as_bytes(),
            ..RequestParts::new(Opcode::DcpStreamReq)
        };
        let mut all = self.receive(&bytes(&parts));
        assert!(!all.is_empty(), "a stream request has an answer");
        match all.remove(0) {
            ServerFrame::Answer(reply) => {
                assert_eq!(reply.opaque, parts.opaque);
                (reply, all)
            }
            ServerFrame::Message { .. } => panic!("a message came before the answer"),
        }
    }

    /// Status of a stream request that has no other effect.
    pub(super) fn stream_status(
        &mut self,
        vbid: u16,
        extras: &StreamRequestExtras,
        value: &str,
    ) -> Status {
        self.stream(vbid, extras, value).0.status
    }

    pub(super) fn receive(&mut self, input: &[u8]) -> Vec<ServerFrame> {
        received(&self.harness.feed(input))
    }

    /// The messages that came since the last time.
    pub(super) fn messages(&mut self) -> Vec<DcpEvent> {
        self.receive(&[]).iter().map(|got| got.told().clone()).collect()
    }

    fn close_stream(&mut self, vbid: u16, framing: &[u8]) -> (Status, Vec<DcpEvent>) {
        let close =
            RequestParts { vbid: Vbid(vbid), framing, ..RequestParts::new(Opcode::DcpCloseStream) };
        let all = self.receive(&bytes(&close));
        let [ServerFrame::Answer(reply), rest @ ..] = &all[..] else { panic!("{all:?}") };
        (reply.status, rest.iter().map(|got| got.told().clone()).collect())
    }

    fn acknowledge(&mut self, count: u32) -> Vec<ServerFrame> {
        let extras = count.to_be_bytes();
        let opcode = Opcode::DcpBufferAcknowledgement;
        self.receive(&bytes(&RequestParts { extras: &extras, ..RequestParts::new(opcode) }))
    }
}

/// An answer to a message of the server.
fn answer(opcode: Opcode, status: Status, opaque: u32) -> Vec<u8> {
    let mut frame = bytes(&RequestParts { opaque, ..RequestParts::new(opcode) });
    frame[0] = Magic::ClientResponse as u8;
    frame[6..8].copy_from_slice(&status.code().to_be_bytes());
    frame
}

fn stream_id_frame(id: u16) -> Vec<u8> {
    let mut framing = Vec::new();
    oribi_protocol::frame_info::encode_stream_id(id, &mut framing);
    framing
}
