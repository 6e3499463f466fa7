//! One frame: the 24-byte header and the four parts of its body.
//!
//! Both header layouts are decoded into the same [`Header`]. Multi-byte fields are big-endian.
//!
//! | Offset | Bytes | Field |
//! |---|---|---|
//! | 0 | 1 | MAGIC |
//! | 1 | 1 | OPCODE |
//! | 2 | 2 | KEY_BYTES (plain) |
//! | 2 | 1 | FRAMING_BYTES (with framing extras) |
//! | 3 | 1 | ALT_KEY_BYTES (with framing extras) |
//! | 4 | 1 | EXTRAS_BYTES |
//! | 5 | 1 | DATATYPE |
//! | 6 | 2 | VBUCKET_OR_STATUS |
//! | 8 | 4 | BODY_BYTES |
//! | 12 | 4 | OPAQUE |
//! | 16 | 8 | CAS |
//!
//! The body order is framing extras, extras, key, value; the value is the rest after the other
//! three.
//!
//! Decoding and encoding are inlined into their callers. A header returned through memory is
//! written field by field and then copied in wider pieces, and that stalls the CPU for longer than
//! decoding takes.
//!
//! Invariants: decoding borrows and never allocates. Every length is checked before its use, so a
//! [`Frame`]'s parts always add up to the header's body length. This module applies no limit to the
//! body: the caller compares [`Header::frame_bytes`] with the limit of its connection.

use crate::limits::HEADER_BYTES;
use crate::magic::Magic;

/// Where each header field starts, as in the table above; a test compares the two.
mod offset {
    pub const MAGIC: usize = 0;
    pub const OPCODE: usize = 1;
    pub const KEY_BYTES: usize = 2;
    pub const FRAMING_BYTES: usize = 2;
    pub const ALT_KEY_BYTES: usize = 3;
    pub const EXTRAS_BYTES: usize = 4;
    pub const DATATYPE: usize = 5;
    pub const VBUCKET_OR_STATUS: usize = 6;
    pub const BODY_BYTES: usize = 8;
    pub const OPAQUE: usize = 12;
    pub const CAS: usize = 16;
}

/// A decoded header, of either layout and either direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the frame.
    pub magic: Magic,
    /// Operation; kept as a byte because the peer may send an unknown one.
    pub opcode: u8,
    /// Length of the framing extras; always 0 in the plain layout.
    pub framing_bytes: u8,
    /// Length of the key; at most 255 with framing extras.
    pub key_bytes: u16,
    /// Length of the extras.
    pub extras_bytes: u8,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Vbucket of a request, status of a response.
    pub vbucket_or_status: u16,
    /// Length of everything after the header.
    pub body_bytes: u32,
    /// Chosen by the requester and echoed by the responder.
    pub opaque: u32,
    /// Compare-and-swap value.
    pub cas: u64,
}

/// Why bytes are not a frame. No case is recoverable: the stream is out of step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The first byte is not a magic.
    UnknownMagic(u8),
    /// The body is shorter than framing extras, extras and key together.
    BodyTooShort(Header),
}

impl FrameError {
    /// The header, as far as it is decoded.
    pub const fn header(&self) -> Option<&Header> {
        match self {
            FrameError::UnknownMagic(_) => None,
            FrameError::BodyTooShort(header) => Some(header),
        }
    }
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::UnknownMagic(magic) => write!(f, "unknown magic 0x{magic:02x}"),
            FrameError::BodyTooShort(header) => write!(
                f,
                "body of {} bytes is shorter than its parts (framing {}, extras {}, key {})",
                header.body_bytes, header.framing_bytes, header.extras_bytes, header.key_bytes
            ),
        }
    }
}

impl std::error::Error for FrameError {}

/// Replaces the opaque of an encoded frame.
///
/// # Panics
/// When `frame` is shorter than a header.
pub fn set_opaque(frame: &mut [u8], opaque: u32) {
    frame[offset::OPAQUE..offset::CAS].copy_from_slice(&opaque.to_be_bytes());
}

impl Header {
    /// Decodes a header of either layout.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let magic_byte = bytes[offset::MAGIC];
        let magic = Magic::from_u8(magic_byte).ok_or(FrameError::UnknownMagic(magic_byte))?;
        let (framing_bytes, key_bytes) = if magic.is_alt() {
            (bytes[offset::FRAMING_BYTES], u16::from(bytes[offset::ALT_KEY_BYTES]))
        } else {
            (0, u16_at(bytes, offset::KEY_BYTES))
        };
        let header = Header {
            magic,
            opcode: bytes[offset::OPCODE],
            framing_bytes,
            key_bytes,
            extras_bytes: bytes[offset::EXTRAS_BYTES],
            datatype: bytes[offset::DATATYPE],
            vbucket_or_status: u16_at(bytes, offset::VBUCKET_OR_STATUS),
            body_bytes: u32_at(bytes, offset::BODY_BYTES),
            opaque: u32_at(bytes, offset::OPAQUE),
            cas: u64_at(bytes, offset::CAS),
        };
        if header.value_bytes().is_none() {
            return Err(FrameError::BodyTooShort(header));
        }
        Ok(header)
    }

    /// Encodes the header in the layout that its magic requires.
    ///
    /// # Panics
    /// When the lengths do not fit the layout: a key over 255 bytes next to framing extras, or
    /// framing extras in a plain header. Both are caller's mistakes, never a peer's.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let lengths = if self.magic.is_alt() {
            assert!(self.key_bytes <= u16::from(u8::MAX), "key does not fit an alt header");
            u16::from_be_bytes([self.framing_bytes, self.key_bytes as u8])
        } else {
            assert!(self.framing_bytes == 0, "framing extras need an alt header");
            self.key_bytes
        };
        // Three whole words: they stay in registers until the caller's buffer has them. The fields
        // one by one would go through memory, and a copy that loads several of them at once waits
        // until all are written.
        let kind = u16::from_be_bytes([self.magic as u8, self.opcode]);
        let types = u16::from_be_bytes([self.extras_bytes, self.datatype]);
        let start = u64::from(kind) << 48
            | u64::from(lengths) << 32
            | u64::from(types) << 16
            | u64::from(self.vbucket_or_status);
        let middle = u64::from(self.body_bytes) << 32 | u64::from(self.opaque);
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, offset::MAGIC, &start.to_be_bytes());
        put(&mut bytes, offset::BODY_BYTES, &middle.to_be_bytes());
        put(&mut bytes, offset::CAS, &self.cas.to_be_bytes());
        bytes
    }

    /// Bytes of the whole frame, header included.
    pub const fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }

    /// Bytes of the value, or `None` when the other parts alone exceed the body.
    #[inline]
    pub fn value_bytes(&self) -> Option<usize> {
        (self.body_bytes as usize).checked_sub(self.parts_before_value())
    }

    fn parts_before_value(&self) -> usize {
        usize::from(self.framing_bytes)
            + usize::from(self.extras_bytes)
            + usize::from(self.key_bytes)
    }
}

/// A whole frame, borrowed from the buffer it was read into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The decoded header.
    pub header: Header,
    /// Frame infos, see [`crate::frame_info`].
    pub framing: &'a [u8],
    /// Operation-specific fixed fields.
    pub extras: &'a [u8],
    /// Key, with collection prefix when collections were negotiated.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// The result of [`decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodedFrame<'a> {
    /// More bytes are needed.
    Incomplete {
        /// Total bytes from the frame's start: 24 while the header is incomplete, then the whole
        /// frame's length. The caller checks it against its limit before it makes space.
        needed: usize,
    },
    /// One frame.
    Complete {
        /// The frame.
        frame: Frame<'a>,
        /// Bytes it occupied.
        consumed: usize,
    },
}

/// Decodes the frame at the start of `bytes` and ignores the bytes after it.
///
/// It reports a wrong first byte at once, without waiting for a whole header.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<DecodedFrame<'_>, FrameError> {
    let Some((header_bytes, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return match bytes.first() {
            Some(&magic) if Magic::from_u8(magic).is_none() => Err(FrameError::UnknownMagic(magic)),
            _ => Ok(DecodedFrame::Incomplete { needed: HEADER_BYTES }),
        };
    };
    let header = Header::decode(header_bytes)?;
    let needed = header.frame_bytes();
    match Frame::from_body(header, rest) {
        Some(frame) => Ok(DecodedFrame::Complete { frame, consumed: needed }),
        None => Ok(DecodedFrame::Incomplete { needed }),
    }
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`; `None` when it is incomplete or invalid, which [`decode`]
    /// distinguishes.
    #[inline]
    pub fn whole(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        Frame::from_body(Header::decode(header).ok()?, rest)
    }

    /// Splits the bytes after a header into the parts of its body; `None` when they are fewer than
    /// the header announces. It ignores the bytes after the body.
    #[inline]
    pub fn from_body(header: Header, rest: &'a [u8]) -> Option<Frame<'a>> {
        let body = rest.get(..header.body_bytes as usize)?;
        let (framing, body) = body.split_at_checked(usize::from(header.framing_bytes))?;
        let (extras, body) = body.split_at_checked(usize::from(header.extras_bytes))?;
        let (key, value) = body.split_at_checked(usize::from(header.key_bytes))?;
        Some(Frame { header, framing, extras, key, value })
    }
}

fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

fn put(bytes: &mut [u8; HEADER_BYTES], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

#[cfg(test)]
mod tests;
