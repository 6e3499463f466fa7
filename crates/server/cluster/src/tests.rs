//! Several nodes in one process over one store in memory, agreeing through a real etcd or one in
//! memory.

mod bucket_settings;
mod ownership;
mod rebalance;
pub(crate) mod registry;
mod session;
mod shared_buckets;
mod users;

use std::collections::HashMap;
use std::sync::Arc;

use oribi_config::EtcdSettings;
use oribi_engine::{
    AppliedMutation, BucketConfig, EvictionPolicy, GetOutcome, MutationOutcome, OperationRejection,
    Storage, StoreCondition, StoreRequest, Upkeep, VBucket,
};
use oribi_storage::{SharedMedium, SharedMemoryStore};
use oribi_system::clock::wall_clock;
use oribi_testkit::{PATIENCE, poll_until};
use oribi_types::{Cas, CollectionId, DocKey, Vbid};
use parking_lot::Mutex;

use crate::agreement::{AgreementRecord, Etcd, RecordChange, Sessions};
use crate::buckets::{ClusterBuckets, SharedBucket};
use crate::host::ClusterHost;
use crate::identity::ClusterIdentity;
use crate::limits::CHANGE_LIMIT;
use crate::member::ClusterMember;
use crate::secret::ClusterSecret;
use crate::settings::ClusterSettings;
use crate::topology::{Topology, TopologyNode};
use crate::users::ClusterUsers;
use registry::{MemoryBucket, MemoryBuckets};

const VBUCKETS: u16 = 16;
const LEASE_S: u64 = 2;

struct Node {
    buckets: Arc<MemoryBuckets>,
    published: Arc<Mutex<PublishedState>>,
    cluster: Arc<ClusterMember>,
}

/// What the server would show to clients.
#[derive(Default)]
struct PublishedState {
    identity: ClusterIdentity,
    topology: Option<Topology>,
}

fn bucket_config() -> BucketConfig {
    BucketConfig {
        name: "default".to_owned(),
        uuid: "0".repeat(32),
        vbuckets: VBUCKETS,
        memory_quota_bytes: 64 << 20,
        flush_enabled: false,
        value_bytes_max: 1 << 20,
        flush_interval_ms: 1,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Value,
        high_watermark_percent: 85,
        low_watermark_percent: 75,
        upkeep: Upkeep::default(),
    }
}

impl Node {
    fn start(name: &str, etcd_port: u16, medium: &Arc<SharedMedium>) -> Node {
        let store = Arc::new(SharedMemoryStore::on(Arc::clone(medium)));
        Node::start_over(name, etcd_port, (bucket_config(), store))
    }

    fn start_over(
        name: &str,
        etcd_port: u16,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        let urls = vec![format!("http://127.0.0.1:{etcd_port}")];
        Node::start_on(name, EtcdSettings { urls, ..EtcdSettings::default() }, bucket)
    }

    fn start_on(
        name: &str,
        etcd: EtcdSettings,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        let agreement = Arc::new(Etcd::new(&etcd).unwrap());
        Node::start_by(agreement, name, bucket)
    }

    fn start_by(
        agreement: Arc<dyn Sessions>,
        name: &str,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        Node::start_with_secret(agreement, (name, None), bucket)
    }

    fn start_with_secret(
        agreement: Arc<dyn Sessions>,
        (name, secret): (&str, Option<ClusterSecret>),
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        Node::start_with_users(agreement, (name, secret), bucket, None)
    }

    fn start_with_users(
        agreement: Arc<dyn Sessions>,
        (name, secret): (&str, Option<ClusterSecret>),
        (bucket, store): (BucketConfig, Arc<SharedMemoryStore>),
        users: Option<Arc<dyn ClusterUsers>>,
    ) -> Node {
        let buckets = Arc::new(MemoryBuckets::default());
        buckets.open_over(bucket, store);
        let node = TopologyNode {
            name: name.to_owned(),
            host: "127.0.0.1".to_owned(),
            kv: 1,
            mgmt: 2,
            kv_tls: None,
            mgmt_tls: None,
            query: None,
            query_tls: None,
        };
        let etcd = EtcdSettings::default();
        let settings = ClusterSettings {
            etcd,
            name: "test".to_owned(),
            secret,
            disk: format!("disk of {name}"),
            lease_s: LEASE_S,
            failover_after_ms: 2000,
            node,
        };
        let published: Arc<Mutex<PublishedState>> = Arc::default();
        let shown = Arc::clone(&published);
        let host = ClusterHost {
            buckets: Arc::clone(&buckets) as Arc<dyn ClusterBuckets>,
            identity: ClusterIdentity::random(),
            publish: Box::new(move |identity, topology| {
                let identity = identity.clone();
                *shown.lock() = PublishedState { identity, topology: Some(topology) };
            }),
            users,
            beacons: None,
        };
        let cluster = ClusterMember::start_with(agreement, settings, host).unwrap();
        Node { buckets, published, cluster }
    }

    fn bucket(&self) -> Arc<MemoryBucket> {
        self.buckets.get("default").unwrap()
    }

    fn identity(&self) -> ClusterIdentity {
        self.published.lock().identity.clone()
    }

    fn topology(&self) -> Option<Topology> {
        self.published.lock().topology.clone()
    }

    /// The node's answer for a document; `None` when it does not own the vbucket.
    fn read(&self, vbid: Vbid, name: &str) -> Option<Option<String>> {
        let (handle, now) = (self.bucket(), wall_clock());
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        let read = || vbucket.get(&handle.bucket().context(now), key(name));
        let outcome = poll_until(PATIENCE, || match read() {
            // It is being loaded.
            GetOutcome::Refused(
                OperationRejection::NeedsFetch | OperationRejection::TemporaryFailure,
            ) => None,
            outcome => Some(outcome),
        });
        match outcome.expect("it is loaded") {
            GetOutcome::Hit(item) => Some(Some(String::from_utf8_lossy(item.value()).into_owned())),
            GetOutcome::Miss => Some(None),
            GetOutcome::Refused(OperationRejection::NotMyVbucket) => None,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, vbid: Vbid, name: &str, value: &str) -> Option<AppliedMutation> {
        let request = StoreRequest {
            mode: StoreCondition::Set,
            value: value.as_bytes(),
            flags: 0,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
            is_compressed: false,
        };
        let (handle, now) = (self.bucket(), wall_clock());
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        let write = || vbucket.store(&handle.bucket().context(now), key(name), &request);
        let outcome = poll_until(PATIENCE, || match write() {
            MutationOutcome::Refused(OperationRejection::NeedsFetch) => None,
            outcome => Some(outcome),
        });
        match outcome.expect("it is loaded") {
            MutationOutcome::Done(mutation) => Some(mutation),
            MutationOutcome::Refused(OperationRejection::NotMyVbucket) => None,
            other => panic!("{other:?}"),
        }
    }

    fn serves(&self, vbid: Vbid) -> bool {
        self.bucket().bucket().serving_vbucket(vbid).is_ok()
    }

    fn served(&self) -> usize {
        vbuckets().filter(|vbid| self.serves(*vbid)).count()
    }

    /// The content of etcd, by key without the cluster's name.
    fn in_etcd(&self) -> HashMap<String, AgreementRecord> {
        let ClusterMember { runtime, agreement, keys, .. } = &*self.cluster;
        let list = runtime.block_on(agreement.list(keys.all(), CHANGE_LIMIT)).unwrap();
        let short = |entry: AgreementRecord| (entry.key[keys.all().len()..].to_owned(), entry);
        list.records.into_iter().map(short).collect()
    }

    fn change_etcd(&self, changes: &[RecordChange]) {
        let ClusterMember { runtime, agreement, .. } = &*self.cluster;
        runtime.block_on(agreement.transact(&[], changes, CHANGE_LIMIT)).unwrap();
    }

    fn flushed(&self) {
        let bucket = self.bucket();
        let is_flushed =
            || bucket.bucket().vbuckets().iter().all(VBucket::is_flushed).then_some(());
        poll_until(PATIENCE, is_flushed).expect("everything is flushed");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.cluster.stop();
    }
}

fn vbuckets() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

#[track_caller]
fn wait_for_shares(nodes: &[(&Node, usize)]) {
    let is_shared = || nodes.iter().all(|(node, share)| node.served() == *share).then_some(());
    if poll_until(PATIENCE, is_shared).is_none() {
        let served: Vec<usize> = nodes.iter().map(|(node, _)| node.served()).collect();
        panic!("the shares stay at {served:?}");
    }
}
