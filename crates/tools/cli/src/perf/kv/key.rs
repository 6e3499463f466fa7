//! Keys of the load: a prefix and the document's number in decimal digits, twenty by default.
//!
//! The module owns one key field per collection, with the collection's id in front if it was
//! negotiated. It writes the field once; each operation replaces only the digits that can differ,
//! so a key costs no allocation and a few nanoseconds.
//!
//! The same holds for its hash. A CRC is linear: a digit's effect depends only on the digit and its
//! position, not on the other digits. With one table per pair of digits, the CRC of a key is that
//! of the key with the number 0 and one XOR per pair.

use oribi_protocol::hash::vbucket_of_crc;
use oribi_protocol::leb128;
use oribi_types::{CollectionId, Vbid};

/// Most digits of a document's number in its key, and how many there are by default: enough for any
/// 64-bit number.
pub const KEY_DIGITS_MAX: usize = 20;

/// All pairs of decimal digits, so that two digits cost one division.
const DIGIT_PAIRS: [[u8; 2]; 100] = digit_pairs();

const fn digit_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

/// The keys of one collection.
#[derive(Clone, Debug)]
pub struct KeyField {
    /// Collection prefix, key prefix, digits.
    field: Vec<u8>,
    /// Where the digits begin.
    digits_at: usize,
    /// For each pair of digits at the end that differs from document to document, the last first:
    /// what each of its values changes in the CRC.
    crc_changes: Vec<[u32; 100]>,
    /// CRC of the key with the number 0.
    crc_of_zero: u32,
    /// CRC of the key that was set last.
    crc: u32,
    seed: u32,
}

impl KeyField {
    /// Keys of the documents 0 to `items - 1` of the collection `path`, with so many digits, which
    /// must be enough for them. `id` is put in front of each key when the connection negotiated
    /// collections.
    pub fn new(
        path: &str,
        id: Option<CollectionId>,
        prefix: &str,
        digits: usize,
        items: u64,
    ) -> KeyField {
        let mut field = Vec::new();
        if let Some(id) = id {
            let (bytes, len) = leb128::encode_u32(id.0);
            field.extend_from_slice(&bytes[..len]);
        }
        let key_at = field.len();
        field.extend_from_slice(prefix.as_bytes());
        field.extend_from_slice(&[b'0'; KEY_DIGITS_MAX][..digits]);
        let used_digits = digits_of(items);
        let seed = crc32fast::hash(format!("{path}/{prefix}").as_bytes());
        let crc_changes = crc_changes(&field[key_at..], digits, used_digits.div_ceil(2));
        let crc_of_zero = crc32fast::hash(&field[key_at..]);
        let digits_at = field.len() - digits;
        KeyField { field, digits_at, crc_changes, crc_of_zero, crc: crc_of_zero, seed }
    }

    /// The key field of a document.
    #[inline]
    pub fn set(&mut self, mut index: u64) -> &[u8] {
        let mut crc = self.crc_of_zero;
        let digits = &mut self.field[self.digits_at..];
        for (pair, changes) in digits.rchunks_mut(2).zip(&self.crc_changes) {
            let digits = (index % 100) as usize;
            put_pair(pair, digits);
            crc ^= changes[digits];
            index /= 100;
        }
        self.crc = crc;
        &self.field
    }

    /// The vbucket of the document whose key was set last.
    #[inline]
    pub fn vbucket(&self, vbuckets: u16) -> Vbid {
        vbucket_of_crc(self.crc, vbuckets)
    }

    /// The key field that was set last, with collection prefix.
    pub fn field(&self) -> &[u8] {
        &self.field
    }

    /// Tells documents of one number in different collections or under different prefixes apart.
    pub fn seed(&self) -> u32 {
        self.seed
    }
}

/// Digits of the largest number of so many documents.
pub fn digits_of(items: u64) -> usize {
    items.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1
}

/// Writes two digits, or the last of them where there is space for one: the first pair of an odd
/// number of digits.
#[inline]
fn put_pair(pair: &mut [u8], digits: usize) {
    match pair {
        [one] => *one = DIGIT_PAIRS[digits][1],
        two => two.copy_from_slice(&DIGIT_PAIRS[digits]),
    }
}

/// Changes of the CRC of `zero`, a key with the number 0 in so many digits, by each value of its
/// last `pairs` pairs of digits.
fn crc_changes(zero: &[u8], digits: usize, pairs: usize) -> Vec<[u32; 100]> {
    let crc_of_zero = crc32fast::hash(zero);
    let mut key = zero.to_vec();
    let mut changes = vec![[0; 100]; pairs];
    for (pair, changes) in changes.iter_mut().enumerate() {
        let end = key.len() - 2 * pair;
        let begin = (zero.len() - digits).max(end.saturating_sub(2));
        for (digits, change) in changes.iter_mut().enumerate() {
            put_pair(&mut key[begin..end], digits);
            *change = crc32fast::hash(&key) ^ crc_of_zero;
        }
        put_pair(&mut key[begin..end], 0);
    }
    changes
}

#[cfg(test)]
mod tests {
    //! Keys are what a person would write, in any order of numbers.

    use oribi_protocol::hash::vbucket_of;

    use super::*;

    #[test]
    fn keys_are_the_prefix_and_twenty_digits() {
        let mut keys =
            KeyField::new("_default._default", Some(CollectionId(0x80)), "user:", 20, 12_345);
        for index in [0, 12_344, 7, 99, 100, 9_999, 10_000] {
            let field = keys.set(index).to_vec();
            assert_eq!(field, [b"\x80\x01user:", format!("{index:020}").as_bytes()].concat());
            let key = format!("user:{index:020}");
            for vbuckets in [64, 1024] {
                assert_eq!(keys.vbucket(vbuckets), vbucket_of(key.as_bytes(), vbuckets));
            }
        }
    }

    #[test]
    fn the_smallest_and_the_largest_number_fit() {
        let mut one = KeyField::new("", None, "", 20, 1);
        assert_eq!(one.set(0), b"00000000000000000000");
        let mut many = KeyField::new("", None, "", 20, u64::MAX);
        assert_eq!(many.set(u64::MAX - 1), b"18446744073709551614");
        assert_eq!(many.vbucket(1024), vbucket_of(b"18446744073709551614", 1024));
    }

    #[test]
    fn keys_may_have_fewer_digits() {
        let mut keys = KeyField::new("", None, "k", 4, 10_000);
        for (index, key) in [(9_999, "k9999"), (0, "k0000"), (120, "k0120")] {
            assert_eq!(keys.set(index), key.as_bytes());
            assert_eq!(keys.vbucket(1024), vbucket_of(key.as_bytes(), 1024));
        }
        assert_eq!([0, 1, 10, 11, 10_000, 10_001, u64::MAX].map(digits_of), [1, 1, 1, 2, 4, 5, 20]);
    }

    /// The first pair of an odd number of digits once took the last byte of the prefix with it.
    #[test]
    fn an_odd_number_of_digits_leaves_the_prefix_alone() {
        for (prefix, digits, items) in [("x:", 3, 1000), ("", 1, 10), ("k", 1, 7), ("", 5, 100_000)]
        {
            let mut keys = KeyField::new("a.b", Some(CollectionId(9)), prefix, digits, items);
            for index in [items - 1, 0, 5] {
                let key = format!("{prefix}{index:0digits$}");
                assert_eq!(keys.set(index), [b"\x09", key.as_bytes()].concat());
                assert_eq!(keys.vbucket(1024), vbucket_of(key.as_bytes(), 1024));
            }
        }
    }

    #[test]
    fn collections_and_prefixes_have_seeds_of_their_own() {
        let seed = |path, prefix| KeyField::new(path, None, prefix, 20, 1).seed();
        assert_ne!(seed("a.b", ""), seed("a.c", ""));
        assert_ne!(seed("a.b", ""), seed("a.b", "x"));
    }
}
