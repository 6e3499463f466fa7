//! The context that a worker lends to a connection while it serves it.
//!
//! Owns: the clock readings of the batch, the worker's counters and mailbox, and the jobs that
//! connections submit. Invariant: the driver reads the time once per batch; below it only the
//! [`LatencyClock`] reads a clock, around commands that are timed. A worker creates it, and so does
//! the in-memory harness.

use std::sync::Arc;

use oribi_auth::audit::AuditGate;
use oribi_cluster::NodeLease;
use oribi_engine::{FetchSink, PersistenceSink};
use oribi_types::Timestamp;

use crate::connection::latency_clock::LatencyClock;
use crate::connection::memory::ledger::MemoryLedger;
use crate::connection::waker::{ConnectionId, ConnectionWaker};
use crate::diagnostics::counters::WorkerCounters;
use crate::diagnostics::rejection_log::RejectionLog;
use crate::diagnostics::slow_operation_log::{ClockInterval, SlowOperationLog};
use crate::dispatch::job::BlockingJob;
use crate::limits::{
    LONE_TRANSFER_SLICE_BYTES, SMALL_REQUESTS_REMEMBERED_MS, TRANSFER_REST_PART,
    TRANSFER_SLICE_BYTES,
};
use crate::server_context::ServerContext;

/// See the module text.
pub(crate) struct Environment {
    /// State that all workers share.
    pub server: Arc<ServerContext>,
    /// Number of this worker.
    pub worker: usize,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// The worker's mailbox, as the waker of its connections.
    pub waker: Arc<dyn ConnectionWaker>,
    /// The same mailbox, as the engine's persistence sink.
    pub sink: Arc<dyn PersistenceSink>,
    /// The same mailbox, as the engine's fetch sink.
    pub fetch_sink: Arc<dyn FetchSink>,
    /// Jobs that connections requested and the driver has not submitted yet.
    pub jobs: Vec<(ConnectionId, BlockingJob<Environment>)>,
    /// Connections whose write waits for memory in its bucket.
    pub bucket_waits: Vec<ConnectionId>,
    /// Wall clock of this batch.
    pub now: Timestamp,
    /// Monotonic clock of this batch, in milliseconds since an arbitrary start; never 0.
    pub now_ms: u64,
    /// Memory that the worker's connections hold.
    pub memory: MemoryLedger,
    /// For commands that are timed.
    pub latency_clock: LatencyClock,
    /// Decides which refused requests are logged.
    pub refusals: RejectionLog,
    /// Decides which refusals and failed logins are audited.
    pub audit_gate: AuditGate,
    /// The lease for shared buckets, if this node is in a cluster.
    pub lease: Option<Arc<NodeLease>>,
    /// Decides which slow operations are logged.
    pub slow: SlowOperationLog,
    /// Requests served since the last reading of the latency clock for them.
    pub stretch: ClockInterval,
    /// Requests that the worker has served so far.
    pub requests_served: u64,
    /// When small requests were last received, on [`Environment::now_ms`]'s clock.
    small_requests_ms: u64,
    next_park_serial: u32,
}

impl Environment {
    /// The environment of worker number `worker`, at time zero.
    pub fn new<M>(
        server: Arc<ServerContext>,
        worker: usize,
        mailbox: &Arc<M>,
        latency_clock: LatencyClock,
    ) -> Environment
    where
        M: ConnectionWaker + PersistenceSink + FetchSink + 'static,
    {
        let waker = Arc::clone(mailbox) as Arc<dyn ConnectionWaker>;
        let sink = Arc::clone(mailbox) as Arc<dyn PersistenceSink>;
        let fetch_sink = Arc::clone(mailbox) as Arc<dyn FetchSink>;
        let counters = server.diagnostics.counters.worker(worker);
        let slow = SlowOperationLog::new(server.connections.limits.slow)
            .remembering(&server.diagnostics.recent_slow);
        let refusals = RejectionLog::new(server.diagnostics.reference_seed, worker);
        let memory = MemoryLedger::new(Arc::clone(&server.connections.memory), Arc::clone(&waker));
        let lease = server.cluster.node.as_ref().map(|node| Arc::clone(node.lease()));
        Environment {
            server,
            worker,
            counters,
            waker,
            sink,
            fetch_sink,
            jobs: Vec::new(),
            bucket_waits: Vec::new(),
            now: Timestamp::default(),
            now_ms: 1,
            memory,
            latency_clock,
            refusals,
            audit_gate: AuditGate::default(),
            lease,
            slow,
            stretch: ClockInterval::default(),
            requests_served: 0,
            small_requests_ms: 0,
            next_park_serial: 0,
        }
    }

    /// True when a refusal or a failed login is to be audited.
    pub fn audits_refusal(&mut self) -> bool {
        self.audit_gate.admits(self.now_ms, &self.server.access.audit)
    }

    /// The node's serving number, if it is in a cluster.
    pub fn session(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.serving())
    }

    /// True when answers computed in `session` may be sent.
    pub fn still_holds(&self, session: u64) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.still_holds(session))
    }

    /// Bytes that the worker has received and sent so far.
    pub fn moved_bytes(&self) -> u64 {
        self.counters.bytes_read.get().wrapping_add(self.counters.bytes_written.get())
    }

    /// Bytes of a large value that move before the next connection gets its turn.
    pub fn transfer_slice_bytes(&self) -> usize {
        debug_assert!(self.now_ms >= self.small_requests_ms, "the clock of a worker ascends");
        match self.now_ms - self.small_requests_ms > SMALL_REQUESTS_REMEMBERED_MS {
            true => LONE_TRANSFER_SLICE_BYTES,
            false => TRANSFER_SLICE_BYTES,
        }
    }

    /// How many of `left` bytes move before the next connection gets its turn: a slice, or all if
    /// only a short rest would remain. The client waits for the rest, so it must not wait for the
    /// slices of other connections.
    pub fn transfer_bytes(&self, left: usize) -> usize {
        let slice = self.transfer_slice_bytes();
        if left <= slice + slice / TRANSFER_REST_PART { left } else { slice }
    }

    /// Notes that a connection without a large value was served. Such connections should not wait
    /// long for the others.
    pub fn note_small_requests(&mut self) {
        self.small_requests_ms = self.now_ms;
    }

    /// A serial number for a parked request; never 0.
    pub fn park_serial(&mut self) -> u32 {
        self.next_park_serial = self.next_park_serial.wrapping_add(1).max(1);
        self.next_park_serial
    }
}
