//! Large requests and answers while the memory for connections is taken, or that of their bucket:
//! they wait, run once, and report a wait that takes too long.

use std::sync::Arc;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{Client, SET_EXTRAS, about, bytes, replies};
use crate::connection::close_reason::CloseReason;
use crate::connection::memory::ConnectionMemory;
use crate::connection::memory::budget::Demand;
use crate::connection::waker::{ConnectionId, ConnectionWaker, WakerLog};
use crate::harness::ConnectionHarness;
use crate::limits::{HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS, ROOM_WAIT_MS};

const LARGE: usize = 1 << 20;

fn memory(client: &Client) -> Arc<ConnectionMemory> {
    Arc::clone(&client.harness.server().connections.memory)
}

fn set_large<'a>(key: &'a [u8], value: &'a [u8]) -> RequestParts<'a> {
    RequestParts { extras: &SET_EXTRAS, value, ..about(Opcode::Set, key) }
}

// Invariant: A large request is reserved as a whole before it is received; a connection waits only
// while it holds nothing.
#[test]
fn large_messages_wait_for_memory_and_release_it() {
    let value = vec![b'v'; LARGE];
    let mut client = Client::modern();
    let memory = memory(&client);
    for opcode in [Opcode::Set, Opcode::Get, Opcode::Gat, Opcode::GetLocked, Opcode::Append] {
        let request = match opcode {
            Opcode::Set => set_large(b"k", &value),
            Opcode::Append => RequestParts { value: &value, ..about(opcode, b"other") },
            Opcode::Gat => RequestParts { extras: &[0; 4], ..about(opcode, b"k") },
            _ => about(opcode, b"k"),
        };
        let all = memory.try_reserve(usize::MAX).unwrap();
        let answered = client.harness.feed(&bytes(&request));
        assert!(answered.is_empty() && memory.has_waiters(), "{opcode:?}");
        let gets = client.harness.bucket().operations().totals().cmd_get;
        memory.release(all);
        let answers = replies(&client.harness.feed(&[]));
        let expected = if opcode == Opcode::Append { Status::NotStored } else { Status::Success };
        assert_eq!(answers.len(), 1, "{opcode:?}");
        assert_eq!(answers[0].status, expected, "{opcode:?}");
        let counted = client.harness.bucket().operations().totals().cmd_get - gets;
        assert!(counted <= 1, "{opcode:?} is counted once");
        assert_eq!(memory.stats().reserved_bytes, 0, "{opcode:?}");
    }
}

// Compat (Differences): Memory of connections
#[test]
fn long_waits_are_rejected_and_the_connection_stays() {
    let value = vec![b'v'; LARGE];
    let mut client = Client::modern();
    client.set(b"k", &value);
    let memory = memory(&client);
    let all = memory.try_reserve(usize::MAX).unwrap();
    for request in [set_large(b"k", &value[1..]), about(Opcode::Get, b"k")] {
        assert!(client.harness.feed(&bytes(&request)).is_empty());
        assert!(client.harness.advance_ms(MEMORY_WAIT_MS).is_empty());
        let answers = replies(&client.harness.advance_ms(1));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].status, Status::Etmpfail);
        assert!(!memory.has_waiters());
        assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    }
    memory.release(all);
    let got = client.ask(&about(Opcode::Get, b"k"));
    assert!(got.value == value, "what was refused was not done");
    assert_eq!(memory.stats().reserved_bytes, 0);
    assert_eq!(memory.stats().refused, 2);
}

// Compat (Differences): Memory of connections
#[test]
fn a_slow_holder_is_closed_only_while_others_wait() {
    let mut client = Client::modern();
    let memory = memory(&client);
    let whole = bytes(&set_large(b"k", &vec![b'v'; LARGE]));
    client.harness.feed(&whole[..1000]);
    client.harness.advance_ms(HOLDER_LAG_MAX_MS + 1);
    assert_eq!(client.harness.close_reason(), None, "nobody waits");
    let id = ConnectionId { slot: 7, generation: 7 };
    let waker = Arc::new(WakerLog::default()) as Arc<dyn ConnectionWaker>;
    assert_eq!(memory.reserve(Demand::of_bytes(usize::MAX), &waker, id), None);
    client.harness.advance_ms(1);
    assert_eq!(client.harness.close_reason(), Some(CloseReason::HoldsMemory));
}

#[test]
fn an_unservable_large_request_is_not_received() {
    let value = vec![b'v'; LARGE];
    let mut client = Client::modern();
    let memory = memory(&client);
    let all = memory.try_reserve(usize::MAX).unwrap();
    for (opcode, status) in [
        (Opcode::Get, Status::Einval),
        (Opcode::Hello, Status::E2big),
        (Opcode::ReturnMeta, Status::NotSupported),
    ] {
        let whole = bytes(&RequestParts { value: &value, ..about(opcode, b"k") });
        let answers = replies(&client.harness.feed(&whole[..100_000]));
        assert_eq!(answers.len(), 1, "{opcode:?}");
        assert_eq!(answers[0].status, status, "{opcode:?}");
        assert!(client.harness.feed(&whole[100_000..]).is_empty());
        assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    }
    memory.release(all);
}

/// A value that was received into its item stays there while its write waits for memory: it is
/// neither copied nor received again, and it is stored when there is space.
#[test]
fn a_received_value_is_kept_while_its_write_waits() {
    let value: String = (0..LARGE).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    let commands = [
        (format!("set k 7 0 {LARGE}\r\n{value}\r\n"), "STORED\r\n"),
        (format!("ms k {LARGE} F7 k\r\n{value}\r\n"), "HD kk\r\n"),
        (format!("add k 7 0 {LARGE}\r\n{value}\r\n"), "STORED\r\n"),
    ];
    for (command, stored) in commands {
        let mut client = ConnectionHarness::new();
        let bucket = Arc::clone(client.bucket());
        let quota = bucket.bucket().memory_quota_bytes();
        // Something that could be evicted, so that there may be room later.
        client.feed(b"set other 0 0 4\r\nroom\r\n");
        let (line, rest) = command.split_at(command.find('\n').unwrap() + 1);
        assert!(client.feed(line.as_bytes()).is_empty());
        let (begin, end) = rest.split_at(LARGE / 2);
        assert!(client.feed(begin.as_bytes()).is_empty());
        let address = client.incoming_address().expect("the value is received into its item");
        bucket.bucket().set_memory_quota(1);
        // The command after it is not served before it.
        assert!(client.feed(end.as_bytes()).is_empty(), "{line}");
        assert!(client.feed(b"get other\r\n").is_empty(), "{line}");
        for _ in 0..3 {
            let (answers, has_waited) = client.retry_writes();
            assert!(has_waited && answers.is_empty(), "{line}");
            assert_eq!(client.incoming_address(), Some(address), "{line}");
        }
        bucket.bucket().set_memory_quota(quota);
        let (answers, _) = client.retry_writes();
        let expected = format!("{stored}VALUE other 0 4\r\nroom\r\nEND\r\n");
        assert_eq!(String::from_utf8(answers).unwrap(), expected, "{line}");
        assert_eq!(client.incoming_address(), None);
        let got = client.feed(b"get k\r\n");
        assert!(got == format!("VALUE k 7 {LARGE}\r\n{value}\r\nEND\r\n").as_bytes(), "{line}");
    }
}

/// A write that waits for too long is refused, and its value is given back.
#[test]
fn a_write_waiting_too_long_for_memory_is_rejected() {
    let mut client = ConnectionHarness::new();
    let bucket = Arc::clone(client.bucket());
    client.feed(b"set other 0 0 4\r\nroom\r\n");
    bucket.bucket().set_memory_quota(1);
    let command = format!("set k 0 0 {LARGE}\r\n{}\r\n", "v".repeat(LARGE));
    assert!(client.feed(command.as_bytes()).is_empty());
    client.advance_ms(ROOM_WAIT_MS + 1);
    let (answers, _) = client.retry_writes();
    let answers = String::from_utf8(answers).unwrap();
    assert!(answers.starts_with("SERVER_ERROR ") && answers.lines().count() == 1, "{answers}");
    assert_eq!(client.incoming_address(), None);
    assert_eq!(client.feed(b"get k\r\n"), b"END\r\n");
}
