//! The buffer against a plain vector, and its promises about moving, growing and giving back.

use proptest::prelude::*;

use super::*;

fn receive(buffer: &mut ReadBuffer, bytes: &[u8]) {
    let spare = buffer.spare(bytes.len());
    assert!(spare.len() >= bytes.len());
    spare[..bytes.len()].copy_from_slice(bytes);
    buffer.commit(bytes.len());
}

#[derive(Clone, Debug)]
enum Step {
    Receive(usize),
    Consume(prop::sample::Index),
    ConsumeAll,
    Reserve(usize),
    ReserveWhole(usize),
    Shrink,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..300).prop_map(Step::Receive),
        3 => any::<prop::sample::Index>().prop_map(Step::Consume),
        1 => Just(Step::ConsumeAll),
        2 => (1usize..2000).prop_map(Step::Reserve),
        1 => (1usize..200_000).prop_map(Step::ReserveWhole),
        1 => Just(Step::Shrink),
        1 => Just(Step::Release),
    ]
}

proptest! {
    /// Whatever the order of calls, the buffer holds what a vector would, and moves each byte at
    /// most once.
    #[test]
    fn behaves_like_a_vector(block in 0usize..600, steps in prop::collection::vec(step(), 0..200)) {
        let mut buffer = ReadBuffer::with_block(Vec::with_capacity(block));
        let mut model: Vec<u8> = Vec::new();
        let mut next = 0u8;
        for step in steps {
            match step {
                Step::Receive(count) => {
                    let bytes: Vec<u8> = (0..count).map(|at| next.wrapping_add(at as u8)).collect();
                    next = next.wrapping_add(count as u8);
                    receive(&mut buffer, &bytes);
                    model.extend_from_slice(&bytes);
                }
                Step::Consume(count) => {
                    let count = count.index(model.len() + 1);
                    buffer.consume(count);
                    model.drain(..count);
                }
                Step::ConsumeAll => {
                    buffer.consume(model.len());
                    model.clear();
                }
                Step::ReserveWhole(frame_bytes) => {
                    buffer.reserve_whole(frame_bytes);
                    prop_assert!(buffer.capacity() >= frame_bytes.min(model.len() + 1));
                    let regrown = buffer.regrown_bytes();
                    let missing = frame_bytes.saturating_sub(model.len());
                    prop_assert!(missing == 0 || buffer.spare(1).len() >= missing);
                    prop_assert_eq!(buffer.regrown_bytes(), regrown);
                }
                Step::Shrink => {
                    let before = buffer.capacity();
                    buffer.shrink();
                    prop_assert!(model.is_empty() || buffer.capacity() < (2 * model.len()).max(before));
                    prop_assert!(buffer.capacity() <= before);
                }
                Step::Reserve(frame_bytes) => {
                    buffer.reserve_frame(frame_bytes);
                    let room = buffer.spare(1).len();
                    prop_assert!(room >= frame_bytes.saturating_sub(model.len()));
                }
                Step::Release => prop_assert_eq!(buffer.release(), model.is_empty()),
            }
            prop_assert_eq!(buffer.unread(), &model[..]);
            prop_assert_eq!(buffer.is_empty(), model.is_empty());
            prop_assert!(buffer.moved_bytes() <= buffer.received_bytes());
        }
    }
}

/// A long stream of small frames in a small block: no growth, each byte moved at most once.
#[test]
fn a_long_stream_stays_in_one_block() {
    const FRAME_BYTES: usize = 300;
    let mut buffer = ReadBuffer::with_block(Vec::with_capacity(1000));
    let mut expected = 0u64;
    for _ in 0..100_000 {
        // Fill the block as a socket would, then consume the whole frames in it.
        let filled = buffer.spare(1).len();
        buffer.commit(filled);
        while buffer.unread().len() >= FRAME_BYTES {
            buffer.consume(FRAME_BYTES);
            expected += 1;
        }
    }
    assert_eq!(buffer.capacity(), 1000);
    assert_eq!(buffer.regrown_bytes(), 0);
    assert_eq!(buffer.received_bytes() / FRAME_BYTES as u64, expected);
    assert!(buffer.moved_bytes() > 0, "frames do cross the end of the block");
    assert!(buffer.moved_bytes() <= buffer.received_bytes());
}

/// A header that promises 20 MiB gets space only as the bytes arrive.
#[test]
fn a_promise_costs_nothing() {
    const FRAME_BYTES: usize = 20 * 1024 * 1024;
    let mut buffer = ReadBuffer::new();
    receive(&mut buffer, &[0; 24]);
    while buffer.unread().len() < FRAME_BYTES {
        buffer.reserve_frame(FRAME_BYTES);
        let unread = buffer.unread().len();
        assert!(buffer.capacity() - unread <= 2 * unread + READ_BLOCK_BYTES);
        let filled = buffer.spare(1).len().min(10_000);
        buffer.commit(filled);
    }
    assert!(buffer.capacity() <= FRAME_BYTES + 10_000, "it ends at the frame's size");
    assert_eq!(buffer.moved_bytes(), 0);
    assert!(buffer.regrown_bytes() < FRAME_BYTES as u64 * 3 / 2, "growth is geometric");
}

#[test]
fn blocks_come_from_and_go_back_to_a_pool() {
    let mut buffer = ReadBuffer::with_block(Vec::with_capacity(500));
    assert_eq!(buffer.capacity(), 500);
    receive(&mut buffer, b"abc");
    assert_eq!(buffer.take_block(), None, "a block in use stays");
    assert!(!buffer.release());
    buffer.consume(3);
    let block = buffer.take_block().expect("nothing is unread");
    assert_eq!((block.len(), buffer.capacity()), (500, 0));
    buffer.put_block(block);
    assert_eq!(buffer.capacity(), 500);
    buffer.put_block(Vec::with_capacity(900));
    assert_eq!(buffer.capacity(), 500, "a buffer keeps the block that it has");
    assert!(buffer.release());
    assert_eq!(buffer.capacity(), 0);
    receive(&mut buffer, b"again");
    assert_eq!(buffer.unread(), b"again");
}
