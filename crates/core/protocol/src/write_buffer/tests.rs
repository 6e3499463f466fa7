//! The buffer against the obvious model: one flat byte string.

use std::io::IoSlice;

use proptest::prelude::*;

use super::{BrokenValue, PinnedBytes, SLICES_MAX, WriteBuffer};

#[derive(Debug, Clone)]
enum Step {
    Copy(Vec<u8>),
    Pin(Vec<u8>),
    /// Another buffer, with bytes on both sides of a pinned value.
    Append(Vec<u8>),
    Send {
        slices: usize,
        percent: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = || proptest::collection::vec(b'a'..=b'z', 0..40);
    let step = prop_oneof![
        text().prop_map(Step::Copy),
        text().prop_map(Step::Pin),
        text().prop_map(Step::Append),
        (1usize..6, 0usize..=100).prop_map(|(slices, percent)| Step::Send { slices, percent }),
    ];
    proptest::collection::vec(step, 0..60)
}

/// Sends `percent` of what one gather offers; returns the bytes that left.
fn send(buffer: &mut WriteBuffer<Vec<u8>>, slices_max: usize, percent: usize) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let filled = buffer.gather(&mut slices[..slices_max]);
    let offered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
    let taken = offered.len() * percent / 100;
    buffer.advance(taken);
    offered[..taken].to_vec()
}

proptest! {
    #[test]
    fn partial_writes_resume_exactly(steps in steps()) {
        let mut buffer = WriteBuffer::new();
        let mut expected = Vec::new();
        let mut sent = Vec::new();
        for step in steps {
            match step {
                Step::Copy(bytes) => {
                    expected.extend_from_slice(&bytes);
                    buffer.tail().extend_from_slice(&bytes);
                }
                Step::Pin(bytes) => {
                    expected.extend_from_slice(&bytes);
                    buffer.pin(bytes);
                }
                Step::Append(bytes) => {
                    let mut other = WriteBuffer::new();
                    other.tail().extend_from_slice(&bytes);
                    other.pin(bytes.clone());
                    other.tail().extend_from_slice(&bytes);
                    expected.extend(bytes.repeat(3));
                    buffer.append(other);
                }
                Step::Send { slices, percent } => sent.extend(send(&mut buffer, slices, percent)),
            }
            prop_assert_eq!(buffer.pending_bytes(), expected.len() - sent.len());
        }
        while !buffer.is_empty() {
            sent.extend(send(&mut buffer, SLICES_MAX, 100));
        }
        prop_assert_eq!(sent, expected);
    }
}

/// A value of which a few bytes at a time are made.
struct PartialValue {
    whole: Vec<u8>,
    ready: std::ops::Range<usize>,
    breaks_at: usize,
}

impl PinnedBytes for PartialValue {
    fn total_bytes(&self) -> usize {
        self.whole.len()
    }

    fn ready(&self, sent: usize) -> &[u8] {
        if self.ready.contains(&sent) { &self.whole[sent..self.ready.end] } else { &[] }
    }

    fn make_ready(&mut self, sent: usize) -> Result<(), BrokenValue> {
        if sent >= self.breaks_at {
            return Err(BrokenValue);
        }
        if !self.ready.contains(&sent) {
            self.ready = sent..(sent + 3).min(self.whole.len());
        }
        Ok(())
    }
}

fn made(bytes: &[u8]) -> PartialValue {
    PartialValue { whole: bytes.to_vec(), ready: 0..0, breaks_at: usize::MAX }
}

#[test]
fn values_are_made_as_they_are_sent_and_in_order() {
    let mut buffer = WriteBuffer::<PartialValue>::new();
    buffer.tail().extend_from_slice(b"<");
    buffer.pin(made(b"abcdefgh"));
    buffer.tail().extend_from_slice(b"|");
    buffer.pin(made(b"12345"));
    buffer.pin(made(b"6"));
    buffer.tail().extend_from_slice(b">");
    assert_eq!(buffer.pending_bytes(), 17);
    for taken in [1, 2, 100] {
        let mut sent = Vec::new();
        let mut copy = WriteBuffer::<PartialValue>::new();
        std::mem::swap(&mut copy, &mut buffer);
        while !copy.is_empty() {
            copy.make_ready().unwrap();
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = copy.gather(&mut slices);
            let offered: Vec<u8> = slices[..filled].iter().flat_map(|one| one.to_vec()).collect();
            assert!((1..=6).contains(&offered.len()), "no more than is made: {offered:?}");
            let count = offered.len().min(taken);
            sent.extend_from_slice(&offered[..count]);
            copy.advance(count);
        }
        assert_eq!(sent, b"<abcdefgh|123456>");
        buffer.tail().extend_from_slice(b"<");
        buffer.pin(made(b"abcdefgh"));
        buffer.tail().extend_from_slice(b"|");
        buffer.pin(made(b"123456"));
        buffer.tail().extend_from_slice(b">");
    }
}

#[test]
fn value_that_cannot_be_made_says_so() {
    let mut buffer = WriteBuffer::<PartialValue>::new();
    buffer.pin(PartialValue { breaks_at: 3, ..made(b"abcdefgh") });
    buffer.make_ready().unwrap();
    buffer.advance(3);
    assert_eq!(buffer.make_ready(), Err(BrokenValue));
}

#[test]
fn block_is_handed_over_only_when_drained() {
    let mut buffer = WriteBuffer::<Vec<u8>>::new();
    buffer.tail().extend_from_slice(b"abc");
    assert!(buffer.take_block().is_none());
    buffer.advance(3);
    assert!(buffer.take_block().is_some());
    assert!(!buffer.has_block());
}

#[test]
fn slow_reader_does_not_grow_the_block() {
    let mut buffer = WriteBuffer::<Vec<u8>>::new();
    for _ in 0..10_000 {
        buffer.tail().extend_from_slice(&[7; 100]);
        let pending = buffer.pending_bytes();
        if pending > 1000 {
            buffer.advance(100);
        }
    }
    assert!(buffer.tail().capacity() < 8192, "capacity {}", buffer.tail().capacity());
}
