//! A consumer's connection: change streams of a server, message by message.
//!
//! Owns the set-up of a consumer, the acknowledgements of flow control and the answers to no-ops.
//! It does not oracle what the server sends: a test does, or the [`StreamLog`](crate::StreamLog).

use anyhow::{Context, Result, bail};
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::marker::SnapshotMarker;
use oribi_protocol::dcp::message::{self, Message};
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::dcp::stream_request::{
    FailoverLog, StreamRequestExtras, StreamValue, decode_rollback,
};
use oribi_protocol::dcp::system_event::{EventChange, SystemEvent};
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::leb128;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, ScopeId, Seqno, VbUuid, Vbid};

use crate::raw_connection::{RawConnection, Request};

/// Opaques of stream requests have the highest bit set, as those of some clients do.
const OPAQUE_BASE: u32 = 0x8000_0000;

/// A window so small that the server waits for acknowledgements again and again.
pub const SMALL_WINDOW_BYTES: u32 = 32 << 10;

/// Something that the server said about a vbucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamMessage {
    pub vbid: Vbid,
    pub what: MessageKind,
}

/// A server's message on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// The stream is open; these are the vbucket's histories, newest first.
    Opened(Vec<(VbUuid, Seqno)>),
    /// The stream is refused: the consumer has to forget everything beyond this seqno.
    Rollback(Seqno),
    /// The stream is refused.
    Refused(Status),
    Marker(SnapshotMarker),
    Document(StreamDocument),
    /// A collection or scope began or ended.
    Event {
        /// Its place in the history.
        seqno: Seqno,
        scope: ScopeId,
        /// The collection, unless the event is about a scope.
        collection: Option<CollectionId>,
    },
    /// Changes up to this seqno are not for this stream.
    Advanced(Seqno),
    /// The stream is over.
    End(EndReason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDocument {
    /// Its place in the history.
    pub seqno: Seqno,
    /// Collection of the key.
    pub collection: CollectionId,
    /// Key without the collection.
    pub key: Vec<u8>,
    pub cas: Cas,
    pub datatype: u8,
    /// Value; `None` for a deletion or expiration.
    pub value: Option<Vec<u8>>,
    /// True when it went because its time had come.
    pub is_expired: bool,
}

/// A connection that has been opened for change streams.
pub struct StreamConnection {
    raw: RawConnection,
    window_bytes: u32,
    unacknowledged_bytes: u32,
}

impl StreamConnection {
    /// Logs in with collections and opens the connection under a `name`, with flow control,
    /// no-ops, attributes, times of deletion and expirations.
    pub fn open(port: u16, name: &str, window_bytes: u32) -> Result<StreamConnection> {
        let mut raw = RawConnection::login(port)?;
        let flags = OpenFlags(
            OpenFlags::PRODUCER.0 | OpenFlags::INCLUDE_XATTRS.0 | OpenFlags::INCLUDE_DELETE_TIMES.0,
        );
        let open = Request::new(Opcode::DcpOpen).bare_key(name);
        demand(&mut raw, &open.extras(&OpenExtras { flags }.encode()))?;
        let window = window_bytes.to_string();
        let controls = [
            ("enable_noop", "true"),
            ("set_noop_interval", "20"),
            ("enable_expiry_opcode", "true"),
            ("connection_buffer_size", &window),
        ];
        for (name, value) in controls {
            demand(&mut raw, &Request::new(Opcode::DcpControl).bare_key(name).value(value))?;
        }
        Ok(StreamConnection { raw, window_bytes, unacknowledged_bytes: 0 })
    }

    pub fn raw(&mut self) -> &mut RawConnection {
        &mut self.raw
    }

    /// Requests a stream; the answer comes as [`MessageKind::Opened`], [`MessageKind::Rollback`] or
    /// [`MessageKind::Refused`].
    pub fn request(
        &mut self,
        vbid: Vbid,
        extras: &StreamRequestExtras,
        value: &StreamValue<'_>,
    ) -> Result<()> {
        let mut json = String::new();
        value.write(&mut json);
        let request = Request::new(Opcode::DcpStreamReq).vbucket(vbid);
        let request = request.extras(&extras.encode()).value(json);
        let bytes = self.raw.encode(&request, OPAQUE_BASE | u32::from(vbid.0));
        self.raw.send_bytes(&bytes)
    }

    /// Waits for the next message, answers no-ops and acknowledges what was read.
    pub fn hear(&mut self) -> Result<StreamMessage> {
        loop {
            let bytes = self.raw.receive_frame()?;
            let frame = Frame::whole(&bytes).context("the parts of a frame contradict")?;
            if !frame.header.magic.is_request() {
                match answer(&frame)? {
                    Some(heard) => return Ok(heard),
                    None => continue,
                }
            }
            let (head, said) = message::decode(&frame)
                .map_err(|error| anyhow::anyhow!("{error:?}: {:?}", frame.header))?;
            if said == Message::Noop {
                self.answer_noop(frame.header.opaque)?;
                continue;
            }
            if head.opaque != OPAQUE_BASE | u32::from(head.vbid.0) {
                bail!("vbucket {} has opaque {:x}", head.vbid, head.opaque);
            }
            self.acknowledge(bytes.len() as u32)?;
            return Ok(StreamMessage { vbid: head.vbid, what: what(said)? });
        }
    }

    fn answer_noop(&mut self, opaque: u32) -> Result<()> {
        let header = Header {
            magic: Magic::ClientResponse,
            opcode: Opcode::DcpNoop as u8,
            framing_bytes: 0,
            key_bytes: 0,
            extras_bytes: 0,
            datatype: 0,
            vbucket_or_status: 0,
            body_bytes: 0,
            opaque,
            cas: 0,
        };
        self.raw.send_bytes(&header.encode())
    }

    /// Acknowledges when half of the window was used.
    fn acknowledge(&mut self, frame_bytes: u32) -> Result<()> {
        self.unacknowledged_bytes += frame_bytes;
        if self.unacknowledged_bytes > self.window_bytes / 2 {
            let ack = Request::new(Opcode::DcpBufferAcknowledgement)
                .extras(&self.unacknowledged_bytes.to_be_bytes());
            self.raw.send(&ack)?;
            self.unacknowledged_bytes = 0;
        }
        Ok(())
    }
}

fn demand(raw: &mut RawConnection, request: &Request) -> Result<()> {
    let status = raw.call(request)?.status();
    if status != Status::Success {
        bail!("{request:?}: {status:?}");
    }
    Ok(())
}

/// The answer to a stream request; `None` for other answers.
fn answer(frame: &Frame<'_>) -> Result<Option<StreamMessage>> {
    if frame.header.opcode != Opcode::DcpStreamReq as u8 {
        return Ok(None);
    }
    let vbid = Vbid((frame.header.opaque & 0xffff) as u16);
    let code = frame.header.vbucket_or_status;
    let what = match Status::from_u16(code).with_context(|| format!("status {code:x}"))? {
        Status::Success => {
            let log = FailoverLog::decode(frame.value).context("a cut failover log")?;
            MessageKind::Opened(log.entries().collect())
        }
        Status::Rollback => MessageKind::Rollback(
            decode_rollback(frame.value).context("a rollback without a seqno")?,
        ),
        status => MessageKind::Refused(status),
    };
    Ok(Some(StreamMessage { vbid, what }))
}

fn what(said: Message<'_>) -> Result<MessageKind> {
    Ok(match said {
        Message::SnapshotMarker(marker) => MessageKind::Marker(marker),
        Message::Mutation(it) => MessageKind::Document(document(
            it.extras.by_seqno,
            it.key,
            it.cas,
            it.datatype,
            Some(it.value),
        )?),
        Message::Deletion(it) => {
            MessageKind::Document(document(it.extras.by_seqno, it.key, it.cas, it.datatype, None)?)
        }
        Message::Expiration(it) => {
            let gone = document(it.extras.by_seqno, it.key, it.cas, it.datatype, None)?;
            MessageKind::Document(StreamDocument { is_expired: true, ..gone })
        }
        Message::SystemEvent(event) => event_of(&event),
        Message::SeqnoAdvanced(seqno) => MessageKind::Advanced(seqno),
        Message::StreamEnd(reason) => MessageKind::End(reason),
        Message::Noop => bail!("a no-op belongs to no stream"),
    })
}

fn document(
    seqno: Seqno,
    key: &[u8],
    cas: u64,
    datatype: u8,
    value: Option<&[u8]>,
) -> Result<StreamDocument> {
    let (collection, key) = leb128::decode_u32(key).context("a key without a collection")?;
    Ok(StreamDocument {
        seqno,
        collection: CollectionId(collection),
        key: key.to_vec(),
        cas: Cas(cas),
        datatype,
        value: value.map(<[u8]>::to_vec),
        is_expired: false,
    })
}

fn event_of(event: &SystemEvent<'_>) -> MessageKind {
    let collection = match event.change {
        EventChange::CollectionBegin { collection, .. }
        | EventChange::CollectionEnd { collection } => Some(collection),
        EventChange::ScopeBegin { .. } | EventChange::ScopeEnd => None,
    };
    MessageKind::Event { seqno: event.by_seqno, scope: event.scope, collection }
}
