//! A Snappy stream inflated piece by piece, so that a large value is never in memory as a whole.
//!
//! Owns: the decoder's state between two pieces. A copy in the stream refers to what came before
//! it. Encoders work on blocks of 64 KiB and refer to nothing outside the block, so the decoder
//! keeps that much of what it made, and a piece more. The format allows references of any distance;
//! a stream that has one is decoded as a whole from there on, which [`Inflater::held_bytes`]
//! reports. Source of the format: Snappy's format description.
//!
//! Invariants: `made - made_from <= made_window.len()`; the decoder makes no more than the
//! announced length, and says that a stream is damaged before it gives out anything beyond the
//! damage. Called by the server for what it sends.

use snap::raw::Decoder;

use super::{InflateError, inflated_bytes};

/// How far back the blocks of encoders refer.
const HISTORY_BYTES: usize = 64 << 10;

/// Bytes that one step inflates.
const PIECE_BYTES: usize = 64 << 10;

/// Longest copy of one element.
const COPY_BYTES_MAX: usize = 64;

/// See the module text.
#[derive(Debug)]
pub struct Inflater {
    /// Length of the whole, inflated.
    bytes: usize,
    /// Where the next element begins in the stream.
    read: usize,
    /// Bytes of a literal that are still to be copied from there.
    literal: usize,
    /// The latest bytes: history, followed by the output that is ready.
    window: Vec<u8>,
    /// Position of the window's first byte in the whole.
    window_from: usize,
}

impl Inflater {
    /// Begins with a stream; nothing of it is made yet.
    ///
    /// # Errors
    /// [`InflateError`], as far as that is seen by the announced length.
    pub fn new(stream: &[u8], bytes_max: usize) -> Result<Inflater, InflateError> {
        let bytes = inflated_bytes(stream, bytes_max)?;
        let (_, read) = announced(stream).ok_or(InflateError::Corrupt)?;
        Ok(Inflater { bytes, read, literal: 0, window: Vec::new(), window_from: 0 })
    }

    /// Length of the whole.
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// The inflated bytes from this position of the whole on.
    pub fn ready(&self, position: usize) -> &[u8] {
        position.checked_sub(self.window_from).and_then(|at| self.window.get(at..)).unwrap_or(&[])
    }

    /// Bytes of memory that this holds.
    pub fn held_bytes(&self) -> usize {
        self.window.capacity()
    }

    /// Makes the next piece of the stream, from `position` on, which is where the last piece ended.
    /// Does nothing when something lies ready there.
    ///
    /// # Errors
    /// [`InflateError::Corrupt`].
    pub fn make(&mut self, stream: &[u8], position: usize) -> Result<(), InflateError> {
        if position == self.bytes || !self.ready(position).is_empty() {
            return Ok(());
        }
        debug_assert_eq!(position, self.made(), "pieces are made in order");
        self.forget();
        let until = (self.made() + PIECE_BYTES).min(self.bytes);
        while self.made() < until {
            if self.literal > 0 {
                self.copy_literal(stream, until)?;
            } else if !self.element(stream)? {
                return self.make_whole(stream);
            }
        }
        Ok(())
    }

    /// Bytes made so far, sent ones included.
    fn made(&self) -> usize {
        self.window_from + self.window.len()
    }

    /// Drops bytes that are too old to be referred to. A stream that was decoded as a whole stays.
    fn forget(&mut self) {
        if self.window.capacity() == 0 {
            let bytes = HISTORY_BYTES + PIECE_BYTES + COPY_BYTES_MAX;
            self.window.reserve_exact(bytes.min(self.bytes));
        }
        let gone = self.window.len().saturating_sub(HISTORY_BYTES);
        self.window.drain(..gone);
        self.window_from += gone;
        debug_assert!(self.window.len() <= HISTORY_BYTES, "old bytes are forgotten");
    }

    fn copy_literal(&mut self, stream: &[u8], until: usize) -> Result<(), InflateError> {
        debug_assert!(self.made() < until, "a piece is not yet made");
        let bytes = self.literal.min(until - self.made());
        let literal = stream.get(self.read..self.read + bytes).ok_or(InflateError::Corrupt)?;
        self.window.extend_from_slice(literal);
        self.read += bytes;
        self.literal -= bytes;
        debug_assert!(self.made() <= self.bytes, "a stream makes what it has announced");
        Ok(())
    }

    /// Takes the next element; false when it refers to bytes outside the window.
    fn element(&mut self, stream: &[u8]) -> Result<bool, InflateError> {
        let rest = stream.get(self.read..).ok_or(InflateError::Corrupt)?;
        let (&tag, operands) = rest.split_first().ok_or(InflateError::Corrupt)?;
        let kind = tag & 3;
        let (length, distance, taken) = match kind {
            0 => {
                let (length, taken) = literal_length(tag, operands).ok_or(InflateError::Corrupt)?;
                if length > self.bytes - self.made() {
                    return Err(InflateError::Corrupt);
                }
                debug_assert_eq!(self.literal, 0, "a literal is copied before the next element");
                self.literal = length;
                self.read += 1 + taken;
                return Ok(true);
            }
            1 => {
                let low = *operands.first().ok_or(InflateError::Corrupt)?;
                let distance = usize::from(tag >> 5) << 8 | usize::from(low);
                (4 + usize::from(tag >> 2 & 7), distance, 1)
            }
            _ => {
                let taken = if kind == 2 { 2 } else { 4 };
                let distance = little_endian(operands, taken).ok_or(InflateError::Corrupt)?;
                (1 + usize::from(tag >> 2), distance, taken)
            }
        };
        let is_sound = distance != 0 && distance <= self.made();
        if !is_sound || length > self.bytes - self.made() {
            return Err(InflateError::Corrupt);
        }
        if distance > self.window.len() {
            return Ok(false);
        }
        self.read += 1 + taken;
        self.repeat(distance, length);
        Ok(true)
    }

    /// Appends `length` bytes from `distance` before the end on, which may run into what is
    /// appended.
    fn repeat(&mut self, distance: usize, length: usize) {
        assert!(
            0 < distance && distance <= self.window.len(),
            "a copy refers to bytes of the window"
        );
        let (from, mut left) = (self.window.len() - distance, length);
        while left > 0 {
            let run = left.min(self.window.len() - from);
            self.window.extend_from_within(from..from + run);
            left -= run;
        }
    }

    /// Decodes the whole stream: something in it refers further back than the window reaches.
    #[cold]
    fn make_whole(&mut self, stream: &[u8]) -> Result<(), InflateError> {
        let mut whole = vec![0; self.bytes];
        match Decoder::new().decompress(stream, &mut whole) {
            Ok(written) if written == self.bytes => {}
            _ => return Err(InflateError::Corrupt),
        }
        (self.window, self.window_from) = (whole, 0);
        debug_assert_eq!(self.made(), self.bytes, "the stream is decoded as a whole");
        Ok(())
    }
}

/// The announced length, and how many bytes say it.
fn announced(stream: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0usize;
    for (at, byte) in stream.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((length, at + 1));
        }
    }
    None
}

/// Length of a literal, and the number of bytes after the tag that encode it.
fn literal_length(tag: u8, operands: &[u8]) -> Option<(usize, usize)> {
    let short = usize::from(tag >> 2);
    match short.checked_sub(59) {
        None | Some(0) => Some((short + 1, 0)),
        Some(taken) => Some((little_endian(operands, taken)?.checked_add(1)?, taken)),
    }
}

fn little_endian(bytes: &[u8], count: usize) -> Option<usize> {
    let bytes = bytes.get(..count)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snap::raw::{Decoder, Encoder};

    use super::{HISTORY_BYTES, Inflater, PIECE_BYTES};
    use crate::compression::InflateError;

    const LIMIT: usize = 20 << 20;

    /// All of a stream in pieces, with the most memory that was held.
    fn inflate(stream: &[u8], taken_at_once: usize) -> Result<(Vec<u8>, usize), InflateError> {
        let mut inflating = Inflater::new(stream, LIMIT)?;
        let (mut whole, mut held) = (Vec::new(), 0);
        while whole.len() < inflating.total_bytes() {
            inflating.make(stream, whole.len())?;
            held = held.max(inflating.held_bytes());
            let ready = inflating.ready(whole.len());
            assert!(!ready.is_empty(), "a piece that was made is not empty");
            whole.extend_from_slice(&ready[..ready.len().min(taken_at_once)]);
        }
        Ok((whole, held))
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        Encoder::new().compress_vec(plain).unwrap()
    }

    #[test]
    fn large_values_are_made_in_a_window() {
        let mut plain = vec![b'a'; 3 << 20];
        for (at, byte) in plain.iter_mut().enumerate() {
            if at % 5 == 0 {
                *byte = ((at * at) >> 7) as u8;
            }
        }
        for plain in [plain, vec![0; 5 << 20], b"x".to_vec(), Vec::new()] {
            let stream = compressed(&plain);
            for taken in [usize::MAX, PIECE_BYTES / 3] {
                let (whole, held) = inflate(&stream, taken).unwrap();
                assert!(whole == plain);
                assert!(held <= HISTORY_BYTES + PIECE_BYTES + 64, "{held} bytes");
            }
        }
    }

    /// A literal of `plain`, then a copy of its first byte from `distance` back.
    fn with_copy(plain: &[u8], distance: u32) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut length = plain.len() + 1;
        while length >= 0x80 {
            stream.push(length as u8 | 0x80);
            length >>= 7;
        }
        stream.push(length as u8);
        stream.push(62 << 2);
        stream.extend_from_slice(&(plain.len() as u32 - 1).to_le_bytes()[..3]);
        stream.extend_from_slice(plain);
        stream.push(3);
        stream.extend_from_slice(&distance.to_le_bytes());
        stream
    }

    #[test]
    fn a_leaked_reference_costs_memory_but_not_the_value() {
        let mut plain: Vec<u8> = (0..600_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        let stream = with_copy(&plain, 600_000);
        let (whole, held) = inflate(&stream, 1000).unwrap();
        plain.push(plain[0]);
        assert!(whole == plain && held >= plain.len());
        let before_the_beginning = with_copy(&plain, 600_002);
        assert_eq!(inflate(&before_the_beginning, 1000), Err(InflateError::Corrupt));
    }

    proptest! {
        /// The result equals the library's for any stream, sound or damaged.
        #[test]
        fn agrees_with_the_library(
            plain in prop::collection::vec(0u8..4, 0..5000),
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            taken in 1usize..700,
        ) {
            let mut stream = compressed(&plain);
            if let Some((at, byte)) = damage {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
            let expected = Decoder::new().decompress_vec(&stream).ok();
            let got = inflate(&stream, taken);
            match expected {
                // A stream whose length cannot be is refused beforehand.
                Some(plain) if got != Err(InflateError::Corrupt) || damage.is_none() => {
                    prop_assert_eq!(got.map(|(whole, _)| whole), Ok(plain));
                }
                // Bytes after the announced length are ignored, because stored values were checked.
                _ => {}
            }
        }

        /// No bytes make it panic or give out more than it announced.
        #[test]
        fn arbitrary_streams_end(stream in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((whole, _)) = inflate(&stream, 50)
                && let Ok(expected) = Decoder::new().decompress_vec(&stream)
            {
                prop_assert_eq!(whole, expected);
            }
        }
    }
}
