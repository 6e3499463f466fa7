//! Any message of a producer, decoded for its consumer.
//!
//! The key of a document stays as it came: with a collection prefix when the connection negotiated
//! collections, see [`crate::leb128`].

use oribi_types::{Seqno, Vbid};

use crate::dcp::StreamHead;
use crate::dcp::end_reason::EndReason;
use crate::dcp::item::{DeletionExtras, MutationExtras};
use crate::dcp::marker::SnapshotMarker;
use crate::dcp::system_event::SystemEvent;
use crate::frame::Frame;
use crate::frame_info;
use crate::magic::Magic;
use crate::opcode::Opcode;

/// A document in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DcpDocument<'a, E> {
    /// Fixed fields.
    pub extras: E,
    /// Key field.
    pub key: &'a [u8],
    /// Compare-and-swap value after the change.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Value, or the extended attributes of a removed document.
    pub value: &'a [u8],
}

/// Contents of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A snapshot begins.
    SnapshotMarker(SnapshotMarker),
    /// A document was written.
    Mutation(DcpDocument<'a, MutationExtras>),
    /// A document was removed.
    Deletion(DcpDocument<'a, DeletionExtras>),
    /// A document expired.
    Expiration(DcpDocument<'a, DeletionExtras>),
    /// Collections changed.
    SystemEvent(SystemEvent<'a>),
    /// The stream is at this seqno, and nothing on the way concerned it.
    SeqnoAdvanced(Seqno),
    /// The stream ends.
    StreamEnd(EndReason),
    /// DCP keep-alive; the answer has the same opaque.
    Noop,
}

/// Why this module cannot decode a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Not a request, or with another opcode.
    NotDcp,
    /// Extras, key or value are not as the opcode demands, or an event or reason is unknown.
    Malformed,
}

/// Decodes a message and the stream that it belongs to.
///
/// # Errors
/// [`MessageError`]: the frame is another one, or damaged.
pub fn decode<'a>(frame: &Frame<'a>) -> Result<(StreamHead, Message<'a>), MessageError> {
    let header = &frame.header;
    if !matches!(header.magic, Magic::ClientRequest | Magic::AltClientRequest) {
        return Err(MessageError::NotDcp);
    }
    let opcode = Opcode::from_u8(header.opcode).ok_or(MessageError::NotDcp)?;
    let stream = stream_of(frame)?;
    let message = message(opcode, frame)?.ok_or(MessageError::Malformed)?;
    Ok((stream, message))
}

/// The stream that a frame belongs to.
pub(super) fn stream_of(frame: &Frame<'_>) -> Result<StreamHead, MessageError> {
    let frames = frame_info::decode(frame.framing).map_err(|_| MessageError::Malformed)?;
    Ok(StreamHead {
        opaque: frame.header.opaque,
        vbid: Vbid(frame.header.vbucket_or_status),
        stream_id: frames.stream_id,
    })
}

/// The message, or `None` when a part is malformed.
fn message<'a>(opcode: Opcode, frame: &Frame<'a>) -> Result<Option<Message<'a>>, MessageError> {
    let Frame { extras, key, value, .. } = *frame;
    let is_bare = key.is_empty() && value.is_empty();
    let message = match opcode {
        Opcode::DcpSnapshotMarker if key.is_empty() => {
            SnapshotMarker::decode(extras, value).map(Message::SnapshotMarker)
        }
        Opcode::DcpMutation => {
            document(frame, MutationExtras::decode(extras)).map(Message::Mutation)
        }
        Opcode::DcpDeletion => {
            document(frame, DeletionExtras::of_deletion(extras)).map(Message::Deletion)
        }
        Opcode::DcpExpiration => {
            document(frame, DeletionExtras::of_expiration(extras)).map(Message::Expiration)
        }
        Opcode::DcpSystemEvent => SystemEvent::decode(extras, key, value).map(Message::SystemEvent),
        Opcode::DcpSeqnoAdvanced if is_bare => {
            let seqno = extras.try_into().ok();
            seqno.map(|bytes| Message::SeqnoAdvanced(Seqno(u64::from_be_bytes(bytes))))
        }
        Opcode::DcpStreamEnd if is_bare => EndReason::decode(extras).map(Message::StreamEnd),
        Opcode::DcpNoop if is_bare && extras.is_empty() => Some(Message::Noop),
        Opcode::DcpSnapshotMarker
        | Opcode::DcpSeqnoAdvanced
        | Opcode::DcpStreamEnd
        | Opcode::DcpNoop => None,
        _ => return Err(MessageError::NotDcp),
    };
    Ok(message)
}

pub(super) fn document<'a, E>(frame: &Frame<'a>, extras: Option<E>) -> Option<DcpDocument<'a, E>> {
    if frame.key.is_empty() {
        return None;
    }
    Some(DcpDocument {
        extras: extras?,
        key: frame.key,
        cas: frame.header.cas,
        datatype: frame.header.datatype,
        value: frame.value,
    })
}
