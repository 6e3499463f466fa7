//! Framing extras: a list of tagged options in front of a request's own extras.
//!
//! Each frame info starts with one byte, id in the high and length in the low four bits. A nibble
//! of 15 means that another byte follows, which holds the number minus 15; the id's byte comes
//! before the length's. The module decodes the frame infos that a server acts on and encodes those
//! that a client sends.
//!
//! Invariant: of several frame infos with one id the first counts, and the others must be
//! well-formed. Clients append the same one again at each retry.
//!
//! It does not decide which operation may carry which frame info.

use oribi_types::DurabilityLevel;

const ID_BARRIER: u16 = 0;
const ID_DURABILITY: u16 = 1;
const ID_STREAM_ID: u16 = 2;
const ID_PRESERVE_EXPIRY: u16 = 5;

/// Nibble value that announces one more byte.
const ESCAPE: u8 = 15;

/// A client's request in a durability frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durability {
    /// Level; never [`DurabilityLevel::None`].
    pub level: DurabilityLevel,
    /// How long the client is willing to wait, if it sent a timeout.
    pub timeout_ms: Option<u16>,
}

/// All frame infos of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestFrames {
    /// Barrier: everything received before completes before this, and this before everything after.
    pub barrier: bool,
    /// Durability, if the client requested any.
    pub durability: Option<Durability>,
    /// Keep the document's current expiry.
    pub preserve_expiry: bool,
    /// The request's DCP stream.
    pub stream_id: Option<u16>,
}

/// Why framing extras were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameInfoError {
    /// Truncated, or of the wrong length. Answered with `Einval`.
    Malformed,
    /// An id that this module does not act on. Answered with `UnknownFrameInfo`.
    Unknown(u16),
    /// A durability level that does not exist, or a reserved timeout. Answered with
    /// `DurabilityInvalidLevel`.
    InvalidDurability,
}

/// Decodes all frame infos of a request; an empty input is valid and sets nothing.
pub fn decode(framing: &[u8]) -> Result<RequestFrames, FrameInfoError> {
    let mut frames = RequestFrames::default();
    let mut rest = framing;
    while !rest.is_empty() {
        let (id, value, after) = split_first(rest).ok_or(FrameInfoError::Malformed)?;
        apply(&mut frames, id, value)?;
        rest = after;
    }
    Ok(frames)
}

/// Splits off one frame info: id, value, rest.
fn split_first(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (id, rest) = unescape(tag >> 4, rest)?;
    let (value_bytes, rest) = unescape(tag & 0x0f, rest)?;
    let (value, rest) = rest.split_at_checked(usize::from(value_bytes))?;
    Some((id, value, rest))
}

fn unescape(nibble: u8, rest: &[u8]) -> Option<(u16, &[u8])> {
    if nibble != ESCAPE {
        return Some((u16::from(nibble), rest));
    }
    let (&more, rest) = rest.split_first()?;
    Some((u16::from(ESCAPE) + u16::from(more), rest))
}

fn apply(frames: &mut RequestFrames, id: u16, value: &[u8]) -> Result<(), FrameInfoError> {
    match id {
        ID_BARRIER => set_flag(&mut frames.barrier, value)?,
        ID_DURABILITY => {
            frames.durability.get_or_insert(decode_durability(value)?);
        }
        ID_STREAM_ID => {
            let bytes = value.try_into().map_err(|_| FrameInfoError::Malformed)?;
            frames.stream_id.get_or_insert(u16::from_be_bytes(bytes));
        }
        ID_PRESERVE_EXPIRY => set_flag(&mut frames.preserve_expiry, value)?,
        _ => return Err(FrameInfoError::Unknown(id)),
    }
    Ok(())
}

fn set_flag(flag: &mut bool, value: &[u8]) -> Result<(), FrameInfoError> {
    if !value.is_empty() {
        return Err(FrameInfoError::Malformed);
    }
    *flag = true;
    Ok(())
}

fn decode_durability(value: &[u8]) -> Result<Durability, FrameInfoError> {
    let (&level, timeout) = value.split_first().ok_or(FrameInfoError::Malformed)?;
    let timeout_ms = match *timeout {
        [] => None,
        [high, low] => match u16::from_be_bytes([high, low]) {
            // Both ends of the range are reserved: "no timeout" and "never" are not offered.
            0 | u16::MAX => return Err(FrameInfoError::InvalidDurability),
            timeout_ms => Some(timeout_ms),
        },
        _ => return Err(FrameInfoError::Malformed),
    };
    let level = match level {
        1 => DurabilityLevel::Majority,
        2 => DurabilityLevel::MajorityAndPersistOnMaster,
        3 => DurabilityLevel::PersistToMajority,
        _ => return Err(FrameInfoError::InvalidDurability),
    };
    Ok(Durability { level, timeout_ms })
}

/// Appends a durability frame; nothing for [`DurabilityLevel::None`].
///
/// Timeouts that the wire reserves (0 and 65535 ms) are moved to the nearest allowed one.
pub fn encode_durability(level: DurabilityLevel, timeout_ms: Option<u16>, out: &mut Vec<u8>) {
    let level = match level {
        DurabilityLevel::None => return,
        DurabilityLevel::Majority => 1,
        DurabilityLevel::MajorityAndPersistOnMaster => 2,
        DurabilityLevel::PersistToMajority => 3,
    };
    match timeout_ms {
        None => out.extend_from_slice(&[tag(ID_DURABILITY, 1), level]),
        Some(timeout_ms) => {
            out.extend_from_slice(&[tag(ID_DURABILITY, 3), level]);
            out.extend_from_slice(&timeout_ms.clamp(1, u16::MAX - 1).to_be_bytes());
        }
    }
}

/// Appends the frame that keeps a document's expiry.
pub fn encode_preserve_expiry(out: &mut Vec<u8>) {
    out.push(tag(ID_PRESERVE_EXPIRY, 0));
}

/// Bytes of the frame info of a stream id.
pub const STREAM_ID_BYTES: usize = 3;

/// Appends the frame of a DCP stream's id.
pub fn encode_stream_id(stream_id: u16, out: &mut Vec<u8>) {
    let [high, low] = stream_id.to_be_bytes();
    out.extend_from_slice(&[tag(ID_STREAM_ID, 2), high, low]);
}

/// The tag byte of a frame info whose id and length both need no escape.
const fn tag(id: u16, value_bytes: u8) -> u8 {
    assert!(id < ESCAPE as u16 && value_bytes < ESCAPE);
    (id as u8) << 4 | value_bytes
}

#[cfg(test)]
mod tests;
