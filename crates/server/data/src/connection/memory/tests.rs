//! The budget by itself: who gets memory, in which order, and that all of it is returned.

use std::sync::Arc;

use oribi_protocol::limits::FRAME_BYTES_MAX;

use super::ConnectionMemory;
use super::budget::{Demand, Grant};
use super::ledger::{MemoryLedger, REPORT_BYTES};
use crate::connection::mailbox::{ConnectionId, Mailbox, Message};
use crate::limits::SMALL_CONNECTION_BYTES;

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 1 }
}

fn reserve(
    memory: &ConnectionMemory,
    bytes: usize,
    mailbox: &Arc<Mailbox>,
    connection: ConnectionId,
) -> Option<usize> {
    match memory.reserve(Demand::of_bytes(bytes), mailbox, connection)? {
        Grant::Bytes(bytes) => Some(bytes),
        Grant::Block(key) => panic!("{key:?}"),
    }
}

fn granted(mailbox: &Mailbox) -> Vec<(u32, usize)> {
    let mut messages = Vec::new();
    mailbox.take(&mut messages);
    let of = |message: &Message| match message {
        Message::MemoryGranted { connection, grant: Grant::Bytes(bytes) } => {
            (connection.slot, *bytes)
        }
        other => panic!("{other:?}"),
    };
    messages.iter().map(of).collect()
}

#[test]
fn who_comes_first_is_served_first_even_if_less_would_fit() {
    let memory = ConnectionMemory::default();
    let mailbox = Mailbox::new(None);
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all - 10, &mailbox, id(1)), Some(all - 10));
    assert_eq!(reserve(&memory, 20, &mailbox, id(2)), None);
    assert_eq!(reserve(&memory, 5, &mailbox, id(3)), None, "it would fit, but is not the first");
    assert_eq!(memory.try_reserve(5), None);
    assert!(memory.has_waiters() && granted(&mailbox).is_empty());
    memory.release(all - 10);
    assert_eq!(granted(&mailbox), [(2, 20), (3, 5)]);
    assert!(!memory.has_waiters());
    assert_eq!(memory.stats().reserved_bytes, 25);
    assert_eq!(memory.stats().waits, 2);
}

#[test]
fn who_leaves_the_line_holds_nobody_up() {
    let memory = ConnectionMemory::default();
    let mailbox = Mailbox::new(None);
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all - 10, &mailbox, id(1)), Some(all - 10));
    assert_eq!(reserve(&memory, 20, &mailbox, id(2)), None);
    assert_eq!(reserve(&memory, 10, &mailbox, id(3)), None);
    memory.leave(&mailbox, id(2));
    assert_eq!(granted(&mailbox), [(3, 10)]);
    memory.leave(&mailbox, id(3));
    assert_eq!(memory.stats().reserved_bytes, all as u64, "what was granted is on its way");
}

#[test]
fn any_request_fits_and_what_is_larger_than_all_gets_all() {
    let memory = ConnectionMemory::default();
    assert_eq!(memory.try_reserve(FRAME_BYTES_MAX), Some(memory.reservable_bytes()));
    assert_eq!(memory.try_reserve(1), None);
    memory.release(memory.reservable_bytes());
    assert_eq!(memory.try_reserve(1), Some(1));
}

#[test]
fn larger_quotas_let_more_in() {
    let memory = ConnectionMemory::default();
    let mailbox = Mailbox::new(None);
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all, &mailbox, id(1)), Some(all));
    assert_eq!(reserve(&memory, 100, &mailbox, id(2)), None);
    memory.set_quotas(1 << 30);
    assert!(memory.capacity_bytes() > all + SMALL_CONNECTION_BYTES);
    assert_eq!(granted(&mailbox), [(2, 100)]);
}

#[test]
fn workers_report_in_steps_and_everything_comes_back() {
    let memory = Arc::new(ConnectionMemory::default());
    let mut ledger = MemoryLedger::new(Arc::clone(&memory), Mailbox::new(None));
    ledger.note(0, REPORT_BYTES - 1);
    assert_eq!(memory.stats().used_bytes, 0, "small requests share nothing");
    ledger.note(0, 1);
    assert_eq!(memory.stats().used_bytes, REPORT_BYTES as u64);
    ledger.note(0, memory.capacity_bytes());
    assert!(ledger.is_over() && memory.is_over());
    ledger.note(memory.capacity_bytes() + REPORT_BYTES, 0);
    assert!(!ledger.is_still_over());
    assert_eq!(memory.stats().used_bytes, 0);
}
