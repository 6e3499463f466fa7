//! The budget by itself: who gets memory, in which order, and that all of it is returned.

use std::sync::Arc;

use oribi_protocol::limits::FRAME_BYTES_MAX;

use super::ConnectionMemory;
use super::budget::{Demand, Grant};
use super::ledger::{MemoryLedger, REPORT_BYTES};
use crate::connection::waker::{ConnectionId, ConnectionWaker, WakerLog};
use crate::limits::SMALL_CONNECTION_BYTES;

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 1 }
}

fn reserve(
    memory: &ConnectionMemory,
    bytes: usize,
    waker: &Arc<WakerLog>,
    connection: ConnectionId,
) -> Option<usize> {
    match memory.reserve(Demand::of_bytes(bytes), &as_waker(waker), connection)? {
        Grant::Bytes(bytes) => Some(bytes),
        Grant::Block(key) => panic!("{key:?}"),
    }
}

fn as_waker(log: &Arc<WakerLog>) -> Arc<dyn ConnectionWaker> {
    Arc::clone(log) as Arc<dyn ConnectionWaker>
}

fn granted(waker: &WakerLog) -> Vec<(u32, usize)> {
    let of = |(connection, grant): (ConnectionId, Grant)| match grant {
        Grant::Bytes(bytes) => (connection.slot, bytes),
        Grant::Block(key) => panic!("{key:?}"),
    };
    waker.grants.lock().drain(..).map(of).collect()
}

#[test]
fn queue_is_first_come_first_served() {
    let memory = ConnectionMemory::default();
    let waker = Arc::new(WakerLog::default());
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all - 10, &waker, id(1)), Some(all - 10));
    assert_eq!(reserve(&memory, 20, &waker, id(2)), None);
    assert_eq!(reserve(&memory, 5, &waker, id(3)), None, "it would fit, but is not the first");
    assert_eq!(memory.try_reserve(5), None);
    assert!(memory.has_waiters() && granted(&waker).is_empty());
    memory.release(all - 10);
    assert_eq!(granted(&waker), [(2, 20), (3, 5)]);
    assert!(!memory.has_waiters());
    assert_eq!(memory.stats().reserved_bytes, 25);
    assert_eq!(memory.stats().waits, 2);
}

#[test]
fn leaving_waiter_does_not_block_the_queue() {
    let memory = ConnectionMemory::default();
    let waker = Arc::new(WakerLog::default());
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all - 10, &waker, id(1)), Some(all - 10));
    assert_eq!(reserve(&memory, 20, &waker, id(2)), None);
    assert_eq!(reserve(&memory, 10, &waker, id(3)), None);
    memory.leave(&as_waker(&waker), id(2));
    assert_eq!(granted(&waker), [(3, 10)]);
    memory.leave(&as_waker(&waker), id(3));
    assert_eq!(memory.stats().reserved_bytes, all as u64, "what was granted is on its way");
}

#[test]
fn demand_over_the_budget_gets_the_budget() {
    let memory = ConnectionMemory::default();
    assert_eq!(memory.try_reserve(FRAME_BYTES_MAX), Some(memory.reservable_bytes()));
    assert_eq!(memory.try_reserve(1), None);
    memory.release(memory.reservable_bytes());
    assert_eq!(memory.try_reserve(1), Some(1));
}

#[test]
fn larger_quotas_let_more_in() {
    let memory = ConnectionMemory::default();
    let waker = Arc::new(WakerLog::default());
    let all = memory.reservable_bytes();
    assert_eq!(reserve(&memory, all, &waker, id(1)), Some(all));
    assert_eq!(reserve(&memory, 100, &waker, id(2)), None);
    memory.set_quotas(1 << 30);
    assert!(memory.capacity_bytes() > all + SMALL_CONNECTION_BYTES);
    assert_eq!(granted(&waker), [(2, 100)]);
}

#[test]
fn workers_report_in_steps() {
    let memory = Arc::new(ConnectionMemory::default());
    let mut ledger = MemoryLedger::new(Arc::clone(&memory), Arc::new(WakerLog::default()));
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
