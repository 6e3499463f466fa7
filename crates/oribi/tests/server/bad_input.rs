//! Bytes that no sound client sends: each gets a status or a disconnect with a logged reason, and
//! no other client notices.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::SetExtras;
use oribi_protocol::status::Status;
use oribi_testkit::{RawConnection, Request};

use crate::fixture::{Fixture, expect};

/// A fixture with a client that has a document, to show afterwards that it was not disturbed.
struct Bystander {
    fixture: Fixture,
    connection: RawConnection,
}

impl Bystander {
    fn new() -> Bystander {
        let fixture = Fixture::start();
        let mut connection = fixture.login();
        expect(connection.call(&Request::set("bystander", "unharmed")).unwrap(), Status::Success);
        Bystander { fixture, connection }
    }

    #[track_caller]
    fn finish(mut self, logged: &str) {
        let got =
            expect(self.connection.call(&Request::get("bystander")).unwrap(), Status::Success);
        assert_eq!(got.text(), "unharmed");
        self.fixture.expect_logged(logged);
        // A client that breaks the rules is no reason to warn whoever runs the server.
        self.fixture.finish(&[]);
    }
}

/// A plain request header with the given lengths, whatever follows it.
fn header(opcode: Opcode, key_bytes: u16, extras_bytes: u8, body_bytes: u32) -> [u8; 24] {
    let mut header = [0u8; 24];
    header[0] = 0x80;
    header[1] = opcode as u8;
    header[2..4].copy_from_slice(&key_bytes.to_be_bytes());
    header[4] = extras_bytes;
    header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
    header[12..16].copy_from_slice(&7u32.to_be_bytes());
    header
}

/// Asserts that the server closes after `bytes`; what it may say before is `Einval` or `E2big`.
#[track_caller]
fn assert_closed_after(connection: &mut RawConnection, bytes: &[u8]) {
    // The server may close while the bytes are still being sent.
    let _ = connection.send_bytes(bytes);
    for response in connection.read_until_closed().unwrap() {
        assert!(matches!(response.status(), Status::Einval | Status::E2big), "{response:?}");
    }
}

#[test]
fn frames_cut_short_are_dropped_with_their_connection() {
    let bystander = Bystander::new();
    let whole = bystander.connection.encode(&Request::set("cut", "value"), 1);
    for length in [1, 23, 24, 25, whole.len() - 1] {
        let mut connection = bystander.fixture.login();
        connection.send_bytes(&whole[..length]).unwrap();
        drop(connection);
    }
    let mut connection = bystander.fixture.login();
    expect(connection.call(&Request::get("cut")).unwrap(), Status::KeyEnoent);
    bystander.finish("");
}

#[test]
fn a_body_shorter_than_its_parts_ends_the_connection() {
    let bystander = Bystander::new();
    for (key, extras, body) in [(10, 8, 17), (1, 0, 0), (0xffff, 0xff, 4), (0, 8, 7)] {
        let mut connection = bystander.fixture.login();
        let mut bytes = header(Opcode::Set, key, extras, body).to_vec();
        bytes.resize(24 + body as usize, 0);
        assert_closed_after(&mut connection, &bytes);
    }
    bystander.finish("shorter");
}

#[test]
fn wrong_extras_and_missing_parts_are_answered() {
    let mut bystander = Bystander::new();
    let connection = &mut bystander.connection;
    let requests = [
        Request::about(Opcode::Set, "k").value("v"),
        Request::about(Opcode::Set, "k").extras(&[0; 7]).value("v"),
        Request::about(Opcode::Set, "k").extras(&[0; 9]).value("v"),
        Request::about(Opcode::Get, "k").extras(&[0; 4]),
        Request::about(Opcode::Get, "k").value("v"),
        Request::about(Opcode::Delete, "k").extras(&[0; 4]),
        Request::about(Opcode::Increment, "k").extras(&[0; 19]),
        Request::about(Opcode::Increment, "k").extras(&[0; 21]),
        Request::about(Opcode::Touch, "k"),
        Request::about(Opcode::Touch, "k").extras(&[0; 8]),
        Request::about(Opcode::Gat, "k").extras(&[0; 3]),
        Request::about(Opcode::Append, "k").extras(&[0; 4]).value("v"),
        Request::new(Opcode::Get),
        Request::new(Opcode::Set).extras(&SetExtras::default().encode()).value("v"),
        Request::new(Opcode::Noop).bare_key("k"),
        Request::new(Opcode::Version).value("v"),
        Request::new(Opcode::GetErrorMap).value("x"),
        Request::new(Opcode::Hello).value([0x00]),
    ];
    for request in &requests {
        let response = connection.call(request).unwrap();
        assert_eq!(response.status(), Status::Einval, "{request:?}");
    }
    bystander.finish("");
}

// Compat (Key-value):
#[test]
fn an_unknown_opcode_is_answered_the_connection_stays() {
    let mut bystander = Bystander::new();
    let unknown: Vec<u8> = (0..=255).filter(|code| Opcode::from_u8(*code).is_none()).collect();
    assert!(unknown.len() > 10);
    for opcode in unknown {
        let mut bytes = header(Opcode::Noop, 3, 2, 10).to_vec();
        bytes[1] = opcode;
        bytes.resize(34, b'x');
        bystander.connection.send_bytes(&bytes).unwrap();
        let response = expect(bystander.connection.receive().unwrap(), Status::UnknownCommand);
        assert_eq!((response.opaque, response.opcode), (7, opcode));
    }
    bystander.finish("");
}

#[test]
fn a_value_over_the_limit_is_skipped_and_answered() {
    let mut bystander = Bystander::new();
    let too_large = vec![b'v'; (20 << 20) + 1];
    expect(bystander.connection.call(&Request::set("large", &too_large)).unwrap(), Status::E2big);
    expect(bystander.connection.call(&Request::get("large")).unwrap(), Status::KeyEnoent);
    bystander.finish("");
}

#[test]
fn an_oversized_frame_ends_the_connection_early() {
    let bystander = Bystander::new();
    let before = bystander.fixture.server.resident_bytes().unwrap();
    for body in [(30 << 20) + 1, u32::MAX] {
        let mut connection = bystander.fixture.login();
        assert_closed_after(&mut connection, &header(Opcode::Set, 3, 8, body));
    }
    let grown = bystander.fixture.server.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < 16 << 20, "a header alone cost {grown} bytes");
    bystander.finish("over the limit");
}

#[test]
fn a_large_frame_costs_memory_only_as_bytes_arrive() {
    let bystander = Bystander::new();
    let before = bystander.fixture.server.resident_bytes().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut connection = bystander.fixture.login();
        connection.send_bytes(&header(Opcode::Set, 3, 8, 20 << 20)).unwrap();
        waiting.push(connection);
    }
    let mut connection = bystander.fixture.login();
    expect(connection.call(&Request::set("a", "1")).unwrap(), Status::Success);
    let grown = bystander.fixture.server.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < 64 << 20, "50 announced frames of 20 MiB cost {grown} bytes");
    drop(waiting);
    bystander.finish("");
}

#[test]
fn unknown_magics_end_the_connection() {
    let bystander = Bystander::new();
    for magic in [0x00, 0x79, 0xff, b'G', 0x81, 0x18, 0x82, 0x83] {
        let mut connection = bystander.fixture.login();
        let mut bytes = header(Opcode::Noop, 0, 0, 0);
        bytes[0] = magic;
        assert_closed_after(&mut connection, &bytes);
    }
    bystander.finish("magic");
}

#[test]
fn garbage_before_authentication_ends_the_connection() {
    let bystander = Bystander::new();
    let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
    for length in [1, 10, 24, 100, 100_000] {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Neither a magic nor text, which begins another protocol.
                (noise >> 40) as u8 | 0xc0
            })
            .collect();
        let mut connection = RawConnection::connect(bystander.fixture.server.port()).unwrap();
        assert_closed_after(&mut connection, &bytes);
    }
    let mut http =
        TcpStream::connect((Ipv4Addr::LOCALHOST, bystander.fixture.server.port())).unwrap();
    http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    bystander.finish("magic");
}

// Compat (Differences): Frame limits
#[test]
fn a_large_frame_before_auth_ends_the_connection() {
    let bystander = Bystander::new();
    let mut connection = RawConnection::connect(bystander.fixture.server.port()).unwrap();
    connection.hello(&[]).unwrap();
    assert_closed_after(&mut connection, &header(Opcode::SaslAuth, 5, 0, 1 << 20));
    bystander.finish("before authentication");
}

#[test]
fn invalid_collection_prefixes_are_answered() {
    let mut bystander = Bystander::new();
    let keys: [&[u8]; 8] = [
        b"\x80",
        b"\x80\x80\x80\x80\x80\x01k",
        b"\xff\xff\xff\xff\x1fk",
        b"\x80\x00k",
        b"\x01k",
        b"\x07k",
        b"\x00",
        b"\x08",
    ];
    for key in keys {
        let request = Request::new(Opcode::Get).bare_key(key);
        let response = bystander.connection.call(&request).unwrap();
        assert_eq!(response.status(), Status::Einval, "{key:x?}");
    }
    bystander.finish("");
}

#[test]
fn malformed_frame_infos_are_answered() {
    let mut bystander = Bystander::new();
    for (framing, status) in [
        (&[0x12, 1][..], Status::Einval),
        (&[0x13, 1, 0, 0][..], Status::DurabilityInvalidLevel),
        (&[0x1f][..], Status::Einval),
        (&[0x90][..], Status::UnknownFrameInfo),
    ] {
        let request = Request::set("k", "v").framing(framing);
        let response = bystander.connection.call(&request).unwrap();
        assert_eq!(response.status(), status, "{framing:x?}");
    }
    bystander.finish("");
}
