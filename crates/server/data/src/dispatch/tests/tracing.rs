//! Server durations, slow operations' bookkeeping, and the limits of connections.

use oribi_config::SlowThresholds;
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::ServerDuration;
use oribi_protocol::status::Status;

use super::{Client, SET_EXTRAS, about, bytes, replies};
use crate::connection::close_reason::CloseReason;
use crate::harness::ConnectionHarness;

const TRACING: u16 = 0x0f;

/// Magic, status, duration and value of the only answer.
fn answer(
    client: &mut Client,
    parts: &RequestParts<'_>,
) -> (Magic, u16, Option<ServerDuration>, Vec<u8>) {
    let output = client.harness.feed(&bytes(parts));
    let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&output) else {
        panic!("{output:?}")
    };
    assert_eq!(consumed, output.len());
    let duration = ServerDuration::decode(frame.framing);
    (frame.header.magic, frame.header.vbucket_or_status, duration, frame.value.to_vec())
}

// Compat (Differences): Server durations
#[test]
fn answers_carry_their_duration_if_negotiated() {
    let mut client = Client::with_features(&[4, 7, 8, 0x0b, 0x0e, 0x10, 0x11, TRACING]);
    let set = RequestParts { extras: &SET_EXTRAS, value: b"[1]", ..about(Opcode::Set, b"k") };
    let requests = [
        (set, Status::Success),
        (about(Opcode::Get, b"k"), Status::Success),
        (about(Opcode::Getk, b"k"), Status::Success),
        (about(Opcode::Get, b"none"), Status::KeyEnoent),
        (about(Opcode::Delete, b"k"), Status::Success),
        (about(Opcode::Append, b"k"), Status::NotStored),
        (RequestParts::new(Opcode::Noop), Status::Success),
    ];
    for (request, status) in &requests {
        let (magic, code, duration, _) = answer(&mut client, request);
        assert_eq!((magic, code), (Magic::AltClientResponse, status.code()), "{request:?}");
        // The harness's clock moves on by a microsecond with each reading.
        let micros = duration.unwrap().micros();
        assert!((0.5..100.0).contains(&micros), "{request:?} took {micros}");
    }
    let mut client = Client::modern();
    for (request, status) in &requests {
        let (magic, code, duration, _) = answer(&mut client, request);
        assert_eq!((magic, code, duration), (Magic::ClientResponse, status.code(), None));
    }
}

#[test]
fn large_values_and_durable_writes_say_it_too() {
    let mut client = Client::with_features(&[4, 7, 8, 0x0b, 0x0e, 0x10, 0x11, TRACING]);
    let value = vec![b'x'; 100_000];
    // Durability: persist to a majority.
    let framing = [0x11, 3];
    let key = about(Opcode::Set, b"k");
    let set = RequestParts { extras: &SET_EXTRAS, value: &value, framing: &framing, ..key };
    let (magic, code, duration, _) = answer(&mut client, &set);
    assert_eq!((magic, code), (Magic::AltClientResponse, Status::Success.code()));
    assert!(duration.is_some());
    let (magic, _, duration, got) = answer(&mut client, &about(Opcode::Get, b"k"));
    assert!(magic == Magic::AltClientResponse && duration.is_some() && got == value);
}

/// Without durations a request reads no clock. A slow request is still noticed if it is the first
/// of a turn.
#[test]
fn slow_requests_are_noted_with_durations_and_without() {
    for features in [&[7, 8, 0x0b][..], &[7, 8, 0x0b, TRACING]] {
        let harness = ConnectionHarness::limited(|limits| {
            limits.slow = SlowThresholds { read_ms: 500, ..SlowThresholds::OFF };
        });
        let mut client = Client::on(harness, features);
        let get = bytes(&about(Opcode::Get, b"k"));
        client.harness.set_clock_step_ms(1);
        client.harness.feed(&get);
        assert_eq!(client.harness.slow_lines(), 0);
        client.harness.set_clock_step_ms(600);
        client.harness.feed(&get);
        assert_eq!(client.harness.slow_lines(), 1, "once, however it was measured");
        client.harness.feed(&bytes(&RequestParts::new(Opcode::Noop)));
        assert_eq!(client.harness.slow_lines(), 1, "no request of this kind is ever slow");
    }
}

#[test]
fn idle_connections_end_where_that_is_set() {
    for (idle_timeout_ms, expected) in [(0, None), (30_000, Some(CloseReason::Idle))] {
        let mut harness = ConnectionHarness::limited(|limits| {
            limits.idle_timeout_ms = idle_timeout_ms;
        });
        let get = bytes(&about(Opcode::Get, b"k"));
        for _ in 0..3 {
            harness.advance_ms(29_000);
            assert_eq!(replies(&harness.feed(&get))[0].status, Status::KeyEnoent);
        }
        harness.advance_ms(30_001);
        assert_eq!(harness.close_reason(), expected);
    }
}

#[test]
fn the_last_places_are_for_administrators() {
    let reserving = || ConnectionHarness::limited(|limits| limits.connections_reserved = 2);
    // Ten places; they include the harness's own connection.
    let take = |harness: &ConnectionHarness, count| {
        (0..count).for_each(|_| assert!(harness.server().connections.admit()));
    };
    let get = bytes(&about(Opcode::Get, b"k"));
    let mut anonymous = reserving();
    take(&anonymous, 8);
    assert_eq!(replies(&anonymous.feed(&get))[0].status, Status::KeyEnoent);

    let mut anonymous = reserving();
    take(&anonymous, 9);
    assert_eq!(replies(&anonymous.feed(&get))[0].status, Status::AuthError);
    assert_eq!(anonymous.close_reason(), Some(CloseReason::TooManyConnections));
    assert_eq!(anonymous.server().connections.rejected(), 1);

    let administrator = reserving();
    take(&administrator, 10);
    assert!(!administrator.server().connections.admit());
    let mut client = Client::on(administrator, &[7, 8, 0x0b]);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}
