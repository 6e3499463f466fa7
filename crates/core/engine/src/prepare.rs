//! A durable write that its vbucket's copies have not committed yet, as a version of a reserved
//! collection.
//!
//! Owns: the form of that version. Queue, store and replication streams treat it like any other; no
//! table has it, and streams of clients leave it out. Its key is the collection and the document's
//! key, its value a header and the document's value. A tombstone under the key is an abort. A
//! commit needs no separate form: it is the next version of the document.
//!
//! | offset | length | field |
//! |---|---|---|
//! | `LEVEL_AT` | 1 | durability level, 1 to 3 |
//! | `BITS_AT` | 1 | 1 for a deletion |
//! | `DATATYPE_AT` | 1 | datatype of the value; a zero byte follows |
//! | `FLAGS_AT` | 4 | client flags |
//! | `EXPIRY_AT` | 4 | expiry, or time of deletion |
//! | `HEADER_BYTES` | rest | the value |

use oribi_types::{CollectionId, Datatype, DocKey, DurabilityLevel};

use crate::item::{Item, ItemFields, NewItem};

const LEVEL_AT: usize = 0;
const BITS_AT: usize = 1;
const DATATYPE_AT: usize = 2;
const FLAGS_AT: usize = 4;
const EXPIRY_AT: usize = 8;
const HEADER_BYTES: usize = 12;
/// Bytes of the collection in front of the key.
const COLLECTION_BYTES: usize = 4;
const DELETED: u8 = 1;

const _: () = assert!(LEVEL_AT < BITS_AT && BITS_AT < DATATYPE_AT && DATATYPE_AT < FLAGS_AT);
const _: () = assert!(FLAGS_AT + size_of::<u32>() == EXPIRY_AT);
const _: () = assert!(EXPIRY_AT + size_of::<u32>() == HEADER_BYTES);
const _: () = assert!(COLLECTION_BYTES == size_of::<CollectionId>());
const _: () = assert!(CollectionId::PREPARES.0 <= RESERVED_ID_MAX);
const _: () = assert!(CollectionId::PREPARES.0 != CollectionId::SYSTEM.0);

/// The document that a prepare will write.
#[derive(Clone, Copy)]
pub(crate) struct PreparedDocument<'a> {
    pub(crate) level: DurabilityLevel,
    pub(crate) fields: ItemFields,
    pub(crate) value: &'a [u8],
}

/// What a version of [`CollectionId::PREPARES`] says of its document.
pub struct PreparedVersion<'a> {
    pub key: DocKey<'a>,
    pub datatype: Datatype,
    pub value: &'a [u8],
}

impl<'a> PreparedVersion<'a> {
    /// `value` is `None` for an abort. `None` for bytes that no node sends.
    pub fn of(key: &'a [u8], value: Option<&'a [u8]>) -> Option<PreparedVersion<'a>> {
        let key = document_key(key)?;
        let Some(value) = value else {
            return Some(PreparedVersion { key, datatype: Datatype::RAW, value: &[] });
        };
        let decoded = decode(value)?;
        debug_assert!(decoded.value.len() < value.len(), "a header stands before the value");
        Some(PreparedVersion { key, datatype: decoded.fields.datatype, value: decoded.value })
    }
}

/// The version that prepares `document`.
pub(crate) fn prepare_of(document: &Item, level: DurabilityLevel) -> NewItem {
    debug_assert!(!document.is_evicted(), "a prepare has the value of its document");
    debug_assert_ne!(level, DurabilityLevel::None, "a prepare has a level");
    let mut header = [0; HEADER_BYTES];
    header[LEVEL_AT] = level_code(level);
    header[BITS_AT] = if document.is_deleted() { DELETED } else { 0 };
    header[DATATYPE_AT] = document.datatype().0;
    header[FLAGS_AT..EXPIRY_AT].copy_from_slice(&document.flags().to_be_bytes());
    header[EXPIRY_AT..].copy_from_slice(&document.expiry().to_be_bytes());
    let key = stored_key(document.key());
    let key = DocKey { collection: CollectionId::PREPARES, key: &key };
    NewItem::new(key, ItemFields::default(), &[&header, document.value()])
}

/// The version that aborts the prepare of a key.
pub(crate) fn abort_of(key: DocKey<'_>, now_s: u32) -> NewItem {
    let key = stored_key(key);
    let key = DocKey { collection: CollectionId::PREPARES, key: &key };
    NewItem::new(key, ItemFields { deleted: true, expiry: now_s, ..ItemFields::default() }, &[])
}

/// The key of the document that the version is about; `None` for bytes that no node writes.
pub(crate) fn document_key(key: &[u8]) -> Option<DocKey<'_>> {
    let (collection, key) = key.split_first_chunk::<COLLECTION_BYTES>()?;
    let collection = CollectionId(u32::from_be_bytes(*collection));
    let is_reserved = (CollectionId::SYSTEM.0..=RESERVED_ID_MAX).contains(&collection.0);
    (!key.is_empty() && !is_reserved).then_some(DocKey { collection, key })
}

/// The document of a prepare's value; `None` for bytes that no node writes.
pub(crate) fn decode(value: &[u8]) -> Option<PreparedDocument<'_>> {
    let (header, value) = value.split_first_chunk::<HEADER_BYTES>()?;
    let u32_at = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map(|bytes| u32::from_be_bytes(*bytes))
    };
    let level = match header[LEVEL_AT] {
        1 => DurabilityLevel::Majority,
        2 => DurabilityLevel::MajorityAndPersistOnMaster,
        3 => DurabilityLevel::PersistToMajority,
        _ => return None,
    };
    let is_known = header[BITS_AT] & !DELETED == 0 && header[DATATYPE_AT] < DATATYPES;
    let fields = ItemFields {
        flags: u32_at(FLAGS_AT)?,
        expiry: u32_at(EXPIRY_AT)?,
        datatype: Datatype(header[DATATYPE_AT]),
        deleted: header[BITS_AT] & DELETED != 0,
        ..ItemFields::default()
    };
    is_known.then_some(PreparedDocument { level, fields, value })
}

/// Combinations of JSON, Snappy and extended attributes.
const DATATYPES: u8 = 8;
/// Highest collection id that the protocol reserves.
const RESERVED_ID_MAX: u32 = 7;

fn level_code(level: DurabilityLevel) -> u8 {
    match level {
        DurabilityLevel::None | DurabilityLevel::Majority => 1,
        DurabilityLevel::MajorityAndPersistOnMaster => 2,
        DurabilityLevel::PersistToMajority => 3,
    }
}

pub(crate) fn stored_key(key: DocKey<'_>) -> Vec<u8> {
    debug_assert_ne!(key.collection, CollectionId::PREPARES, "a prepare is about a document");
    [&key.collection.0.to_be_bytes(), key.key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepare_has_everything_of_its_document() {
        let key = DocKey { collection: CollectionId(0x1234), key: b"k" };
        let fields = ItemFields {
            flags: 7,
            expiry: 9,
            datatype: Datatype::JSON,
            deleted: true,
            ..ItemFields::default()
        };
        let document = NewItem::new(key, fields, &[b"value"]);
        let prepare = prepare_of(document.as_item(), DurabilityLevel::PersistToMajority);
        let item = prepare.as_item();
        assert_eq!(item.key().collection, CollectionId::PREPARES);
        assert_eq!(document_key(item.key().key), Some(key));
        let PreparedDocument { level, fields: decoded, value } = decode(item.value()).unwrap();
        assert_eq!((level, value), (DurabilityLevel::PersistToMajority, &b"value"[..]));
        assert_eq!((decoded.flags, decoded.expiry, decoded.deleted), (7, 9, true));
        assert_eq!(decoded.datatype, Datatype::JSON);
        let abort = abort_of(key, 5);
        assert!(abort.as_item().is_deleted());
        assert_eq!(document_key(abort.as_item().key().key), Some(key));
    }

    #[test]
    fn foreign_bytes_are_no_prepare() {
        for bytes in [&b""[..], &[1; 11], &[0; 12], &[4; 12], &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(decode(bytes).is_none(), "{bytes:?}");
        }
        for key in [&b""[..], b"abc", &[0, 0, 0, 0], &[0, 0, 0, 1, b'k'], &[0, 0, 0, 7, b'k']] {
            assert!(document_key(key).is_none(), "{key:?}");
        }
    }
}
