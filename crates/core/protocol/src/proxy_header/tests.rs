//! Headers of both versions: whole, torn, too long and wrong.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::{DecodedProxyHeader, FIXED_BYTES, HEADER_BYTES_MAX, LINE_BYTES_MAX, SIGNATURE, decode};

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

/// A header of version 2.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a length");
    [SIGNATURE, &[command, family], &length.to_be_bytes(), rest].concat()
}

fn v4() -> Vec<u8> {
    vec![192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 0x2b, 0xca]
}

fn v6() -> Vec<u8> {
    let mut rest = vec![0; 36];
    (rest[0], rest[1], rest[15]) = (0x20, 0x01, 9);
    (rest[32], rest[33]) = (0x12, 0x34);
    rest
}

/// Headers that are right, and the client that each names.
fn right() -> Vec<(Vec<u8>, Option<SocketAddr>)> {
    let text = |line: &str| line.as_bytes().to_vec();
    // A TLV with three bytes, and 216 bytes of two paths.
    let with_tlv = [&v4()[..], &[4, 0, 3, 1, 2, 3]].concat();
    vec![
        (text("PROXY TCP4 192.0.2.7 198.51.100.1 56324 11210\r\n"), address("192.0.2.7:56324")),
        (text("PROXY TCP6 2001:db8::9 ::1 4660 0\r\n"), address("[2001:db8::9]:4660")),
        (text("PROXY UNKNOWN\r\n"), None),
        (text("PROXY UNKNOWN ffff::1 what ever\r\n"), None),
        (binary(0x21, 0x11, &v4()), address("192.0.2.7:56324")),
        (binary(0x21, 0x11, &with_tlv), address("192.0.2.7:56324")),
        (binary(0x21, 0x21, &v6()), address("[2001::9]:4660")),
        (binary(0x21, 0x00, b""), None),
        (binary(0x21, 0x00, b"what ever"), None),
        (binary(0x21, 0x31, &[b'/'; 216]), None),
        (binary(0x20, 0x00, b""), None),
        (binary(0x20, 0x11, &v4()), None),
        (binary(0x20, 0x77, b"what ever"), None),
    ]
}

#[test]
fn a_header_names_the_client_however_it_is_torn() {
    for (header, client) in right() {
        for cut in 0..header.len() {
            let torn = &header[..cut];
            assert_eq!(decode(torn), DecodedProxyHeader::Incomplete, "{}", torn.escape_ascii());
        }
        let complete = DecodedProxyHeader::Complete { client, consumed: header.len() };
        assert_eq!(decode(&header), complete, "{}", header.escape_ascii());
        let with_more = [&header[..], b"\n\x80get a\r\nPROXY "].concat();
        assert_eq!(decode(&with_more), complete, "{}", header.escape_ascii());
    }
}

#[test]
fn header_is_rejected_at_the_first_wrong_byte() {
    for begin in [
        &b"g"[..],
        b"\x80",
        b"\x16",
        b"\n",
        b"PROXZ",
        b"p",
        b"\r\n\r\n\0\r\nQUIX",
        b"\r\n\r\n\0\r\nQUIT\n\x22",
        b"\r\n\r\n\0\r\nQUIT\n\x11",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x41",
    ] {
        assert_eq!(decode(begin), DecodedProxyHeader::Invalid, "{}", begin.escape_ascii());
        assert_eq!(decode(&begin[..begin.len() - 1]), DecodedProxyHeader::Incomplete);
    }
}

#[test]
fn damaged_lines_are_refused() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 1 1\r\n",
        "PROXY TCP4 192.0.2.7  198.51.100.1 56324 11210\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 11210 \r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 11210\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 65536 11210\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +1 11210\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 01 11210\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 1 11210\r\n",
        "PROXY TCP4 2001:db8::9 198.51.100.1 1 11210\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 1 11210\r\n",
        "PROXY TCP6 ::1%eth0 ::1 1 11210\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 11210\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 1121\u{663}\r\n",
    ] {
        assert_eq!(decode(line.as_bytes()), DecodedProxyHeader::Invalid, "{line:?}");
    }
}

#[test]
fn headers_have_a_longest_one() {
    let line = |bytes: usize| [b"PROXY UNKNOWN ", &vec![b'x'; bytes - 16][..], b"\r\n"].concat();
    let longest = line(LINE_BYTES_MAX);
    let consumed = longest.len();
    assert_eq!(decode(&longest), DecodedProxyHeader::Complete { client: None, consumed });
    assert_eq!(decode(&line(LINE_BYTES_MAX + 1)), DecodedProxyHeader::TooLong);
    assert_eq!(decode(&longest[..LINE_BYTES_MAX - 1]), DecodedProxyHeader::Incomplete);

    let longest = binary(0x21, 0x11, &vec![1; HEADER_BYTES_MAX - FIXED_BYTES]);
    assert_eq!(decode(&longest[..HEADER_BYTES_MAX - 1]), DecodedProxyHeader::Incomplete);
    let client = address("1.1.1.1:257");
    assert_eq!(
        decode(&longest),
        DecodedProxyHeader::Complete { client, consumed: HEADER_BYTES_MAX }
    );
    for length in [HEADER_BYTES_MAX - FIXED_BYTES + 1, usize::from(u16::MAX)] {
        // Known before the rest arrives.
        let begin = &binary(0x21, 0x11, &vec![1; length])[..FIXED_BYTES];
        assert_eq!(decode(begin), DecodedProxyHeader::TooLong);
    }
}

#[test]
fn addresses_that_do_not_fit_are_refused() {
    for (family, bytes) in [(0x11, 12), (0x21, 36), (0x31, 216)] {
        assert_eq!(decode(&binary(0x21, family, &vec![0; bytes - 1])), DecodedProxyHeader::Invalid);
        assert_eq!(decode(&binary(0x21, family, &[])), DecodedProxyHeader::Invalid);
    }
}

proptest! {
    #[test]
    fn no_input_panics_or_reads_too_far(
        begin in 0_usize..3,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let begin: &[u8] = [&b""[..], b"PROXY ", SIGNATURE][begin];
        let input = [begin, &bytes].concat();
        if let DecodedProxyHeader::Complete { consumed, .. } = decode(&input) {
            prop_assert!(consumed <= input.len());
            // What follows is not looked at.
            prop_assert_eq!(decode(&input), decode(&input[..consumed]));
        }
    }
}
