//! Operations as requests: opcode, extras, prefix and framing.

use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_types::{DurabilityLevel, Vbid};

use super::*;

const EVERYTHING: EncodingTerms =
    EncodingTerms { collections: true, framing: true, compress: false };

fn encode(operation: &Operation<'_>, prefix: Option<u32>) -> (Opcode, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut encoder = Encoder::default();
    let terms = EncodingTerms { collections: prefix.is_some(), ..EVERYTHING };
    let collection = CollectionId(prefix.unwrap_or(0));
    let (parts, value) = encoder.encode(operation, Vbid(3), collection, terms).unwrap();
    assert_eq!(value, operation.value());
    assert_eq!(parts.vbid, Vbid(3));
    (parts.opcode, parts.framing.to_vec(), parts.extras.to_vec(), parts.key.to_vec())
}

#[test]
fn encodes_each_kind() {
    let options = WriteOptions { flags: 1, expiry: 2, ..WriteOptions::default() };
    let value = Bytes::from_static(b"v");
    let set_extras = vec![0, 0, 0, 1, 0, 0, 0, 2];
    for (operation, opcode) in [
        (Operation::upsert(b"k", value.clone(), &options), Opcode::Set),
        (Operation::add(b"k", value.clone(), &options), Opcode::Add),
        (Operation::replace(b"k", value, &options), Opcode::Replace),
    ] {
        let expected = (opcode, vec![], set_extras.clone(), b"k".to_vec());
        assert_eq!(encode(&operation, None), expected);
    }
    let get = encode(&Operation::get(b"k"), Some(0x80));
    assert_eq!(get, (Opcode::Get, vec![], vec![], b"\x80\x01k".to_vec()));
    let touch = encode(&Operation::touch(b"k", 9), Some(0));
    assert_eq!(touch, (Opcode::Touch, vec![], vec![0, 0, 0, 9], b"\x00k".to_vec()));
}

#[test]
fn encodes_what_reads_and_locks() {
    let cases = [
        (Operation::get_and_touch(b"k", 9), Opcode::Gat, vec![0, 0, 0, 9], 0),
        (Operation::get_and_lock(b"k", 0), Opcode::GetLocked, vec![], 0),
        (Operation::get_and_lock(b"k", 20), Opcode::GetLocked, vec![0, 0, 0, 20], 0),
        (Operation::unlock(b"k", Cas(7)), Opcode::UnlockKey, vec![], 7),
        (Operation::get_meta(b"k"), Opcode::GetMeta, vec![], 0),
    ];
    for (operation, opcode, extras, cas) in cases {
        assert_eq!(encode(&operation, None), (opcode, vec![], extras, b"k".to_vec()));
        assert_eq!(operation.options.cas.0, cas);
    }
    let options = WriteOptions { flags: 1, expiry: 2, ..WriteOptions::default() };
    let value = Bytes::from_static(b"v");
    for (operation, opcode) in [
        (Operation::append(b"k", value.clone(), &options), Opcode::Append),
        (Operation::prepend(b"k", value, &options), Opcode::Prepend),
    ] {
        assert_eq!(encode(&operation, None), (opcode, vec![], vec![], b"k".to_vec()));
    }
}

/// Only documents that are written whole are compressed, and only when that pays.
#[test]
fn values_are_compressed_where_that_pays() {
    let terms = EncodingTerms { compress: true, ..EVERYTHING };
    let long = Bytes::from(vec![b'x'; 1000]);
    let options = WriteOptions::default();
    for (operation, is_compressed) in [
        (Operation::upsert(b"k", long.clone(), &options), true),
        (Operation::upsert(b"k", long.slice(..32), &options), false),
        (Operation::append(b"k", long, &options), false),
    ] {
        let mut encoder = Encoder::default();
        let (parts, value) = encoder.encode(&operation, Vbid(0), CollectionId(8), terms).unwrap();
        assert_eq!(parts.datatype == 0x02, is_compressed);
        assert_eq!(value != operation.value(), is_compressed);
    }
}

#[test]
fn a_counter_without_initial_value_is_not_created() {
    let options = CounterOptions::decrement(5).expiry(7);
    let (opcode, _, extras, _) = encode(&Operation::counter(b"n", &options), None);
    assert_eq!(opcode, Opcode::Decrement);
    let expected = CounterExtras { delta: 5, initial: 0, expiry: COUNTER_DO_NOT_CREATE };
    assert_eq!(CounterExtras::decode(&extras), Some(expected));
    let options = options.initial(10);
    let (_, _, extras, _) = encode(&Operation::counter(b"n", &options), None);
    let expected = CounterExtras { delta: 5, initial: 10, expiry: 7 };
    assert_eq!(CounterExtras::decode(&extras), Some(expected));
}

#[test]
fn durability_and_preserved_expiry_are_frame_infos() {
    let options = WriteOptions::new()
        .cas(Cas(42))
        .durability(DurabilityLevel::PersistToMajority)
        .durability_timeout_ms(1000)
        .preserve_expiry(true);
    let operation = Operation::upsert(b"k", Bytes::new(), &options);
    let mut encoder = Encoder::default();
    let default = CollectionId::DEFAULT;
    let (parts, _) = encoder.encode(&operation, Vbid(0), default, EVERYTHING).unwrap();
    assert_eq!(parts.framing, b"\x13\x03\x03\xe8\x50");
    assert_eq!(parts.cas, 42);
    let get = Operation::get(b"k");
    let (again, _) = encoder.encode(&get, Vbid(0), default, EVERYTHING).unwrap();
    assert_eq!((again.framing, again.extras, again.cas), (&b""[..], &b""[..], 0));
    let poor = EncodingTerms { collections: false, framing: false, compress: false };
    let error = encoder.encode(&operation, Vbid(0), default, poor).unwrap_err();
    assert!(matches!(error, ClientError::NotOffered(_)));
    let error = encoder.encode(&get, Vbid(0), CollectionId(8), poor).unwrap_err();
    assert!(matches!(error, ClientError::NotOffered(_)));
    encoder.encode(&get, Vbid(0), default, poor).unwrap();
}

#[test]
fn lengths_are_checked_here() {
    let default = CollectionId::DEFAULT;
    let long = vec![b'k'; 251];
    assert!(Operation::get(&long[..250]).check(default).is_ok());
    assert!(Operation::get(&long).check(default).is_err());
    assert!(Operation::get(&long[..246]).check(CollectionId(8)).is_ok());
    assert!(Operation::get(&long[..247]).check(CollectionId(8)).is_err());
    assert!(Operation::get(b"").check(default).is_err());
    let large = Bytes::from(vec![0; VALUE_BYTES_MAX + 1]);
    let options = WriteOptions::default();
    assert!(Operation::upsert(b"k", large.slice(1..), &options).check(default).is_ok());
    assert!(Operation::upsert(b"k", large, &options).check(default).is_err());
}
