//! The memory budget of all connections together, and the queue for it.
//!
//! Owns: the process-wide figures, the reservations for large requests and answers, and the queue
//! of connections that wait for one. [`ledger`] is a worker's part of it.
//!
//! A large request or answer is reserved as a whole before any of it is taken into memory. If it
//! does not fit, its connection waits, first come, first served, and its socket is not read
//! meanwhile. Small ones are not reserved: workers add up what their connections hold after each
//! turn and report the sum in steps. When the total exceeds the capacity, workers close the
//! connections that lag furthest behind.
//!
//! Others than connections of workers (statements of SQL, streams of changes over HTTP) have no
//! place in the queue: they ask again until their own deadline, and count as [`Waiting`] meanwhile.
//! Whoever holds a reservation for a client looks at [`ConnectionMemory::has_waiters`], and gives
//! the memory back when its client lags while others wait.
//!
//! Invariants:
//! - a connection waits only while it has nothing reserved, so no holder waits for a waiter, and
//!   waits end because clients have deadlines;
//! - the sum of the reservations never exceeds [`ConnectionMemory::reservable_bytes`], and any one
//!   request fits in it;
//! - when a reservation is granted to a connection that is already gone, its worker returns it.
//!
//! This module knows no connection and no clock; it notifies a waiter through its worker's mailbox.

pub(crate) mod lag;
pub(crate) mod ledger;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::limits::{CONNECTION_BYTES_BASE, CONNECTION_QUOTA_PART, SMALL_CONNECTION_BYTES};
use crate::mailbox::{ConnectionId, Mailbox, Message};

/// A connection that waits for a reservation.
#[derive(Debug)]
struct Waiter {
    mailbox: Arc<Mailbox>,
    connection: ConnectionId,
    bytes: usize,
}

impl Waiter {
    fn is(&self, mailbox: &Arc<Mailbox>, connection: ConnectionId) -> bool {
        self.connection == connection && Arc::ptr_eq(&self.mailbox, mailbox)
    }
}

/// Figures of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionMemoryStats {
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
pub(crate) struct ConnectionMemory {
    /// Sum of the buckets' quotas.
    quota_bytes: AtomicU64,
    used_bytes: AtomicUsize,
    queue: Mutex<Queue>,
    /// Length of the queue, readable without its lock.
    queued: AtomicUsize,
    /// Those that wait beside the queue.
    beside: AtomicUsize,
    waits: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    reserved_bytes: usize,
    waiters: VecDeque<Waiter>,
}

impl ConnectionMemory {
    /// Sets the buckets' memory quota, of which connections get a part.
    pub fn set_quotas(&self, quota_bytes: u64) {
        if self.quota_bytes.swap(quota_bytes, Ordering::Relaxed) != quota_bytes {
            self.grant(&mut self.queue.lock());
        }
    }

    /// Memory that connections may hold together.
    pub fn capacity_bytes(&self) -> usize {
        let part = self.quota_bytes.load(Ordering::Relaxed) / CONNECTION_QUOTA_PART;
        CONNECTION_BYTES_BASE + usize::try_from(part).unwrap_or(usize::MAX / 2)
    }

    /// The part that can be reserved. The rest is for unreserved memory.
    pub fn reservable_bytes(&self) -> usize {
        self.capacity_bytes() - SMALL_CONNECTION_BYTES
    }

    /// The size that a reservation of `bytes` counts as: a reservation larger than the whole budget
    /// gets the whole budget.
    pub fn counted(&self, bytes: usize) -> usize {
        bytes.min(self.reservable_bytes())
    }

    /// Reserves memory, unless it would have to wait. Returns the reserved size.
    pub fn try_reserve(&self, bytes: usize) -> Option<usize> {
        self.queue.lock().try_reserve(self.counted(bytes), self.reservable_bytes())
    }

    /// As [`ConnectionMemory::try_reserve`], for whoever is no connection of a worker: the result
    /// returns the memory.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let bytes = self.try_reserve(bytes)?;
        Some(Reservation { memory: Arc::clone(self), bytes })
    }

    /// Reserves memory, or queues for it: then [`Message::MemoryGranted`] notifies the connection.
    pub fn reserve(
        &self,
        bytes: usize,
        mailbox: &Arc<Mailbox>,
        connection: ConnectionId,
    ) -> Option<usize> {
        let bytes = self.counted(bytes);
        let mut queue = self.queue.lock();
        let reserved = queue.try_reserve(bytes, self.reservable_bytes());
        if reserved.is_none() {
            debug_assert!(!queue.waiters.iter().any(|waiter| waiter.is(mailbox, connection)));
            let mailbox = Arc::clone(mailbox);
            queue.waiters.push_back(Waiter { mailbox, connection, bytes });
            self.queued.store(queue.waiters.len(), Ordering::Relaxed);
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        reserved
    }

    /// Returns a reservation, and grants waiting ones.
    pub fn release(&self, bytes: usize) {
        let mut queue = self.queue.lock();
        assert!(bytes <= queue.reserved_bytes, "gave back more than was reserved");
        queue.reserved_bytes -= bytes;
        self.grant(&mut queue);
    }

    /// Removes a connection from the queue. If it was just granted memory, the message is on its
    /// way to its worker.
    pub fn leave(&self, mailbox: &Arc<Mailbox>, connection: ConnectionId) {
        let mut queue = self.queue.lock();
        queue.waiters.retain(|waiter| !waiter.is(mailbox, connection));
        self.grant(&mut queue);
    }

    fn grant(&self, queue: &mut Queue) {
        let limit = self.reservable_bytes();
        while let Some(first) = queue.waiters.front()
            && queue.reserved_bytes + first.bytes.min(limit) <= limit
        {
            let Some(Waiter { mailbox, connection, bytes }) = queue.waiters.pop_front() else {
                break;
            };
            let bytes = bytes.min(limit);
            queue.reserved_bytes += bytes;
            mailbox.post(Message::MemoryGranted { connection, bytes });
        }
        self.queued.store(queue.waiters.len(), Ordering::Relaxed);
    }

    /// Counts whoever is in no queue among those that wait, as long as the result lives.
    pub fn wait_beside(self: &Arc<Self>) -> Waiting {
        self.beside.fetch_add(1, Ordering::Relaxed);
        Waiting(Arc::clone(self))
    }

    /// True while a connection waits.
    #[cfg(feature = "sql")]
    pub fn has_queue(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// How many wait. Workers read it once a turn at most.
    pub fn waiters(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.beside.load(Ordering::Relaxed)
    }

    /// True while anyone waits.
    pub fn has_waiters(&self) -> bool {
        self.waiters() > 0
    }

    /// True while connections hold more than they may together.
    pub fn is_over(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) > self.capacity_bytes()
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
        let reserved_bytes = self.queue.lock().reserved_bytes;
        ConnectionMemoryStats {
            capacity_bytes: self.capacity_bytes() as u64,
            used_bytes: self.used_bytes.load(Ordering::Relaxed) as u64,
            reserved_bytes: reserved_bytes as u64,
            waiting: self.waiters() as u64,
            waits: self.waits.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }
}

/// Memory that is reserved for as long as this lives.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<ConnectionMemory>,
    bytes: usize,
}

#[cfg(feature = "sql")]
impl Reservation {
    /// Gives back all but so many bytes.
    pub(crate) fn keep(&mut self, bytes: usize) {
        if let Some(surplus) = self.bytes.checked_sub(bytes).filter(|surplus| *surplus > 0) {
            self.memory.release(surplus);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

/// One that waits beside the queue, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<ConnectionMemory>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.beside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn try_reserve(&mut self, bytes: usize, limit: usize) -> Option<usize> {
        let fits = self.waiters.is_empty() && self.reserved_bytes + bytes <= limit;
        fits.then(|| {
            self.reserved_bytes += bytes;
            bytes
        })
    }
}

#[cfg(test)]
mod tests;
