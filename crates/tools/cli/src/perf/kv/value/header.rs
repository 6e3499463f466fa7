//! Header of a value, which names its document.

/// Bytes of the binary header.
pub(super) const HEADER_BYTES: usize = 24;

/// Which document a value belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueIdentity {
    /// Number of the document.
    pub index: u64,
    pub seed: u32,
}

impl ValueIdentity {
    /// Sixty-four bits that depend on all of the identity and on `salt`.
    pub(super) fn mix(self, salt: u64) -> u64 {
        let seeded = self.index ^ (u64::from(self.seed) << 32) ^ salt;
        let mixed = seeded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

/// Header of a value.
pub(super) struct ValueHeader {
    pub(super) checksum: u32,
    /// Only of a binary value.
    pub(super) body_checksum: u32,
    pub(super) bytes: u32,
    pub(super) version: u32,
    pub(super) index: u64,
}

impl ValueHeader {
    /// Of a binary value, if it is long enough.
    pub(super) fn decode(value: &[u8]) -> Option<ValueHeader> {
        let header = value.first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(ValueHeader {
            checksum: word(0),
            body_checksum: word(4),
            bytes: word(8),
            version: word(12),
            index: u64::from(word(16)) | u64::from(word(20)) << 32,
        })
    }
}

/// Sum of what a binary header says. Any flipped bit of the body's checksum changes it, and other
/// changes do but for one in four billion.
pub(super) fn header_sum(
    identity: ValueIdentity,
    bytes: u32,
    version: u32,
    body_checksum: u32,
) -> u32 {
    let mixed = identity.mix(u64::from(bytes) << 32 | u64::from(version));
    let mixed = (mixed ^ u64::from(body_checksum)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// CRC-32 of pieces that follow each other.
pub(super) fn checksum(seed: u32, pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}
