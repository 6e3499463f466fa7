//! Frames in the blocks of memory that they were received into.
//!
//! [`BlockReader`] receives into a block and finds the ends of whole frames, without taking them
//! apart. A block that is half full or more is handed over as it is, as [`Frames`]; only the
//! partial frame at its end moves to the next block. Less is copied, so that few frames never hold
//! a whole block: what waits for the application takes at most twice the memory that the window
//! counts. A frame that is larger than a block gets one of exactly its size.
//!
//! Blocks whose frames were all taken come back through a [`BlockPool`], because fresh memory costs
//! the system more than receiving into it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use oribi_protocol::frame::{self, DecodedFrame, Frame, Header};
use oribi_protocol::limits::FRAME_BYTES_MAX;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;

use crate::frame_reader::StreamError;

/// Bytes of a usual block.
const BLOCK_BYTES: usize = 256 * 1024;

/// A read is worth its system call only with some space to read into.
const READ_ROOM_BYTES_MIN: usize = 16 * 1024;

/// Blocks that wait to be used again. A connection fills one while the application works on
/// others.
const SPARE_BLOCKS: usize = 4;

/// Usual blocks that are used again.
#[derive(Debug, Default)]
pub(super) struct BlockPool(Mutex<Vec<Vec<u8>>>);

impl BlockPool {
    /// A block that was used, or a new one of zeros.
    fn block(&self) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![0; BLOCK_BYTES])
    }

    /// Takes a block back, unless a part of it is still in use.
    pub fn give_back(&self, frames: Frames) {
        if frames.block.len() != BLOCK_BYTES || !frames.block.is_unique() {
            return;
        }
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BLOCKS {
            spare.push(frames.block.into());
        }
    }
}

/// Whole frames, one after the other, in their order.
#[derive(Debug)]
pub(super) struct Frames {
    /// Their memory; what is behind `end` says nothing.
    pub block: Bytes,
    at: usize,
    end: usize,
}

impl Frames {
    /// The place of the next frame.
    pub fn next(&mut self) -> Option<Range<usize>> {
        let begin = self.at;
        let frame = Frame::whole(&self.block[begin..self.end])?;
        self.at += frame.header.frame_bytes();
        Some(begin..self.at)
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct BlockReader {
    /// All of it may be written to.
    block: Vec<u8>,
    /// Bytes that were received.
    filled: usize,
    /// Bytes of whole frames.
    whole: usize,
    /// Their bytes in a flow-control window.
    window_bytes: u64,
    /// Bytes of the next frame, as far as that is known.
    next_bytes: usize,
}

impl BlockReader {
    /// Begins with bytes that another reader has received.
    pub fn new(received: &[u8]) -> BlockReader {
        let mut block = vec![0; received.len().max(BLOCK_BYTES)];
        block[..received.len()].copy_from_slice(received);
        BlockReader { block, filled: received.len(), whole: 0, window_bytes: 0, next_bytes: 0 }
    }

    /// Bytes of the whole frames in a flow-control window.
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Where the next bytes go; `None` when the frames have to be handed over first.
    pub fn spare(&mut self) -> Option<&mut [u8]> {
        if self.whole == 0 && self.next_bytes > self.block.len() {
            // Zeroed pages are mapped when first written, so a length that no bytes follow costs
            // nothing.
            let mut block = vec![0; self.next_bytes];
            block[..self.filled].copy_from_slice(&self.block[..self.filled]);
            self.block = block;
        }
        let room = self.block.len() - self.filled;
        let is_enough = match self.whole {
            0 => room > 0,
            _ => room >= READ_ROOM_BYTES_MIN && self.whole + self.next_bytes <= self.block.len(),
        };
        is_enough.then(|| &mut self.block[self.filled..])
    }

    /// The first `bytes` of the space were filled.
    pub fn commit(&mut self, bytes: usize) {
        assert!(bytes <= self.block.len() - self.filled, "more than there was room");
        self.filled += bytes;
    }

    /// Finds the frames that are whole by now, and shows each to `see`.
    ///
    /// # Errors
    /// When the bytes are no frames.
    pub fn find(&mut self, mut see: impl FnMut(&Header)) -> Result<(), StreamError> {
        loop {
            match frame::decode(&self.block[self.whole..self.filled])? {
                DecodedFrame::Complete { frame, consumed } => {
                    see(&frame.header);
                    self.window_bytes += window_bytes(&frame.header);
                    self.whole += consumed;
                    self.next_bytes = 0;
                }
                DecodedFrame::Incomplete { needed } if needed > FRAME_BYTES_MAX => {
                    return Err(StreamError::TooLong { bytes: needed });
                }
                DecodedFrame::Incomplete { needed } => {
                    self.next_bytes = needed;
                    return Ok(());
                }
            }
        }
    }

    /// Hands the whole frames over, if there are some; the others stay.
    pub fn take(&mut self, pool: &BlockPool) -> Option<Frames> {
        let end = std::mem::take(&mut self.whole);
        if end == 0 {
            return None;
        }
        self.window_bytes = 0;
        let block = match end >= self.block.len() / 2 {
            true => {
                let rest = end..self.filled;
                let mut next = pool.block();
                if next.len() < rest.len() {
                    next.resize(rest.len(), 0);
                }
                next[..rest.len()].copy_from_slice(&self.block[rest]);
                Bytes::from(std::mem::replace(&mut self.block, next))
            }
            false => {
                let block = Bytes::copy_from_slice(&self.block[..end]);
                self.block.copy_within(end..self.filled, 0);
                block
            }
        };
        self.filled -= end;
        Some(Frames { block, at: 0, end })
    }
}

/// Bytes that a window counts for a frame: those of messages, none for answers, questions whether
/// the client lives, and news that were not asked for.
pub(super) fn window_bytes(header: &Header) -> u64 {
    match header.magic.is_request()
        && header.magic != Magic::ServerRequest
        && header.opcode != Opcode::DcpNoop as u8
    {
        true => header.frame_bytes() as u64,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    //! What is received comes out, whatever the pieces and sizes.

    use oribi_protocol::limits::HEADER_BYTES;
    use oribi_protocol::request::{RequestParts, encode_request};
    use proptest::prelude::*;

    use super::*;

    /// A message whose value has so many bytes, all `number`.
    fn message(number: u8, value_bytes: usize) -> Vec<u8> {
        let value = vec![number; value_bytes];
        let mut out = Vec::new();
        let parts = RequestParts::new(Opcode::DcpMutation);
        encode_request(&mut out, &RequestParts { value: &value, ..parts });
        out
    }

    fn values(mut frames: Frames, pool: &BlockPool) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        while let Some(place) = frames.next() {
            let frame = Frame::whole(&frames.block[place]).unwrap();
            values.push(frame.value.to_vec());
        }
        pool.give_back(frames);
        values
    }

    /// Receives the stream in such pieces and takes what is whole after every `patience` of them.
    fn receive(mut stream: &[u8], piece: usize, patience: usize) -> Vec<Vec<u8>> {
        let pool = BlockPool::default();
        let mut received = Vec::new();
        let head = piece.min(stream.len());
        let mut reader = BlockReader::new(&stream[..head]);
        stream = &stream[head..];
        for turn in 1.. {
            reader.find(|_| ()).unwrap();
            let is_full = match reader.spare() {
                Some(spare) => {
                    let bytes = spare.len().min(piece).min(stream.len());
                    spare[..bytes].copy_from_slice(&stream[..bytes]);
                    reader.commit(bytes);
                    stream = &stream[bytes..];
                    false
                }
                None => true,
            };
            reader.find(|_| ()).unwrap();
            if (is_full || turn % patience == 0 || stream.is_empty())
                && let Some(frames) = reader.take(&pool)
            {
                assert!(frames.block.len() <= 2 * frames.end, "few frames hold a block");
                received.extend(values(frames, &pool));
                assert_eq!(reader.window_bytes(), 0);
            }
            if stream.is_empty() && reader.filled == 0 {
                return received;
            }
        }
        received
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn frames_of_all_sizes_come_whole_and_in_order(
            sizes in proptest::collection::vec(
                prop_oneof![8 => 0..2000_usize, 2 => 0..BLOCK_BYTES, 1 => BLOCK_BYTES..900_000],
                1..60,
            ),
            piece in prop_oneof![1..50_usize, 1000..400_000_usize],
            patience in 1..20_usize,
        ) {
            // Small pieces of much would take long.
            let piece = piece.max(sizes.iter().sum::<usize>() / 2000);
            let expected: Vec<Vec<u8>> =
                (0..).zip(&sizes).map(|(number, bytes)| vec![number; *bytes]).collect();
            let stream: Vec<u8> =
                (0..).zip(&sizes).flat_map(|(number, bytes)| message(number, *bytes)).collect();
            prop_assert_eq!(receive(&stream, piece, patience), expected);
        }
    }

    #[test]
    fn blocks_are_reused_when_no_part_is_in_use() {
        let pool = BlockPool::default();
        let full = |pool: &BlockPool| {
            let mut reader = BlockReader::new(&message(1, BLOCK_BYTES - HEADER_BYTES - 1));
            reader.find(|_| ()).unwrap();
            reader.take(pool).expect("a frame")
        };
        let frames = full(&pool);
        let address = frames.block.as_ptr();
        let kept = frames.block.slice(..1);
        pool.give_back(frames);
        assert_ne!(full(&pool).block.as_ptr(), address);
        drop(kept);
        let frames = full(&pool);
        let address = frames.block.as_ptr();
        pool.give_back(frames);
        let again = pool.block();
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn an_illegal_frame_takes_no_memory() {
        let mut long = message(0, 0);
        let bytes = FRAME_BYTES_MAX as u32;
        long[8..12].copy_from_slice(&bytes.to_be_bytes());
        let mut reader = BlockReader::new(&long);
        let refused = reader.find(|_| ()).unwrap_err();
        assert_eq!(refused, StreamError::TooLong { bytes: FRAME_BYTES_MAX + HEADER_BYTES });
    }
}
