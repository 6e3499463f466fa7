//! There and back; other bytes are refused.

use proptest::prelude::*;

use super::*;
use crate::testing::{TestDocument, any_document};

#[test]
fn the_layout_is_the_documented_one() {
    let record = ArchiveRecord {
        kind: RecordKind::Deletion,
        vbid: Vbid(0x0102),
        seqno: Seqno(3),
        cas: Cas(4),
        rev: RevSeqno(5),
        flags: 6,
        expiry: 7,
        collection: CollectionId(8),
        datatype: Datatype(4),
        key: b"key",
        value: b"xattr",
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes).unwrap();
    assert_eq!(bytes.len(), HEAD_BYTES + 8);
    assert_eq!(bytes[..8], [0, 0, 0, 50, 2, 4, 1, 2]);
    assert_eq!((bytes[15], bytes[23], bytes[31]), (3, 4, 5));
    assert_eq!((bytes[35], bytes[39], bytes[43], &bytes[44..46]), (6, 7, 8, &[0, 3][..]));
    assert_eq!(&bytes[HEAD_BYTES..], b"keyxattr");
}

#[test]
fn impossible_records_are_rejected() {
    let value = vec![0; RECORD_BYTES_MAX];
    let document = TestDocument::default();
    let record = ArchiveRecord { value: &value, ..document.as_record() };
    let mut out = Vec::new();
    record.encode(&mut out).unwrap_err();
    let key = vec![0; usize::from(u16::MAX) + 1];
    ArchiveRecord { key: &key, ..record }.encode(&mut out).unwrap_err();
    assert!(out.is_empty());
}

proptest! {
    #[test]
    fn records_come_back(documents in prop::collection::vec(any_document(), 0..5), cut in 1..40_usize) {
        let mut bytes = Vec::new();
        for document in &documents {
            document.as_record().encode(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        for document in &documents {
            let record = document.as_record();
            let seen = ArchiveRecord::peek(rest).unwrap();
            prop_assert_eq!(seen, (record.vbid, record.encoded_bytes()));
            prop_assert_eq!(ArchiveRecord::decode(&mut rest).unwrap(), record);
        }
        prop_assert!(rest.is_empty());
        let mut torn = &bytes[..bytes.len().saturating_sub(cut)];
        while !torn.is_empty() {
            let before = torn.len();
            match ArchiveRecord::decode(&mut torn) {
                Ok(_) => prop_assert!(torn.len() < before),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut rest = &bytes[..];
        loop {
            let (seen, before) = (ArchiveRecord::peek(rest), rest.len());
            let Ok(record) = ArchiveRecord::decode(&mut rest) else { break };
            prop_assert!(record.encoded_bytes() <= bytes.len());
            prop_assert_eq!(seen, Ok((record.vbid, before - rest.len())));
        }
    }
}
