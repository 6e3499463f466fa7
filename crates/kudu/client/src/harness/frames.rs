//! Replies of a server: frames from a stream in pieces, their parts, and the messages in them.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::input::Input;
use crate::proto::{master, rpc, tserver};
use crate::rpc::frame::{FrameError, ReplyFrame};
use crate::rpc::read_block::ReadBlock;

/// Small, so that a fuzzer's inputs reach it.
const FRAME_BYTES_MAX: usize = 100_000;

/// Checks that a stream reads the same however it is split, and that the parts of a frame are its
/// body. The first byte sets the size of the pieces.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    check_with(input, |room, piece| room.put_slice(piece));
}

/// [`check`] with the delivery step as an argument, so that a test can plant a bug there.
pub(super) fn check_with(input: &[u8], deliver: impl Fn(&mut BytesMut, &[u8])) {
    let mut input = Input::new(input);
    let piece_bytes = usize::from(input.u8()) + 1;
    let stream = input.rest();
    let whole = read(stream, stream.len().max(1), |room, piece| room.put_slice(piece));
    let pieces = read(stream, piece_bytes, deliver);
    assert_eq!(whole, pieces, "pieces of a stream are the same frames as the whole");
    for frame in whole.0 {
        check_frame(frame);
    }
}

/// The frames of a stream, and the error that ended it.
fn read(
    mut stream: &[u8],
    piece_bytes: usize,
    deliver: impl Fn(&mut BytesMut, &[u8]),
) -> (Vec<Bytes>, Option<FrameError>) {
    let mut block = ReadBlock::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    while !stream.is_empty() {
        match block.room() {
            Ok(room) => {
                let bytes = stream.len().min(piece_bytes).min(room.capacity() - room.len());
                assert!(bytes > 0, "there is always room");
                deliver(room, &stream[..bytes]);
                stream = &stream[bytes..];
            }
            Err(error) => return (frames, Some(error)),
        }
        loop {
            match block.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn check_frame(frame: Bytes) {
    let Ok(reply) = ReplyFrame::parse(frame.clone()) else { return };
    let Ok((message, sidecars)) = reply.into_parts() else { return };
    let parts_bytes = message.len() + sidecars.iter().map(Bytes::len).sum::<usize>();
    let parts =
        sidecars.iter().fold(message.to_vec(), |parts, sidecar| [&parts, &sidecar[..]].concat());
    assert!(frame.ends_with(&parts), "{parts_bytes} bytes of parts are the end of the frame");
    // Any reply may be decoded as any message.
    let _ = rpc::ErrorStatusPb::decode(message.clone());
    let _ = rpc::NegotiatePb::decode(message.clone());
    let _ = tserver::WriteResponsePb::decode(message.clone());
    let _ = tserver::ScanResponsePb::decode(message.clone());
    let _ = master::GetTableLocationsResponsePb::decode(message.clone());
    let _ = master::GetTableSchemaResponsePb::decode(message.clone());
    let _ = master::ConnectToMasterResponsePb::decode(message);
}
