//! Balancers name their clients by the PROXY protocol: what is served, what is seen, what is
//! refused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use oribi_testkit::{PATIENCE, poll_until};

use crate::fixture::{Fixture, add_user};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The client, its server, and their ports 4242 and 11210.
const ADDRESSES: [u8; 12] = [127, 0, 0, 9, 127, 0, 0, 1, 0x10, 0x92, 0x2b, 0xca];
const LINE: &[u8] = b"PROXY TCP4 127.0.0.9 127.0.0.1 4242 11210\r\n";

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn behind(addresses: &str) -> Fixture {
    Fixture::start_with(|options| options.setting("proxy-protocol", addresses))
}

fn connect(fixture: &Fixture) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, fixture.server.port())).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads up to the end of an answer of the text protocol.
fn read_answer(stream: &mut TcpStream, end: &str) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(end.as_bytes()) {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "closed after {}", answer.escape_ascii());
        answer.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(answer).unwrap()
}

/// True when the server closes the connection, after a last line if it has something to say.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        // Bytes that the server has not read make the end a reset.
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

// Compat (memcached's text protocol): PROXY protocol
#[test]
fn the_client_is_the_one_that_the_balancer_names() {
    let fixture = behind("192.0.2.0/24,127.0.0.1");
    let with_tlv = [&ADDRESSES[..], &[4, 0, 3, 1, 2, 3]].concat();
    let named = "\"peername\":{\"ip\":\"127.0.0.9\",\"port\":4242}";
    let balancer = "\"peername\":{\"ip\":\"127.0.0.1\"";
    for (header, peer) in [
        (LINE.to_vec(), named),
        (b"PROXY UNKNOWN\r\n".to_vec(), balancer),
        (binary(0x21, 0x11, &ADDRESSES), named),
        (binary(0x21, 0x11, &with_tlv), named),
        (binary(0x20, 0x00, b""), balancer),
    ] {
        let mut stream = connect(&fixture);
        // Together with the first command, none of which may be lost.
        stream.write_all(&[&header[..], b"stats conns\r\n"].concat()).unwrap();
        let answer = read_answer(&mut stream, "END\r\n");
        let shown = answer.replace(' ', "");
        assert!(shown.contains(peer), "{}: {answer}", header.escape_ascii());
    }
    fixture.finish(&[]);
}

#[test]
fn a_header_may_be_torn_at_each_byte() {
    let fixture = behind("127.0.0.1");
    for header in [LINE.to_vec(), binary(0x21, 0x11, &ADDRESSES)] {
        for cut in 1..=header.len() {
            let mut stream = connect(&fixture);
            stream.write_all(&header[..cut]).unwrap();
            stream.write_all(&header[cut..]).unwrap();
            stream.write_all(b"mn\r\n").unwrap();
            assert_eq!(read_answer(&mut stream, "\r\n"), "MN\r\n");
        }
        let mut stream = connect(&fixture);
        for byte in &header {
            stream.write_all(&[*byte]).unwrap();
        }
        stream.write_all(b"mn\r\n").unwrap();
        assert_eq!(read_answer(&mut stream, "\r\n"), "MN\r\n");
    }
    fixture.finish(&[]);
}

#[test]
fn clients_without_a_header_are_not_served() {
    let fixture = behind("127.0.0.1");
    let too_long = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
    for begin in [
        b"get a\r\n".to_vec(),
        b"\x80\x00\x00\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0a".to_vec(),
        b"\x16\x03\x01".to_vec(),
        b"PROXY TCP4 nowhere nowhere 1 1\r\n".to_vec(),
        [b"PROXY UNKNOWN ", &[b'x'; 200][..], b"\r\n"].concat(),
        binary(0x21, 0x11, &ADDRESSES[..11]),
        binary(0x21, 0x12, &ADDRESSES),
        too_long,
    ] {
        let mut stream = connect(&fixture);
        stream.write_all(&begin).unwrap();
        assert!(is_closed(&mut stream), "{}", begin.escape_ascii());
    }
    fixture.expect_logged("PROXY protocol: there is no header, or a damaged one");
    fixture.expect_logged("PROXY protocol: its header is too long");
    // In development mode a balancer cannot bring in clients of other machines.
    let mut stream = connect(&fixture);
    stream.write_all(b"PROXY TCP4 192.0.2.7 127.0.0.1 4242 11210\r\nmn\r\n").unwrap();
    assert!(is_closed(&mut stream));
    // A client that goes away within its header holds nothing.
    drop(connect(&fixture));
    let mut stream = connect(&fixture);
    stream.write_all(&LINE[..10]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(is_closed(&mut stream));
    fixture.finish(&[]);
}

#[test]
fn only_balancers_may_connect() {
    let fixture = behind("192.0.2.1,2001:db8::/32");
    let mut stream = connect(&fixture);
    // The connection may be gone before the header is sent.
    let _ = stream.write_all(LINE);
    assert!(is_closed(&mut stream));
    fixture.expect_logged("its address is not in proxy_protocol");
    assert_eq!(fixture.admin().get("/pools").unwrap().status, 200, "the admin HTTP has no header");
    fixture.finish(&["its address is not in proxy_protocol"]);
}

#[test]
fn a_header_has_to_come_in_time() {
    let fixture = Fixture::start_with(|options| {
        options.setting("proxy-protocol", "127.0.0.1").setting("auth-deadline-ms", 100)
    });
    let mut silent = connect(&fixture);
    let mut slow = connect(&fixture);
    slow.write_all(&LINE[..LINE.len() - 1]).unwrap();
    assert!(is_closed(&mut silent) && is_closed(&mut slow));
    fixture.expect_logged("PROXY protocol: its header was not completed in time");
    fixture.finish(&[]);
}

#[test]
fn audit_and_log_have_the_clients_address() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let fixture = Fixture::with_users(|options| {
        options.setting("proxy-protocol", "127.0.0.1").setting("audit-log", audit.display())
    });
    add_user(&fixture.directory.path().join("data"), "ann", "ann secret", &["admin"]);
    let mut stream = connect(&fixture);
    stream.write_all(b"PROXY TCP6 2001:db8::7 ::1 4242 11210\r\n").unwrap();
    stream.write_all(b"set login 0 0 9\r\nann wrong\r\n").unwrap();
    assert!(read_answer(&mut stream, "\r\n").contains("authentication failure"));
    let recorded = || std::fs::read_to_string(&audit).unwrap_or_default();
    let found = poll_until(PATIENCE, || recorded().contains("2001:db8::7").then_some(()));
    assert!(found.is_some(), "{}", recorded());
    // What ends a connection for cause is logged with the client's address.
    stream.write_all(&[b'x'; 5000]).unwrap();
    assert!(is_closed(&mut stream));
    fixture.expect_logged("2001:db8::7");
}
