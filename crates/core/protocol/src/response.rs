//! Responses: their encoding, and their extras.
//!
//! Encoders append to the caller's buffer. A value may be omitted and sent separately, so that
//! large values go out without a copy. The only frame info in a response here is the server's
//! duration.

use oribi_types::{CollectionId, ManifestUid, Seqno, VbUuid};

use crate::frame::Header;
use crate::limits::HEADER_BYTES;
use crate::magic::Magic;
use crate::request::ConfigVersion;
use crate::status::Status;

/// Opcode of the server's request that announces a new cluster map (magic 0x82).
pub const SERVER_CLUSTERMAP_CHANGE: u8 = 0x01;

/// All parts of one response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseParts<'a> {
    /// Opcode of the request, even an unknown one.
    pub opcode: u8,
    /// Outcome.
    pub status: Status,
    /// Opaque of the request.
    pub opaque: u32,
    /// Compare-and-swap value, 0 for none.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// The server's processing time, for a client that negotiated it. The key then has at most 255
    /// bytes.
    pub duration: Option<ServerDuration>,
    /// Extras, at most 255 bytes.
    pub extras: &'a [u8],
    /// Key field.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl ResponseParts<'_> {
    /// An empty response; struct update sets the other fields.
    pub const fn new(opcode: u8, status: Status, opaque: u32) -> ResponseParts<'static> {
        ResponseParts {
            opcode,
            status,
            opaque,
            cas: 0,
            datatype: 0,
            duration: None,
            extras: &[],
            key: &[],
            value: &[],
        }
    }
}

/// The header of a response whose value has `value_bytes`; it ignores `parts.value`.
///
/// # Panics
/// When a part exceeds its length field; the server never builds such a response.
#[inline]
pub fn encode_response_header(parts: &ResponseParts<'_>, value_bytes: usize) -> [u8; HEADER_BYTES] {
    let magic = match parts.duration {
        None => Magic::ClientResponse,
        Some(_) => Magic::AltClientResponse,
    };
    header(magic, parts.status as u16, parts, value_bytes).encode()
}

/// Appends a whole response.
///
/// # Panics
/// As [`encode_response_header`].
#[inline]
pub fn write_response(out: &mut Vec<u8>, parts: &ResponseParts<'_>) {
    write_response_head(out, parts, parts.value.len());
    out.extend_from_slice(parts.value);
}

/// Appends header, extras and key of a response whose value of `value_bytes` is sent separately; it
/// ignores `parts.value`.
///
/// # Panics
/// As [`encode_response_header`].
pub fn write_response_head(out: &mut Vec<u8>, parts: &ResponseParts<'_>, value_bytes: usize) {
    let header = encode_response_header(parts, value_bytes);
    if let Some(duration) = parts.duration {
        out.extend_from_slice(&header);
        out.extend_from_slice(&duration.encode());
    } else if let ([a, b, c, d], []) = (parts.extras, parts.key) {
        // The response to a GET hit is appended as one piece: appending three costs two more checks
        // for room.
        let mut head = [0; HEADER_BYTES + 4];
        head[..HEADER_BYTES].copy_from_slice(&header);
        head[HEADER_BYTES..].copy_from_slice(&[*a, *b, *c, *d]);
        return out.extend_from_slice(&head);
    } else {
        out.extend_from_slice(&header);
    }
    out.extend_from_slice(parts.extras);
    out.extend_from_slice(parts.key);
}

/// Appends the server's request that announces a cluster map. `bucket` is empty for the global one,
/// `config` is empty in the brief form.
///
/// # Panics
/// When `bucket` or `config` is longer than its length field can say.
pub fn write_clustermap_notification(
    out: &mut Vec<u8>,
    bucket: &[u8],
    version: ConfigVersion,
    config: &[u8],
    datatype: u8,
) {
    write_clustermap_head(out, bucket, version, config.len(), datatype);
    out.extend_from_slice(config);
}

/// The same but for the map of `config_bytes`, which is sent separately.
///
/// # Panics
/// As [`write_clustermap_notification`].
pub fn write_clustermap_head(
    out: &mut Vec<u8>,
    bucket: &[u8],
    version: ConfigVersion,
    config_bytes: usize,
    datatype: u8,
) {
    let extras = version.encode();
    let parts = ResponseParts {
        datatype,
        extras: &extras,
        key: bucket,
        ..ResponseParts::new(SERVER_CLUSTERMAP_CHANGE, Status::Success, 0)
    };
    out.extend_from_slice(&header(Magic::ServerRequest, 0, &parts, config_bytes).encode());
    out.extend_from_slice(&extras);
    out.extend_from_slice(bucket);
}

fn header(magic: Magic, status: u16, parts: &ResponseParts<'_>, value_bytes: usize) -> Header {
    let framing_bytes = if parts.duration.is_some() { ServerDuration::FRAME_BYTES } else { 0 };
    let body_bytes = framing_bytes + parts.extras.len() + parts.key.len() + value_bytes;
    Header {
        magic,
        opcode: parts.opcode,
        framing_bytes: framing_bytes as u8,
        key_bytes: u16::try_from(parts.key.len()).expect("keys are checked when they come in"),
        extras_bytes: u8::try_from(parts.extras.len()).expect("extras are small fixed structs"),
        datatype: parts.datatype,
        vbucket_or_status: status,
        body_bytes: u32::try_from(body_bytes).expect("values are bounded far below 4 GiB"),
        opaque: parts.opaque,
        cas: parts.cas,
    }
}

/// A server's processing time as frame info 0 of a response: a number `e` that stands for `e^1.74 /
/// 2` microseconds. So 16 bits hold two minutes with a precision of about 0.1 %.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerDuration(pub u16);

impl ServerDuration {
    /// Bytes of the frame info.
    pub const FRAME_BYTES: usize = 3;

    const EXPONENT: f64 = 1.74;

    /// The nearest encodable duration; it caps durations beyond two minutes.
    pub fn of_ns(ns: u64) -> ServerDuration {
        let encoded = (ns as f64 / 1_000.0 * 2.0).powf(1.0 / Self::EXPONENT).round();
        ServerDuration(encoded.min(f64::from(u16::MAX)) as u16)
    }

    /// Microseconds.
    pub fn micros(self) -> f64 {
        f64::from(self.0).powf(Self::EXPONENT) / 2.0
    }

    /// The frame info: id 0 and length 2 in one byte, then the number.
    pub fn encode(self) -> [u8; Self::FRAME_BYTES] {
        let [high, low] = self.0.to_be_bytes();
        [0x02, high, low]
    }

    /// The duration among the framing extras of a response, if it is the first of them.
    pub fn decode(framing: &[u8]) -> Option<ServerDuration> {
        match framing {
            [0x02, high, low, ..] => Some(ServerDuration(u16::from_be_bytes([*high, *low]))),
            _ => None,
        }
    }
}

/// Extras of a successful mutation when `MutationSeqno` was negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MutationTokenExtras {
    /// History (failover table entry) of the seqno.
    pub vb_uuid: VbUuid,
    /// Seqno of the mutation.
    pub seqno: Seqno,
}

impl MutationTokenExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Decodes exactly sixteen bytes.
    pub fn decode(extras: &[u8]) -> Option<MutationTokenExtras> {
        let (vb_uuid, rest) = extras.split_first_chunk()?;
        let seqno = rest.try_into().ok()?;
        Some(MutationTokenExtras {
            vb_uuid: VbUuid(u64::from_be_bytes(*vb_uuid)),
            seqno: Seqno(u64::from_be_bytes(seqno)),
        })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.vb_uuid.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seqno.0.to_be_bytes());
        bytes
    }
}

/// Extras of the answer to a collection (or scope) id lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectionIdExtras {
    /// Manifest that answered the lookup.
    pub manifest_uid: ManifestUid,
    /// Id of the collection; for a scope lookup, the number of the scope.
    pub collection: CollectionId,
}

impl CollectionIdExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 12;

    /// Decodes exactly twelve bytes.
    pub fn decode(extras: &[u8]) -> Option<CollectionIdExtras> {
        let (uid, rest) = extras.split_first_chunk()?;
        let id = rest.try_into().ok()?;
        Some(CollectionIdExtras {
            manifest_uid: ManifestUid(u64::from_be_bytes(*uid)),
            collection: CollectionId(u32::from_be_bytes(id)),
        })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.manifest_uid.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.collection.0.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
