//! One connection over an in-memory bucket, driven by bytes: for unit tests and the connection
//! fuzzer.
//!
//! Owns: a server context without sockets, threads or files, and a clock that the test advances. In
//! production key derivation, flush_all and the flusher run on other threads. Here this work runs
//! between two steps of the connection, so equal input gives equal output. The harness panics where
//! the state machine breaks its own rules, which is what the fuzzer looks for.

mod check;
mod consumer;
pub(crate) mod login;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{IoSlice, Read};
use std::sync::Arc;
use std::time::Duration;

use oribi_auth::{Identity, UserStore};
#[cfg(test)]
use oribi_cluster::NodeLease;
use oribi_config::Settings;
use oribi_config::SlowThresholds;
#[cfg(test)]
use oribi_engine::FetchOutcome;
use oribi_engine::limits::{HIGH_WATERMARK_PERCENT, LOW_WATERMARK_PERCENT};
use oribi_engine::{BucketConfig, EvictionPolicy, Storage, Upkeep, WarmupStep};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_storage::{KvStore, MemoryStore};
use oribi_types::Timestamp;

use crate::buckets::{BucketHandle, BucketOptions, Buckets};
use crate::cluster_config::ClusterConfig;
use crate::connection::close_reason::CloseReason;
use crate::connection::file_limit::FileLimits;
use crate::connection::latency_clock::LatencyClock;
use crate::connection::parked::ParkToken;
use crate::connection::waker::ConnectionId;
use crate::dcp::pace::Moment;
use crate::diagnostics::counters::ServerCounters;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;
use crate::limits::{CHANGES_PAUSE_NS_MAX, READ_ROOM_BYTES_MIN};
use crate::runtime::driver::{ConnectionDriver, TurnProgress};
use crate::runtime::mailbox::{Mailbox, WorkerMessage};
use crate::server_context::{ConnectionLimits, LockTimeouts, ServerContext};

pub use check::check;
pub use consumer::{ConsumerTally, check_consumer};

/// Vbuckets of the harness's buckets; few, so a fuzzer soon names a vbucket outside the map.
pub const HARNESS_VBUCKETS: u16 = 4;

/// Seconds since the epoch at which the harness's clock starts.
pub const HARNESS_START_S: u32 = 1_800_000_000;

/// A clock on which each timed command takes a microsecond.
const fn harness_clock() -> LatencyClock {
    LatencyClock::Stepping { now_ns: Cell::new(0), step_ns: 1_000 }
}

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(3600);

pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    auth_deadline_ms: 10_000,
    frame_deadline_ms: 60_000,
    send_deadline_ms: 60_000,
    idle_timeout_ms: 0,
    send_queue_bytes_max: 1024 * 1024,
    connections_max: 10,
    connections_reserved: 0,
    files: FileLimits::NONE,
    slow: SlowThresholds::OFF,
    prefetch_keys: 16,
    lock_timeouts: LockTimeouts { default_s: 15, max_s: 30 },
};

/// One connection over an in-memory bucket.
pub struct ConnectionHarness {
    connection: ConnectionDriver,
    environment: Environment,
    mailbox: Arc<Mailbox>,
    bucket: Arc<BucketHandle>,
    /// The flusher runs whenever a write waits for it.
    flushes: bool,
    /// The fetcher runs whenever a request waits for it.
    fetches: bool,
    /// The blocking thread's queue is full.
    refuses_jobs: bool,
    /// The blocking thread leaves its jobs alone.
    holds_jobs: bool,
    /// Each job loses the lease while it runs, and a new lease begins.
    loses_lease: bool,
    /// Bytes received while the connection did not read.
    unread: VecDeque<u8>,
    /// The end of the last pause of change streams, which may lie ahead of the clock.
    paced_ns: u64,
}

impl ConnectionHarness {
    /// Creates a connection in development mode; bucket `default` is empty and may be flushed.
    pub fn new() -> ConnectionHarness {
        ConnectionHarness::over(UserStore::development(), Arc::new(MemoryStore::new()))
    }

    /// As `new`, with other limits.
    pub fn limited(change: impl FnOnce(&mut ConnectionLimits)) -> ConnectionHarness {
        let mut limits = LIMITS;
        change(&mut limits);
        let users = UserStore::development().into();
        ConnectionHarness::open(users, Arc::new(MemoryStore::new()), limits, true)
    }

    /// As `new`, with another number of keys announced ahead; 0 for none.
    pub fn with_prefetch(prefetch_keys: usize) -> ConnectionHarness {
        let limits = ConnectionLimits { prefetch_keys, ..LIMITS };
        let users = UserStore::development().into();
        ConnectionHarness::open(users, Arc::new(MemoryStore::new()), limits, true)
    }

    /// Creates a connection to a server with these users, whose bucket `default` lies over this
    /// store.
    pub fn over(users: impl Into<Arc<UserStore>>, store: Arc<dyn KvStore>) -> ConnectionHarness {
        ConnectionHarness::open(users.into(), store, LIMITS, true)
    }

    /// As `over`, for a store whose last server did not stop cleanly.
    pub fn after_a_crash(
        users: impl Into<Arc<UserStore>>,
        store: Arc<dyn KvStore>,
    ) -> ConnectionHarness {
        ConnectionHarness::open(users.into(), store, LIMITS, false)
    }

    /// As `over`, in development mode, with a bucket of this eviction policy.
    pub fn evicting(
        store: Arc<dyn KvStore>,
        eviction: EvictionPolicy,
        prefetch_keys: usize,
    ) -> ConnectionHarness {
        let limits = ConnectionLimits { prefetch_keys, ..LIMITS };
        let config = BucketConfig { eviction, ..harness_config() };
        let users = UserStore::development().into();
        let (server, bucket) = server_over(users, (config, store), limits, true, false);
        ConnectionHarness::connect(server, bucket)
    }

    /// As `over`, in development mode, with a bucket that has loaded nothing yet.
    #[cfg(test)]
    pub(crate) fn loading(store: Arc<dyn KvStore>) -> ConnectionHarness {
        let users = UserStore::development().into();
        let config = (harness_config(), store);
        let (server, bucket) = server_that_loads(users, config, LIMITS, true, false);
        ConnectionHarness::connect(server, bucket)
    }

    fn open(
        users: Arc<UserStore>,
        store: Arc<dyn KvStore>,
        limits: ConnectionLimits,
        was_clean: bool,
    ) -> ConnectionHarness {
        let (server, bucket) = in_memory_server(users, store, limits, was_clean, false);
        ConnectionHarness::connect(server, bucket)
    }

    /// Creates another connection to the same server.
    pub fn beside(&self) -> ConnectionHarness {
        ConnectionHarness::connect(Arc::clone(self.server()), Arc::clone(&self.bucket))
    }

    /// A connection that begins at a time to a server whose background work the caller does.
    #[cfg(test)]
    pub(crate) fn without_threads(
        server: &Arc<ServerContext>,
        bucket: &Arc<BucketHandle>,
        now: (Timestamp, u64),
    ) -> ConnectionHarness {
        let (server, bucket) = (Arc::clone(server), Arc::clone(bucket));
        let mut harness = ConnectionHarness::connect_at(server, bucket, now);
        (harness.flushes, harness.fetches) = (false, false);
        harness
    }

    /// The time of the connection's clock.
    #[cfg(test)]
    pub(crate) fn now_ms(&self) -> u64 {
        self.environment.now_ms
    }

    fn connect(server: Arc<ServerContext>, bucket: Arc<BucketHandle>) -> ConnectionHarness {
        let now = (Timestamp::from_unix_s(HARNESS_START_S), 1);
        ConnectionHarness::connect_at(server, bucket, now)
    }

    fn connect_at(
        server: Arc<ServerContext>,
        bucket: Arc<BucketHandle>,
        (now, now_ms): (Timestamp, u64),
    ) -> ConnectionHarness {
        let mailbox = Mailbox::new(None);
        let mut environment = Environment::new(server, 0, &mailbox, harness_clock());
        (environment.now, environment.now_ms) = (now, now_ms);
        let id = ConnectionId { slot: 0, generation: 1 };
        let record = environment.server.connections.registry.add(0, None, environment.now);
        let connection = ConnectionDriver::new(
            id,
            record,
            environment.now_ms,
            &environment.server.connections.limits,
        );
        ConnectionHarness {
            connection,
            environment,
            mailbox,
            bucket,
            flushes: true,
            fetches: true,
            refuses_jobs: false,
            holds_jobs: false,
            loses_lease: false,
            unread: VecDeque::new(),
            paced_ns: 0,
        }
    }

    /// Receives `bytes`, runs until there is nothing left to do, and returns all answers.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answered = Vec::new();
        self.feed_into(bytes, &mut answered);
        answered
    }

    /// As `feed`, but appends the answers to `answered`, so that the harness itself need not
    /// allocate.
    pub fn feed_into(&mut self, bytes: &[u8], answered: &mut Vec<u8>) {
        self.unread.extend(bytes);
        loop {
            if self.connection.wants_input() && !self.unread.is_empty() {
                self.receive();
            }
            self.environment.stretch.begin(self.environment.latency_clock.now_ns());
            let progress = self.connection.process(&mut self.environment);
            self.connection.check_invariants();
            self.drain(answered);
            let ran = self.run_others();
            self.drain(answered);
            let is_done = match progress {
                _ if self.connection.has_changes_to_send() => false,
                TurnProgress::NeedInput => self.unread.is_empty() && !ran,
                TurnProgress::Closing => true,
                TurnProgress::Waiting => !ran && !self.connection.wants_input(),
                TurnProgress::OutputFull | TurnProgress::TurnOver => false,
            };
            if is_done {
                return;
            }
        }
    }

    fn receive(&mut self) {
        if let Some(item) = self.connection.incoming() {
            let most = item.missing_bytes().min(self.unread.len());
            let bytes: Vec<u8> = self.unread.drain(..most).collect();
            return item.append(&bytes);
        }
        let room = self.connection.reader().spare(READ_ROOM_BYTES_MIN);
        let taken = self.unread.read(room).expect("memory can be read");
        self.connection.reader().commit(taken);
    }

    /// Runs one turn: receives `bytes`, which must fit, serves once, and returns the answers. False
    /// when the connection needs more input.
    pub fn turn(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let room = self.connection.reader().spare(READ_ROOM_BYTES_MIN);
        room[..bytes.len()].copy_from_slice(bytes);
        self.connection.reader().commit(bytes.len());
        let progress = self.connection.process(&mut self.environment);
        self.connection.check_invariants();
        let mut answered = Vec::new();
        self.drain(&mut answered);
        let ran = self.run_others();
        (answered, ran || !matches!(progress, TurnProgress::NeedInput | TurnProgress::Closing))
    }

    /// As `feed`, for a client that reads no answers: serves until the connection stops, and
    /// returns the size of the pending output.
    pub fn feed_unread(&mut self, bytes: &[u8]) -> usize {
        let (_, mut may_continue) = self.turn(bytes);
        self.connection.stalled(self.environment.now_ms);
        while may_continue && !self.connection.is_halted() {
            self.connection.process(&mut self.environment);
            may_continue = self.connection.is_halted() || !self.connection.wants_input();
        }
        self.connection.writer().pending_bytes()
    }

    /// The state that all workers share.
    pub fn server(&self) -> &Arc<ServerContext> {
        &self.environment.server
    }

    /// Why the connection ends, once it does.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.connection.closing()
    }

    /// True once the first byte has begun the text protocol.
    pub fn is_text(&self) -> bool {
        self.connection.is_text()
    }

    /// True when later requests may overtake one that waits.
    pub(crate) fn is_unordered(&self) -> bool {
        self.connection.is_unordered()
    }

    /// Makes `identity` the user of the connection, without a password.
    pub fn log_in(&mut self, identity: Arc<Identity>) {
        self.connection.authenticate(identity);
    }

    /// Advances the clock, checks deadlines as a worker does, and returns the resulting answers.
    pub fn advance_ms(&mut self, ms: u64) -> Vec<u8> {
        self.environment.now_ms += ms;
        self.environment.now.unix_ns += ms * 1_000_000;
        self.connection.expire_parked(&mut self.environment);
        self.connection.expire_fetches(self.environment.now_ms);
        self.connection.expire_memory_wait(&mut self.environment);
        self.connection.on_timer(self.environment.now_ms);
        self.connection.publish_streams();
        if self.connection.holds_up_others(&self.environment) {
            self.connection.close(CloseReason::HoldsMemory);
        }
        let server = &self.environment.server;
        server.access.users.reload_if_changed();
        self.connection.refresh_collection(&server.memcached);
        if !self.connection.refresh_user(&server.access.users) {
            self.connection.close(CloseReason::UserRemoved);
        }
        let is_development = server.access.users.is_development();
        let now_ms = self.environment.now_ms;
        if let Some(reason) =
            self.connection.overdue(now_ms, &server.connections.limits, is_development)
        {
            self.connection.close(reason);
        }
        self.feed(&[])
    }

    /// Lets writes that wait for memory in their bucket try again, as a worker does now and then,
    /// and returns the answers. The second value says whether one waited.
    pub fn retry_writes(&mut self) -> (Vec<u8>, bool) {
        let has_waited = !std::mem::take(&mut self.environment.bucket_waits).is_empty();
        self.connection.retry_write();
        (self.feed(&[]), has_waited)
    }

    /// Where the item lies that receives the value of a large store request; `None` when there is
    /// none.
    #[cfg(test)]
    pub(crate) fn incoming_address(&self) -> Option<usize> {
        self.connection.incoming_address()
    }

    /// Turns the flusher off, so that writes wait, or on again.
    pub fn set_flushes(&mut self, flushes: bool) {
        self.flushes = flushes;
    }

    /// Turns the fetcher off, so that requests for evicted documents wait, or on again.
    pub fn set_fetches(&mut self, fetches: bool) {
        self.fetches = fetches;
    }

    /// Makes the queue of the blocking thread full, or empty again.
    pub fn set_refuses_jobs(&mut self, refuses: bool) {
        self.refuses_jobs = refuses;
    }

    /// Makes the blocking thread leave its jobs alone, or run them again.
    pub fn set_holds_jobs(&mut self, holds: bool) {
        self.holds_jobs = holds;
    }

    /// Gives the node a lease. It ends while the blocking thread runs a job, and another one
    /// begins.
    #[cfg(test)]
    pub(crate) fn lose_lease_in_jobs(&mut self, lease: Arc<NodeLease>) {
        lease.begin(lease.now_ns(), LEASE);
        self.environment.lease = Some(lease);
        self.loses_lease = true;
    }

    /// Sets the step of the latency clock at each reading.
    pub fn set_clock_step_ms(&mut self, ms: u64) {
        let now_ns = Cell::new(self.environment.latency_clock.now_ns());
        self.environment.latency_clock = LatencyClock::Stepping { now_ns, step_ns: ms * 1_000_000 };
    }

    /// Lines about slow operations in this second.
    pub fn slow_lines(&self) -> u32 {
        self.environment.slow.lines()
    }

    /// Bytes that the connection holds for input.
    pub fn input_capacity(&mut self) -> usize {
        self.connection.reader().capacity()
    }

    pub fn bucket(&self) -> &Arc<BucketHandle> {
        &self.bucket
    }

    /// Takes all unsent answers: the harness's peer reads at once.
    fn drain(&mut self, answered: &mut Vec<u8>) {
        let now_ms = self.environment.now_ms;
        loop {
            if self.connection.writer().make_ready().is_err() {
                return self.connection.close(CloseReason::DamagedDocument);
            }
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = self.connection.writer().gather(&mut slices);
            if filled == 0 {
                return self.connection.settle(&mut self.environment, 0);
            }
            let before = answered.len();
            slices[..filled].iter().for_each(|slice| answered.extend_from_slice(slice));
            self.connection.sent(answered.len() - before, now_ms);
        }
    }

    /// Tells the connection that a fetch is over.
    #[cfg(test)]
    pub(crate) fn end_fetch(&mut self, token: ParkToken, outcome: FetchOutcome) {
        self.connection.fetched(token, outcome);
    }

    /// Does the work of the other threads; true when the connection got a result.
    fn run_others(&mut self) -> bool {
        let mut told = false;
        let session = self.environment.session();
        let jobs = &mut self.environment.jobs;
        for (_, job) in if self.holds_jobs { Vec::new() } else { std::mem::take(jobs) } {
            let result = if self.refuses_jobs { JobResult::Rejected } else { job.run() };
            if let Some(lease) = self.environment.lease.as_ref().filter(|_| self.loses_lease) {
                lease.end();
                lease.begin(lease.now_ns(), LEASE);
            }
            self.connection.job_done(&mut self.environment, session, result);
            told = true;
        }
        if self.flushes && self.connection.waits_for_store() {
            // The waiting writes report a failed commit to the connection.
            let _ = self.bucket.bucket().flush_step();
        }
        if self.fetches && self.connection.waits_for_fetch() {
            self.bucket.bucket().fetch_step();
        }
        let mut messages = Vec::new();
        self.mailbox.take(&mut messages);
        for message in messages {
            match message {
                WorkerMessage::Persisted { token, outcome } => {
                    self.connection.persisted(
                        &mut self.environment,
                        ParkToken::decode(token),
                        outcome,
                    );
                }
                WorkerMessage::Fetched { token, outcome } => {
                    self.connection.fetched(ParkToken::decode(token), outcome);
                }
                WorkerMessage::MemoryGranted { grant, .. } => {
                    self.connection.memory_granted(&mut self.environment, grant);
                }
                WorkerMessage::DcpReady { .. } => self.announce_changes(),
                _ => continue,
            }
            told = true;
        }
        told
    }

    /// Announces changes as a worker does, and lets the pause pass at once. A pause is bounded.
    fn announce_changes(&mut self) {
        let ns = self.paced_ns.max(self.environment.now_ms * 1_000_000);
        let now = Moment { ns, received: 0 };
        self.paced_ns = ns;
        if let Some(due) = self.connection.announce_changes(now) {
            assert!(due.ns - ns <= CHANGES_PAUSE_NS_MAX, "changes wait {} ns", due.ns - ns);
            self.paced_ns = due.ns;
            self.connection.release_changes(due);
        }
    }
}

impl Default for ConnectionHarness {
    fn default() -> ConnectionHarness {
        ConnectionHarness::new()
    }
}

fn harness_config() -> BucketConfig {
    BucketConfig {
        name: "default".to_owned(),
        uuid: "0123456789abcdef0123456789abcdef".to_owned(),
        vbuckets: HARNESS_VBUCKETS,
        memory_quota_bytes: 1 << 30,
        flush_enabled: true,
        value_bytes_max: VALUE_BYTES_MAX,
        flush_interval_ms: 0,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Value,
        high_watermark_percent: HIGH_WATERMARK_PERCENT,
        low_watermark_percent: LOW_WATERMARK_PERCENT,
        upkeep: Upkeep::default(),
    }
}

/// Shared state of a server with one bucket, `default`, over the caller's store; with the bucket's
/// threads if `runs` is set.
pub(crate) fn in_memory_server(
    users: Arc<UserStore>,
    store: Arc<dyn KvStore>,
    limits: ConnectionLimits,
    was_clean: bool,
    runs: bool,
) -> (Arc<ServerContext>, Arc<BucketHandle>) {
    server_over(users, (harness_config(), store), limits, was_clean, runs)
}

fn server_over(
    users: Arc<UserStore>,
    config: (BucketConfig, Arc<dyn KvStore>),
    limits: ConnectionLimits,
    was_clean: bool,
    runs: bool,
) -> (Arc<ServerContext>, Arc<BucketHandle>) {
    let (server, bucket) = server_that_loads(users, config, limits, was_clean, runs);
    while !matches!(bucket.bucket().warmup_step(), WarmupStep::Done) {}
    (server, bucket)
}

/// As `server_over`, before the bucket has loaded anything.
fn server_that_loads(
    users: Arc<UserStore>,
    (config, store): (BucketConfig, Arc<dyn KvStore>),
    limits: ConnectionLimits,
    was_clean: bool,
    runs: bool,
) -> (Arc<ServerContext>, Arc<BucketHandle>) {
    let buckets = Buckets::in_memory();
    let bucket =
        buckets.open_over(config, store, was_clean, runs).expect("an in-memory store opens");
    let server = ServerContext::new(
        Arc::new(buckets),
        users,
        Arc::new(ClusterConfig::new(11210, 8091, HARNESS_START_S)),
        Arc::new(ServerCounters::new(1)),
        limits,
        BucketOptions::from_settings(&Settings::default()),
        Timestamp::from_unix_s(HARNESS_START_S),
    );
    (Arc::new(server), bucket)
}
