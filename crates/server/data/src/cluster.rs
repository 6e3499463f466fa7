//! A cluster: several nodes that serve the same buckets.
//!
//! Owns: this node's membership in a cluster that agrees through etcd. The parts are `etcd` (the
//! client), `lease` (until when this node may serve), `renewal` (its thread), `assignment` (which
//! node gets what), `records` (the layout in etcd) and the agent, one thread, with `buckets`
//! (buckets and collections), `leading` (the map), `deletions` (remains of deleted buckets),
//! `ownership` (take-over and hand-over) and `taking` (take-overs that wait for a store).
//! Invariants:
//! - a vbucket is served here only while this node's lease holds and `held/BUCKET/UUID/VBUCKET` in
//!   etcd is this session's; that key disappears with the lease;
//! - before a take-over of a vbucket the node reads its bucket's manifest again, so it never
//!   attributes a document to a dropped collection;
//! - only buckets on a store that several nodes can share take part; other buckets stay local to
//!   their node.
//!
//! docs/cluster.md argues why no stale owner can do harm. Callers: the server (start, stop) and the
//! admin HTTP (changes that all nodes have to see).

mod agent;
mod assignment;
mod buckets;
mod deletions;
mod etcd;
mod leading;
pub(crate) mod lease;
mod ownership;
mod records;
mod renewal;
mod settings;
mod signals;
mod taking;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use oribi_engine::ManifestUpdateError;
use oribi_engine::collections::{BucketManifest, ManifestChange, ManifestError};
use oribi_storage::{SharedStore, StoreError};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};

use crate::buckets::{BucketHandle, BucketOptions, Buckets};
use crate::cluster_config::ClusterConfig;
use crate::cluster_identity::ClusterIdentity;
use agent::Agent;
use etcd::{Change, Condition, Etcd};
use lease::NodeLease;
use records::{Keys, Remains};
use renewal::{Renewal, Renewed};
use signals::{Signals, Stage};

pub use etcd::EtcdError;
pub use settings::ClusterSettings;

/// Longest time that a change waits for etcd.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// Attempts at changing a manifest while other nodes change it concurrently.
const CHANGE_TRIES: usize = 16;
/// Longest time that a stopping node takes for the hand-over.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);

/// Maximum number of threads that wait for stores at the same time: a few for each bucket whose
/// store is unreachable.
const BLOCKING_THREADS_MAX: usize = 256;

/// This node's part in a cluster.
pub struct Cluster {
    etcd: Arc<Etcd>,
    keys: Keys,
    lease: Arc<NodeLease>,
    runtime: Handle,
    wake: Arc<Notify>,
    stage: watch::Sender<Stage>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

/// Why a node could not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The settings are invalid.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The operating system refused a thread.
    #[error("cannot start the cluster's thread: {0}")]
    Thread(#[from] io::Error),
}

impl Cluster {
    /// Starts the agent. The node joins the cluster when etcd answers.
    ///
    /// # Errors
    /// Invalid settings, or a thread that the operating system refuses.
    pub fn start(
        settings: ClusterSettings,
        buckets: Arc<Buckets>,
        config: Arc<ClusterConfig>,
        bucket_defaults: BucketOptions,
    ) -> Result<Arc<Cluster>, ClusterError> {
        let etcd = Arc::new(Etcd::new(&settings.etcd)?);
        let keys = Keys::new(&settings.name);
        let lease = Arc::new(NodeLease::new(Arc::clone(&buckets)));
        let runtime = runtime("oribi-cluster-io")?;
        let (wake, (stage, _)) = (Arc::new(Notify::new()), watch::channel(Stage::Serving));
        let (renewed, told) = watch::channel(None);
        start_renewal(&etcd, &lease, &wake, told)?;
        let cluster = Arc::new(Cluster {
            etcd: Arc::clone(&etcd),
            keys: keys.clone(),
            lease: Arc::clone(&lease),
            runtime: runtime.handle().clone(),
            wake: Arc::clone(&wake),
            stage: stage.clone(),
            thread: parking_lot::Mutex::default(),
        });
        let signals = Signals { wake, stage, renewed };
        let shown = (config, bucket_defaults);
        let agent = Agent::new(settings, (etcd, keys), lease, buckets, shown, signals);
        let thread = oribi_supervisor::spawn("oribi-cluster", move || {
            runtime.block_on(agent.run());
            // Do not wait for threads that are still blocked on a store.
            runtime.shutdown_background();
        })?;
        *cluster.thread.lock() = Some(thread);
        Ok(cluster)
    }

    /// The lease that workers check.
    pub fn lease(&self) -> &Arc<NodeLease> {
        &self.lease
    }

    /// Tells the agent that a bucket was created or removed here, so that it notifies the other
    /// nodes.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Changes the collections of a shared bucket for all nodes; in force on this node when it
    /// returns. Blocks; do not call it from an event loop.
    pub(crate) fn update_manifest(
        &self,
        handle: &BucketHandle,
        change: &ManifestChange,
    ) -> Result<Arc<BucketManifest>, ManifestUpdateError> {
        let text = self.runtime.block_on(self.agree_on_manifest(handle.name(), change))?;
        let installed = handle.bucket().install_manifest(&text);
        self.wake();
        if let Err(error) = handle.bucket().store_manifest() {
            // The cluster has the manifest; the store's copy is for a cluster that has lost its
            // etcd.
            tracing::info!(bucket = handle.name(), %error, "the store gets its copy of the collections with the next take-over");
        }
        installed
    }

    async fn agree_on_manifest(
        &self,
        bucket: &str,
        change: &ManifestChange,
    ) -> Result<String, ManifestUpdateError> {
        let key = self.keys.manifest(bucket);
        let unreachable =
            |error: EtcdError| ManifestUpdateError::Store(StoreError::Io(error.to_string()));
        for _ in 0..CHANGE_TRIES {
            let found = self.etcd.get(&key, CHANGE_LIMIT).await.map_err(unreachable)?;
            let found = found.ok_or_else(|| {
                let text = format!("bucket {bucket:?} is not known to the cluster yet");
                ManifestUpdateError::Store(StoreError::Io(text))
            })?;
            let before = BucketManifest::from_stored_bytes(&found.value);
            let after = before.and_then(|before| before.apply(change));
            let text = after.map_err(ManifestUpdateError::Change)?.to_stored_json();
            let unchanged = [Condition::Unchanged(key.clone(), found.mod_revision)];
            let put = [Change::Put(key.clone(), text.clone().into_bytes(), 0)];
            let done = self.etcd.transact(&unchanged, &put, CHANGE_LIMIT).await;
            if done.map_err(unreachable)?.is_some() {
                return Ok(text);
            }
        }
        let text = "others change the same manifest again and again".to_owned();
        Err(ManifestUpdateError::Change(ManifestError::Corrupt(text)))
    }

    /// Names the cluster, for all nodes; they show the name after their next read of etcd. Blocks.
    pub(crate) fn set_name(&self, name: &str) -> Result<(), EtcdError> {
        let changed = self.runtime.block_on(self.agree_on_name(name));
        self.wake();
        changed
    }

    async fn agree_on_name(&self, name: &str) -> Result<(), EtcdError> {
        let key = self.keys.identity();
        let unsettled =
            |detail: &str| EtcdError::Answer { path: "c/identity", detail: detail.to_owned() };
        for _ in 0..CHANGE_TRIES {
            let found = self.etcd.get(&key, CHANGE_LIMIT).await?;
            let found = found.ok_or_else(|| unsettled("the cluster is not made yet"))?;
            let before: ClusterIdentity = serde_json::from_slice(&found.value)
                .map_err(|error| unsettled(&error.to_string()))?;
            let after = ClusterIdentity { name: name.to_owned(), ..before };
            let after = serde_json::to_vec(&after).expect("a plain struct");
            let unchanged = [Condition::Unchanged(key.clone(), found.mod_revision)];
            let put = [Change::Put(key.clone(), after, 0)];
            if self.etcd.transact(&unchanged, &put, CHANGE_LIMIT).await?.is_some() {
                return Ok(());
            }
        }
        Err(unsettled("others change the name again and again"))
    }

    /// Removes a bucket from the cluster, before it is deleted here. Other nodes follow. If this
    /// node fails to delete the documents, the leading node does. Blocks.
    pub fn remove_bucket(&self, handle: &BucketHandle) -> Result<(), EtcdError> {
        let (name, uuid) = (handle.name(), &handle.bucket().config().uuid);
        let remains = handle.bucket().shared_store().and_then(SharedStore::id).map(|id| {
            let (bucket, storage) = (name.to_owned(), handle.storage().clone());
            serde_json::to_vec(&Remains { bucket, storage, id }).expect("a plain struct")
        });
        let changes = [
            Change::Delete(self.keys.bucket(name)),
            Change::Delete(self.keys.manifest(name)),
            Change::Put(self.keys.deleted(uuid), remains.unwrap_or_default(), 0),
        ];
        let removed = self.runtime.block_on(self.etcd.transact(&[], &changes, CHANGE_LIMIT));
        self.wake();
        removed.map(drop)
    }

    /// Hands everything over to other nodes, if there are any. The node continues to serve clients
    /// meanwhile, and redirects them.
    pub fn leave(&self) {
        self.stage.send_replace(Stage::Leaving);
        self.wake();
        let mut stage = self.stage.subscribe();
        let left = async {
            let done = stage.wait_for(|stage| *stage >= Stage::Left);
            tokio::time::timeout(LEAVE_LIMIT, done).await.is_ok()
        };
        if !self.runtime.block_on(left) {
            tracing::warn!(
                "could not hand over in time; other nodes take over after the lease ends"
            );
        }
    }

    /// Revokes the lease, after the buckets have flushed their remaining writes, and ends the
    /// agent.
    pub fn stop(&self) {
        self.stage.send_replace(Stage::Ending);
        self.wake();
        let Some(thread) = self.thread.lock().take() else { return };
        if thread.join().is_err() {
            tracing::error!("the cluster's thread panicked");
        }
    }
}

/// Starts the thread that renews leases. The agent tells it what to renew, and it ends with the
/// agent.
fn start_renewal(
    etcd: &Arc<Etcd>,
    lease: &Arc<NodeLease>,
    wake: &Arc<Notify>,
    told: watch::Receiver<Option<Renewed>>,
) -> io::Result<()> {
    let renewal =
        Renewal { etcd: Arc::clone(etcd), lease: Arc::clone(lease), wake: Arc::clone(wake) };
    let runtime = runtime("oribi-renewal-io")?;
    oribi_supervisor::spawn("oribi-renewal", move || runtime.block_on(renewal.run(told))).map(drop)
}

fn runtime(io_threads: &str) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(io_threads)
        .build()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}
