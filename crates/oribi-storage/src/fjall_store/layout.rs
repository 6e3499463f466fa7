//! Keys and values as they are on disk. The tables of `docs/storage-format.md` say the same, and a
//! test compares the two.
//!
//! Owns: offsets, tags and versions. Invariants: keys are big-endian so that their order is the
//! order of vbucket, collection and key; values are little-endian; whatever bytes come in, decoding
//! answers a record or `StoreError::Corrupt` and never panics.

use byteview::ByteView;
use fjall::Slice;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, VbUuid, Vbid};

use crate::{FailoverEntry, Record, StoreError, VbBatch, VbucketPhase, VbucketState};

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

/// Most vbuckets of a bucket; the numbers above stay free for [`SYSTEM_TAG`].
const VBUCKETS_MAX: u16 = 1024;
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

/// Version byte of a vbucket state.
pub(super) const STATE_VERSION: u8 = 1;
/// Offset of the version byte.
pub(super) const STATE_VERSION_AT: usize = 0;
/// Offset of the phase.
pub(super) const STATE_PHASE_AT: usize = 1;
/// Offset of the highest seqno, u64.
pub(super) const STATE_HIGH_SEQNO_AT: usize = 2;
/// Offset of the highest CAS, u64.
pub(super) const STATE_MAX_CAS_AT: usize = 10;
/// Offset of the highest revision of a deletion, u64.
pub(super) const STATE_MAX_DELETED_REV_SEQNO_AT: usize = 18;
/// Offset of the purge seqno, u64.
pub(super) const STATE_PURGE_SEQNO_AT: usize = 26;
/// Offset of the number of failover entries, u8.
pub(super) const STATE_FAILOVER_COUNT_AT: usize = 34;
/// Offset of the first failover entry.
pub(super) const STATE_FAILOVER_AT: usize = 35;
/// Length of a failover entry: uuid and seqno, u64 each.
pub(super) const FAILOVER_ENTRY_BYTES: usize = 16;
/// Most failover entries of a vbucket.
pub(super) const FAILOVER_ENTRIES_MAX: usize = 25;

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

/// Refuses a batch that the layout could not give back unchanged.
pub(super) fn assert_fits(batch: &VbBatch<'_>) {
    assert!(batch.vbid.0 < VBUCKETS_MAX, "{} is beyond the layout", batch.vbid);
    let entries = batch.state.failover_table.len();
    assert!(entries <= FAILOVER_ENTRIES_MAX, "{entries} failover entries are beyond the layout");
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

/// Value of a vbucket's state.
pub(super) fn encode_state(state: &VbucketState) -> Vec<u8> {
    let entries = state.failover_table.len();
    let mut value = vec![0; STATE_FAILOVER_AT + entries * FAILOVER_ENTRY_BYTES];
    value[STATE_VERSION_AT] = STATE_VERSION;
    value[STATE_PHASE_AT] = state.phase as u8;
    put(&mut value, STATE_HIGH_SEQNO_AT, state.high_seqno.0.to_le_bytes());
    put(&mut value, STATE_MAX_CAS_AT, state.max_cas.0.to_le_bytes());
    put(&mut value, STATE_MAX_DELETED_REV_SEQNO_AT, state.max_deleted_rev_seqno.0.to_le_bytes());
    put(&mut value, STATE_PURGE_SEQNO_AT, state.purge_seqno.0.to_le_bytes());
    value[STATE_FAILOVER_COUNT_AT] =
        u8::try_from(entries).expect("assert_fits bounds the failover table");
    for (number, entry) in state.failover_table.iter().enumerate() {
        let at = STATE_FAILOVER_AT + number * FAILOVER_ENTRY_BYTES;
        put(&mut value, at, entry.uuid.0.to_le_bytes());
        put(&mut value, at + 8, entry.seqno.0.to_le_bytes());
    }
    value
}

/// Reads a vbucket's state.
pub(super) fn decode_state(value: &[u8]) -> Result<VbucketState, StoreError> {
    let Some((header, table)) = value.split_first_chunk::<STATE_FAILOVER_AT>() else {
        return Err(corrupt("a vbucket state", value));
    };
    let entries = usize::from(header[STATE_FAILOVER_COUNT_AT]);
    let phase = phase_of(header[STATE_PHASE_AT]);
    let (Some(phase), STATE_VERSION) = (phase, header[STATE_VERSION_AT]) else {
        return Err(corrupt("a vbucket state", value));
    };
    if entries > FAILOVER_ENTRIES_MAX || table.len() != entries * FAILOVER_ENTRY_BYTES {
        return Err(corrupt("a failover table", value));
    }
    let entry = |bytes: &[u8]| FailoverEntry {
        uuid: VbUuid(u64::from_le_bytes(take(bytes, 0))),
        seqno: Seqno(u64::from_le_bytes(take(bytes, 8))),
    };
    let rev_seqno = u64::from_le_bytes(take(header, STATE_MAX_DELETED_REV_SEQNO_AT));
    Ok(VbucketState {
        phase,
        high_seqno: Seqno(u64::from_le_bytes(take(header, STATE_HIGH_SEQNO_AT))),
        max_cas: Cas(u64::from_le_bytes(take(header, STATE_MAX_CAS_AT))),
        max_deleted_rev_seqno: RevSeqno(rev_seqno),
        purge_seqno: Seqno(u64::from_le_bytes(take(header, STATE_PURGE_SEQNO_AT))),
        failover_table: table.chunks_exact(FAILOVER_ENTRY_BYTES).map(entry).collect(),
    })
}

fn phase_of(byte: u8) -> Option<VbucketPhase> {
    let phases =
        [VbucketPhase::Active, VbucketPhase::Replica, VbucketPhase::Pending, VbucketPhase::Dead];
    phases.into_iter().find(|phase| *phase as u8 == byte)
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, number: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&number);
}

/// Bytes at a constant offset of a header whose length was checked.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the range has N bytes")
}

/// Names what is wrong, and which entry by its first bytes; documents stay out of the log.
fn corrupt(what: &str, entry: &[u8]) -> StoreError {
    let shown = &entry[..entry.len().min(KEY_DOCUMENT_AT)];
    StoreError::Corrupt(format!("{what} is not what this version writes, entry {shown:02x?}"))
}
