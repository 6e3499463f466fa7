//! MurmurHash2-64A: the hash by which Kudu chooses buckets.
//!
//! Austin Appleby put the algorithm into the public domain. Kudu fixes the byte order
//! (little-endian) and widens a 32-bit seed. The hash dimensions of a partition schema call it.

const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The hash of `bytes`.
#[inline]
pub(crate) fn murmur2_64a(bytes: &[u8], seed: u32) -> u64 {
    let mut hash = u64::from(seed) ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (blocks, tail) = bytes.as_chunks::<8>();
    for block in blocks {
        let mut mixed = u64::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let last = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
