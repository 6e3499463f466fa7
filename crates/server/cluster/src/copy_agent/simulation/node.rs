//! A node of the simulation: a real agent over a disk and a registry in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_config::{BucketStorage, EtcdSettings};
use oribi_engine::{Bucket, BucketConfig, EvictionPolicy, Storage, Upkeep};
use oribi_replication::copies::CopiesEpoch;
use oribi_storage::{SharedMemoryStore, StoreError};
use oribi_types::Vbid;
use parking_lot::Mutex;

use super::disk::{SimDisk, VBUCKETS};
use crate::agreement::Sessions;
use crate::agreement::memory::MemoryAgreement;
use crate::buckets::{BucketFailure, ClusterBuckets, SharedBucket};
use crate::copies::VbucketCopies;
use crate::host::ClusterHost;
use crate::identity::ClusterIdentity;
use crate::secret::ClusterSecret;
use crate::settings::ClusterSettings;
use crate::testing::{CutAgreement, SteppedAgent, SteppedBeacon};
use crate::topology::{Topology, TopologyNode};

pub(super) const LEASE_S: u64 = 2;
pub(super) const SUSPICION_MS: u64 = 500;
/// Time of the agreement and of the network.
pub(super) static BASE_NS: AtomicU64 = AtomicU64::new(1);
/// The clock of the node that acts.
static CLOCK_NS: AtomicU64 = AtomicU64::new(1);

/// A node's clock: it runs at its rate, from its boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimClock {
    pub(super) rate_permille: u64,
    pub(super) boot_ns: u64,
}

impl SimClock {
    fn now_ns(self) -> u64 {
        BASE_NS.load(Ordering::SeqCst) / 1000 * self.rate_permille + self.boot_ns
    }
}

pub(super) const UUID: &str = "0123456789abcdef0123456789abcdef";

pub(super) struct SimNode {
    pub(super) name: String,
    pub(super) disk: Arc<SimDisk>,
    pub(super) buckets: Arc<SimBuckets>,
    pub(super) agreement: Arc<CutAgreement>,
    pub(super) is_paused: bool,
    pub(super) is_running: bool,
    pub(super) agent: SteppedAgent,
    pub(super) clock: SimClock,
    topology: Arc<Mutex<Option<Topology>>>,
}

impl SimNode {
    pub(super) fn start(
        name: &str,
        disk: Arc<SimDisk>,
        agreement: &Arc<MemoryAgreement>,
        clock: SimClock,
    ) -> SimNode {
        CLOCK_NS.store(clock.now_ns(), Ordering::SeqCst);
        let agreement = CutAgreement::over(agreement);
        let buckets = Arc::new(SimBuckets { disk: Arc::clone(&disk), open: Mutex::default() });
        // The bucket is on the disk when copies of it are.
        if !disk.local().is_empty() {
            buckets.add();
        }
        let registry = Arc::clone(&buckets) as Arc<dyn ClusterBuckets>;
        let settings = ClusterSettings {
            etcd: EtcdSettings::default(),
            name: "test".to_owned(),
            secret: Some(ClusterSecret::of_test()),
            disk: disk.id().to_owned(),
            lease_s: LEASE_S,
            failover_after_ms: SUSPICION_MS,
            node: TopologyNode {
                name: name.to_owned(),
                host: "127.0.0.1".to_owned(),
                kv: 1,
                mgmt: 2,
                kv_tls: None,
                mgmt_tls: None,
                query: None,
                query_tls: None,
            },
        };
        let topology: Arc<Mutex<Option<Topology>>> = Arc::default();
        let shown = Arc::clone(&topology);
        let host = ClusterHost {
            buckets: registry,
            identity: ClusterIdentity { uuid: UUID.to_owned(), name: String::new() },
            publish: Box::new(move |_, topology| *shown.lock() = Some(topology)),
            users: None,
            beacons: None,
        };
        let sessions = Arc::clone(&agreement) as Arc<dyn Sessions>;
        let read = || CLOCK_NS.load(Ordering::SeqCst);
        let agent = SteppedAgent::new(settings, sessions, host, read);
        SimNode {
            name: name.to_owned(),
            disk,
            buckets,
            agreement,
            is_paused: false,
            is_running: true,
            agent,
            clock,
            topology,
        }
    }

    /// The clock is that of this node from now on.
    fn enter(&self) {
        CLOCK_NS.store(self.clock.now_ns(), Ordering::SeqCst);
    }

    pub(super) fn topology(&self) -> Option<Topology> {
        self.topology.lock().clone()
    }

    /// The epoch in which clients get answers of a vbucket: workers ask the lease after they have
    /// served.
    pub(super) fn serves(&self, vbid: Vbid) -> Option<CopiesEpoch> {
        self.enter();
        let epoch = self.disk.serves(vbid)?;
        self.agent.may_answer().then_some(epoch)
    }

    /// One look at agreement, and the work that it begins.
    pub(super) async fn tick(&mut self) {
        self.look().await;
        self.finish().await;
    }

    /// What a process does last that stops in order.
    pub(super) async fn end_session(&self) {
        self.agent.end_session().await;
    }

    pub(super) async fn finish(&mut self) {
        self.enter();
        self.agent.finish().await;
    }

    /// One look at agreement; the work that it begins may not be done yet.
    pub(super) async fn look(&mut self) {
        if !self.is_paused {
            self.enter();
            self.agent.look().await;
        }
    }

    /// What the thread of renewals does.
    pub(super) async fn renew(&self) {
        self.enter();
        self.agent.renew().await;
    }

    /// What the thread of beacons does, once all that came was delivered.
    pub(super) fn beat(&mut self) -> Option<SteppedBeacon> {
        self.enter();
        self.agent.beat()
    }

    pub(super) fn take_in(&self, from: &str, datagram: SteppedBeacon) -> Option<SteppedBeacon> {
        self.enter();
        self.agent.take_in(from, datagram)
    }

    /// What the thread of grants does.
    pub(super) fn follow_grants(&self) {
        self.enter();
        self.agent.follow_grants();
    }
}

pub(super) struct SimBuckets {
    disk: Arc<SimDisk>,
    open: Mutex<Option<Arc<SimBucket>>>,
}

struct SimBucket {
    bucket: Arc<Bucket>,
    disk: Arc<SimDisk>,
    replicas: Mutex<u8>,
}

impl SimBuckets {
    /// Creates the bucket on this node first.
    pub(super) fn create(&self, replicas: u8) {
        *self.add().replicas.lock() = replicas;
    }

    fn add(&self) -> Arc<SimBucket> {
        let config = BucketConfig {
            name: "default".to_owned(),
            uuid: UUID.to_owned(),
            vbuckets: VBUCKETS,
            memory_quota_bytes: 16 << 20,
            flush_enabled: false,
            value_bytes_max: 1 << 20,
            flush_interval_ms: 1,
            storage: Storage::Persistent,
            eviction: EvictionPolicy::Value,
            high_watermark_percent: 85,
            low_watermark_percent: 75,
            upkeep: Upkeep::default(),
        };
        let store = Arc::new(SharedMemoryStore::on(Arc::default()));
        let bucket = Bucket::open(config, store, Box::new(|| 1), false).unwrap();
        let disk = Arc::clone(&self.disk);
        let bucket = Arc::new(SimBucket { bucket, disk, replicas: Mutex::new(0) });
        *self.open.lock() = Some(Arc::clone(&bucket));
        bucket
    }
}

/// The settings of the bucket.
pub(super) fn settings_text(replicas: u8) -> Vec<u8> {
    let text = format!(r#"{{"uuid":"{UUID}","vbuckets":{VBUCKETS},"replicas":{replicas}}}"#);
    text.into_bytes()
}

impl SharedBucket for SimBucket {
    fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    fn storage(&self) -> &BucketStorage {
        &BucketStorage::Log
    }

    fn copies(&self) -> Option<&dyn VbucketCopies> {
        Some(&*self.disk)
    }

    fn is_deleted(&self) -> bool {
        false
    }
}

impl ClusterBuckets for SimBuckets {
    fn shared(&self) -> Vec<Arc<dyn SharedBucket>> {
        self.open.lock().iter().map(|open| Arc::clone(open) as Arc<dyn SharedBucket>).collect()
    }

    fn is_open(&self, _name: &str) -> bool {
        self.open.lock().is_some()
    }

    fn settings_text(&self, _name: &str) -> Result<Vec<u8>, BucketFailure> {
        let open = self.open.lock();
        let replicas = *open.as_ref().ok_or("it is not open")?.replicas.lock();
        Ok(settings_text(replicas))
    }

    fn open(&self, _name: &str, _settings: &[u8]) -> Result<(), BucketFailure> {
        self.add();
        Ok(())
    }

    fn apply_settings(&self, _name: &str, _settings: &[u8]) -> Result<bool, BucketFailure> {
        Ok(false)
    }

    fn store_settings(&self, _name: &str, _settings: &[u8]) -> Result<(), BucketFailure> {
        Err("no simulation changes settings".into())
    }

    fn close(&self, _uuid: &str) -> Result<(), BucketFailure> {
        Err("no simulation closes the bucket".into())
    }

    fn remove_data(&self, _storage: &BucketStorage, _id: &str) -> Result<(), StoreError> {
        Ok(())
    }
}
