//! Known numbers, the shortest-form rule, and key fields.

use proptest::prelude::*;

use super::*;

#[test]
fn known_numbers() {
    let cases: [(u32, &[u8]); 8] = [
        (0, b"\x00"),
        (8, b"\x08"),
        (0x7f, b"\x7f"),
        (0x80, b"\x80\x01"),
        (0x555, b"\xd5\x0a"),
        (0x7f_ffff, b"\xff\xff\xff\x03"),
        (0xbadc_ab1e, b"\x9e\xd6\xf2\xd6\x0b"),
        (u32::MAX, b"\xff\xff\xff\xff\x0f"),
    ];
    for (value, bytes) in cases {
        assert_eq!(decode_u32(bytes), Some((value, &b""[..])), "{value:#x}");
        let (encoded, len) = encode_u32(value);
        assert_eq!(&encoded[..len], bytes, "{value:#x}");
    }
}

#[test]
fn refuses_longer_forms_overflow_and_cut_numbers() {
    let refused: [&[u8]; 8] = [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\x88\x00",
        b"\xff\x80\x00",
        b"\xff\xff\xff\xff\x10",
        b"\xff\xff\xff\xff\x8f\x00",
        b"\xff\xff\xff\xff\xff\x01",
    ];
    for bytes in refused {
        assert_eq!(decode_u32(bytes), None, "{bytes:02x?}");
    }
}

#[test]
fn splits_key_fields() {
    let default = DocKey { collection: CollectionId::DEFAULT, key: b"k" };
    assert_eq!(split_collection_key(b"\x00k"), Ok(default));
    let named = DocKey { collection: CollectionId(0x555), key: b"\x00" };
    assert_eq!(split_collection_key(b"\xd5\x0a\x00"), Ok(named));
    assert_eq!(split_collection_key(b""), Err(KeyError::MalformedPrefix));
    assert_eq!(split_collection_key(b"\x80\x00k"), Err(KeyError::MalformedPrefix));
    assert_eq!(split_collection_key(b"\x00"), Err(KeyError::EmptyKey));
    assert_eq!(split_collection_key(b"\x08"), Err(KeyError::EmptyKey));
    for id in 1..=7 {
        assert_eq!(split_collection_key(&[id, b'k']), Err(KeyError::ReservedCollection));
    }
}

#[test]
fn bounds_the_logical_key() {
    let field = |id: u8, key_bytes: usize| [vec![id], vec![b'k'; key_bytes]].concat();
    assert!(split_collection_key(&field(0, 250)).is_ok());
    assert_eq!(split_collection_key(&field(0, 251)), Err(KeyError::KeyTooLong));
    assert!(split_collection_key(&field(8, 246)).is_ok());
    assert_eq!(split_collection_key(&field(8, 247)), Err(KeyError::KeyTooLong));
}

proptest! {
    #[test]
    fn every_number_comes_back(value in any::<u32>(), rest in any::<[u8; 3]>()) {
        let (encoded, len) = encode_u32(value);
        let bytes = [&encoded[..len], &rest[..]].concat();
        prop_assert_eq!(decode_u32(&bytes), Some((value, &rest[..])));
    }
}
