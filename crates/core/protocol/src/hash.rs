//! The vbucket of a key.
//!
//! It owns the one formula that every client and the server must share. It hashes the logical key
//! without its collection prefix, so equal keys of different collections share a vbucket.

use oribi_types::Vbid;

/// The vbucket of a logical key: bits 16 to 30 of its CRC-32 (IEEE polynomial), modulo the count.
///
/// A count of zero gives vbucket 0, because the count may come from a peer's document.
pub fn vbucket_of(key: &[u8], vbucket_count: u16) -> Vbid {
    vbucket_of_crc(crc32fast::hash(key), vbucket_count)
}

/// The same for a key whose CRC-32 is known.
#[inline]
pub fn vbucket_of_crc(crc: u32, vbucket_count: u16) -> Vbid {
    let folded = ((crc >> 16) & 0x7fff) as u16;
    Vbid(folded.checked_rem(vbucket_count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    //! Known answers. The check value of this CRC-32 is that of the digits 1 to 9.

    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(vbucket_of(b"123456789", 1024), Vbid(0x4bf4 % 1024));
        assert_eq!(vbucket_of(b"123456789", 64), Vbid(0x4bf4 % 64));
        assert_eq!(vbucket_of(b"", 1024), Vbid(0));
        for (key, vbid) in KNOWN {
            assert_eq!(vbucket_of(key, 1024), Vbid(*vbid), "{key:?}");
        }
    }

    /// Computed with zlib's crc32.
    const KNOWN: &[(&[u8], u16)] = &[
        (b"foo", 115),
        (b"hello world", 330),
        (b"airline_10", 361),
        (b"\x00\xff", 219),
        (b"user::1000", 555),
    ];

    #[test]
    fn any_count_is_safe() {
        assert_eq!(vbucket_of(b"key", 0), Vbid(0));
        assert_eq!(vbucket_of(b"key", 1), Vbid(0));
        for count in 1..=1024 {
            assert!(vbucket_of(b"key", count).0 < count);
        }
    }
}
