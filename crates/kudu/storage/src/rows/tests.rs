//! Values are divided so that they can be joined again, and text so that every piece is text.

use oribi_types::{Cas, CollectionId, RevSeqno, Seqno};
use proptest::prelude::*;

use super::*;

fn record(datatype: Datatype, value: &[u8]) -> Record<'_> {
    Record {
        key: DocKey { collection: CollectionId(0), key: b"k" },
        value,
        cas: Cas(1),
        seqno: Seqno(1),
        rev_seqno: RevSeqno(1),
        flags: 0,
        expiry: 0,
        datatype,
        deleted: false,
        expired: false,
    }
}

fn joined(parts: &Parts<'_>) -> Vec<u8> {
    let body = parts.pieces().flatten().copied();
    parts.xattrs.unwrap_or_default().iter().copied().chain(body).collect()
}

fn both(a: Datatype, b: Datatype) -> Datatype {
    Datatype(a.0 | b.0)
}

#[test]
fn xattrs_and_body_split_unless_malformed() {
    let json = both(Datatype::XATTR, Datatype::JSON);
    let parts_of = |value| Parts::of(&record(json, value), true);
    let value = b"\0\0\0\x08\0\0\0\x04k\x001\0{\"a\":1}";
    let parts = parts_of(value);
    assert_eq!((parts.xattrs, &*parts.body), (Some(&value[..12]), &b"{\"a\":1}"[..]));
    assert!(parts.is_json);
    assert_eq!(joined(&parts), value);
    for malformed in [&b"\0\0\0\x09{}"[..], b"\xff\xff\xff\xff{}", b"\0\0", b""] {
        let parts = parts_of(malformed);
        assert_eq!((parts.xattrs, joined(&parts)), (None, malformed.to_vec()));
    }
    let large =
        [&(PIECE_BYTES_MAX as u32).to_be_bytes()[..], &vec![7; PIECE_BYTES_MAX + 9]].concat();
    assert_eq!((parts_of(&large).xattrs, joined(&parts_of(&large))), (None, large.clone()));
}

/// The block in front of the body got into the text column, because all of its bytes happened to be
/// valid text.
#[test]
fn a_body_behind_attributes_is_never_text() {
    let block = 65_552_u32;
    let value = [&block.to_be_bytes()[..], &vec![b'a'; block as usize], b"{\"a\":1}"].concat();
    assert!(std::str::from_utf8(&value).is_ok());
    let record = record(both(Datatype::XATTR, Datatype::JSON), &value);
    let parts = Parts::of(&record, true);
    assert_eq!((parts.xattrs, parts.is_json), (None, false));
    assert!(joined(&parts) == value, "the value changed");
}

#[test]
fn a_compressed_body_is_inflated_xattrs_stay() {
    let compressed =
        snap::raw::Encoder::new().compress_vec(b"{\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}").unwrap();
    let datatype = both(Datatype::SNAPPY, Datatype::JSON);
    let plain = record(datatype, &compressed);
    let parts = Parts::of(&plain, true);
    assert_eq!(
        (&*parts.body, parts.datatype),
        (&b"{\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}"[..], Datatype::JSON)
    );
    assert!(parts.is_json);
    let value = [&b"\0\0\0\x08\0\0\0\x04k\x001\0"[..], &compressed].concat();
    let datatype = both(datatype, Datatype::XATTR);
    let with_block = record(datatype, &value);
    let parts = Parts::of(&with_block, true);
    assert_eq!(
        (parts.xattrs, parts.datatype),
        (Some(&value[..12]), both(Datatype::XATTR, Datatype::JSON))
    );
    // A length that promises gigabytes, and noise, stay unchanged.
    for noise in [&b"\xff\xff\xff\xff\x0f"[..], b"noise"] {
        let noise = record(Datatype::SNAPPY, noise);
        let parts = Parts::of(&noise, true);
        assert_eq!((&*parts.body, parts.datatype), (noise.value, Datatype::SNAPPY));
    }
}

// Compat (Buckets on Kudu): compressed values
/// The memory of a checkpoint's documents, compressed, bounds its size. When a batch did not fit
/// one Write inflated, all of its documents stayed compressed, where SQL does not see them.
#[test]
fn as_much_of_a_batch_is_inflated_as_fits_one_write() {
    let compressed = snap::raw::Encoder::new().compress_vec(&vec![7; 10 << 20]).unwrap();
    let small = snap::raw::Encoder::new().compress_vec(b"small").unwrap();
    let batch_of = |bodies: &[&'static [u8]]| VbBatch {
        vbid: Vbid(1),
        records: bodies.iter().map(|body| record(Datatype::SNAPPY, body)).collect(),
        state: VbucketState { high_seqno: Seqno(1), max_cas: Cas(1), ..VbucketState::empty() },
    };
    let (large, small): (&[u8], &[u8]) = (compressed.leak(), small.leak());
    let batch = batch_of(&[large, large, large, large, large, small]);
    let inflated: Vec<_> = inflations(&batch).collect();
    assert_eq!(inflated, [true, true, true, false, false, true]);
    let bytes = Unit::Batch(&batch).bytes();
    assert!((30 << 20..=WRITE_BYTES_MAX).contains(&bytes), "{bytes}");
    let as_it_is = record(Datatype::SNAPPY, large);
    let parts = Parts::of(&as_it_is, false);
    assert_eq!((&*parts.body, parts.datatype), (large, Datatype::SNAPPY));
}

#[test]
fn json_datatype_without_utf8_is_dropped() {
    assert!(!Parts::of(&record(Datatype::JSON, b"\xff\xfe"), true).is_json);
    assert!(!Parts::of(&record(Datatype::JSON, b""), true).is_json);
    assert!(!Parts::of(&record(Datatype::RAW, b"{}"), true).is_json);
}

proptest! {
    #[test]
    fn pieces_are_short_and_join_to_the_body(
        characters in proptest::collection::vec(any::<char>(), 1..64),
        repeated in 1..2_000_usize,
        is_json in any::<bool>(),
    ) {
        let text = characters.into_iter().collect::<String>().repeat(repeated);
        let datatype = if is_json { Datatype::JSON } else { Datatype::RAW };
        let record = record(datatype, text.as_bytes());
        let parts = Parts::of(&record, true);
        prop_assert_eq!(joined(&parts), text.as_bytes());
        let pieces: Vec<_> = parts.pieces().collect();
        prop_assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        prop_assert!(pieces.len() <= usize::from(rows_max(text.len())));
        if is_json {
            prop_assert!(pieces.iter().all(|piece| std::str::from_utf8(piece).is_ok()));
        }
    }
}
