//! The frame codec, without any I/O.
//!
//! A frame is a big-endian `u32` with the length of the rest, then the header message, then the
//! body, each with a varint length prefix. Nothing follows the body. A reply's body ends with its
//! sidecars, which begin at the offsets in the header, counted from the first byte of the body.
//!
//! Invariants: every length is checked against the available bytes and a limit before its use. The
//! codec sees only the length of a call's body, so its pieces go to the socket without a copy. The
//! parts of a reply share the block they were read into. The negotiation and the connection call
//! it. It does not know which call a frame belongs to.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::Method;
use super::limits::SIDECARS_MAX;
use crate::proto::rpc::{RequestIdPb, ResponseHeaderPb};

/// Bytes of the length that opens a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The call id of every frame of the negotiation.
pub(crate) const NEGOTIATION_CALL_ID: i32 = -33;
/// The call id of the frame that ends the negotiation.
pub(crate) const CONNECTION_CONTEXT_CALL_ID: i32 = -3;

/// The client's first bytes: magic, version 9, service class, authentication protocol.
pub(crate) const CONNECTION_HEADER: [u8; 7] = *b"hrpc\x09\x00\x00";

// Keys of the fields of `RequestHeaderPb` and `RemoteMethodPb`: number << 3 | wire type.
const KEY_CALL_ID: u8 = 3 << 3;
const KEY_REMOTE_METHOD: u8 = 6 << 3 | 2;
const KEY_SERVICE_NAME: u8 = 1 << 3 | 2;
const KEY_METHOD_NAME: u8 = 2 << 3 | 2;
const KEY_TIMEOUT_MILLIS: u8 = 10 << 3;
const KEY_FEATURE_FLAG: u8 = 11 << 3;
const KEY_REQUEST_ID: u8 = 15 << 3 | 2;

/// Why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {bytes} bytes is larger than the limit of {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("the frame ends inside its {0}")]
    Truncated(&'static str),
    #[error("{0} bytes follow the body of the frame")]
    TrailingBytes(usize),
    #[error("the frame has no call id")]
    NoCallId,
    #[error("no call {0} is in flight")]
    UnknownCall(i32),
    #[error("the {0} of the frame does not decode")]
    Undecodable(&'static str),
    #[error("{0} sidecars are more than a reply may have")]
    TooManySidecars(usize),
    #[error(
        "sidecar {index} begins at {offset}, outside of the body or before the sidecar before it"
    )]
    BadSidecarOffset { index: usize, offset: u32 },
}

/// The fields of a call's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader<'a> {
    pub call_id: i32,
    /// None in the frames of the negotiation.
    pub method: Option<&'a Method>,
    /// The time left until the deadline.
    pub timeout: Option<Duration>,
    pub required_feature_flags: &'a [u32],
    pub request_id: Option<&'a RequestIdPb>,
}

impl CallHeader<'_> {
    /// The header of a frame of the negotiation.
    pub(crate) fn of_negotiation(call_id: i32) -> Self {
        Self { call_id, method: None, timeout: None, required_feature_flags: &[], request_id: None }
    }

    /// Appends everything of the frame before the body. Returns the size of the whole frame.
    pub(crate) fn encode(
        &self,
        body_bytes: usize,
        bytes_max: usize,
        out: &mut BytesMut,
    ) -> Result<usize, FrameError> {
        let header_bytes = self.header_bytes();
        let rest_bytes = encoded_len_varint(header_bytes as u64)
            .saturating_add(header_bytes)
            .saturating_add(encoded_len_varint(body_bytes as u64))
            .saturating_add(body_bytes);
        let bytes = rest_bytes.saturating_add(LENGTH_BYTES);
        let length = match u32::try_from(rest_bytes) {
            Ok(length) if bytes <= bytes_max => length,
            _ => return Err(FrameError::TooLarge { bytes, bytes_max }),
        };
        out.reserve(bytes - body_bytes);
        out.put_u32(length);
        encode_varint(header_bytes as u64, out);
        self.put(out);
        encode_varint(body_bytes as u64, out);
        Ok(bytes)
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u8(KEY_CALL_ID);
        encode_varint(sign_extended(self.call_id), out);
        if let Some(method) = self.method {
            out.put_u8(KEY_REMOTE_METHOD);
            encode_varint(method_bytes(method) as u64, out);
            put_string(KEY_SERVICE_NAME, method.service, out);
            put_string(KEY_METHOD_NAME, method.name, out);
        }
        if let Some(timeout) = self.timeout {
            out.put_u8(KEY_TIMEOUT_MILLIS);
            encode_varint(timeout_millis(timeout), out);
        }
        for flag in self.required_feature_flags {
            out.put_u8(KEY_FEATURE_FLAG);
            encode_varint(u64::from(*flag), out);
        }
        if let Some(request_id) = self.request_id {
            out.put_u8(KEY_REQUEST_ID);
            request_id.encode_length_delimited(out).expect("a BytesMut grows as needed");
        }
    }

    fn header_bytes(&self) -> usize {
        let mut bytes = 1 + encoded_len_varint(sign_extended(self.call_id));
        if let Some(method) = self.method {
            bytes += 1 + delimited(method_bytes(method));
        }
        if let Some(timeout) = self.timeout {
            bytes += 1 + encoded_len_varint(timeout_millis(timeout));
        }
        for flag in self.required_feature_flags {
            bytes += 1 + encoded_len_varint(u64::from(*flag));
        }
        if let Some(request_id) = self.request_id {
            bytes += 1 + delimited(request_id.encoded_len());
        }
        bytes
    }
}

/// Reads the length prefix of a frame. Returns the size of the whole frame, including the prefix.
pub(crate) fn frame_bytes(
    length: [u8; LENGTH_BYTES],
    bytes_max: usize,
) -> Result<usize, FrameError> {
    let bytes = (u32::from_be_bytes(length) as usize).saturating_add(LENGTH_BYTES);
    if bytes > bytes_max { Err(FrameError::TooLarge { bytes, bytes_max }) } else { Ok(bytes) }
}

/// A reply whose header has been read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplyFrame {
    pub call_id: i32,
    pub is_error: bool,
    sidecar_offsets: Vec<u32>,
    body: Bytes,
}

impl ReplyFrame {
    /// Reads a whole frame, from its length prefix to its last byte.
    pub(crate) fn parse(mut frame: Bytes) -> Result<Self, FrameError> {
        if frame.len() < LENGTH_BYTES {
            return Err(FrameError::Truncated("length"));
        }
        frame.advance(LENGTH_BYTES);
        let header = take_delimited(&mut frame, "header")?;
        let body = take_delimited(&mut frame, "body")?;
        if !frame.is_empty() {
            return Err(FrameError::TrailingBytes(frame.len()));
        }
        let header =
            ResponseHeaderPb::decode(header).map_err(|_| FrameError::Undecodable("header"))?;
        Ok(Self {
            call_id: header.call_id.ok_or(FrameError::NoCallId)?,
            is_error: header.is_error.unwrap_or(false),
            sidecar_offsets: header.sidecar_offsets,
            body,
        })
    }

    /// The message of the body, still encoded, and the sidecars. All of them share the frame's
    /// block.
    pub(crate) fn into_parts(self) -> Result<(Bytes, Vec<Bytes>), FrameError> {
        let offsets = &self.sidecar_offsets;
        if offsets.len() > SIDECARS_MAX {
            return Err(FrameError::TooManySidecars(offsets.len()));
        }
        let Some(first) = offsets.first() else {
            return Ok((self.body, Vec::new()));
        };
        let mut previous = 0;
        for (index, offset) in offsets.iter().enumerate() {
            if *offset < previous || *offset as usize > self.body.len() {
                return Err(FrameError::BadSidecarOffset { index, offset: *offset });
            }
            previous = *offset;
        }
        let ends = offsets[1..].iter().map(|end| *end as usize).chain([self.body.len()]);
        let sidecars = offsets
            .iter()
            .zip(ends)
            .map(|(start, end)| self.body.slice(*start as usize..end))
            .collect();
        Ok((self.body.slice(..*first as usize), sidecars))
    }
}

/// Splits a varint, and as many bytes as it says, off the front.
fn take_delimited(frame: &mut Bytes, what: &'static str) -> Result<Bytes, FrameError> {
    let bytes =
        prost::decode_length_delimiter(&mut *frame).map_err(|_| FrameError::Truncated(what))?;
    if bytes > frame.len() {
        return Err(FrameError::Truncated(what));
    }
    Ok(frame.split_to(bytes))
}

/// Protobuf encodes a negative `int32` like an `int64`.
fn sign_extended(call_id: i32) -> u64 {
    i64::from(call_id) as u64
}

/// The timeout in the header. A server takes 0 for "no deadline" and evicts such calls first, so a
/// call near its deadline still says 1.
fn timeout_millis(timeout: Duration) -> u64 {
    timeout.as_millis().clamp(1, u128::from(u32::MAX)) as u64
}

fn method_bytes(method: &Method) -> usize {
    2 + delimited(method.service.len()) + delimited(method.name.len())
}

/// Size of a field with its length prefix.
fn delimited(bytes: usize) -> usize {
    encoded_len_varint(bytes as u64) + bytes
}

fn put_string(key: u8, text: &str, out: &mut BytesMut) {
    out.put_u8(key);
    encode_varint(text.len() as u64, out);
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
