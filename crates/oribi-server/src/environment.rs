//! What a worker lends to a connection while it serves it.
//!
//! Owns: the clock readings of the batch, the worker's counters and mailbox, and the jobs that
//! connections hand out. Invariant: time is read once per batch by the driver; nothing below reads a
//! clock. Made by a worker, and by the in-memory harness.

use std::sync::Arc;

use oribi_engine::PersistenceSink;
use oribi_types::Timestamp;

use crate::blocking_thread::Job;
use crate::counters::WorkerCounters;
use crate::mailbox::{ConnectionId, Mailbox};
use crate::server_context::ServerContext;

/// See the module text.
pub(crate) struct Environment {
    /// What all workers share.
    pub server: Arc<ServerContext>,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// Where completions for this worker go.
    pub mailbox: Arc<Mailbox>,
    /// The same mailbox, as the engine knows it.
    pub sink: Arc<dyn PersistenceSink>,
    /// Jobs that connections asked for and the driver has not submitted yet.
    pub jobs: Vec<(ConnectionId, Job)>,
    /// Wall clock of this batch.
    pub now: Timestamp,
    /// Monotonic clock of this batch, in milliseconds since some start; never 0.
    pub now_ms: u64,
    next_park_serial: u32,
}

impl Environment {
    /// An environment at the beginning of time.
    pub fn new(
        server: Arc<ServerContext>,
        counters: Arc<WorkerCounters>,
        mailbox: Arc<Mailbox>,
    ) -> Environment {
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&mailbox) as Arc<dyn PersistenceSink>;
        Environment {
            server,
            counters,
            mailbox,
            sink,
            jobs: Vec::new(),
            now: Timestamp::default(),
            now_ms: 1,
            next_park_serial: 0,
        }
    }

    /// A serial number for a parked write.
    pub fn park_serial(&mut self) -> u32 {
        self.next_park_serial = self.next_park_serial.wrapping_add(1);
        self.next_park_serial
    }
}
