//! Messages of durable writes, on connections that negotiated them: prepares, commits, aborts, and
//! the acknowledgement that a replica sends back.
//!
//! A prepare has an item that reads do not see yet. Its commit or its abort names it by key and
//! seqno, and gets a separate seqno. Both are completions. [`decode`] accepts these messages and
//! all of [`super::message`]. A consumer that did not negotiate durable writes uses that module, so
//! it rejects them.

use oribi_types::{DurabilityLevel, RevSeqno, Seqno};

use crate::dcp::message::{self, DcpDocument, Message, MessageError};
use crate::dcp::{MessageHead, StreamHead, write_head};
use crate::frame::Frame;
use crate::magic::Magic;
use crate::opcode::Opcode;
use crate::request::{split_u32, split_u64};

/// Extras of a prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareExtras {
    /// Seqno of the prepare.
    pub by_seqno: Seqno,
    /// Revision that the document gets.
    pub rev_seqno: RevSeqno,
    /// The client's flags, unchanged.
    pub flags: u32,
    /// UNIX time in seconds, 0 for none.
    pub expiry: u32,
    /// Frequency of use, which a promoted copy continues with.
    pub frequency: u8,
    /// True for a durable deletion; its value has extended attributes only.
    pub deleted: bool,
    /// Level that the write waits for; never [`DurabilityLevel::None`].
    pub level: DurabilityLevel,
}

impl PrepareExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 31;

    /// Decodes exactly 31 bytes; it ignores the lock time. A level or a deletion mark that does not
    /// exist is malformed.
    pub fn decode(extras: &[u8]) -> Option<PrepareExtras> {
        let (by_seqno, rest) = split_u64(extras)?;
        let (rev_seqno, rest) = split_u64(rest)?;
        let (flags, rest) = split_u32(rest)?;
        let (expiry, rest) = split_u32(rest)?;
        let (_, rest) = split_u32(rest)?;
        let &[frequency, deleted, level] = rest else { return None };
        let level = match level {
            1 => DurabilityLevel::Majority,
            2 => DurabilityLevel::MajorityAndPersistOnMaster,
            3 => DurabilityLevel::PersistToMajority,
            _ => return None,
        };
        Some(PrepareExtras {
            by_seqno: Seqno(by_seqno),
            rev_seqno: RevSeqno(rev_seqno),
            flags,
            expiry,
            frequency,
            deleted: match deleted {
                0 => false,
                1 => true,
                _ => return None,
            },
            level,
        })
    }

    /// Encodes, with 0 as lock time.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.by_seqno.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rev_seqno.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.flags.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.expiry.to_be_bytes());
        bytes[28] = self.frequency;
        bytes[29] = u8::from(self.deleted);
        bytes[30] = match self.level {
            DurabilityLevel::None => 0,
            DurabilityLevel::Majority => 1,
            DurabilityLevel::MajorityAndPersistOnMaster => 2,
            DurabilityLevel::PersistToMajority => 3,
        };
        bytes
    }
}

/// Extras of a commit or of an abort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionExtras {
    /// Seqno of the prepare.
    pub prepared_seqno: Seqno,
    /// Seqno of the commit or of the abort.
    pub by_seqno: Seqno,
}

impl CompletionExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Decodes exactly 16 bytes.
    pub fn decode(extras: &[u8]) -> Option<CompletionExtras> {
        let (prepared_seqno, rest) = split_u64(extras)?;
        let (by_seqno, rest) = split_u64(rest)?;
        let seqnos =
            CompletionExtras { prepared_seqno: Seqno(prepared_seqno), by_seqno: Seqno(by_seqno) };
        rest.is_empty().then_some(seqnos)
    }

    /// The layout of a commit and of an abort.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.prepared_seqno.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.by_seqno.0.to_be_bytes());
        bytes
    }
}

/// A commit or an abort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion<'a> {
    /// Both seqnos.
    pub extras: CompletionExtras,
    /// Key field, as in [`DcpDocument::key`].
    pub key: &'a [u8],
}

/// A message on a connection with durable writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurableMessage<'a> {
    /// A message that connections without durable writes also accept.
    Plain(Message<'a>),
    /// A durable write that is not committed yet.
    Prepare(DcpDocument<'a, PrepareExtras>),
    /// A prepared write is visible from now on.
    Commit(Completion<'a>),
    /// A prepared write is void.
    Abort(Completion<'a>),
}

/// Decodes a message of a producer, and the stream that it belongs to.
///
/// # Errors
/// [`MessageError`]: the frame is another one, or damaged.
pub fn decode<'a>(frame: &Frame<'a>) -> Result<(StreamHead, DurableMessage<'a>), MessageError> {
    let is_request = matches!(frame.header.magic, Magic::ClientRequest | Magic::AltClientRequest);
    let message = match Opcode::from_u8(frame.header.opcode) {
        Some(Opcode::DcpPrepare) if is_request => {
            let extras = PrepareExtras::decode(frame.extras);
            message::document(frame, extras).map(DurableMessage::Prepare)
        }
        Some(Opcode::DcpCommit) if is_request => completion(frame).map(DurableMessage::Commit),
        Some(Opcode::DcpAbort) if is_request => completion(frame).map(DurableMessage::Abort),
        _ => {
            let (stream, message) = message::decode(frame)?;
            return Ok((stream, DurableMessage::Plain(message)));
        }
    };
    Ok((message::stream_of(frame)?, message.ok_or(MessageError::Malformed)?))
}

fn completion<'a>(frame: &Frame<'a>) -> Option<Completion<'a>> {
    let extras = CompletionExtras::decode(frame.extras)?;
    let is_whole = !frame.key.is_empty() && frame.value.is_empty();
    is_whole.then_some(Completion { extras, key: frame.key })
}

/// Appends a replica's acknowledgement: it holds all prepares up to `high_prepared_seqno` as their
/// levels demand. Returns the frame's bytes. The producer does not answer a success.
pub fn write_seqno_acknowledged(
    out: &mut Vec<u8>,
    stream: StreamHead,
    high_prepared_seqno: Seqno,
) -> usize {
    let extras = high_prepared_seqno.0.to_be_bytes();
    let head =
        MessageHead { extras: &extras, ..MessageHead::new(Opcode::DcpSeqnoAcknowledged, stream) };
    write_head(out, &head, 0)
}

/// Decodes the extras of an acknowledgement: the replica's high prepared seqno.
pub fn decode_seqno_acknowledged(extras: &[u8]) -> Option<Seqno> {
    extras.try_into().ok().map(|bytes| Seqno(u64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests;
