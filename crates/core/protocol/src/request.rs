//! Requests: their encoding, and the fixed extras of some operations.
//!
//! Extras are decoded into plain structs; a wrong length gives `None`, which a server answers with
//! `Einval`. Encoders append to a buffer that the caller reuses.

use oribi_types::Vbid;

use crate::frame::Header;
use crate::magic::Magic;
use crate::opcode::Opcode;

/// Expiry of a counter request that must not create the document.
pub const COUNTER_DO_NOT_CREATE: u32 = u32::MAX;

/// Extras of SET, ADD and REPLACE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetExtras {
    /// Opaque to the server, returned by reads.
    pub flags: u32,
    /// Expiry as on the wire, see [`crate::limits::RELATIVE_EXPIRY_S_MAX`].
    pub expiry: u32,
}

impl SetExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// Decodes exactly eight bytes.
    pub fn decode(extras: &[u8]) -> Option<SetExtras> {
        let (flags, rest) = split_u32(extras)?;
        let (expiry, rest) = split_u32(rest)?;
        rest.is_empty().then_some(SetExtras { flags, expiry })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.flags.to_be_bytes());
        bytes[4..].copy_from_slice(&self.expiry.to_be_bytes());
        bytes
    }
}

/// Extras of INCREMENT and DECREMENT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterExtras {
    /// The amount to add or subtract.
    pub delta: u64,
    /// Value of a document that is created.
    pub initial: u64,
    /// Expiry of a document that is created, or [`COUNTER_DO_NOT_CREATE`].
    pub expiry: u32,
}

impl CounterExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 20;

    /// Decodes exactly twenty bytes.
    pub fn decode(extras: &[u8]) -> Option<CounterExtras> {
        let (delta, rest) = split_u64(extras)?;
        let (initial, rest) = split_u64(rest)?;
        let (expiry, rest) = split_u32(rest)?;
        rest.is_empty().then_some(CounterExtras { delta, initial, expiry })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.delta.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.initial.to_be_bytes());
        bytes[16..].copy_from_slice(&self.expiry.to_be_bytes());
        bytes
    }
}

/// Extras of TOUCH, GAT and GATQ: the new expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiryExtras {
    /// Expiry as on the wire.
    pub expiry: u32,
}

impl ExpiryExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 4;

    /// Decodes exactly four bytes.
    pub fn decode(extras: &[u8]) -> Option<ExpiryExtras> {
        let (expiry, rest) = split_u32(extras)?;
        rest.is_empty().then_some(ExpiryExtras { expiry })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        self.expiry.to_be_bytes()
    }
}

/// Version of a cluster map: extras of GET_CLUSTER_CONFIG (the client's version) and of the
/// notification of a new one. Compared as (epoch, revision).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ConfigVersion {
    /// Epoch: rises when a cluster's history was overridden.
    pub epoch: i64,
    /// Revision within the epoch.
    pub revision: i64,
}

impl ConfigVersion {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Decodes exactly sixteen bytes.
    pub fn decode(extras: &[u8]) -> Option<ConfigVersion> {
        let (epoch, rest) = split_u64(extras)?;
        let (revision, rest) = split_u64(rest)?;
        rest.is_empty().then_some(ConfigVersion { epoch: epoch as i64, revision: revision as i64 })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.revision.to_be_bytes());
        bytes
    }
}

/// All parts of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestParts<'a> {
    /// Operation.
    pub opcode: Opcode,
    /// Vbucket of the key; 0 for operations without one.
    pub vbid: Vbid,
    /// Echoed by the server.
    pub opaque: u32,
    /// Compare-and-swap value, 0 for none.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Frame infos, at most 255 bytes; their presence selects the header layout.
    pub framing: &'a [u8],
    /// Extras, at most 255 bytes.
    pub extras: &'a [u8],
    /// Key field.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl RequestParts<'_> {
    /// A request with only its opcode; struct update sets the other fields.
    pub const fn new(opcode: Opcode) -> RequestParts<'static> {
        RequestParts {
            opcode,
            vbid: Vbid(0),
            opaque: 0,
            cas: 0,
            datatype: 0,
            framing: &[],
            extras: &[],
            key: &[],
            value: &[],
        }
    }
}

/// Appends a whole request.
///
/// # Panics
/// When a part exceeds its length field; callers check keys and values first.
#[inline]
pub fn encode_request(out: &mut Vec<u8>, parts: &RequestParts<'_>) {
    encode_request_head(out, parts, parts.value.len());
    out.extend_from_slice(parts.value);
}

/// Appends a request without its value, for a value of `value_bytes` that is sent separately; it
/// ignores `parts.value`.
///
/// # Panics
/// As [`encode_request`].
#[inline]
pub fn encode_request_head(out: &mut Vec<u8>, parts: &RequestParts<'_>, value_bytes: usize) {
    let body_bytes = parts.framing.len() + parts.extras.len() + parts.key.len() + value_bytes;
    let has_framing = !parts.framing.is_empty();
    let header = Header {
        magic: if has_framing { Magic::AltClientRequest } else { Magic::ClientRequest },
        opcode: parts.opcode as u8,
        framing_bytes: u8::try_from(parts.framing.len()).expect("callers send few frame infos"),
        key_bytes: u16::try_from(parts.key.len()).expect("callers check the key's length"),
        extras_bytes: u8::try_from(parts.extras.len()).expect("extras are small fixed structs"),
        datatype: parts.datatype,
        vbucket_or_status: parts.vbid.0,
        body_bytes: u32::try_from(body_bytes).expect("callers check the value's length"),
        opaque: parts.opaque,
        cas: parts.cas,
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(parts.framing);
    out.extend_from_slice(parts.extras);
    out.extend_from_slice(parts.key);
}

pub(crate) fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*first), rest))
}

pub(crate) fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*first), rest))
}

#[cfg(test)]
mod tests;
