//! The read block with a socket that delivers pieces of any size.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

use super::*;

const FRAME_BYTES_MAX: usize = 1024 * 1024;

fn frame(body_bytes: usize, fill: u8) -> Vec<u8> {
    let mut frame = (body_bytes as u32).to_be_bytes().to_vec();
    frame.resize(LENGTH_BYTES + body_bytes, fill);
    frame
}

/// Delivers at most as many bytes as there is space for, like a socket.
fn fill(block: &mut ReadBlock, bytes: &mut &[u8], bytes_max: usize) {
    let room = block.room().expect("a valid length");
    let count = bytes.len().min(bytes_max).min(room.capacity() - room.len());
    assert!(count > 0, "there is always room");
    room.put_slice(&bytes[..count]);
    *bytes = &bytes[count..];
}

fn read_all(frames: &[Vec<u8>], pieces: &[usize]) -> Vec<Bytes> {
    let stream = frames.concat();
    let mut rest = stream.as_slice();
    let mut block = ReadBlock::new(FRAME_BYTES_MAX);
    let mut read = Vec::new();
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        fill(&mut block, &mut rest, *pieces.next().expect("endless"));
        while let Some(frame) = block.next_frame().expect("a valid length") {
            read.push(frame);
        }
    }
    assert!(block.is_empty());
    read
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in(
        sizes in proptest::collection::vec(
            prop_oneof![4 => 0..300usize, 1 => 60_000..70_000usize, 1 => 100_000..300_000usize],
            1..20,
        ),
        pieces in proptest::collection::vec(1..100_000usize, 1..5),
    ) {
        let frames: Vec<_> =
            sizes.iter().enumerate().map(|(index, size)| frame(*size, index as u8)).collect();
        // Pieces of a few bytes are slow for large frames and show nothing more.
        let pieces: Vec<_> = pieces.iter().map(|piece| piece + sizes.iter().sum::<usize>() / 500).collect();
        prop_assert_eq!(read_all(&frames, &pieces), frames);
    }
}

#[test]
fn only_a_large_frame_gets_a_separate_block() {
    let large = frame(500_000, 1);
    let mut block = ReadBlock::new(FRAME_BYTES_MAX);
    let mut rest = large.as_slice();
    fill(&mut block, &mut rest, LENGTH_BYTES);
    fill(&mut block, &mut rest, 1);
    let place = block.room().expect("valid").as_ptr();
    fill(&mut block, &mut rest, usize::MAX);
    assert!(rest.is_empty(), "one more read takes all of it");
    let whole = block.next_frame().expect("valid").expect("whole");
    assert_eq!(whole.as_ptr(), place, "the frame is where it was read to");
    assert!(block.room().expect("valid").capacity() <= 2 * READ_BLOCK_BYTES);
}

#[test]
fn a_block_is_used_again_when_its_frames_are_gone() {
    let small = frame(50_000, 1);
    let mut block = ReadBlock::new(FRAME_BYTES_MAX);
    fill(&mut block, &mut small.as_slice(), usize::MAX);
    let first = block.next_frame().expect("valid").expect("whole");
    let place = first.as_ptr();
    drop(first);
    assert_eq!(block.room().expect("valid").as_ptr(), place);
    fill(&mut block, &mut small.as_slice(), usize::MAX);
    let held = block.next_frame().expect("valid").expect("whole");
    assert_ne!(
        block.room().expect("valid").as_ptr(),
        place,
        "a frame that is held is not overwritten"
    );
    assert_eq!(held, small);
}

#[test]
fn an_oversized_length_reserves_no_memory() {
    let mut block = ReadBlock::new(FRAME_BYTES_MAX);
    let mut length = BytesMut::new();
    length.put_u32(u32::MAX);
    fill(&mut block, &mut &length[..], usize::MAX);
    assert!(matches!(block.next_frame(), Err(FrameError::TooLarge { .. })));
    assert!(matches!(block.room(), Err(FrameError::TooLarge { .. })));
}
