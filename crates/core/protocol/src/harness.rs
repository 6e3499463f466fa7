//! One check of the codec against itself, shared by unit tests, property tests and the fuzz target.
//!
//! [`check`] takes arbitrary bytes and panics when an invariant of this crate does not hold. The
//! first two bytes choose the size of the read buffer's first block and the sizes of the chunks;
//! the rest is what a peer sends. Compiled for tests and under the `harness` feature only.

mod text;

use oribi_types::Vbid;

use crate::dcp::durability::{CompletionExtras, PrepareExtras, decode_seqno_acknowledged};
use crate::dcp::marker::SnapshotMarker;
use crate::dcp::open::OpenExtras;
use crate::dcp::stream_request::StreamRequestExtras;
use crate::dcp::vb_seqnos::VbSeqnosExtras;
use crate::dcp::{StreamHead, decode_buffer_ack};
use crate::frame::{self, DecodedFrame, Frame, FrameError, Header};
use crate::frame_info;
use crate::leb128;
use crate::limits::{FRAME_BYTES_MAX, HEADER_BYTES, READ_BLOCK_BYTES};
use crate::read_buffer::ReadBuffer;
use crate::request::{ConfigVersion, CounterExtras, ExpiryExtras, SetExtras};
use crate::response::{CollectionIdExtras, MutationTokenExtras};

pub use text::check_text;
#[cfg(test)]
pub(crate) use text::read as read_text;

/// How a stream of frames ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Clean,
    Partial,
    TooLarge,
    Broken(FrameError),
}

/// Content of a stream: each frame's header and a hash of its parts, and the end.
#[derive(PartialEq, Eq, Debug)]
struct ReadStep {
    frames: Vec<(Header, u32)>,
    end: End,
}

/// Checks every decoder on `input`.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    check_with(input, |spare, chunk| spare.copy_from_slice(chunk));
}

/// [`check`] with the delivery step as an argument, so that a test can plant a bug there.
fn check_with(input: &[u8], deliver: impl Fn(&mut [u8], &[u8])) {
    let (&[block_seed, chunk_seed], stream) = match input.split_first_chunk() {
        Some((seeds, stream)) => (seeds, stream),
        None => (&[0, 0], input),
    };
    let whole = read_whole(stream);
    let chunked = read_chunked(stream, block_seed, chunk_seed, deliver);
    assert_eq!(whole, chunked, "chunks of a stream decode to the same frames as the whole");
    check_parts(stream);
}

/// Decodes straight from the slice.
fn read_whole(stream: &[u8]) -> ReadStep {
    let mut rest = stream;
    let mut frames = Vec::new();
    loop {
        match step(rest) {
            Ok((consumed, header, hash)) => {
                frames.push((header, hash));
                rest = &rest[consumed..];
            }
            Err(end) => return ReadStep { frames, end },
        }
    }
}

/// Decodes like a connection: chunks into a read buffer, frames out of it.
fn read_chunked(
    stream: &[u8],
    block_seed: u8,
    chunk_seed: u8,
    deliver: impl Fn(&mut [u8], &[u8]),
) -> ReadStep {
    let mut buffer = match block_seed {
        0 => ReadBuffer::new(),
        seed => ReadBuffer::with_block(Vec::with_capacity(usize::from(seed))),
    };
    let mut rest = stream;
    let mut frames = Vec::new();
    let mut chunk_state = u32::from(chunk_seed);
    loop {
        let end = loop {
            match step(buffer.unread()) {
                Ok((consumed, header, hash)) => {
                    frames.push((header, hash));
                    buffer.consume(consumed);
                }
                Err(end) => break end,
            }
        };
        let is_final = !matches!(end, End::Clean | End::Partial);
        if is_final || rest.is_empty() {
            return ReadStep { frames, end };
        }
        if let Ok(DecodedFrame::Incomplete { needed }) = frame::decode(buffer.unread()) {
            buffer.reserve_frame(needed);
        }
        // Any generator will do, as long as the same input gives the same chunks.
        chunk_state = chunk_state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let wanted = 1 + (chunk_state >> 24) as usize;
        let spare = buffer.spare(1);
        let taken = wanted.min(rest.len()).min(spare.len());
        deliver(&mut spare[..taken], &rest[..taken]);
        buffer.commit(taken);
        rest = &rest[taken..];
        check_buffer(&buffer);
    }
}

fn check_buffer(buffer: &ReadBuffer) {
    assert!(buffer.moved_bytes() <= buffer.received_bytes(), "a byte moves at most once");
    let unread_bytes = buffer.unread().len();
    assert!(
        buffer.capacity() <= 3 * unread_bytes.max(READ_BLOCK_BYTES) + READ_BLOCK_BYTES,
        "the block reaches only as far ahead as bytes have come"
    );
}

/// One frame from the front, or why there is none.
fn step(bytes: &[u8]) -> Result<(usize, Header, u32), End> {
    match frame::decode(bytes) {
        Ok(DecodedFrame::Complete { frame, consumed }) => {
            assert_eq!(consumed, frame.header.frame_bytes());
            check_frame(&frame, &bytes[..consumed]);
            Ok((consumed, frame.header, hash_parts(&frame)))
        }
        Ok(DecodedFrame::Incomplete { needed }) => {
            assert!(needed > bytes.len(), "an incomplete frame needs more than there is");
            Err(match needed {
                _ if bytes.is_empty() => End::Clean,
                needed if needed > FRAME_BYTES_MAX => End::TooLarge,
                _ => End::Partial,
            })
        }
        Err(error) => Err(End::Broken(error)),
    }
}

fn check_frame(frame: &Frame<'_>, bytes: &[u8]) {
    let parts = [frame.framing, frame.extras, frame.key, frame.value].concat();
    assert_eq!(parts, bytes[HEADER_BYTES..], "the parts are the body");
    assert_eq!(frame.header.encode(), bytes[..HEADER_BYTES], "a header encodes to what it was");
    check_parts(frame.framing);
    check_parts(frame.extras);
    check_parts(frame.key);
}

fn hash_parts(frame: &Frame<'_>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [frame.framing, frame.extras, frame.key, frame.value] {
        hasher.update(&(part.len() as u32).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

/// All decoders of a part of a frame, on any bytes.
fn check_parts(bytes: &[u8]) {
    check_frame_infos(bytes);
    check_prefix(bytes);
    assert!(SetExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    assert!(CounterExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    assert!(ExpiryExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    assert!(ConfigVersion::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    assert!(MutationTokenExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    assert!(CollectionIdExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    check_dcp_requests(bytes);
    check_durable_writes(bytes);
}

/// The decoders of a DCP consumer's requests. Two of them ignore four bytes.
fn check_dcp_requests(bytes: &[u8]) {
    if let Some(extras) = OpenExtras::decode(bytes) {
        assert_eq!(extras.encode()[4..], bytes[4..]);
    }
    if let Some(extras) = StreamRequestExtras::decode(bytes) {
        let encoded = extras.encode();
        assert_eq!((&encoded[..4], &encoded[8..]), (&bytes[..4], &bytes[8..]));
    }
    if let Some(extras) = VbSeqnosExtras::decode(bytes) {
        let mut encoded = Vec::new();
        extras.write(&mut encoded);
        assert_eq!(encoded, bytes);
    }
    assert!(decode_buffer_ack(bytes).is_none_or(|count| count.to_be_bytes() == bytes));
}

/// The decoders of durable writes. A prepare's lock time is ignored.
fn check_durable_writes(bytes: &[u8]) {
    if let Some(extras) = PrepareExtras::decode(bytes) {
        let encoded = extras.encode();
        assert_eq!((&encoded[..24], &encoded[28..]), (&bytes[..24], &bytes[28..]));
    }
    assert!(CompletionExtras::decode(bytes).is_none_or(|extras| extras.encode() == bytes));
    let acknowledged = decode_seqno_acknowledged(bytes);
    assert!(acknowledged.is_none_or(|seqno| seqno.0.to_be_bytes() == bytes));
    let stream = StreamHead { opaque: 0, vbid: Vbid(0), stream_id: None };
    for (extras, value) in [(bytes, &b""[..]), (b"\x00", bytes), (b"\x02", bytes)] {
        if let Some(marker) = SnapshotMarker::decode(extras, value) {
            let mut encoded = Vec::new();
            marker.write(&mut encoded, stream);
            assert_eq!(encoded[HEADER_BYTES..], [extras, value].concat());
        }
    }
}

fn check_frame_infos(bytes: &[u8]) {
    let Ok(frames) = frame_info::decode(bytes) else { return };
    let mut encoded = Vec::new();
    if let Some(durability) = frames.durability {
        frame_info::encode_durability(durability.level, durability.timeout_ms, &mut encoded);
    }
    if frames.preserve_expiry {
        frame_info::encode_preserve_expiry(&mut encoded);
    }
    let again = frame_info::decode(&encoded).expect("what was encoded here decodes");
    assert_eq!(again.durability, frames.durability);
    assert_eq!(again.preserve_expiry, frames.preserve_expiry);
}

fn check_prefix(bytes: &[u8]) {
    let decoded = leb128::decode_u32(bytes);
    if let Some((id, rest)) = decoded {
        let (prefix, prefix_bytes) = leb128::encode_u32(id);
        let consumed = bytes.len() - rest.len();
        assert_eq!(bytes[..consumed], prefix[..prefix_bytes], "only the shortest form is taken");
    }
    if let Ok(key) = leb128::split_collection_key(bytes) {
        assert_eq!(decoded, Some((key.collection.0, key.key)));
        assert!(!key.key.is_empty());
    }
}

#[cfg(test)]
mod tests;
