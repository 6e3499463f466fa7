//! Responses as bytes.

use super::*;
use crate::frame::{DecodedFrame, decode};

#[test]
fn writes_a_known_hit() {
    let parts = ResponseParts {
        cas: 0x0102_0304_0506_0708,
        datatype: 1,
        extras: b"\x00\x00\x00\x2a",
        value: b"{}",
        ..ResponseParts::new(0x00, Status::Success, 0x1122_3344)
    };
    let mut bytes = Vec::new();
    write_response(&mut bytes, &parts);
    assert_eq!(
        bytes,
        b"\x81\x00\x00\x00\x04\x01\x00\x00\x00\x00\x00\x06\x11\x22\x33\x44\
          \x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x2a{}"
    );
    let mut head = Vec::new();
    write_response_head(&mut head, &parts, 2);
    assert_eq!(head, bytes[..bytes.len() - 2], "the head is all but the value");
}

#[test]
fn keeps_an_unknown_opcode() {
    let mut bytes = Vec::new();
    write_response(&mut bytes, &ResponseParts::new(0xee, Status::UnknownCommand, 5));
    let Ok(DecodedFrame::Complete { frame, .. }) = decode(&bytes) else {
        panic!("a response decodes");
    };
    assert_eq!((frame.header.opcode, frame.header.vbucket_or_status), (0xee, 0x81));
}

#[test]
fn announces_a_cluster_map() {
    let version = ConfigVersion { epoch: 1, revision: 7 };
    let mut bytes = Vec::new();
    write_clustermap_notification(&mut bytes, b"default", version, b"{}", 1);
    let Ok(DecodedFrame::Complete { frame, .. }) = decode(&bytes) else {
        panic!("a notification decodes");
    };
    assert_eq!((frame.header.magic, frame.header.opcode), (Magic::ServerRequest, 1));
    assert_eq!(ConfigVersion::decode(frame.extras), Some(version));
    assert_eq!((frame.key, frame.value), (&b"default"[..], &b"{}"[..]));
}

#[test]
fn extras_come_back() {
    let mutation = MutationTokenExtras { vb_uuid: VbUuid(u64::MAX - 1), seqno: Seqno(42) };
    assert_eq!(MutationTokenExtras::decode(&mutation.encode()), Some(mutation));
    let lookup =
        CollectionIdExtras { manifest_uid: ManifestUid(0x0102), collection: CollectionId(9) };
    assert_eq!(lookup.encode(), *b"\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x09");
    assert_eq!(CollectionIdExtras::decode(&lookup.encode()), Some(lookup));
    for len in 0..30 {
        let bytes = vec![0; len];
        assert_eq!(
            MutationTokenExtras::decode(&bytes).is_some(),
            len == MutationTokenExtras::BYTES
        );
        assert_eq!(CollectionIdExtras::decode(&bytes).is_some(), len == CollectionIdExtras::BYTES);
    }
}

#[test]
fn duration_is_a_frame_in_front_of_the_extras() {
    let duration = Some(ServerDuration(0x0102));
    let (extras, key, value) = (&[9, 9, 9, 9][..], &b"k"[..], &b"v"[..]);
    let parts = ResponseParts {
        duration,
        extras,
        key,
        value,
        ..ResponseParts::new(0x0c, Status::Success, 7)
    };
    let mut out = Vec::new();
    write_response(&mut out, &parts);
    assert_eq!(out[..5], [0x18, 0x0c, 3, 1, 4]);
    let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&out) else { panic!("{out:?}") };
    assert_eq!(consumed, out.len());
    assert_eq!(frame.framing, [0x02, 0x01, 0x02]);
    assert_eq!(ServerDuration::decode(frame.framing), duration);
    assert_eq!((frame.extras, frame.key, frame.value), (extras, key, value));
    assert_eq!(ServerDuration::decode(b"\x12\x00"), None);
}

#[test]
fn duration_is_within_the_precision_of_its_encoding() {
    assert_eq!(ServerDuration::of_ns(0), ServerDuration(0));
    assert_eq!(ServerDuration::of_ns(u64::MAX), ServerDuration(u16::MAX));
    for micros in [1.0_f64, 7.0, 100.0, 12_345.0, 2_500_000.0, 119_000_000.0] {
        let said = ServerDuration::of_ns((micros * 1_000.0) as u64).micros();
        // Neighbours of small numbers are further apart.
        let step = micros * 1.74 / (micros * 2.0).powf(1.0 / 1.74);
        assert!((said - micros).abs() <= step, "{micros} became {said}");
    }
    assert!((ServerDuration(u16::MAX).micros() / 120e6 - 1.0).abs() < 0.01);
}
