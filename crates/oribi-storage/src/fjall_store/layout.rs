//! Keys and values as they are on disk. The tables of `docs/storage-format.md` say the same, and a
//! test compares the two.
//!
//! Owns: offsets, tags and versions. Invariants: keys are big-endian so that their order is the
//! order of vbucket, collection and key; values are little-endian; whatever bytes come in, decoding
//! answers a record or `StoreError::Corrupt` and never panics.

use byteview::ByteView;
use fjall::Slice;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

use crate::state_layout::{VBUCKETS_MAX, put, take};
pub(super) use crate::state_layout::{assert_fits, decode_state, encode_state};
use crate::{Record, StoreError};

/// Offset of the vbucket in a document's key.
pub(super) const KEY_VBID_AT: usize = 0;
/// Offset of the collection in a document's key.
pub(super) const KEY_COLLECTION_AT: usize = 2;
/// Offset of the logical key in a document's key.
pub(super) const KEY_DOCUMENT_AT: usize = 6;

/// First byte of every key that is not a document's. A vbucket number is below 1024, so no
/// document's key begins with it.
pub(super) const SYSTEM_TAG: u8 = 0xff;
/// Keys of vbucket states: this and the vbucket, big-endian.
pub(super) const STATE_PREFIX: [u8; 2] = [SYSTEM_TAG, b'S'];
/// Keys of local documents: this and the name.
pub(super) const LOCAL_PREFIX: [u8; 2] = [SYSTEM_TAG, b'L'];
/// Keys of unfinished vbucket removals: this and the vbucket, big-endian.
pub(super) const DROP_PREFIX: [u8; 2] = [SYSTEM_TAG, b'D'];

// The numbers above stay free for [`SYSTEM_TAG`].
const _: () = assert!(((VBUCKETS_MAX - 1) >> 8) < SYSTEM_TAG as u16);

/// Version byte of a record's value.
pub(super) const RECORD_VERSION: u8 = 1;
/// Offset of the version byte.
pub(super) const RECORD_VERSION_AT: usize = 0;
/// Offset of the record's bits.
pub(super) const RECORD_BITS_AT: usize = 1;
/// Offset of the datatype.
pub(super) const RECORD_DATATYPE_AT: usize = 2;
/// Offset of a byte that is zero.
pub(super) const RECORD_RESERVED_AT: usize = 3;
/// Offset of the flags, u32.
pub(super) const RECORD_FLAGS_AT: usize = 4;
/// Offset of the expiry, u32.
pub(super) const RECORD_EXPIRY_AT: usize = 8;
/// Offset of the CAS, u64.
pub(super) const RECORD_CAS_AT: usize = 12;
/// Offset of the seqno, u64.
pub(super) const RECORD_SEQNO_AT: usize = 20;
/// Offset of the revision, u64.
pub(super) const RECORD_REV_SEQNO_AT: usize = 28;
/// Length of the header, and offset of the document.
pub(super) const RECORD_HEADER_BYTES: usize = 36;

/// Bit of a record that is a tombstone; all other bits are zero.
pub(super) const RECORD_DELETED_BIT: u8 = 0x01;

/// Beginning of the keys of a vbucket's documents.
pub(super) fn vbucket_prefix(vbid: Vbid) -> [u8; KEY_COLLECTION_AT] {
    vbid.0.to_be_bytes()
}

/// Beginning of the keys of a collection's documents in a vbucket.
pub(super) fn collection_prefix(vbid: Vbid, collection: CollectionId) -> [u8; KEY_DOCUMENT_AT] {
    let mut prefix = [0; KEY_DOCUMENT_AT];
    prefix[KEY_VBID_AT..KEY_COLLECTION_AT].copy_from_slice(&vbid.0.to_be_bytes());
    prefix[KEY_COLLECTION_AT..].copy_from_slice(&collection.0.to_be_bytes());
    prefix
}

/// What comes behind the keys of a collection's documents in a vbucket, as the end of a range.
pub(super) fn after_collection(vbid: Vbid, collection: CollectionId) -> Vec<u8> {
    let mut end = collection_prefix(vbid, collection).to_vec();
    // Counts up by one with carries; vbuckets are few, so the first byte never overflows.
    for byte in end.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    end
}

/// Key of a document, in one allocation.
pub(super) fn document_key(vbid: Vbid, key: DocKey<'_>) -> Slice {
    ByteView::fused(&collection_prefix(vbid, key.collection), key.key).into()
}

/// Key of a vbucket's state.
pub(super) fn state_key(vbid: Vbid) -> Slice {
    ByteView::fused(&STATE_PREFIX, &vbid.0.to_be_bytes()).into()
}

/// Key that says that a vbucket's removal is not finished.
pub(super) fn drop_key(vbid: Vbid) -> Slice {
    ByteView::fused(&DROP_PREFIX, &vbid.0.to_be_bytes()).into()
}

/// Key of a local document.
pub(super) fn local_key(name: &str) -> Slice {
    ByteView::fused(&LOCAL_PREFIX, name.as_bytes()).into()
}

/// The vbucket of a key that is one of the system prefixes and a vbucket number.
pub(super) fn vbid_of_state_key(key: &[u8]) -> Result<Vbid, StoreError> {
    let number = key.get(STATE_PREFIX.len()..).and_then(|bytes| bytes.try_into().ok());
    match number.map(u16::from_be_bytes) {
        Some(number) if number < VBUCKETS_MAX => Ok(Vbid(number)),
        _ => Err(corrupt("the key of a vbucket state", key)),
    }
}

/// Value of a record: header and document, copied once into one allocation.
pub(super) fn encode_record(record: &Record<'_>) -> Slice {
    let mut header = [0; RECORD_HEADER_BYTES];
    header[RECORD_VERSION_AT] = RECORD_VERSION;
    header[RECORD_BITS_AT] = if record.deleted { RECORD_DELETED_BIT } else { 0 };
    header[RECORD_DATATYPE_AT] = record.datatype.0;
    put(&mut header, RECORD_FLAGS_AT, record.flags.to_le_bytes());
    put(&mut header, RECORD_EXPIRY_AT, record.expiry.to_le_bytes());
    put(&mut header, RECORD_CAS_AT, record.cas.0.to_le_bytes());
    put(&mut header, RECORD_SEQNO_AT, record.seqno.0.to_le_bytes());
    put(&mut header, RECORD_REV_SEQNO_AT, record.rev_seqno.0.to_le_bytes());
    ByteView::fused(&header, record.value).into()
}

/// Reads a document's key and value.
pub(super) fn decode_record<'a>(key: &'a [u8], value: &'a [u8]) -> Result<Record<'a>, StoreError> {
    let Some((prefix, document)) = key.split_first_chunk::<KEY_DOCUMENT_AT>() else {
        return Err(corrupt("a document's key", key));
    };
    let Some((header, body)) = value.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err(corrupt("the header of a record", key));
    };
    let bits = header[RECORD_BITS_AT];
    let is_known = header[RECORD_VERSION_AT] == RECORD_VERSION
        && header[RECORD_RESERVED_AT] == 0
        && bits & !RECORD_DELETED_BIT == 0;
    let record = Record {
        key: DocKey {
            collection: CollectionId(u32::from_be_bytes(take(prefix, KEY_COLLECTION_AT))),
            key: document,
        },
        value: body,
        cas: Cas(u64::from_le_bytes(take(header, RECORD_CAS_AT))),
        seqno: Seqno(u64::from_le_bytes(take(header, RECORD_SEQNO_AT))),
        rev_seqno: RevSeqno(u64::from_le_bytes(take(header, RECORD_REV_SEQNO_AT))),
        flags: u32::from_le_bytes(take(header, RECORD_FLAGS_AT)),
        expiry: u32::from_le_bytes(take(header, RECORD_EXPIRY_AT)),
        datatype: Datatype(header[RECORD_DATATYPE_AT]),
        deleted: bits & RECORD_DELETED_BIT != 0,
    };
    if !is_known || record.seqno == Seqno(0) || document.is_empty() {
        return Err(corrupt("the header of a record", key));
    }
    Ok(record)
}

/// Names what is wrong, and which entry by its first bytes; documents stay out of the log.
fn corrupt(what: &str, entry: &[u8]) -> StoreError {
    let shown = &entry[..entry.len().min(KEY_DOCUMENT_AT)];
    StoreError::Corrupt(format!("{what} is not what this version writes, entry {shown:02x?}"))
}
