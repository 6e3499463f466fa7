//! Known frames, byte by byte, and the layout table.

use super::*;

const GET_HELLO: &[u8] = b"\x80\x00\x00\x05\x00\x00\x01\x02\x00\x00\x00\x05\xde\xad\xbe\xef\
    \x00\x00\x00\x00\x00\x00\x00\x00Hello";

#[test]
fn decodes_a_plain_request() {
    let Ok(DecodedFrame::Complete { frame, consumed }) = decode(GET_HELLO) else {
        panic!("a whole frame decodes");
    };
    assert_eq!(consumed, 29);
    assert_eq!(frame.header.magic, Magic::ClientRequest);
    assert_eq!(frame.header.vbucket_or_status, 0x0102);
    assert_eq!(frame.header.opaque, 0xdead_beef);
    assert_eq!((frame.key, frame.value), (&b"Hello"[..], &b""[..]));
    assert_eq!(frame.header.encode(), GET_HELLO[..HEADER_BYTES]);
}

#[test]
fn decodes_a_request_with_framing_extras() {
    let bytes = b"\x08\x01\x04\x03\x08\x01\x00\x07\x00\x00\x00\x13\x00\x00\x00\x09\
        \x00\x00\x00\x00\x00\x00\x00\x0b\x13\x01\x03\xe8\x00\x00\x00\x01\x00\x00\x00\x02key{ }x";
    let Ok(DecodedFrame::Complete { frame, consumed }) = decode(bytes) else {
        panic!("a whole frame decodes");
    };
    assert_eq!(consumed, 24 + 19);
    assert_eq!(frame.framing, b"\x13\x01\x03\xe8");
    assert_eq!(frame.extras, b"\x00\x00\x00\x01\x00\x00\x00\x02");
    assert_eq!((frame.key, frame.value), (&b"key"[..], &b"{ }x"[..]));
    assert_eq!(frame.header.cas, 11);
    assert_eq!(frame.header.encode(), bytes[..HEADER_BYTES]);
}

#[test]
fn asks_for_the_header_then_for_the_frame() {
    for cut in 0..HEADER_BYTES {
        assert_eq!(
            decode(&GET_HELLO[..cut]),
            Ok(DecodedFrame::Incomplete { needed: HEADER_BYTES })
        );
    }
    for cut in HEADER_BYTES..GET_HELLO.len() {
        assert_eq!(decode(&GET_HELLO[..cut]), Ok(DecodedFrame::Incomplete { needed: 29 }));
    }
}

#[test]
fn rejects_a_wrong_first_byte_at_once() {
    assert_eq!(decode(b"get foo\r\n"), Err(FrameError::UnknownMagic(b'g')));
    assert_eq!(decode(b"\x00"), Err(FrameError::UnknownMagic(0)));
}

#[test]
fn rejects_a_body_shorter_than_its_parts() {
    let mut bytes = GET_HELLO.to_vec();
    bytes[11] = 4;
    let error = decode(&bytes).expect_err("the key does not fit");
    assert_eq!(error.header().map(|header| header.opaque), Some(0xdead_beef));
    assert_eq!(
        error.to_string(),
        "body of 4 bytes is shorter than its parts (framing 0, extras 0, key 5)"
    );
}

/// The largest body a header can announce is reported as needed, not computed wrongly.
#[test]
fn reports_the_largest_body() {
    let mut bytes = GET_HELLO[..HEADER_BYTES].to_vec();
    bytes[8..12].copy_from_slice(&[0xff; 4]);
    let needed = HEADER_BYTES + u32::MAX as usize;
    assert_eq!(decode(&bytes), Ok(DecodedFrame::Incomplete { needed }));
}

#[test]
fn the_table_in_the_documentation_is_the_layout() {
    let constants = [
        ("MAGIC", offset::MAGIC),
        ("OPCODE", offset::OPCODE),
        ("KEY_BYTES", offset::KEY_BYTES),
        ("FRAMING_BYTES", offset::FRAMING_BYTES),
        ("ALT_KEY_BYTES", offset::ALT_KEY_BYTES),
        ("EXTRAS_BYTES", offset::EXTRAS_BYTES),
        ("DATATYPE", offset::DATATYPE),
        ("VBUCKET_OR_STATUS", offset::VBUCKET_OR_STATUS),
        ("BODY_BYTES", offset::BODY_BYTES),
        ("OPAQUE", offset::OPAQUE),
        ("CAS", offset::CAS),
    ];
    let mut plain_end = 0;
    let mut rows = 0;
    for line in include_str!("../frame.rs").lines().filter(|line| line.starts_with("//! | ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Ok(at) = cells[1].parse::<usize>() else { continue };
        let bytes: usize = cells[2].parse().expect("widths are numbers");
        let (name, layout) = cells[3].split_once(' ').unwrap_or((cells[3], ""));
        assert!(constants.contains(&(name, at)), "{name} is not at {at}");
        rows += 1;
        if !layout.starts_with("(with") {
            assert_eq!(at, plain_end, "{name} follows the field before it");
            plain_end = at + bytes;
        }
    }
    assert_eq!(rows, constants.len());
    assert_eq!(plain_end, HEADER_BYTES);
}
