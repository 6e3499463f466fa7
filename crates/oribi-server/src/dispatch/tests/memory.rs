//! Large requests and answers while the memory for connections is taken: they wait, run once, and
//! report a wait that takes too long.

use std::sync::Arc;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{Client, SET_EXTRAS, about, bytes, replies};
use crate::connection_memory::ConnectionMemory;
use crate::connection_state::close_reason::CloseReason;
use crate::limits::{HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS};
use crate::mailbox::{ConnectionId, Mailbox};

const LARGE: usize = 1 << 20;

fn memory(client: &Client) -> Arc<ConnectionMemory> {
    Arc::clone(&client.harness.server().connection_memory)
}

fn set_large<'a>(key: &'a [u8], value: &'a [u8]) -> RequestParts<'a> {
    RequestParts { extras: &SET_EXTRAS, value, ..about(Opcode::Set, key) }
}

#[test]
fn large_requests_and_answers_wait_for_memory_and_give_it_back() {
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

#[test]
fn what_waits_for_too_long_is_refused_and_the_connection_goes_on() {
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

#[test]
fn a_slow_holder_is_closed_only_while_others_wait() {
    let mut client = Client::modern();
    let memory = memory(&client);
    let whole = bytes(&set_large(b"k", &vec![b'v'; LARGE]));
    client.harness.feed(&whole[..1000]);
    client.harness.advance_ms(HOLDER_LAG_MAX_MS + 1);
    assert_eq!(client.harness.close_reason(), None, "nobody waits");
    let id = ConnectionId { slot: 7, generation: 7 };
    assert_eq!(memory.reserve(usize::MAX, &Mailbox::new(None), id), None);
    client.harness.advance_ms(1);
    assert_eq!(client.harness.close_reason(), Some(CloseReason::HoldsMemory));
}

#[test]
fn a_large_request_that_cannot_be_served_is_not_received() {
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
