//! The Database Change Protocol: layouts of a consumer's requests and a producer's messages.
//!
//! | File | Owns |
//! |---|---|
//! | `open` | the request that makes a connection a producer's, and its flags |
//! | `control` | names of the options of a connection |
//! | `stream_request` | the request for a stream, its filter, and the answer |
//! | `item` | extras of mutations, deletions and expirations |
//! | `durability` | prepares, their completions, and acknowledgements of replicas |
//! | `marker` | snapshot markers |
//! | `system_event` | collections and scopes that come and go |
//! | `end_reason` | why a stream ends |
//! | `vb_seqnos` | high seqnos of all vbuckets |
//! | `message` | any message of a producer, decoded |
//!
//! Each message of a stream is a request of the server with the opaque of the stream's request, and
//! the vbucket in the header. A connection with stream ids puts the id into a frame info, so the
//! header has the other layout. [`write_head`] writes that part of every message.
//!
//! Invariants: decoding borrows and checks every length. Encoders append to the caller's buffer.
//! The server decides what flags mean together and which connection may send which request.

pub mod control;
pub mod durability;
pub mod end_reason;
pub mod item;
pub mod marker;
pub mod message;
pub mod open;
pub mod stream_request;
pub mod system_event;
pub mod vb_seqnos;

use oribi_types::{CollectionId, Seqno, Vbid};

use crate::frame::Header;
use crate::frame_info;
use crate::leb128;
use crate::limits::{COLLECTION_PREFIX_BYTES_MAX, HEADER_BYTES};
use crate::magic::Magic;
use crate::opcode::Opcode;

/// The fields that all messages of a stream share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamHead {
    /// Opaque of the stream's request.
    pub opaque: u32,
    /// The stream's vbucket.
    pub vbid: Vbid,
    /// Id of the stream, on a connection with stream ids.
    pub stream_id: Option<u16>,
}

/// One message of a stream without its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHead<'a> {
    /// Kind of the message.
    pub opcode: Opcode,
    /// The stream it belongs to.
    pub stream: StreamHead,
    /// Compare-and-swap value of a document, otherwise 0.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Extras, at most 255 bytes.
    pub extras: &'a [u8],
    /// The collection in front of the key, on a connection with collections.
    pub collection: Option<CollectionId>,
    /// Key of a document, or name in a system event.
    pub key: &'a [u8],
}

impl MessageHead<'_> {
    /// A message with only its opcode; struct update sets the other fields.
    pub const fn new(opcode: Opcode, stream: StreamHead) -> MessageHead<'static> {
        MessageHead { opcode, stream, cas: 0, datatype: 0, extras: &[], collection: None, key: &[] }
    }
}

/// Appends a message up to its value of `value_bytes`, and returns the bytes of the whole frame.
///
/// # Panics
/// When a part exceeds its length field; keys and names are checked when they come in.
#[inline]
pub fn write_head(out: &mut Vec<u8>, head: &MessageHead<'_>, value_bytes: usize) -> usize {
    let (prefix, prefix_bytes) = match head.collection {
        Some(collection) => leb128::encode_u32(collection.0),
        None => ([0; COLLECTION_PREFIX_BYTES_MAX], 0),
    };
    let framing_bytes = match head.stream.stream_id {
        Some(_) => frame_info::STREAM_ID_BYTES,
        None => 0,
    };
    let key_bytes = prefix_bytes + head.key.len();
    let body_bytes = framing_bytes + head.extras.len() + key_bytes + value_bytes;
    let magic = match head.stream.stream_id {
        Some(_) => Magic::AltClientRequest,
        None => Magic::ClientRequest,
    };
    let header = Header {
        magic,
        opcode: head.opcode as u8,
        framing_bytes: framing_bytes as u8,
        key_bytes: u16::try_from(key_bytes).expect("keys are checked when they come in"),
        extras_bytes: u8::try_from(head.extras.len()).expect("extras are small fixed structs"),
        datatype: head.datatype,
        vbucket_or_status: head.stream.vbid.0,
        body_bytes: u32::try_from(body_bytes).expect("values are bounded far below 4 GiB"),
        opaque: head.stream.opaque,
        cas: head.cas,
    };
    out.reserve(HEADER_BYTES + body_bytes - value_bytes);
    out.extend_from_slice(&header.encode());
    if let Some(stream_id) = head.stream.stream_id {
        frame_info::encode_stream_id(stream_id, out);
    }
    out.extend_from_slice(head.extras);
    out.extend_from_slice(&prefix[..prefix_bytes]);
    out.extend_from_slice(head.key);
    header.frame_bytes()
}

/// Appends a seqno that no message carries, and returns the bytes of the frame.
pub fn write_seqno_advanced(out: &mut Vec<u8>, stream: StreamHead, seqno: Seqno) -> usize {
    let extras = seqno.0.to_be_bytes();
    let head =
        MessageHead { extras: &extras, ..MessageHead::new(Opcode::DcpSeqnoAdvanced, stream) };
    write_head(out, &head, 0)
}

/// Appends a producer's question whether the consumer lives. The consumer answers with the same
/// opaque.
pub fn write_noop(out: &mut Vec<u8>, opaque: u32) {
    let stream = StreamHead { opaque, vbid: Vbid(0), stream_id: None };
    write_head(out, &MessageHead::new(Opcode::DcpNoop, stream), 0);
}

/// Decodes the extras of a buffer acknowledgement: bytes that the consumer took since the last.
pub fn decode_buffer_ack(extras: &[u8]) -> Option<u32> {
    extras.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
