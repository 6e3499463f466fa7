//! The memory budget of all connections together, and the queue for it.
//!
//! Owns: the process-wide figures, the reservations for large requests and answers, and the queue
//! of those that wait for one. [`budget`] is the arithmetic, [`ledger`] is a worker's part of it,
//! [`ticket`] is a place in the queue for others than connections of workers.
//!
//! A large request or answer is reserved as a whole before any of it is taken into memory. If it
//! does not fit, its connection waits, first come, first served, and its socket is not read
//! until then. Small ones are not reserved: workers add up what their connections hold after each
//! turn and report the sum in steps. When the total exceeds the capacity, workers close the
//! connections that lag most.
//!
//! Statements of SQL have no place in the queue: they ask again until their own deadline, and are
//! [`UnqueuedWait`] until then. A holder of a reservation for a client looks at
//! [`ConnectionMemory::has_waiters`], and returns the memory when its client lags while others
//! wait.
//!
//! Invariants:
//! - a holder waits for its own client only, never for a waiter: a connection queues only while it
//!   has nothing reserved. Waits end because clients have deadlines;
//! - the sum of the reservations never exceeds [`ConnectionMemory::reservable_bytes`], and any one
//!   request fits in it;
//! - when a reservation is granted to a connection that is already gone, its worker returns it.
//!
//! This module has no connections and no clock; it notifies a waiter through its worker's waker.

pub mod budget;
pub mod lag;
pub mod ledger;
pub mod reserved;
pub mod ticket;
mod ticket_state;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::connection::waker::{self, ConnectionId, ConnectionWaker};
use crate::limits::{
    AHEAD_OF_QUEUE_BYTES_MAX, CONNECTION_BYTES_BASE, CONNECTION_QUOTA_PART, SMALL_CONNECTION_BYTES,
    TIGHT_CONNECTION_BYTES,
};
use budget::{Budget, Demand, Grant};
pub use reserved::ConnectionReservation;
use ticket_state::TicketState;

/// One that waits for a reservation.
#[derive(Debug)]
enum Waiter {
    /// A connection of a worker, which gets a message.
    Connection { waker: Arc<dyn ConnectionWaker>, connection: ConnectionId },
    /// Any other holder, which polls a ticket.
    Ticket(Arc<TicketState>),
}

impl Waiter {
    fn of(waker: &Arc<dyn ConnectionWaker>, connection: ConnectionId) -> Waiter {
        Waiter::Connection { waker: Arc::clone(waker), connection }
    }

    fn is(&self, waker: &Arc<dyn ConnectionWaker>, connection: ConnectionId) -> bool {
        matches!(self, Waiter::Connection { waker: own, connection: id }
            if *id == connection && waker::is_same(own, waker))
    }

    fn granted(self, grant: Grant) {
        match self {
            Waiter::Connection { waker, connection } => {
                waker.memory_granted(connection, grant);
            }
            Waiter::Ticket(state) => state.granted(grant),
        }
    }
}

/// Figures of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionMemoryStats {
    /// Memory that connections may hold together.
    pub capacity_bytes: u64,
    /// Memory that they held at the last report of their workers.
    pub used_bytes: u64,
    /// The reserved part of this, or of memory that is about to be held.
    pub reserved_bytes: u64,
    /// Connections, statements and streams that wait for a reservation.
    pub waiting: u64,
    /// Reservations that had to wait, since the start.
    pub waits: u64,
    /// Of these, reservations given up after waiting too long.
    pub refused: u64,
    /// Connections closed because of the memory they held, since the start.
    pub closed: u64,
}

impl ConnectionMemoryStats {
    /// Name and value of each figure, gauges first.
    pub fn entries(&self) -> [(&'static str, u64); 7] {
        [
            ("connection_memory_max", self.capacity_bytes),
            ("connection_memory_used", self.used_bytes),
            ("connection_memory_reserved", self.reserved_bytes),
            ("connection_memory_waiting", self.waiting),
            ("connection_memory_waits", self.waits),
            ("connection_memory_refused", self.refused),
            ("connection_memory_closed", self.closed),
        ]
    }
}

/// See the module text.
#[derive(Debug, Default)]
pub struct ConnectionMemory {
    /// Sum of the buckets' quotas.
    quota_bytes: AtomicU64,
    /// Unreserved bytes of connections, as their workers have reported them.
    unreserved_bytes: AtomicUsize,
    budget: Mutex<Budget<Waiter>>,
    /// The sum of the reservations, readable without the lock.
    reserved_bytes: AtomicUsize,
    /// Length of the queue, readable without the lock.
    queued: AtomicUsize,
    /// Waits outside the queue.
    unqueued: AtomicUsize,
    waits: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
}

impl ConnectionMemory {
    /// Sets the buckets' memory quota, of which connections get a part.
    pub fn set_quotas(&self, quota_bytes: u64) {
        if self.quota_bytes.swap(quota_bytes, Ordering::Relaxed) != quota_bytes {
            self.change(|_| {});
        }
    }

    /// Memory that connections may hold together.
    pub fn capacity_bytes(&self) -> usize {
        let part = self.quota_bytes.load(Ordering::Relaxed) / CONNECTION_QUOTA_PART;
        CONNECTION_BYTES_BASE + usize::try_from(part).unwrap_or(usize::MAX / 2)
    }

    /// The part that can be reserved. The rest is for unreserved memory.
    pub fn reservable_bytes(&self) -> usize {
        debug_assert!(self.capacity_bytes() > SMALL_CONNECTION_BYTES, "some bytes are reservable");
        self.capacity_bytes() - SMALL_CONNECTION_BYTES
    }

    /// The part that can be reserved now: less while unreserved memory exceeds its part.
    fn limit_bytes(&self) -> usize {
        let unreserved = self.unreserved_bytes.load(Ordering::Relaxed);
        self.capacity_bytes().saturating_sub(unreserved.max(SMALL_CONNECTION_BYTES))
    }

    /// The size that a reservation of `bytes` counts as: a reservation larger than the whole budget
    /// gets the whole budget.
    pub fn counted(&self, bytes: usize) -> usize {
        bytes.min(self.reservable_bytes())
    }

    fn counted_demand(&self, demand: Demand) -> Demand {
        Demand { bytes: self.counted(demand.bytes), ..demand }
    }

    /// Reserves memory, unless it would have to wait. Returns the reserved size.
    #[cfg(test)]
    pub fn try_reserve(&self, bytes: usize) -> Option<usize> {
        let bytes = self.counted(bytes);
        self.try_grant(Demand::of_bytes(bytes)).map(|_| bytes)
    }

    /// Reserves memory, unless it would have to wait.
    pub fn try_grant(&self, demand: Demand) -> Option<Grant> {
        let demand = self.counted_demand(demand);
        self.change(|budget| budget.reserve(demand, self.limit_bytes()))
    }

    /// Reserves memory for whoever is no connection of a worker, unless it would have to wait: the
    /// result returns the memory. A small demand need not wait for large ones in the queue.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let demand = self.counted_demand(Demand::of_bytes(bytes));
        let grant = match demand.bytes > AHEAD_OF_QUEUE_BYTES_MAX {
            true => self.try_grant(demand)?,
            false => self.change(|budget| budget.reserve_first(demand, self.limit_bytes()))?,
        };
        Some(Reservation { memory: Arc::clone(self), grant })
    }

    /// Reserves memory, or queues for it. A queued connection is notified through
    /// [`ConnectionWaker::memory_granted`].
    pub fn reserve(
        &self,
        demand: Demand,
        waker: &Arc<dyn ConnectionWaker>,
        connection: ConnectionId,
    ) -> Option<Grant> {
        let demand = self.counted_demand(demand);
        self.change(|budget| {
            let granted = budget.reserve(demand, self.limit_bytes());
            if granted.is_none() {
                debug_assert!(
                    !budget.has(|waiter| waiter.is(waker, connection)),
                    "it waits already"
                );
                budget.wait(Waiter::of(waker, connection), demand);
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            granted
        })
    }

    /// As [`ConnectionMemory::reserve`], for a connection whose turn it is, in exchange for the
    /// bytes that it was granted: the document has changed since it asked.
    pub fn exchange(
        &self,
        before: &mut ConnectionReservation,
        demand: Demand,
        waker: &Arc<dyn ConnectionWaker>,
        connection: ConnectionId,
    ) -> Option<Grant> {
        debug_assert!(before.is_any(), "only a fresh reservation is exchanged");
        let demand = self.counted_demand(demand);
        self.change(|budget| {
            before.take_all().for_each(|grant| budget.release(grant));
            debug_assert!(!before.is_any(), "a reservation is exchanged as a whole");
            let granted = budget.reserve_first(demand, self.limit_bytes());
            if granted.is_none() {
                budget.wait_first(Waiter::of(waker, connection), demand);
            }
            granted
        })
    }

    /// Queues a ticket. It is granted at once if it need not wait.
    fn queue_ticket(&self, state: &Arc<TicketState>, demand: Demand) {
        let demand = self.counted_demand(demand);
        self.change(|budget| match budget.reserve(demand, self.limit_bytes()) {
            Some(grant) => state.put(grant),
            None => {
                budget.wait(Waiter::Ticket(Arc::clone(state)), demand);
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Takes a ticket out of the queue, and returns its grant.
    fn leave_ticket(&self, state: &Arc<TicketState>) {
        let is_this =
            |waiter: &Waiter| matches!(waiter, Waiter::Ticket(other) if Arc::ptr_eq(other, state));
        // Under the lock of the queue, so no grant comes afterwards.
        self.change(|budget| {
            budget.leave(is_this);
            debug_assert!(!budget.has(is_this), "a ticket that ends waits no more");
            if let Some(grant) = state.take() {
                budget.release(grant);
            }
        });
    }

    /// Returns a reservation of bytes, and grants waiting ones.
    pub fn release(&self, bytes: usize) {
        self.release_grant(Grant::Bytes(bytes));
    }

    /// Returns a reservation, and grants waiting ones.
    pub fn release_grant(&self, grant: Grant) {
        self.change(|budget| budget.release(grant));
    }

    /// Returns all reservations of a connection, and grants waiting ones.
    pub fn release_all(&self, reserved: &mut ConnectionReservation) {
        self.change(|budget| reserved.take_all().for_each(|grant| budget.release(grant)));
        assert!(!reserved.is_any(), "a reservation is returned as a whole");
    }

    /// Removes a connection from the queue. If it was just granted memory, the message is on its
    /// way to its worker.
    pub fn leave(&self, waker: &Arc<dyn ConnectionWaker>, connection: ConnectionId) {
        self.change(|budget| budget.leave(|waiter| waiter.is(waker, connection)));
    }

    /// Changes the budget, then grants what fits.
    fn change<R>(&self, change: impl FnOnce(&mut Budget<Waiter>) -> R) -> R {
        let mut budget = self.budget.lock();
        let result = change(&mut budget);
        budget.grant(self.limit_bytes(), self.reservable_bytes(), Waiter::granted);
        self.reserved_bytes.store(budget.reserved_bytes(), Ordering::Relaxed);
        self.queued.store(budget.queued(), Ordering::Relaxed);
        result
    }

    /// Notes that a holder of `before` bytes without a reservation now holds `after`.
    pub fn note_unreserved(&self, before: usize, after: usize) {
        if after >= before {
            self.unreserved_bytes.fetch_add(after - before, Ordering::Relaxed);
            return;
        }
        let total = self.unreserved_bytes.fetch_sub(before - after, Ordering::Relaxed);
        assert!(total >= before - after, "memory that is given back was noted");
        // There may be more to reserve now.
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.change(|_| {});
        }
    }

    /// Counts a waiter outside of the queue, as long as the result lives.
    pub fn wait_beside(self: &Arc<Self>) -> UnqueuedWait {
        self.unqueued.fetch_add(1, Ordering::Relaxed);
        UnqueuedWait(Arc::clone(self))
    }

    /// True while someone waits in the queue.
    pub fn has_queue(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// How many wait. Workers read it once a turn at most.
    pub fn waiters(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.unqueued.load(Ordering::Relaxed)
    }

    /// True while anyone waits.
    pub fn has_waiters(&self) -> bool {
        self.waiters() > 0
    }

    /// True while connections hold more than they may together.
    pub fn is_over(&self) -> bool {
        let unreserved = self.unreserved_bytes.load(Ordering::Relaxed);
        unreserved + self.reserved_bytes.load(Ordering::Relaxed) > self.capacity_bytes()
    }

    /// True while unreserved memory comes near its part, so that more is to be reserved.
    pub fn is_tight(&self) -> bool {
        self.unreserved_bytes.load(Ordering::Relaxed) > TIGHT_CONNECTION_BYTES
    }

    /// Counts a reservation that was given up.
    pub fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection closed because of the memory it held.
    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures as of now.
    pub fn stats(&self) -> ConnectionMemoryStats {
        let reserved_bytes = self.budget.lock().reserved_bytes() as u64;
        let unreserved_bytes = self.unreserved_bytes.load(Ordering::Relaxed) as u64;
        ConnectionMemoryStats {
            capacity_bytes: self.capacity_bytes() as u64,
            used_bytes: unreserved_bytes + reserved_bytes,
            reserved_bytes,
            waiting: self.waiters() as u64,
            waits: self.waits.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }
}

/// Memory that is reserved for as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<ConnectionMemory>,
    grant: Grant,
}

impl Reservation {
    /// Bytes for this holder alone.
    pub fn bytes(&self) -> usize {
        match self.grant {
            Grant::Bytes(bytes) => bytes,
            Grant::Block(_) => 0,
        }
    }

    /// Returns all but so many bytes. A block is returned as a whole only.
    pub fn keep(&mut self, bytes: usize) {
        let Grant::Bytes(reserved) = &mut self.grant else { return };
        if let Some(surplus) = reserved.checked_sub(bytes).filter(|surplus| *surplus > 0) {
            *reserved = bytes;
            self.memory.release(surplus);
            debug_assert_eq!(self.bytes(), bytes, "the rest stays reserved");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.release_grant(self.grant);
    }
}

/// A wait outside the queue, until this is dropped.
#[derive(Debug)]
pub struct UnqueuedWait(Arc<ConnectionMemory>);

impl Drop for UnqueuedWait {
    fn drop(&mut self) {
        let waits = self.0.unqueued.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(waits > 0, "a wait that ends was counted");
    }
}

#[cfg(test)]
mod tests;
