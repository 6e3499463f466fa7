//! Clients that take their time: one that sends a byte and waits, one that never reads.

use std::io::{ErrorKind, Write};

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};
use oribi_types::Vbid;

use crate::fixture::{Fixture, expect};

#[test]
fn a_client_that_never_authenticates_is_disconnected() {
    let fixture = Fixture::with_users(|options| options.setting("auth-deadline-ms", 3000));
    let mut silent = RawConnection::connect(fixture.server.port()).unwrap();
    let mut halfway = RawConnection::connect(fixture.server.port()).unwrap();
    halfway.hello(&[]).unwrap();
    let mut authenticated = RawConnection::connect(fixture.server.port()).unwrap();
    let status = authenticated.sasl_plain("root", "root secret").unwrap();
    assert_eq!(status, Status::Success);
    assert_eq!(silent.read_until_closed().unwrap(), []);
    assert_eq!(halfway.read_until_closed().unwrap(), []);
    expect(authenticated.call(&Request::new(Opcode::Noop)).unwrap(), Status::Success);
    fixture.expect_logged("not authenticated in time");
    fixture.finish(&[]);
}

#[test]
fn idle_clients_stay_unless_in_mid_frame() {
    let fixture = Fixture::start_with(|options| options.setting("auth-deadline-ms", 500));
    let mut idle = RawConnection::connect(fixture.server.port()).unwrap();
    let mut halfway = RawConnection::connect(fixture.server.port()).unwrap();
    halfway.send_bytes(&[0x80]).unwrap();
    assert_eq!(halfway.read_until_closed().unwrap(), []);
    // A memcached client that sat idle for longer than that is still served.
    let request = Request::get("k").vbucket(Vbid(0));
    expect(idle.call(&request).unwrap(), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn an_incomplete_frame_ends_its_connection() {
    let fixture = Fixture::start_with(|options| options.setting("frame-deadline-ms", 500));
    let mut other = fixture.login();
    let mut slow = fixture.login();
    let bytes = slow.encode(&Request::set("slow", "value"), 1);
    slow.send_bytes(&bytes[..10]).unwrap();
    assert_eq!(slow.read_until_closed().unwrap(), []);
    // Being idle between frames is no offence.
    expect(other.call(&Request::get("slow")).unwrap(), Status::KeyEnoent);
    fixture.expect_logged("not completed in time");
    fixture.finish(&[]);
}

#[test]
fn a_never_reading_client_costs_bounded_memory() {
    let fixture = Fixture::start_with(|options| options.setting("send-deadline-ms", 2000));
    let mut writer = fixture.login();
    let value = vec![b'v'; 1 << 20];
    expect(writer.call(&Request::set("large", &value)).unwrap(), Status::Success);
    let before = fixture.server.resident_bytes().unwrap();

    // Answers to these would be two gibibytes.
    let mut greedy = fixture.login();
    let one = greedy.encode(&Request::get("large"), 1);
    greedy.send_bytes(&one.repeat(2048)).unwrap();

    let mut most = 0;
    let disconnected = poll_until(PATIENCE, || {
        expect(writer.call(&Request::get("large")).unwrap(), Status::Success);
        most = most.max(fixture.server.resident_bytes().unwrap().saturating_sub(before));
        fixture.server.log().contains("does not read").then_some(())
    });
    disconnected.expect("the client that never reads is disconnected");
    assert!(most < 64 << 20, "a client that never reads cost {most} bytes");
    fixture.finish(&[]);
}

#[test]
fn a_pipelining_client_that_never_reads_is_paused() {
    let fixture = Fixture::start();
    let mut other = fixture.login();
    let before = fixture.server.resident_bytes().unwrap();
    let mut flood = fixture.login();
    let batch = flood.encode(&Request::new(Opcode::Noop), 1).repeat(1000);
    flood.stream().set_nonblocking(true).unwrap();
    // The server stops reading once its answers pile up, so the socket has to fill up at some
    // point.
    let mut sent = 0usize;
    let held_back = poll_until(PATIENCE, || match flood.stream().write(&batch) {
        Ok(written) => {
            sent += written;
            (sent > 512 << 20).then_some(false)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            expect(other.call(&Request::get("a")).unwrap(), Status::KeyEnoent);
            Some(true)
        }
        Err(error) => panic!("{error}"),
    });
    assert_eq!(held_back, Some(true), "half a gibibyte was accepted without an answer being read");
    let grown = fixture.server.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < 64 << 20, "{sent} bytes of requests cost {grown} bytes");
    fixture.finish(&[]);
}

#[test]
fn connections_over_the_limit_are_closed() {
    let fixture = Fixture::start_with(|options| options.setting("connections-max", 3));
    let mut first: Vec<RawConnection> = (0..3).map(|_| fixture.login()).collect();
    let mut over = RawConnection::connect(fixture.server.port()).unwrap();
    assert_eq!(over.read_until_closed().unwrap(), []);
    for connection in &mut first {
        expect(connection.call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    }
    first.pop();
    // The server notices the end of a connection when it gets to it.
    let again = poll_until(PATIENCE, || RawConnection::login(fixture.server.port()).ok());
    expect(again.expect("a place came back").call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    fixture.finish(&["too many connections"]);
}
