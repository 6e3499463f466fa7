//! Requests as bytes, and extras of the right and of every wrong length.

use proptest::prelude::*;

use super::*;
use crate::frame::{DecodedFrame, decode};

#[test]
fn encodes_a_known_set() {
    let extras = SetExtras { flags: 0xdead_beef, expiry: 0x0e10 }.encode();
    let parts = RequestParts {
        vbid: Vbid(3),
        opaque: 7,
        cas: 9,
        datatype: 1,
        extras: &extras,
        key: b"Hello",
        value: b"World",
        ..RequestParts::new(Opcode::Set)
    };
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &parts);
    assert_eq!(
        bytes,
        b"\x80\x01\x00\x05\x08\x01\x00\x03\x00\x00\x00\x12\x00\x00\x00\x07\
          \x00\x00\x00\x00\x00\x00\x00\x09\xde\xad\xbe\xef\x00\x00\x0e\x10HelloWorld"
    );
    let mut head = Vec::new();
    encode_request_head(&mut head, &parts, 5);
    assert_eq!(head, bytes[..bytes.len() - 5], "the head is all but the value");
}

#[test]
fn refuses_extras_of_other_lengths() {
    for len in 0..40 {
        let extras = vec![0; len];
        assert_eq!(SetExtras::decode(&extras).is_some(), len == SetExtras::BYTES);
        assert_eq!(CounterExtras::decode(&extras).is_some(), len == CounterExtras::BYTES);
        assert_eq!(ExpiryExtras::decode(&extras).is_some(), len == ExpiryExtras::BYTES);
        assert_eq!(ConfigVersion::decode(&extras).is_some(), len == ConfigVersion::BYTES);
    }
}

#[test]
fn orders_config_versions_by_epoch_first() {
    let version = |epoch, revision| ConfigVersion { epoch, revision };
    assert!(version(2, 1) > version(1, 9));
    assert!(version(1, 9) > version(1, 8));
    assert_eq!(ConfigVersion::decode(&version(-1, 5).encode()), Some(version(-1, 5)));
}

proptest! {
    #[test]
    fn every_request_comes_back(
        (vbucket, opaque, cas, datatype) in any::<(u16, u32, u64, u8)>(),
        framing in prop::collection::vec(any::<u8>(), 0..20),
        extras in prop::collection::vec(any::<u8>(), 0..30),
        key in prop::collection::vec(any::<u8>(), 0..251),
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let parts = RequestParts {
            vbid: Vbid(vbucket),
            opaque,
            cas,
            datatype,
            framing: &framing,
            extras: &extras,
            key: &key,
            value: &value,
            ..RequestParts::new(Opcode::Append)
        };
        let mut bytes = b"before".to_vec();
        encode_request(&mut bytes, &parts);
        let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&bytes[6..]) else {
            panic!("a request decodes");
        };
        prop_assert_eq!(consumed, bytes.len() - 6);
        prop_assert_eq!(frame.header.magic.is_alt(), !framing.is_empty());
        prop_assert_eq!(frame.header.vbucket_or_status, vbucket);
        prop_assert_eq!((frame.header.opaque, frame.header.cas), (opaque, cas));
        prop_assert_eq!((frame.framing, frame.extras), (&framing[..], &extras[..]));
        prop_assert_eq!((frame.key, frame.value), (&key[..], &value[..]));
    }

    #[test]
    fn extras_come_back((delta, initial, expiry, flags) in any::<(u64, u64, u32, u32)>()) {
        let counter = CounterExtras { delta, initial, expiry };
        prop_assert_eq!(CounterExtras::decode(&counter.encode()), Some(counter));
        let set = SetExtras { flags, expiry };
        prop_assert_eq!(SetExtras::decode(&set.encode()), Some(set));
        let touch = ExpiryExtras { expiry };
        prop_assert_eq!(ExpiryExtras::decode(&touch.encode()), Some(touch));
    }
}
