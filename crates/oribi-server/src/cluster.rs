//! Several nodes that serve the same buckets.
//!
//! Owns: membership of this node in a cluster that agrees through etcd. The parts are `etcd` (the client), `lease`
//! (until when this node may serve), `renewal` (which keeps it, on a thread of its own), `assignment` (who gets what),
//! `records` (what stands in etcd), and the agent, one thread, with `buckets` (which buckets and collections there
//! are), `leading` (the map), `deletions` (what deleted buckets have left), `ownership` (taking over and handing over) and `taking` (what of that waits for a
//! store). Invariants:
//! - a vbucket is served here only while this node's lease holds and `held/BUCKET/UUID/VBUCKET` in etcd is this
//!   session's, and that key goes away with the lease;
//! - before a vbucket is taken over the manifest of its bucket is read anew, so that no document is taken for
//!   one of a dropped collection;
//! - only buckets whose store several nodes can share take part; others stay this node's alone.
//!
//! The argument why no older owner can do harm is in docs/cluster.md. Called by the server (start, stop) and the
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
mod taking;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use oribi_engine::ManifestUpdateError;
use oribi_engine::collections::{Manifest, ManifestChange, ManifestError};
use oribi_storage::StoreError;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};

use crate::buckets::{BucketHandle, BucketOptions, Buckets};
use crate::cluster_config::{ClusterConfig, TopologyNode};
use agent::Agent;
use etcd::{Change, Condition, Etcd};
use lease::NodeLease;
use records::{Keys, Remains};
use renewal::{Renewal, Renewed};

pub use etcd::EtcdError;
pub use etcd::access::EtcdSettings;

/// Longest time that a change waits for etcd.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// Times that a change of a manifest is tried again because somebody else was faster.
const CHANGE_TRIES: usize = 16;
/// Longest time that a stopping node takes to hand over.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);

/// Threads that wait for stores at the same time, at most: a few for each bucket whose store is away.
const BLOCKING_THREADS_MAX: usize = 256;

/// What a node has to know to be one of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Where etcd is.
    pub etcd: EtcdSettings,
    /// Name of the cluster; clusters of different names can share an etcd.
    pub name: String,
    /// Seconds that a node's lease lasts.
    pub lease_s: u64,
    /// This node, as clients and other nodes know it.
    pub node: TopologyNode,
}

/// How far a node that stops has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    /// It does not stop.
    Serving,
    /// Others are to take over what it has.
    Leaving,
    /// Nothing is left to hand over, or nobody to take it.
    Left,
    /// Its lease is to be given back.
    Ending,
}

/// How the agent is woken and stopped, and how it has its lease renewed.
struct Signals {
    wake: Arc<Notify>,
    stage: watch::Sender<Stage>,
    renewed: watch::Sender<Option<Renewed>>,
}

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

/// Why a node could not become one of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The settings are not possible.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The operating system refused.
    #[error("cannot start the cluster's thread: {0}")]
    Thread(#[from] io::Error),
}

impl Cluster {
    /// Starts the agent. The node becomes one of the cluster when etcd answers.
    ///
    /// # Errors
    /// Impossible settings, or a thread that the operating system refuses.
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
        let thread =
            std::thread::Builder::new().name("oribi-cluster".to_owned()).spawn(move || {
                runtime.block_on(agent.run());
                // What still waits for a store is not waited for.
                runtime.shutdown_background();
            })?;
        *cluster.thread.lock() = Some(thread);
        Ok(cluster)
    }

    /// The lease that workers look at.
    pub(crate) fn lease(&self) -> &Arc<NodeLease> {
        &self.lease
    }

    /// A bucket was created here, or removed: the others are to know.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Changes the collections of a shared bucket for all nodes; in force here when it returns. Blocks; not to be
    /// called from an event loop.
    pub(crate) fn update_manifest(
        &self,
        handle: &BucketHandle,
        change: &ManifestChange,
    ) -> Result<Arc<Manifest>, ManifestUpdateError> {
        let text = self.runtime.block_on(self.agree_on_manifest(handle.name(), change))?;
        let installed = handle.bucket().install_manifest(&text);
        self.wake();
        if let Err(error) = handle.bucket().store_manifest() {
            // The cluster has it; the store's copy is for a cluster that has lost its etcd.
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
            let before = Manifest::from_stored_bytes(&found.value);
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

    /// Removes a bucket from the cluster, before it is deleted here. Other nodes follow, and should this one not come
    /// to delete the documents, the one that leads does. Blocks.
    pub(crate) fn remove_bucket(&self, handle: &BucketHandle) -> Result<(), EtcdError> {
        let (name, uuid) = (handle.name(), &handle.bucket().config().uuid);
        let remains = handle.bucket().shared_id().map(|id| {
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

    /// Hands everything over to other nodes if there are any. Clients are still served meanwhile, and sent on.
    pub fn leave(&self) {
        self.stage.send_replace(Stage::Leaving);
        self.wake();
        let mut stage = self.stage.subscribe();
        let left = async {
            let done = stage.wait_for(|stage| *stage >= Stage::Left);
            tokio::time::timeout(LEAVE_LIMIT, done).await.is_ok()
        };
        if !self.runtime.block_on(left) {
            tracing::warn!("could not hand over in time; other nodes take over without");
        }
    }

    /// Gives the lease back, after buckets have flushed what was left, and ends the agent.
    pub fn stop(&self) {
        self.stage.send_replace(Stage::Ending);
        self.wake();
        let Some(thread) = self.thread.lock().take() else { return };
        if thread.join().is_err() {
            tracing::error!("the cluster's thread panicked");
        }
    }
}

/// Starts the thread that renews leases. It ends with the agent, which tells it what to renew.
fn start_renewal(
    etcd: &Arc<Etcd>,
    lease: &Arc<NodeLease>,
    wake: &Arc<Notify>,
    told: watch::Receiver<Option<Renewed>>,
) -> io::Result<()> {
    let renewal =
        Renewal { etcd: Arc::clone(etcd), lease: Arc::clone(lease), wake: Arc::clone(wake) };
    let runtime = runtime("oribi-renewal-io")?;
    let thread = std::thread::Builder::new().name("oribi-renewal".to_owned());
    thread.spawn(move || runtime.block_on(renewal.run(told))).map(drop)
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
