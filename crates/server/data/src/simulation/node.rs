//! One node of the world: the disk that outlives its processes, and the process.
//!
//! Owns: start and end of a process. A process is the server's shared state over a real bucket in
//! simulated files, and the real agent of the cluster. None of it has a thread, so the world does
//! the background work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use oribi_auth::UserStore;
use oribi_cluster::ClusterHost;
use oribi_cluster::ClusterSettings;
use oribi_cluster::agreement::memory::MemoryAgreement;
use oribi_cluster::buckets::{BucketFailure, ClusterBuckets, SharedBucket};
use oribi_cluster::copies::VbucketCopies;
use oribi_cluster::identity::ClusterIdentity;
use oribi_cluster::secret::ClusterSecret;
use oribi_cluster::testing::{CutAgreement, SteppedAgent};
use oribi_cluster::topology::TopologyNode;
use oribi_config::{BucketStorage, EtcdSettings, Settings};
use oribi_engine::{Bucket, BucketConfig, EvictionPolicy, Upkeep, WarmupStep};
use oribi_storage::testing::{Bug, SimDirectory};
use oribi_storage::{
    KvStore as _, LogOptions, LogStore, Packing, StoreError, StoreMaintenance as _,
};
use oribi_types::{CopiesEpoch, Timestamp, Vbid};
use parking_lot::Mutex;

use super::link::{LinkMessages, WorldLink};
use crate::buckets::{BucketHandle, BucketOptions, Buckets, CopyLinks};
use crate::cluster_config::ClusterConfig;
use crate::diagnostics::counters::ServerCounters;
use crate::harness::{HARNESS_START_S, LIMITS};
use crate::replication::links::LinkWorker;
use crate::server_context::ServerContext;

/// Few, so that a look at all records is short.
pub(super) const VBUCKETS: u16 = 2;
pub(super) const CLUSTER: &str = "world";
pub(super) const BUCKET: &str = "default";
pub(super) const LEASE_S: u64 = 2;
const FAILOVER_AFTER_MS: u64 = 500;
const QUOTA_BYTES: u64 = 1 << 20;
/// What connections take for the sum of all quotas. The bucket's is below that of any real one, and
/// no large document would get a part of it.
const CONNECTIONS_QUOTA_BYTES: u64 = 256 << 20;
const UUID: &str = "0123456789abcdef0123456789abcdef";
/// Steps of a warmup that ends.
const WARMUP_STEPS_MAX: usize = 10_000;

/// Packs the log store's index so that keys are taken for each other.
const CROWDED: Packing =
    Packing { prefix_bits: 3, exact_keys: 4, exact_min: 2, recent_bytes: 8192 };

/// The clock of the node that acts.
static CLOCK_NS: AtomicU64 = AtomicU64::new(1);

/// Sets the clock that leases read.
pub(super) fn set_clock(ns: u64) {
    CLOCK_NS.store(ns, Ordering::SeqCst);
}

/// Time passes while the node that acts, whose clock has this rate, waits for an answer.
pub(super) fn delay_clocks(base_ns: &AtomicU64, ns: u64, rate_permille: u64) {
    let before_ns = base_ns.fetch_add(ns, Ordering::SeqCst);
    set_clock(clock_ns(before_ns + ns, rate_permille));
}

/// Time of a node's clock.
fn clock_ns(base_ns: u64, rate_permille: u64) -> u64 {
    base_ns / 1000 * rate_permille + 1
}

/// All nodes have the same users.
static USERS: LazyLock<Arc<UserStore>> = LazyLock::new(|| {
    let users = UserStore::development();
    users.admit_nodes_at_once(ClusterSecret::of_test().bytes());
    Arc::new(users)
});

/// How a process ends, and what its disk loses by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    /// The disk loses all writes since the last sync.
    PowerLoss,
    Kill,
    /// Everything is stored before the process ends.
    Orderly,
}

/// What the bucket of a run is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketShape {
    pub(super) replicas: u8,
    pub(super) eviction: EvictionPolicy,
    pub(super) flush_bytes_max: usize,
}

/// See the module text.
pub(super) struct WorldNode {
    pub(super) name: String,
    pub(super) disk: SimDirectory,
    pub(super) agreement: Arc<CutAgreement>,
    pub(super) process: Option<NodeProcess>,
    pub(super) is_paused: bool,
    /// Processes that the node has had.
    pub(super) lives: u64,
    /// Steps of its clock while that of the agreement advances by a thousand.
    pub(super) rate_permille: u64,
    shape: BucketShape,
    has_store: bool,
    /// Numbers of its copies, as `copies.json` has them.
    numbers: Vec<(Vbid, u64)>,
    was_clean: bool,
}

/// What ends with the process.
pub(super) struct NodeProcess {
    pub(super) server: Arc<ServerContext>,
    pub(super) registry: Arc<NodeRegistry>,
    pub(super) agent: SteppedAgent,
    pub(super) messages: Arc<LinkMessages>,
    /// Links to other nodes by their names.
    pub(super) links: BTreeMap<String, WorldLink>,
}

impl WorldNode {
    pub(super) fn new(
        name: &str,
        agreement: &Arc<MemoryAgreement>,
        (seed, rate_permille): (u64, u64),
        shape: BucketShape,
    ) -> WorldNode {
        WorldNode {
            name: name.to_owned(),
            disk: SimDirectory::new(seed),
            agreement: CutAgreement::over(agreement),
            process: None,
            is_paused: false,
            lives: 0,
            rate_permille,
            shape,
            has_store: false,
            numbers: Vec::new(),
            was_clean: false,
        }
    }

    /// Time of the node's clock.
    pub(super) fn clock_ns(&self, base_ns: u64) -> u64 {
        clock_ns(base_ns, self.rate_permille)
    }

    /// The last process has stored everything.
    pub(super) fn was_clean(&self) -> bool {
        self.was_clean
    }

    pub(super) fn runs(&self) -> bool {
        self.process.is_some() && !self.is_paused
    }

    pub(super) fn process(&self) -> Option<&NodeProcess> {
        self.process.as_ref()
    }

    pub(super) fn handle(&self) -> Option<Arc<BucketHandle>> {
        self.process.as_ref()?.server.buckets.get(BUCKET)
    }

    /// The epoch in which clients get answers of a vbucket, by the clock that is set.
    pub(super) fn serves(&self, vbid: Vbid) -> Option<CopiesEpoch> {
        let handle = self.handle()?;
        let epoch = handle.copies()?.serves(vbid)?;
        self.process.as_ref()?.agent.may_answer().then_some(epoch)
    }

    /// Starts a process on what the disk has.
    pub(super) fn start(&mut self) -> Result<(), BucketFailure> {
        assert!(self.process.is_none(), "one process at a time has the disk");
        self.lives += 1;
        let buckets = Arc::new(Buckets::in_memory());
        let server = Arc::new(ServerContext::new(
            Arc::clone(&buckets),
            Arc::clone(&USERS),
            Arc::new(ClusterConfig::new(11210, 8091, HARNESS_START_S)),
            Arc::new(ServerCounters::new(1)),
            LIMITS,
            BucketOptions::from_settings(&Settings::default()),
            Timestamp::from_unix_s(HARNESS_START_S),
        ));
        let links = &server.cluster.links;
        buckets.set_links(Arc::clone(links) as Arc<dyn CopyLinks>);
        links.set_identity(&self.name, ClusterSecret::of_test().bytes());
        let messages = Arc::new(LinkMessages::default());
        links.attach(vec![Arc::clone(&messages) as Arc<dyn LinkWorker>]);
        let registry = Arc::new(NodeRegistry {
            server: Arc::clone(&server),
            disk: self.disk.clone(),
            shape: self.shape,
            has_store: AtomicBool::new(self.has_store),
            numbers: self.numbers.clone(),
            was_clean: self.was_clean,
            store: Mutex::default(),
            look: Mutex::default(),
        });
        if self.has_store {
            registry.open_store()?;
        }
        let agent = self.agent(&registry);
        let links = BTreeMap::new();
        self.process = Some(NodeProcess { server, registry, agent, messages, links });
        Ok(())
    }

    fn agent(&self, registry: &Arc<NodeRegistry>) -> SteppedAgent {
        let settings = ClusterSettings {
            etcd: EtcdSettings::default(),
            name: CLUSTER.to_owned(),
            secret: Some(ClusterSecret::of_test()),
            disk: format!("disk of {}", self.name),
            lease_s: LEASE_S,
            failover_after_ms: FAILOVER_AFTER_MS,
            node: TopologyNode {
                name: self.name.clone(),
                host: "127.0.0.1".to_owned(),
                kv: 1,
                mgmt: 2,
                kv_tls: None,
                mgmt_tls: None,
                query: None,
                query_tls: None,
            },
        };
        let host = ClusterHost {
            buckets: Arc::clone(registry) as Arc<dyn ClusterBuckets>,
            identity: ClusterIdentity { uuid: UUID.to_owned(), name: String::new() },
            publish: Box::new(|_, _| {}),
            users: None,
            beacons: None,
        };
        let clock = || CLOCK_NS.load(Ordering::SeqCst);
        SteppedAgent::new(settings, Arc::clone(&self.agreement) as _, host, clock)
    }

    /// Ends the process. Connections to it and from it are gone.
    pub(super) fn end(&mut self, end: ProcessEnd) {
        let Some(process) = self.process.take() else { return };
        self.is_paused = false;
        let handle = process.server.buckets.get(BUCKET);
        self.was_clean = end == ProcessEnd::Orderly && process.registry.finish();
        self.disk.power_off();
        self.has_store = process.registry.has_store.load(Ordering::SeqCst);
        if let Some(copies) = handle.as_ref().and_then(|handle| handle.copies()) {
            self.numbers = copies.known_numbers();
        }
        // The links keep copies, whose buckets keep the links.
        process.server.cluster.links.stop_bucket(UUID);
        drop(process.messages.take());
        drop((process, handle));
        match end {
            ProcessEnd::PowerLoss => self.disk.restart(),
            ProcessEnd::Kill | ProcessEnd::Orderly => self.disk.resume(),
        }
    }
}

impl NodeProcess {
    pub(super) fn bucket(&self) -> Option<Arc<Bucket>> {
        self.server.buckets.get(BUCKET).map(|handle| Arc::clone(handle.bucket()))
    }
}

/// The buckets of a process, as the cluster sees them: one, in simulated files.
pub(super) struct NodeRegistry {
    server: Arc<ServerContext>,
    disk: SimDirectory,
    shape: BucketShape,
    has_store: AtomicBool,
    numbers: Vec<(Vbid, u64)>,
    was_clean: bool,
    store: Mutex<Option<Arc<LogStore>>>,
    /// Held during a look of the agent, which would see half of what its work does otherwise.
    pub(super) look: Mutex<()>,
}

impl NodeRegistry {
    /// Opens the bucket, or creates it.
    pub(super) fn open_store(&self) -> Result<(), BucketFailure> {
        let options = LogOptions {
            segment_bytes: 8192,
            garbage_percent: 20,
            packing: (self.shape.eviction == EvictionPolicy::Full).then_some(CROWDED),
            ..LogOptions::default()
        };
        let is_made = self.has_store.load(Ordering::SeqCst);
        let store = LogStore::open_simulated(&self.disk, is_made, &options, Bug::None)?;
        let store = Arc::new(store);
        let is_clean = self.was_clean && store.properties().ended_in_order;
        let parts = (config(self.shape), Arc::clone(&store) as _);
        let copies = (self.shape.replicas, &self.numbers[..]);
        let handle = self.server.buckets.open_copies_over(parts, copies, is_clean)?;
        self.has_store.store(true, Ordering::SeqCst);
        *self.store.lock() = Some(store);
        for _ in 0..WARMUP_STEPS_MAX {
            if matches!(handle.bucket().warmup_step(), WarmupStep::Done) {
                break;
            }
        }
        self.server.connections.memory.set_quotas(CONNECTIONS_QUOTA_BYTES);
        Ok(())
    }

    pub(super) fn store(&self) -> Option<Arc<LogStore>> {
        self.store.lock().clone()
    }

    /// Stores everything, as a server does that stops in order.
    fn finish(&self) -> bool {
        let (Some(handle), Some(store)) = (self.server.buckets.get(BUCKET), self.store()) else {
            return false;
        };
        let bucket = handle.bucket();
        for _ in 0..WARMUP_STEPS_MAX {
            if bucket.vbuckets().iter().all(|vbucket| vbucket.is_flushed()) {
                return store.finish().is_ok();
            }
            if bucket.flush_step().is_err() {
                return false;
            }
        }
        false
    }
}

impl ClusterBuckets for NodeRegistry {
    fn shared(&self) -> Vec<Arc<dyn SharedBucket>> {
        let open = self.server.buckets.list();
        open.into_iter().map(|handle| handle as Arc<dyn SharedBucket>).collect()
    }

    fn is_open(&self, name: &str) -> bool {
        self.server.buckets.get(name).is_some()
    }

    fn settings_text(&self, name: &str) -> Result<Vec<u8>, BucketFailure> {
        Ok(self.server.buckets.settings_text(name)?)
    }

    fn open(&self, _name: &str, _settings: &[u8]) -> Result<(), BucketFailure> {
        let _look_is_over = self.look.lock();
        self.open_store()
    }

    fn apply_settings(&self, name: &str, settings: &[u8]) -> Result<bool, BucketFailure> {
        Ok(self.server.buckets.apply_settings(name, settings)?)
    }

    fn store_settings(&self, name: &str, settings: &[u8]) -> Result<(), BucketFailure> {
        Ok(self.server.buckets.store_settings(name, settings)?)
    }

    fn close(&self, _uuid: &str) -> Result<(), BucketFailure> {
        Err("no simulation closes the bucket".into())
    }

    fn remove_data(&self, _storage: &BucketStorage, _id: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

fn config(shape: BucketShape) -> BucketConfig {
    let flush_bytes_max = shape.flush_bytes_max;
    BucketConfig {
        name: BUCKET.to_owned(),
        uuid: UUID.to_owned(),
        vbuckets: VBUCKETS,
        memory_quota_bytes: QUOTA_BYTES,
        value_bytes_max: 1 << 20,
        eviction: shape.eviction,
        upkeep: Upkeep { tombstone_purge_age_s: 40, flush_bytes_max, ..Upkeep::default() },
        ..BucketConfig::default()
    }
}
