//! Operations as requests: opcode, extras, prefix and framing.

use super::*;

fn encode(operation: &Operation<'_>, prefix: Option<u32>) -> (Opcode, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut encoder = Encoder::default();
    let parts = encoder.encode(operation, Vbid(3), prefix.map(CollectionId));
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
fn a_counter_without_initial_value_is_not_created() {
    let mut options = CounterOptions {
        delta: 5,
        decrement: true,
        initial: None,
        expiry: 7,
        durability: DurabilityLevel::None,
    };
    let (opcode, _, extras, _) = encode(&Operation::counter(b"n", &options), None);
    assert_eq!(opcode, Opcode::Decrement);
    let expected = CounterExtras { delta: 5, initial: 0, expiry: COUNTER_DO_NOT_CREATE };
    assert_eq!(CounterExtras::decode(&extras), Some(expected));
    options.initial = Some(10);
    let (_, _, extras, _) = encode(&Operation::counter(b"n", &options), None);
    let expected = CounterExtras { delta: 5, initial: 10, expiry: 7 };
    assert_eq!(CounterExtras::decode(&extras), Some(expected));
}

#[test]
fn durability_and_preserved_expiry_are_frame_infos() {
    let options = WriteOptions {
        cas: Cas(42),
        durability: DurabilityLevel::PersistToMajority,
        durability_timeout_ms: Some(1000),
        preserve_expiry: true,
        ..WriteOptions::default()
    };
    let operation = Operation::upsert(b"k", Bytes::new(), &options);
    let mut encoder = Encoder::default();
    let parts = encoder.encode(&operation, Vbid(0), None);
    assert_eq!(parts.framing, b"\x13\x03\x03\xe8\x50");
    assert_eq!(parts.cas, 42);
    let again = encoder.encode(&Operation::get(b"k"), Vbid(0), None);
    assert_eq!((again.framing, again.extras, again.cas), (&b""[..], &b""[..], 0));
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
