//! Known frame infos, and every way in which they can be wrong.

use super::*;

fn durability(level: DurabilityLevel, timeout_ms: Option<u16>) -> RequestFrames {
    RequestFrames { durability: Some(Durability { level, timeout_ms }), ..Default::default() }
}

#[test]
fn decodes_known_frame_infos() {
    let majority = DurabilityLevel::Majority;
    let persist = DurabilityLevel::PersistToMajority;
    let preserved = RequestFrames { preserve_expiry: true, ..durability(majority, None) };
    let cases: [(&[u8], RequestFrames); 11] = [
        (b"", RequestFrames::default()),
        (b"\x00", RequestFrames { barrier: true, ..Default::default() }),
        (b"\x11\x01", durability(majority, None)),
        (b"\x13\x03\x03\xe8", durability(persist, Some(1000))),
        (b"\x22\x00\x05", RequestFrames { stream_id: Some(5), ..Default::default() }),
        (b"\x50", RequestFrames { preserve_expiry: true, ..Default::default() }),
        (b"\x50\x11\x01", preserved),
        // Of several the first counts.
        (b"\x11\x01\x11\x03", durability(majority, None)),
        (b"\x13\x03\x03\xe8\x11\x01\x13\x01\x00\x01", durability(persist, Some(1000))),
        (b"\x50\x11\x01\x50\x11\x01", preserved),
        (b"\x22\x00\x05\x22\x00\x06", RequestFrames { stream_id: Some(5), ..Default::default() }),
    ];
    for (bytes, frames) in cases {
        assert_eq!(decode(bytes), Ok(frames), "{bytes:02x?}");
    }
}

#[test]
fn rejects_what_is_malformed_or_unknown() {
    use FrameInfoError::{InvalidDurability, Malformed, Unknown};
    let cases: [(&[u8], FrameInfoError); 17] = [
        (b"\x01\x00", Malformed),
        (b"\x00\x01\x00", Malformed),
        (b"\x10", Malformed),
        (b"\x11", Malformed),
        (b"\x12\x01\x00", Malformed),
        (b"\x13\x01\x00\x00", InvalidDurability),
        (b"\x13\x01\xff\xff", InvalidDurability),
        (b"\x11\x01\x12\x01\x00", Malformed),
        (b"\x11\x01\x11\x04", InvalidDurability),
        (b"\x21\x00", Malformed),
        (b"\x51\x00", Malformed),
        (b"\xff\x01", Malformed),
        (b"\x11\x00", InvalidDurability),
        (b"\x11\x04", InvalidDurability),
        (b"\x30", Unknown(3)),
        (b"\xe0", Unknown(14)),
        (b"\xf1\x02\x00", Unknown(17)),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(bytes), Err(error), "{bytes:02x?}");
    }
}

/// Both nibbles escaped: the id's byte comes before the length's.
#[test]
fn reads_escapes_in_order() {
    let mut bytes = vec![0xff, 1, 2];
    bytes.extend_from_slice(&[0; 17]);
    assert_eq!(split_first(&bytes).map(|(id, value, _)| (id, value.len())), Some((16, 17)));
    assert_eq!(split_first(&bytes[..19]), None);
}

#[test]
fn encodes_what_it_decodes() {
    let levels = [
        DurabilityLevel::Majority,
        DurabilityLevel::MajorityAndPersistOnMaster,
        DurabilityLevel::PersistToMajority,
    ];
    for level in levels {
        for timeout_ms in [None, Some(1), Some(30_000), Some(u16::MAX - 1)] {
            let mut bytes = Vec::new();
            encode_durability(level, timeout_ms, &mut bytes);
            assert_eq!(decode(&bytes), Ok(durability(level, timeout_ms)));
        }
    }
}

#[test]
fn keeps_off_reserved_timeouts_and_levels() {
    for (asked, sent) in [(0, 1), (u16::MAX, u16::MAX - 1)] {
        let mut bytes = Vec::new();
        encode_durability(DurabilityLevel::Majority, Some(asked), &mut bytes);
        assert_eq!(decode(&bytes), Ok(durability(DurabilityLevel::Majority, Some(sent))));
    }
    let mut bytes = Vec::new();
    encode_durability(DurabilityLevel::None, Some(1000), &mut bytes);
    assert!(bytes.is_empty());
    encode_preserve_expiry(&mut bytes);
    assert_eq!(bytes, [0x50]);
}
