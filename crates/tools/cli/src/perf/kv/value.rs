//! Values that a reader can verify, knowing only their key.
//!
//! A value starts with a header and continues with bytes cut from one block that is made at the
//! start:
//!
//! | binary, offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | sum of the rest of the header, and of collection and key prefix |
//! | 4 | 4 | CRC-32 of the body |
//! | 8 | 4 | bytes of the whole value |
//! | 12 | 4 | version: which of its writer's writes it was |
//! | 16 | 8 | number of the document |
//!
//! All little-endian. A JSON document has the same information as hexadecimal digits in a string
//! ([`json`]). The tool does not remember past writes: it accepts any version that a run with the
//! same keys wrote, and no other value. A value too small for the header is a pattern derived from
//! the key.
//!
//! Document and version determine the place in the block where a body starts. A body that this run
//! could have written is verified by comparison with the block, in a quarter of the time of its
//! checksum (half a kilobyte: about 20 against 80 ns); the checksum decides about all others.
//!
//! The module owns composing and verifying. It allocates only the one block.

mod header;
mod json;

use std::ops::RangeInclusive;

use bytes::Bytes;
use rand::Rng;

pub use self::header::ValueIdentity;
use self::header::{HEADER_BYTES, ValueHeader, header_sum};
use crate::perf::key_choice::generator;

/// Room for what stands before the body: the longer of the two headers, or a whole small value.
const HEAD_BYTES_MAX: usize = 64;

const _: () = assert!(HEADER_BYTES <= HEAD_BYTES_MAX && json::HEADER_BYTES <= HEAD_BYTES_MAX);

/// A body starts at one of this many places in the block, so that versions differ. Few enough that
/// what small values are made of stays in the first-level cache.
const BODY_PLACES: usize = 4096;

/// Generator number of the block, apart from those of workers.
const BLOCK_GENERATOR: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvValueForm {
    Binary,
    Json,
}

/// Why a value is not one that this program wrote for the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Corruption {
    /// The length is not the one in the header, or outside the range of small values.
    Length,
    /// A value of another document.
    Document,
    /// The checksum does not fit the bytes.
    Checksum,
    /// A small value differs from its pattern.
    Pattern,
    /// Said to be compressed, but cannot be decompressed.
    Compression,
}

impl Corruption {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Corruption; 5] = [
        Corruption::Length,
        Corruption::Document,
        Corruption::Checksum,
        Corruption::Pattern,
        Corruption::Compression,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Corruption::Length => "wrong_length",
            Corruption::Document => "wrong_document",
            Corruption::Checksum => "wrong_checksum",
            Corruption::Pattern => "wrong_pattern",
            Corruption::Compression => "bad_compression",
        }
    }
}

/// A value to be sent: three pieces.
#[derive(Debug)]
pub struct ValuePieces {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// Cut from the block; not copied.
    pub body: Bytes,
    /// End of the value.
    pub tail: &'static [u8],
}

impl ValuePieces {
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }
}

/// Composes and verifies the values of a run.
#[derive(Clone, Debug)]
pub struct KvValues {
    form: KvValueForm,
    sizes: RangeInclusive<usize>,
    block: Bytes,
    /// Per place in the block, length and checksum of the last body from there.
    body_checksums: Vec<(u32, u32)>,
}

impl KvValues {
    /// Values of `sizes` bytes; `random` ones cannot be compressed. JSON documents have a byte at
    /// least.
    pub fn new(
        form: KvValueForm,
        sizes: RangeInclusive<usize>,
        random: bool,
        seed: u64,
    ) -> KvValues {
        let mut block = vec![0; sizes.end() + BODY_PLACES];
        if random {
            generator(seed, BLOCK_GENERATOR).fill_bytes(&mut block);
        } else {
            let words = b"the quick brown fox jumps over the lazy dog and ".iter().cycle();
            block.iter_mut().zip(words).for_each(|(byte, letter)| *byte = *letter);
        }
        if form == KvValueForm::Json {
            block.iter_mut().for_each(|byte| *byte = json::printable(*byte));
        }
        // Shared by all threads without counting references; it is needed until the program ends.
        let block = Bytes::from_static(Box::leak(block.into_boxed_slice()));
        // The checksum of no bytes is 0.
        KvValues { form, sizes, block, body_checksums: vec![(0, 0); BODY_PLACES] }
    }

    /// Smallest and largest value.
    pub fn sizes(&self) -> &RangeInclusive<usize> {
        &self.sizes
    }

    /// The value of `bytes` bytes, within the sizes, of a document's `version`.
    pub fn compose(&mut self, identity: ValueIdentity, version: u32, bytes: usize) -> ValuePieces {
        let mut head = [0; HEAD_BYTES_MAX];
        let (header_bytes, tail) = self.overhead();
        if bytes < header_bytes + tail.len() {
            self.fill_pattern(identity, &mut head[..bytes]);
            return ValuePieces { head, head_bytes: bytes, body: Bytes::new(), tail: b"" };
        }
        let place = body_place(identity, version);
        let body = self.block.slice(place..place + bytes - header_bytes - tail.len());
        match self.form {
            KvValueForm::Binary => {
                let body_checksum = self.body_checksum(place, &body);
                head[4..8].copy_from_slice(&body_checksum.to_le_bytes());
                head[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
                head[12..16].copy_from_slice(&version.to_le_bytes());
                head[16..24].copy_from_slice(&identity.index.to_le_bytes());
                let sum = header_sum(identity, bytes as u32, version, body_checksum);
                head[..4].copy_from_slice(&sum.to_le_bytes());
            }
            KvValueForm::Json => json::write_header(&mut head, identity, version, bytes, &body),
        }
        ValuePieces { head, head_bytes: header_bytes, body, tail }
    }

    /// Checks a value that was read.
    pub fn verify(&self, identity: ValueIdentity, value: &[u8]) -> Result<(), Corruption> {
        let (header_bytes, tail) = self.overhead();
        if value.len() < header_bytes + tail.len() {
            return self.verify_pattern(identity, value);
        }
        let header = match self.form {
            KvValueForm::Binary => ValueHeader::decode(value),
            KvValueForm::Json => json::read_header(value),
        };
        let Some(header) = header else { return Err(Corruption::Checksum) };
        if header.bytes as usize != value.len() {
            return Err(Corruption::Length);
        }
        if header.index != identity.index {
            return Err(Corruption::Document);
        }
        let sound = match self.form {
            KvValueForm::Binary => self.is_sound(identity, &header, value),
            KvValueForm::Json => json::checksum_of(identity, value) == header.checksum,
        };
        if sound { Ok(()) } else { Err(Corruption::Checksum) }
    }

    /// Whether both checksums of a binary value are right. Its length is.
    fn is_sound(&self, identity: ValueIdentity, header: &ValueHeader, value: &[u8]) -> bool {
        let ValueHeader { bytes, version, body_checksum, .. } = *header;
        if header_sum(identity, bytes, version, body_checksum) != header.checksum {
            return false;
        }
        let body = &value[HEADER_BYTES..];
        let place = body_place(identity, version);
        let own = self.block.get(place..place + body.len());
        own.is_some_and(|own| own == body) || crc32fast::hash(body) == body_checksum
    }

    /// The checksum of a body that starts at `place`, kept for the next one of the same length
    /// there.
    fn body_checksum(&mut self, place: usize, body: &[u8]) -> u32 {
        let known = &mut self.body_checksums[place];
        if known.0 != body.len() as u32 {
            *known = (body.len() as u32, crc32fast::hash(body));
        }
        known.1
    }

    /// Bytes before the body, and what stands after it.
    fn overhead(&self) -> (usize, &'static [u8]) {
        match self.form {
            KvValueForm::Binary => (HEADER_BYTES, b""),
            KvValueForm::Json => (json::HEADER_BYTES, json::TAIL),
        }
    }

    fn verify_pattern(&self, identity: ValueIdentity, value: &[u8]) -> Result<(), Corruption> {
        if !self.sizes.contains(&value.len()) {
            return Err(Corruption::Length);
        }
        let mut expected = [0; HEAD_BYTES_MAX];
        let expected = &mut expected[..value.len()];
        self.fill_pattern(identity, expected);
        if expected == value { Ok(()) } else { Err(Corruption::Pattern) }
    }

    /// A value without a header: bytes that follow from the key, or a JSON number.
    fn fill_pattern(&self, identity: ValueIdentity, out: &mut [u8]) {
        for (salt, chunk) in out.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&identity.mix(salt as u64).to_le_bytes()[..chunk.len()]);
        }
        if self.form == KvValueForm::Json {
            out.iter_mut().for_each(|byte| *byte = b'1' + *byte % 9);
        }
    }
}

/// Where in the block a body starts.
fn body_place(identity: ValueIdentity, version: u32) -> usize {
    identity.mix(u64::from(version) << 20) as usize % BODY_PLACES
}

#[cfg(test)]
mod tests;
