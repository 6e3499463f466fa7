//! Collection ids in front of keys: unsigned LEB128, least significant seven bits first.
//!
//! Invariant: only the shortest encoding of a number is accepted, so equal documents have equal key
//! bytes. An encoding has at most five bytes, because ids have 32 bits. The module does not know
//! whether a collection exists.

use oribi_types::{CollectionId, DocKey};

use crate::limits::{COLLECTION_KEY_BYTES_MAX, COLLECTION_PREFIX_BYTES_MAX, KEY_BYTES_MAX};

/// Ids from 1 up to this one are reserved and name no collection.
const RESERVED_ID_MAX: u32 = 7;

/// Why a key field is not a document key. All are answered with `Einval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The prefix is truncated, too long, or not the shortest encoding.
    MalformedPrefix,
    /// The prefix is one of the reserved ids.
    ReservedCollection,
    /// Nothing follows the prefix.
    EmptyKey,
    /// The logical key is longer than its collection allows.
    KeyTooLong,
}

/// Decodes one number and returns what follows it; `None` unless it is the shortest encoding.
pub fn decode_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u32;
    for (index, &byte) in bytes.iter().enumerate().take(COLLECTION_PREFIX_BYTES_MAX) {
        let bits = u32::from(byte & 0x7f);
        let shift = 7 * index as u32;
        // The fifth byte holds the last four bits of 32.
        if shift == 28 && bits > 0x0f {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            let is_shortest = index == 0 || byte != 0;
            return is_shortest.then(|| (value, bytes.get(index + 1..).unwrap_or_default()));
        }
    }
    None
}

/// Encodes a number: the first `len` bytes of the array.
pub const fn encode_u32(mut value: u32) -> ([u8; COLLECTION_PREFIX_BYTES_MAX], usize) {
    let mut bytes = [0; COLLECTION_PREFIX_BYTES_MAX];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

/// Splits the key field of a request on a connection that negotiated collections.
#[inline]
pub fn split_collection_key(field: &[u8]) -> Result<DocKey<'_>, KeyError> {
    let (id, key) = match field {
        // The default collection and the first others.
        [id @ 0..0x80, key @ ..] => (u32::from(*id), key),
        _ => decode_u32(field).ok_or(KeyError::MalformedPrefix)?,
    };
    if (1..=RESERVED_ID_MAX).contains(&id) {
        return Err(KeyError::ReservedCollection);
    }
    let key_bytes_max = if id == 0 { KEY_BYTES_MAX } else { COLLECTION_KEY_BYTES_MAX };
    if key.is_empty() {
        return Err(KeyError::EmptyKey);
    }
    if key.len() > key_bytes_max {
        return Err(KeyError::KeyTooLong);
    }
    Ok(DocKey { collection: CollectionId(id), key })
}

#[cfg(test)]
mod tests;
