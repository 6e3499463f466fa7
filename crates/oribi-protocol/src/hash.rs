//! Which vbucket a key belongs to.
//!
//! Owns the one formula that every client and the server must agree on. The logical key is hashed,
//! without its collection prefix, so equal keys of different collections share a vbucket.

use oribi_types::Vbid;

/// The vbucket of a logical key: bits 16 to 30 of its CRC-32 (IEEE polynomial), modulo the count.
///
/// A count of zero is answered with vbucket 0, because the count may come from a peer's document.
pub fn vbucket_of(key: &[u8], vbucket_count: u16) -> Vbid {
    let folded = ((crc32fast::hash(key) >> 16) & 0x7fff) as u16;
    Vbid(folded.checked_rem(vbucket_count).unwrap_or(0))
}
