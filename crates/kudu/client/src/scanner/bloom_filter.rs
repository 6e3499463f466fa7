//! A Bloom filter in the tablet servers' format: a predicate for very many values at once.
//!
//! The filter is an array of 32-byte buckets. A value's hash selects one bucket and one bit in each
//! of its eight 32-bit words, so a lookup touches a single cache line. The constants, the hash (a
//! 64-bit multiply hash folded to 32 bits) and the choice of the bucket must equal those of the
//! server's own filter, or the server would miss rows. A test against a real server holds them
//! together. Invariants: the number of buckets is a power of two, at least two. A filter has no
//! false negatives, but some false positives. Predicates call it. It knows the type of its column
//! but not the column.

use bytes::Bytes;

use crate::proto::common::{HashAlgorithmPb, column_predicate_pb::BlockBloomFilterPb};
use crate::schema::DataType;

use super::operand::{Operand, OperandError};

/// 32-bit words of a bucket; each holds one bit of a value.
const BUCKET_WORDS: usize = 8;
/// Logarithm of the bytes of a bucket.
const BUCKET_BYTES_LOG: u32 = 5;
/// Shift that leaves the top five bits: the number of a bit in a word.
const BIT_SHIFT: u32 = 32 - 5;
/// One odd multiplier for each word of a bucket.
const WORD_MULTIPLIERS: [u32; BUCKET_WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];
/// Multiplier and addend that turn a hash into the choice of a bucket.
const BUCKET_MULTIPLIER: u64 = 0x7850_f11e_c6d1_4889;
const BUCKET_ADDEND: u64 = 0x6773_6105_97ca_4c63;
/// Largest filter, 16 MiB: the whole request must stay below the servers' limit of 50 MiB.
const BYTES_LOG_MAX: u32 = 24;

/// An approximate set of values.
#[derive(Clone, Debug)]
pub struct BloomFilter {
    data_type: DataType,
    words: Vec<u32>,
    bytes_log: u32,
    hash_seed: u32,
    is_empty: bool,
}

impl BloomFilter {
    /// A filter for this many distinct values of a column of this type. About `false_positive_rate`
    /// of all other values pass (clamped to between 1e-6 and 0.5). The filter takes at most 16 MiB;
    /// more values only raise the rate.
    pub fn new(
        data_type: DataType,
        values_expected: usize,
        false_positive_rate: f64,
    ) -> BloomFilter {
        let rate = false_positive_rate.clamp(1e-6, 0.5);
        let words = BUCKET_WORDS as f64;
        // From the probability (1 - exp(-8 n / bits))^8 that all eight bits of another value are
        // set.
        let bits = -words * values_expected.max(1) as f64 / (1.0 - rate.powf(1.0 / words)).ln();
        let bytes_log = (bits / 8.0).log2().ceil().max(0.0) as u32;
        let bytes_log = bytes_log.clamp(BUCKET_BYTES_LOG + 1, BYTES_LOG_MAX);
        BloomFilter {
            data_type,
            words: vec![0; 1 << (bytes_log - 2)],
            bytes_log,
            hash_seed: 0,
            is_empty: true,
        }
    }

    /// Adds a value, which must match the type of the filter.
    pub fn insert(&mut self, value: impl Into<Operand>) -> Result<(), OperandError> {
        let value = value.into();
        value.check(self.data_type)?;
        self.insert_wire(&value.to_wire(self.data_type));
        Ok(())
    }

    /// Whether the filter matches a column of this type.
    pub(crate) fn check(&self, data_type: DataType) -> Result<(), OperandError> {
        (self.data_type == data_type).then_some(()).ok_or(OperandError { data_type })
    }

    fn insert_wire(&mut self, value: &[u8]) {
        let hash = hash32(value, self.hash_seed);
        let start = self.bucket_of(hash);
        for (word, multiplier) in
            self.words[start..start + BUCKET_WORDS].iter_mut().zip(WORD_MULTIPLIERS)
        {
            *word |= 1 << (multiplier.wrapping_mul(hash) >> BIT_SHIFT);
        }
        self.is_empty = false;
    }

    /// Whether the filter may contain a value.
    #[cfg(test)]
    fn may_contain(&self, value: &[u8]) -> bool {
        let hash = hash32(value, self.hash_seed);
        let start = self.bucket_of(hash);
        let bucket = &self.words[start..start + BUCKET_WORDS];
        let is_set = |(word, multiplier): (&u32, u32)| {
            word >> (multiplier.wrapping_mul(hash) >> BIT_SHIFT) & 1 == 1
        };
        bucket.iter().zip(WORD_MULTIPLIERS).all(is_set)
    }

    /// First word of the bucket of a hash.
    fn bucket_of(&self, hash: u32) -> usize {
        let spread = (u64::from(hash).wrapping_mul(BUCKET_MULTIPLIER).wrapping_add(BUCKET_ADDEND)
            >> 32) as usize;
        let buckets = self.words.len() / BUCKET_WORDS;
        (spread & (buckets - 1)) * BUCKET_WORDS
    }

    pub(crate) fn to_pb(&self) -> BlockBloomFilterPb {
        let mut directory = Vec::with_capacity(self.words.len() * 4);
        self.words.iter().for_each(|word| directory.extend_from_slice(&word.to_le_bytes()));
        BlockBloomFilterPb {
            log_space_bytes: Some(self.bytes_log as i32),
            bloom_data: Some(Bytes::from(directory)),
            always_false: Some(self.is_empty),
            hash_algorithm: Some(HashAlgorithmPb::FastHash.into()),
            hash_seed: Some(self.hash_seed),
        }
    }
}

/// The server's hash: it mixes and multiplies in each eight bytes, and the rest as one last word.
fn hash32(bytes: &[u8], seed: u32) -> u32 {
    const MULTIPLIER: u64 = 0x8803_55f2_1e6d_1965;
    let mut hash = u64::from(seed) ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ mix(u64::from_le_bytes(word))).wrapping_mul(MULTIPLIER);
    }
    let hash = mix(hash);
    hash.wrapping_sub(hash >> 32) as u32
}

fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 23;
    hash = hash.wrapping_mul(0x2127_599b_f432_5c37);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::BloomFilter;
    use crate::schema::DataType;

    #[test]
    fn a_filter_knows_its_values_and_few_others() {
        let mut filter = BloomFilter::new(DataType::Int64, 1000, 0.01);
        (0..1000_i64).for_each(|value| filter.insert(value).expect("the value fits"));
        assert!((0..1000_i64).all(|value| filter.may_contain(&value.to_le_bytes())));
        let strangers =
            (1000..101_000_i64).filter(|value| filter.may_contain(&value.to_le_bytes())).count();
        assert!(strangers < 1500, "{strangers} of 100000 strangers pass, at a rate of 0.01");
        assert!(strangers > 0, "a filter of this size lets some through, else nothing was tested");
    }

    #[test]
    fn the_message_has_as_many_bytes_as_it_says() {
        for (values, rate) in [(0, 0.01), (1, 0.5), (5000, 0.001), (usize::MAX, 0.0)] {
            let message = BloomFilter::new(DataType::String, values, rate).to_pb();
            let bytes = message.bloom_data.expect("the directory is always sent").len();
            assert_eq!(bytes, 1 << message.log_space_bytes.expect("the size is always sent"));
            assert!((64..=16 << 20).contains(&bytes), "{bytes} bytes for {values} values");
        }
    }

    #[test]
    fn an_empty_filter_says_so() {
        let mut filter = BloomFilter::new(DataType::String, 10, 0.01);
        assert_eq!(filter.to_pb().always_false, Some(true));
        filter.insert("x").expect("the value fits");
        assert_eq!(filter.to_pb().always_false, Some(false));
    }
}
