//! Invalid input: each case gets a status, or a disconnect with its reason.

use std::sync::Arc;

use oribi_auth::{Role, StoredUser, UserFile, UserStore};
use oribi_protocol::limits::{FRAME_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;

use super::{Client, SET_EXTRAS, about, bytes, replies};
use crate::connection::close_reason::CloseReason;
use crate::dispatch::rules::rule;
use crate::harness::ConnectionHarness;

/// A header with these lengths and nothing behind it.
fn header(magic: u8, opcode: u8, key: u16, extras: u8, body: u32) -> Vec<u8> {
    let mut frame = vec![0; 24];
    (frame[0], frame[1], frame[4]) = (magic, opcode, extras);
    frame[2..4].copy_from_slice(&key.to_be_bytes());
    frame[8..12].copy_from_slice(&body.to_be_bytes());
    frame
}

#[test]
fn a_wrong_shape_is_einval_for_every_opcode() {
    for opcode in Opcode::all().filter(|opcode| rule(*opcode).is_some()) {
        let mut client = Client::modern();
        let extras = [0_u8; 31];
        let wrong = RequestParts { extras: &extras, ..RequestParts::new(opcode) };
        assert_eq!(client.ask(&wrong).status, Status::Einval, "{}", opcode.name());
        assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    }
}

#[test]
fn missing_and_unwanted_parts_are_einval() {
    let mut client = Client::modern();
    let no_key = RequestParts { key: b"", ..about(Opcode::Get, b"k") };
    let get_with_value = RequestParts { value: b"v", ..about(Opcode::Get, b"k") };
    let get_with_cas = RequestParts { cas: 1, ..about(Opcode::Get, b"k") };
    let set_without_extras = RequestParts { value: b"v", ..about(Opcode::Set, b"k") };
    let noop_with_key = RequestParts { key: b"k", ..RequestParts::new(Opcode::Noop) };
    let json_bit = RequestParts { datatype: 1, extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") };
    // An invalid compressed value, and a compressed value where none is allowed.
    let snappy = RequestParts { datatype: 2, value: b"plain", ..json_bit };
    let no_value = RequestParts { datatype: 2, ..about(Opcode::Get, b"k") };
    let xattr = RequestParts { datatype: 4, ..json_bit };
    let all = [
        no_key,
        get_with_value,
        get_with_cas,
        set_without_extras,
        noop_with_key,
        snappy,
        no_value,
        xattr,
    ];
    for request in all {
        assert_eq!(client.ask(&request).status, Status::Einval, "{request:?}");
    }
    assert_eq!(client.ask(&json_bit).status, Status::Success);
    assert_eq!(Client::legacy().ask(&json_bit).status, Status::Einval);
}

#[test]
fn keys_up_to_250_bytes() {
    let mut client = Client::modern();
    assert_eq!(client.set(&[b'k'; 250], b"v").status, Status::Success);
    assert_eq!(client.set(&[b'k'; 251], b"v").status, Status::Einval);
    assert_eq!(client.get(&[b'k'; 1000]).status, Status::Einval);
}

#[test]
fn a_body_below_its_parts_ends_the_connection() {
    let mut client = Client::modern();
    let mut input = header(0x80, Opcode::Set as u8, 10, 8, 17);
    input.extend([0; 17]);
    let all = replies(&client.harness.feed(&input));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].status, Status::Einval);
    assert_eq!(client.harness.close_reason(), Some(CloseReason::BodyTooShort));
}

#[test]
fn an_unknown_magic_ends_the_connection_at_once() {
    // Text begins another protocol.
    for magic in [0x00, 0x16, 0x7f, 0xff] {
        let mut client = Client::legacy();
        assert!(client.harness.feed(&[magic]).is_empty());
        assert_eq!(client.harness.close_reason(), Some(CloseReason::UnknownMagic(magic)));
        assert!(client.harness.feed(&bytes(&RequestParts::new(Opcode::Noop))).is_empty());
    }
}

#[test]
fn frames_of_a_server_are_refused() {
    for magic in [0x81, 0x18, 0x82, 0x83] {
        let mut client = Client::legacy();
        client.harness.feed(&header(magic, 0, 0, 0, 0));
        assert_eq!(client.harness.close_reason(), Some(CloseReason::NotARequest(magic)));
    }
}

// Compat (Differences): Frame limits
#[test]
fn an_oversized_frame_ends_the_connection_early() {
    let mut client = Client::modern();
    let all = replies(&client.harness.feed(&header(0x80, 1, 1, 8, FRAME_BYTES_MAX as u32)));
    assert_eq!(all[0].status, Status::Einval);
    let frame_bytes = FRAME_BYTES_MAX + 24;
    assert_eq!(client.harness.close_reason(), Some(CloseReason::FrameTooLarge { frame_bytes }));
}

#[test]
fn an_oversized_value_is_skipped() {
    let mut client = Client::modern();
    let body = VALUE_BYTES_MAX + 1 + 8 + 1;
    let all = replies(&client.harness.feed(&header(0x80, 1, 1, 8, body as u32)));
    assert_eq!((all.len(), all[0].status), (1, Status::E2big));
    let piece = vec![b'x'; 1 << 20];
    let mut left = body;
    while left > 0 {
        let taken = left.min(piece.len());
        assert!(client.harness.feed(&piece[..taken]).is_empty());
        assert!(client.harness.input_capacity() <= 64 * 1024, "the body must not be buffered");
        left -= taken;
    }
    assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}

#[test]
fn value_at_the_limit_is_stored() {
    let mut client = Client::modern();
    let value = vec![b'x'; VALUE_BYTES_MAX];
    assert_eq!(client.set(b"k", &value).status, Status::Success);
    assert_eq!(client.get(b"k").value.len(), VALUE_BYTES_MAX);
    let grown = RequestParts { value: b"y", ..about(Opcode::Append, b"k") };
    assert_eq!(client.ask(&grown).status, Status::E2big);
}

#[test]
fn a_large_frame_before_auth_ends_the_connection() {
    let mut client = Client::legacy();
    client.hello(&[7]);
    let body = UNAUTHENTICATED_FRAME_BYTES_MAX as u32;
    client.harness.feed(&header(0x80, Opcode::SaslAuth as u8, 5, 0, body));
    let reason = client.harness.close_reason();
    assert!(matches!(reason, Some(CloseReason::UnauthenticatedFrameTooLarge { .. })));
    let mut memcached = Client::legacy();
    assert_eq!(memcached.set(b"k", &[b'v'; 100_000]).status, Status::Success);
}

// Compat (Differences): Error contexts
/// A failed attempt gives its reason to clients that read it; an outcome that the document's state
/// explains does not.
#[test]
fn failures_say_why() {
    let mut client = Client::with_features(&[3, 6, 7, 8, 0x0a, 0x0b]);
    let mut old = Client::with_features(&[0x0a]);
    for client in [&mut client, &mut old] {
        client.set(b"text", b"not a number");
    }
    let huge = header(0x80, Opcode::Set as u8, 1, 8, VALUE_BYTES_MAX as u32 + 10);
    let counter = super::counter_extras(1, 0, 0);
    let increment = RequestParts { extras: &counter, ..about(Opcode::Increment, b"text") };
    let set = RequestParts { extras: &SET_EXTRAS, value: b"\xff", ..about(Opcode::Set, b"k") };
    let unlock = about(Opcode::UnlockKey, b"k");
    let long_key = [b'k'; 251];
    let observe = RequestParts { value: b"x", ..RequestParts::new(Opcode::Observe) };
    for (request, status, context) in [
        (bytes(&increment), Status::DeltaBadval, "the document is not a number from 0 to 2^64-1"),
        (
            bytes(&RequestParts { datatype: 2, ..set }),
            Status::Einval,
            "the value is not what its datatype says",
        ),
        (bytes(&unlock), Status::Einval, "unlocking needs the CAS that locking answered"),
        (bytes(&about(Opcode::Get, &long_key)), Status::Einval, "the key is not valid"),
        (bytes(&observe), Status::Einval, "the list of keys is cut off, or a key is not valid"),
        (bytes(&about(Opcode::Get, b"none")), Status::KeyEnoent, ""),
        (huge, Status::E2big, "the value is longer than a document may be"),
    ] {
        let reply = &replies(&client.harness.feed(&request))[0];
        assert_eq!(reply.status, status, "{context}");
        match context {
            "" => assert!(reply.value.is_empty() && reply.datatype == 0),
            context => {
                let body: serde_json::Value = serde_json::from_slice(&reply.value).unwrap();
                assert_eq!((&body["error"]["context"], reply.datatype), (&context.into(), 1));
            }
        }
        let reply = &replies(&old.harness.feed(&request))[0];
        assert_eq!((reply.status, reply.value.len(), reply.datatype), (status, 0, 0), "{context}");
    }
}

#[test]
fn malformed_collection_prefixes_are_einval() {
    let mut client = Client::with_features(&[7, 0x0b, 0x12]);
    let keys: [&[u8]; 6] =
        [b"\x80", b"\x00", b"\x01k", b"\x07k", b"\x80\x00k", b"\xff\xff\xff\xff\xffk"];
    for key in keys {
        assert_eq!(client.get(key).status, Status::Einval, "{key:?}");
    }
    assert_eq!(client.get(b"\x00k").status, Status::KeyEnoent);
}

#[test]
fn one_byte_a_second_meets_the_frame_deadline() {
    let mut client = Client::modern();
    let request =
        bytes(&RequestParts { value: &[0; 200], extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") });
    for byte in &request[..request.len() - 1] {
        client.harness.feed(&[*byte]);
        client.harness.advance_ms(1_000);
        if client.harness.close_reason().is_some() {
            break;
        }
    }
    assert_eq!(client.harness.close_reason(), Some(CloseReason::FrameDeadline));
}

#[test]
fn deadline_counts_from_the_start_of_each_frame() {
    let mut client = Client::modern();
    let noop = bytes(&RequestParts::new(Opcode::Noop));
    for _ in 0..10 {
        client.harness.feed(&noop[..10]);
        client.harness.advance_ms(30_000);
        client.harness.feed(&noop[10..]);
    }
    assert_eq!(client.harness.close_reason(), None);
}

#[test]
fn the_auth_deadline_spares_idle_text_clients_only() {
    let mut idle = Client::legacy();
    idle.harness.advance_ms(100_000);
    assert_eq!(idle.harness.close_reason(), None);
    let mut partial = Client::legacy();
    partial.harness.feed(&[0x80, 0x21]);
    partial.harness.advance_ms(11_000);
    assert_eq!(partial.harness.close_reason(), Some(CloseReason::AuthDeadline));
    let mut unfinished = Client::legacy();
    let first = RequestParts {
        key: b"SCRAM-SHA1",
        value: b"n,,n=Administrator,r=fyko",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    assert_eq!(unfinished.ask(&first).status, Status::AuthContinue);
    unfinished.harness.advance_ms(11_000);
    assert_eq!(unfinished.harness.close_reason(), Some(CloseReason::AuthDeadline));
    // A client that logs in again has as long as the first time, however old the connection is.
    let mut again = Client::modern();
    again.harness.advance_ms(100_000);
    assert_eq!(again.ask(&first).status, Status::AuthContinue);
    again.harness.advance_ms(9_000);
    assert_eq!(again.harness.close_reason(), None);
    // Repeated attempts do not extend that time.
    assert_eq!(again.ask(&first).status, Status::AuthContinue);
    again.harness.advance_ms(2_000);
    assert_eq!(again.harness.close_reason(), Some(CloseReason::AuthDeadline));
}

#[test]
fn checking_a_password_does_not_stop_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let user = StoredUser::new("ann", b"secret", vec![Role::Admin]).unwrap();
    UserFile::edit(directory.path(), |file| file.put(user.clone()) | true).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let mut harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let (key, value) = (&b"PLAIN"[..], &b"\0ann\0wrong"[..]);
    let wrong = bytes(&RequestParts { key, value, ..RequestParts::new(Opcode::SaslAuth) });
    assert_eq!(replies(&harness.feed(&wrong))[0].status, Status::AuthError);
    harness.set_holds_jobs(true);
    assert!(harness.feed(&wrong).is_empty());
    harness.advance_ms(9_000);
    assert_eq!(harness.close_reason(), None);
    harness.advance_ms(2_000);
    assert_eq!(harness.close_reason(), Some(CloseReason::AuthDeadline));
}
