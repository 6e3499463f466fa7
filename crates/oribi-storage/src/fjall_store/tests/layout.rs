//! The layout against its document, and decoding of whatever bytes.

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, VbUuid, Vbid};
use proptest::prelude::*;

use super::super::STORE_KIND;
use super::super::layout::{
    DROP_PREFIX, KEY_COLLECTION_AT, KEY_DOCUMENT_AT, KEY_VBID_AT, LOCAL_PREFIX, RECORD_BITS_AT,
    RECORD_CAS_AT, RECORD_DATATYPE_AT, RECORD_EXPIRY_AT, RECORD_FLAGS_AT, RECORD_HEADER_BYTES,
    RECORD_RESERVED_AT, RECORD_REV_SEQNO_AT, RECORD_SEQNO_AT, RECORD_VERSION_AT, STATE_PREFIX,
    decode_record, decode_state, document_key, encode_record, encode_state,
};
use crate::directory::{MARKER_BYTES, MARKER_NEW, MARKER_READY, MARKER_STATE_AT};
use crate::state_layout::{
    STATE_FAILOVER_AT, STATE_FAILOVER_COUNT_AT, STATE_HIGH_SEQNO_AT, STATE_MAX_CAS_AT,
    STATE_MAX_DELETED_REV_SEQNO_AT, STATE_PHASE_AT, STATE_PURGE_SEQNO_AT, STATE_VERSION_AT,
};
use crate::{FailoverEntry, Record, VbucketPhase, VbucketState};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/storage-format.md"));

/// Second column of the table row whose first column is the constant's name.
fn documented(name: &str) -> &'static str {
    let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
    let row = row.unwrap_or_else(|| panic!("{name} is not in the document"));
    row.split('|').nth(2).expect("a row has a second column").trim().trim_matches('`')
}

#[test]
fn the_document_says_what_the_constants_are() {
    let offsets = [
        ("MARKER_STATE_AT", MARKER_STATE_AT),
        ("MARKER_BYTES", MARKER_BYTES),
        ("KEY_VBID_AT", KEY_VBID_AT),
        ("KEY_COLLECTION_AT", KEY_COLLECTION_AT),
        ("KEY_DOCUMENT_AT", KEY_DOCUMENT_AT),
        ("RECORD_VERSION_AT", RECORD_VERSION_AT),
        ("RECORD_BITS_AT", RECORD_BITS_AT),
        ("RECORD_DATATYPE_AT", RECORD_DATATYPE_AT),
        ("RECORD_RESERVED_AT", RECORD_RESERVED_AT),
        ("RECORD_FLAGS_AT", RECORD_FLAGS_AT),
        ("RECORD_EXPIRY_AT", RECORD_EXPIRY_AT),
        ("RECORD_CAS_AT", RECORD_CAS_AT),
        ("RECORD_SEQNO_AT", RECORD_SEQNO_AT),
        ("RECORD_REV_SEQNO_AT", RECORD_REV_SEQNO_AT),
        ("RECORD_HEADER_BYTES", RECORD_HEADER_BYTES),
        ("STATE_VERSION_AT", STATE_VERSION_AT),
        ("STATE_PHASE_AT", STATE_PHASE_AT),
        ("STATE_HIGH_SEQNO_AT", STATE_HIGH_SEQNO_AT),
        ("STATE_MAX_CAS_AT", STATE_MAX_CAS_AT),
        ("STATE_MAX_DELETED_REV_SEQNO_AT", STATE_MAX_DELETED_REV_SEQNO_AT),
        ("STATE_PURGE_SEQNO_AT", STATE_PURGE_SEQNO_AT),
        ("STATE_FAILOVER_COUNT_AT", STATE_FAILOVER_COUNT_AT),
        ("STATE_FAILOVER_AT", STATE_FAILOVER_AT),
    ];
    for (name, offset) in offsets {
        assert_eq!(documented(name), offset.to_string(), "{name}");
    }
    assert_eq!(documented("MARKER_TEXT").as_bytes(), STORE_KIND.marker_text);
    assert_eq!(documented("MARKER_NEW").as_bytes(), [MARKER_NEW]);
    assert_eq!(documented("MARKER_READY").as_bytes(), [MARKER_READY]);
    for prefix in [STATE_PREFIX, LOCAL_PREFIX, DROP_PREFIX] {
        let shown = format!("`{:02x} {:02x}` (`{}`)", prefix[0], prefix[1], char::from(prefix[1]));
        assert!(DOCUMENT.contains(&shown), "{shown} is not in the document");
    }
}

/// The bytes of one record and one state, written down: a change of them is a change of format.
#[test]
fn the_bytes_are_those_of_version_one() {
    let key = DocKey { collection: CollectionId(0x0a0b_0c0d), key: b"k" };
    assert_eq!(&*document_key(Vbid(0x0102), key), b"\x01\x02\x0a\x0b\x0c\x0dk");
    let record = Record {
        key,
        value: b"",
        cas: Cas(0x0102_0304_0506_0708),
        seqno: Seqno(0x11),
        rev_seqno: RevSeqno(0x22),
        flags: 0xa1b2_c3d4,
        expiry: 0x33,
        datatype: Datatype::JSON,
        deleted: true,
    };
    let expected = b"\x01\x01\x01\x00\xd4\xc3\xb2\xa1\x33\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\
                     \x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0";
    assert_eq!(&*encode_record(&record), expected);
    let state = VbucketState {
        phase: VbucketPhase::Replica,
        high_seqno: Seqno(1),
        max_cas: Cas(2),
        max_deleted_rev_seqno: RevSeqno(3),
        purge_seqno: Seqno(4),
        failover_table: vec![FailoverEntry { uuid: VbUuid(5), seqno: Seqno(6) }],
    };
    let expected = b"\x01\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
                     \x04\0\0\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
    assert_eq!(encode_state(&state), expected);
}

proptest! {
    #[test]
    fn records_come_back(
        vbid in 0u16..1024,
        collection in any::<u32>(),
        key in prop::collection::vec(any::<u8>(), 1..250),
        value in prop::collection::vec(any::<u8>(), 0..100),
        numbers in any::<(u64, u64, u32, u32, u8, bool)>(),
        seqno in 1u64..,
    ) {
        let (cas, rev_seqno, flags, expiry, datatype, deleted) = numbers;
        let record = Record {
            key: DocKey { collection: CollectionId(collection), key: &key },
            value: &value,
            cas: Cas(cas),
            seqno: Seqno(seqno),
            rev_seqno: RevSeqno(rev_seqno),
            flags,
            expiry,
            datatype: Datatype(datatype),
            deleted,
        };
        let stored_key = document_key(Vbid(vbid), record.key);
        let stored = encode_record(&record);
        prop_assert_eq!(decode_record(&stored_key, &stored).expect("just encoded"), record);
    }

    #[test]
    fn whatever_bytes_never_panic(
        key in prop::collection::vec(any::<u8>(), 0..20),
        value in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        if let Ok(record) = decode_record(&key, &value) {
            prop_assert_eq!(&*encode_record(&record), &value[..]);
        }
        if let Ok(state) = decode_state(&value) {
            prop_assert_eq!(encode_state(&state), value);
        }
    }

    /// Flips bytes of what is almost right, where random bytes would never get.
    #[test]
    fn damaged_states_never_panic(at in 0usize..67, byte in any::<u8>(), length in 0usize..70) {
        let entry = FailoverEntry { uuid: VbUuid(5), seqno: Seqno(6) };
        let state = VbucketState {
            phase: VbucketPhase::Active,
            high_seqno: Seqno(1),
            max_cas: Cas(2),
            max_deleted_rev_seqno: RevSeqno(3),
            purge_seqno: Seqno(4),
            failover_table: vec![entry; 2],
        };
        let mut value = encode_state(&state);
        value[at] = byte;
        value.truncate(length);
        if let Ok(state) = decode_state(&value) {
            prop_assert_eq!(encode_state(&state), value);
        }
    }
}
