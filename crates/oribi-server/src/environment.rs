//! What a worker lends to a connection while it serves it.
//!
//! Owns: the clock readings of the batch, the worker's counters and mailbox, and the jobs that
//! connections hand out. Invariants: time is read once per batch by the driver; nothing below reads a clock
//! but the [`LatencyClock`], and that only around the commands that are timed. Made by a worker, and by
//! the in-memory harness.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use oribi_engine::{FetchSink, PersistenceSink};
use oribi_types::Timestamp;

use crate::audit::AuditGate;
use crate::blocking_thread::Job;
use crate::cluster::lease::NodeLease;
use crate::counters::WorkerCounters;
use crate::limits::{
    LONE_TRANSFER_SLICE_BYTES, SMALL_REQUESTS_REMEMBERED_MS, TRANSFER_SLICE_BYTES,
};
use crate::mailbox::{ConnectionId, Mailbox};
use crate::refusal_log::RefusalLog;
use crate::server_context::ServerContext;
use crate::slow_operation_log::{SlowOperationLog, Stretch};

/// Measures how long a command takes.
pub(crate) enum LatencyClock {
    /// The monotonic clock.
    System(Instant),
    /// Moves on by a step with each reading: for tests.
    Stepping {
        /// The last reading.
        now_ns: Cell<u64>,
        /// What the next one adds.
        step_ns: u64,
    },
}

impl LatencyClock {
    /// Nanoseconds since some start.
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::System(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Self::Stepping { now_ns, step_ns } => {
                now_ns.set(now_ns.get().wrapping_add(*step_ns));
                now_ns.get()
            }
        }
    }
}

/// See the module text.
pub(crate) struct Environment {
    /// What all workers share.
    pub server: Arc<ServerContext>,
    /// Number of this worker.
    pub worker: usize,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// Where completions for this worker go.
    pub mailbox: Arc<Mailbox>,
    /// The same mailbox, as the engine knows it.
    pub sink: Arc<dyn PersistenceSink>,
    /// The same again, for fetches.
    pub fetch_sink: Arc<dyn FetchSink>,
    /// Jobs that connections asked for and the driver has not submitted yet.
    pub jobs: Vec<(ConnectionId, Job)>,
    /// Wall clock of this batch.
    pub now: Timestamp,
    /// Monotonic clock of this batch, in milliseconds since some start; never 0.
    pub now_ms: u64,
    /// For commands that are timed.
    pub latency_clock: LatencyClock,
    /// Which refused requests are logged.
    pub refusals: RefusalLog,
    /// Which refusals and failed logins are audited.
    pub audit_gate: AuditGate,
    /// Until when this node may serve shared buckets, where it is one of a cluster.
    pub lease: Option<Arc<NodeLease>>,
    /// Which slow operations are logged.
    pub slow: SlowOperationLog,
    /// What was served since the latency clock was last read for them.
    pub stretch: Stretch,
    /// When small requests were last received, on [`Environment::now_ms`]'s clock.
    small_requests_ms: u64,
    next_park_serial: u32,
}

impl Environment {
    /// The environment of worker number `worker`, at the beginning of time.
    pub fn new(
        server: Arc<ServerContext>,
        worker: usize,
        mailbox: Arc<Mailbox>,
        latency_clock: LatencyClock,
    ) -> Environment {
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&mailbox) as Arc<dyn PersistenceSink>;
        let fetch_sink: Arc<dyn FetchSink> = Arc::clone(&mailbox) as Arc<dyn FetchSink>;
        let counters = server.counters.worker(worker);
        let slow = SlowOperationLog::new(server.limits.slow);
        let refusals = RefusalLog::new(server.reference_seed, worker);
        let lease = server.node.as_ref().map(|node| Arc::clone(node.lease()));
        Environment {
            server,
            worker,
            counters,
            mailbox,
            sink,
            fetch_sink,
            jobs: Vec::new(),
            now: Timestamp::default(),
            now_ms: 1,
            latency_clock,
            refusals,
            audit_gate: AuditGate::default(),
            lease,
            slow,
            stretch: Stretch::default(),
            small_requests_ms: 0,
            next_park_serial: 0,
        }
    }

    /// True when a refusal or a failed login is to be audited.
    pub fn audits_refusal(&mut self) -> bool {
        self.audit_gate.admits(self.now_ms, &self.server.audit)
    }

    /// The node's session, where it is one of a cluster.
    pub fn session(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.session())
    }

    /// True when what was found out since that was the session may be sent.
    pub fn still_holds(&self, session: u64) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.still_holds(session))
    }

    /// Bytes of a large value that move before the next connection gets its turn.
    pub fn transfer_slice_bytes(&self) -> usize {
        match self.now_ms - self.small_requests_ms > SMALL_REQUESTS_REMEMBERED_MS {
            true => LONE_TRANSFER_SLICE_BYTES,
            false => TRANSFER_SLICE_BYTES,
        }
    }

    /// Somebody was served who moves no large value, and who should not wait long for those who do.
    pub fn note_small_requests(&mut self) {
        self.small_requests_ms = self.now_ms;
    }

    /// A serial number for something that is parked; never 0.
    pub fn park_serial(&mut self) -> u32 {
        self.next_park_serial = self.next_park_serial.wrapping_add(1).max(1);
        self.next_park_serial
    }
}
