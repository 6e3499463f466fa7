//! Decoding, encoding into a buffer with room, and reading in a steady state allocate nothing.
//!
//! The allocator counts per thread, so that the test runner's own threads do not disturb a count.

use std::hint::black_box;

use oribi_protocol::frame::{self, DecodedFrame};
use oribi_protocol::frame_info;
use oribi_protocol::leb128;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::read_buffer::ReadBuffer;
use oribi_protocol::request::{RequestParts, SetExtras, encode_request};
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATOR.allocations_of_this_thread();
    work();
    ALLOCATOR.allocations_of_this_thread() - before
}

fn durable_set() -> Vec<u8> {
    let mut bytes = Vec::new();
    let extras = SetExtras { flags: 1, expiry: 2 }.encode();
    let parts = RequestParts {
        framing: b"\x13\x03\x03\xe8\x50",
        extras: &extras,
        key: b"\xd5\x0akey",
        value: &[7; 500],
        ..RequestParts::new(Opcode::Set)
    };
    encode_request(&mut bytes, &parts);
    bytes
}

#[test]
fn decoding_allocates_nothing() {
    let bytes = durable_set();
    let count = allocations(|| {
        let Ok(DecodedFrame::Complete { frame, .. }) = frame::decode(black_box(&bytes)) else {
            panic!("a whole frame decodes");
        };
        black_box(frame_info::decode(frame.framing)).expect("the frame infos are valid");
        black_box(leb128::split_collection_key(frame.key)).expect("the key is valid");
        black_box(SetExtras::decode(frame.extras)).expect("the extras are valid");
        black_box(frame::decode(&bytes[..100])).expect("a partial frame is no error");
        black_box(frame::decode(b"get k\r\n")).expect_err("text is no frame");
    });
    assert_eq!(count, 0);
}

#[test]
fn encoding_into_a_buffer_with_room_allocates_nothing() {
    let mut out = Vec::with_capacity(4096);
    let count = allocations(|| {
        let parts =
            RequestParts { key: b"key", value: &[1; 100], ..RequestParts::new(Opcode::Set) };
        encode_request(&mut out, &parts);
        let parts = ResponseParts { value: &[1; 100], ..ResponseParts::new(0, Status::Success, 7) };
        write_response(&mut out, &parts);
    });
    assert_eq!(count, 0);
}

#[test]
fn reading_in_a_steady_state_allocates_nothing() {
    let bytes = durable_set();
    let mut buffer = ReadBuffer::with_block(Vec::with_capacity(4096));
    let mut frames = 0;
    let count = allocations(|| {
        for chunk in std::iter::repeat_n(&bytes[..], 200).flat_map(|frame| frame.chunks(333)) {
            buffer.spare(chunk.len())[..chunk.len()].copy_from_slice(chunk);
            buffer.commit(chunk.len());
            while let Ok(DecodedFrame::Complete { consumed, .. }) = frame::decode(buffer.unread()) {
                buffer.consume(consumed);
                frames += 1;
            }
        }
    });
    assert_eq!((count, frames), (0, 200));
}

/// The counter must notice one allocation.
#[test]
fn canary_an_allocation_is_counted() {
    assert_eq!(allocations(|| drop(black_box(vec![1u8; 10]))), 1);
}
