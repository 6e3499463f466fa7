//! Traffic over TLS: pieces, large values, slow and silent peers, many connections, and the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::{Fixture, PATIENCE, ask, get, read_frames, request, set};

#[test]
fn large_values_pass_and_others_are_served_meanwhile() {
    let fixture = Fixture::start(|_| {});
    let value: Vec<u8> = (0..15_000_000_u32).map(|index| (index * 7) as u8).collect();
    let mut client = fixture.connect();
    assert_eq!(ask(&mut client, &set(b"big", &value)).0, 0);
    assert!(ask(&mut client, &get(b"big")).1 == value);
    // Requests of all sizes in one stream.
    let mut stream = Vec::new();
    for bytes in [0, 1, 16_000, 16_384, 33_000, 100, 70_000] {
        stream.extend(set(b"k", &value[..bytes]));
        stream.extend(get(b"k"));
    }
    client.write_all(&stream).unwrap();
    let frames = read_frames(&mut client, 14);
    let lengths: Vec<usize> = frames.iter().skip(1).step_by(2).map(|frame| frame.1.len()).collect();
    assert_eq!(lengths, [0, 1, 16_000, 16_384, 33_000, 100, 70_000]);
    assert!(frames.iter().all(|frame| frame.0 == 0 && value.starts_with(&frame.1)));
    // A client requests a lot and does not read; another one is served.
    client.write_all(&get(b"big").repeat(5)).unwrap();
    let mut other = fixture.connect();
    for _ in 0..50 {
        assert_eq!(ask(&mut other, &set(b"k", b"v")).0, 0);
    }
    assert!(read_frames(&mut client, 5).iter().all(|frame| frame.1 == value));
}

#[test]
fn a_client_never_reading_is_closed_at_the_deadline() {
    let fixture = Fixture::start(|settings| settings.send_deadline_ms = 1_000);
    let mut client = fixture.connect();
    assert_eq!(ask(&mut client, &set(b"big", &vec![b'x'; 1_000_000])).0, 0);
    client.write_all(&get(b"big").repeat(100)).unwrap();
    let begun = Instant::now();
    while fixture.server().context().connections.open() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the connection was not closed");
        std::thread::yield_now();
    }
}

#[test]
fn a_handshake_that_is_not_finished_in_time_ends() {
    let fixture = Fixture::start(|settings| settings.auth_deadline_ms = 1_000);
    let mut silent = TcpStream::connect(fixture.address()).unwrap();
    let mut slow = TcpStream::connect(fixture.address()).unwrap();
    // Only the beginning of a client's first record.
    slow.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    for stream in [&mut silent, &mut slow] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    }
    fixture.await_counter("closed_for_cause", 2);
}

#[test]
fn a_handshake_in_pieces_of_one_byte_is_a_handshake() {
    let fixture = Fixture::start(|_| {});
    let name = ServerName::try_from("db.test").unwrap();
    let mut session = ClientConnection::new(Arc::new(fixture.config(None)), name).unwrap();
    let mut stream = TcpStream::connect(fixture.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    session.writer().write_all(&set(b"k", b"in pieces")).unwrap();
    let mut answer = Vec::new();
    while answer.len() < 24 {
        let mut sealed = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut sealed).unwrap();
        }
        for byte in sealed {
            stream.write_all(&[byte]).unwrap();
        }
        assert_ne!(session.read_tls(&mut stream).unwrap(), 0, "closed");
        session.process_new_packets().unwrap();
        let mut plain = [0; 100];
        while let Ok(received @ 1..) = session.reader().read(&mut plain) {
            answer.extend_from_slice(&plain[..received]);
        }
    }
    assert_eq!(answer[6..8], [0, 0]);
}

#[test]
fn half_closed_clients_get_answers_and_a_close() {
    let fixture = Fixture::start(|_| {});
    // The client closes with close_notify.
    let mut client = fixture.connect();
    client.write_all(&set(b"k", &[b'v'; 50_000])).unwrap();
    client.write_all(&get(b"k").repeat(100)).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(read_frames(&mut client, 101).len(), 101);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0, "a goodbye, not a cut");
    // The client closes the socket alone.
    let mut client = fixture.connect();
    client.write_all(&get(b"k")).unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_frames(&mut client, 1)[0].1.len(), 50_000);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    // The protocol ends the connection, and so does the server's stop.
    let mut client = fixture.connect();
    assert_eq!(ask(&mut client, &request(&RequestParts::new(Opcode::Quit))).0, 0);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    let mut client = fixture.connect();
    drop(fixture);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn a_thousand_connections_are_served_side_by_side() {
    let fixture = Fixture::start(|_| {});
    let config = fixture.config(None);
    let mut clients: Vec<_> =
        (0..1000).map(|_| fixture.connect_as(config.clone()).unwrap()).collect();
    fixture.await_counter("tls_handshakes", 1000);
    for (index, client) in clients.iter_mut().enumerate() {
        client.write_all(&set(b"k", index.to_string().as_bytes())).unwrap();
        client.write_all(&get(b"k")).unwrap();
    }
    for client in &mut clients {
        assert!(read_frames(client, 2).iter().all(|frame| frame.0 == 0));
    }
    // No idle connection holds a block.
    let records = fixture.server().context().connections.registry.after(0, 1000);
    let begun = Instant::now();
    while records.iter().any(|record| record.buffer_bytes.get() > 0) {
        assert!(begun.elapsed() < PATIENCE, "an idle connection holds memory");
        std::thread::yield_now();
    }
}

/// The header of a balancer comes before the first byte of TLS, however it is torn, and takes none
/// of the handshake's bytes.
#[test]
fn tls_begins_behind_the_header_of_a_balancer() {
    let fixture = Fixture::start(|settings| settings.proxy_protocol = vec!["127.0.0.1".to_owned()]);
    let header = b"PROXY TCP4 127.0.0.9 127.0.0.1 4242 11207\r\n";
    for cut in [0, 1, 20, header.len()] {
        let mut socket = TcpStream::connect(fixture.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.write_all(&header[..cut]).unwrap();
        socket.write_all(&header[cut..]).unwrap();
        let name = ServerName::try_from("db.test").unwrap();
        let session = ClientConnection::new(Arc::new(fixture.config(None)), name).unwrap();
        let mut client = rustls::StreamOwned::new(session, socket);
        assert_eq!(ask(&mut client, &set(b"k", b"v")).0, 0);
        assert_eq!(ask(&mut client, &get(b"k")).1, b"v");
        let records = fixture.server().context().connections.registry.after(0, 100);
        let peers: Vec<_> = records.iter().filter_map(|record| record.peer()).collect();
        assert!(peers.contains(&"127.0.0.9:4242".parse().unwrap()), "{peers:?}");
    }
    // A client that begins with TLS at once is no balancer.
    let mut socket = TcpStream::connect(fixture.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"\x16\x03\x01\x02\x00").unwrap();
    assert!(matches!(socket.read(&mut [0; 16]), Ok(0) | Err(_)));
}
