//! This node's membership in a cluster: start, stop, and changes for all nodes.
//!
//! Owns: the threads of the agent, of the renewal and of beacons, and the changes that the server
//! makes in the agreement: collections, the cluster's name, the deletion of a bucket, and users
//! ([`crate::users`]). Those block, so they run on threads of the admin HTTP, never in an event
//! loop. Invariant: a deleted bucket's data is removed when no node holds a vbucket of it, at the
//! latest after twice the lease.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use oribi_engine::ManifestUpdateError;
use oribi_engine::collections::{BucketManifest, ManifestChange, ManifestError};
use oribi_storage::{SharedStore, StoreError};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::agent::Agent;
use crate::agreement::{AgreementError, Etcd, RecordChange, RecordComparison, Sessions};
use crate::beacon_peers::PeersCell;
use crate::beacons::{self, Beacons};
use crate::buckets::{BucketFailure, ClusterBuckets, SharedBucket};
use crate::copies::record::FailoverRequest;
use crate::copies::roster::Roster;
use crate::following::install;
use crate::host::ClusterHost;
use crate::identity::ClusterIdentity;
use crate::lease::{NodeLease, boot_time_ns};
use crate::limits::{CHANGE_LIMIT, CHANGE_TRIES, REFRESH_LIMIT};
use crate::nodes::NodesStatus;
use crate::records::{BucketRemains, RecordKeys};
use crate::renewal::{Renewal, RenewalTarget};
use crate::settings::ClusterSettings;
use crate::signals::{LeaveStage, NodesCell, Signals};
use crate::users_record::UsersRecord;

/// Longest time that a stopping node takes for the hand-over.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);

/// Leases after which the data of a deleted bucket is removed in any case: the name is free for a
/// new bucket when the deletion is answered.
const LET_GO_LEASES: u32 = 2;
/// Leases that a failover may take: the failed node's has to end.
const FAILOVER_LEASES: u64 = 3;
/// Longest time between two looks at who holds a deleted bucket.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Maximum number of threads that wait for stores at the same time: a few for each bucket whose
/// store is unreachable.
const BLOCKING_THREADS_MAX: usize = 256;

/// Seconds that an operator waits for a failover.
pub(crate) fn failover_limit_s(lease_s: u64) -> u64 {
    lease_s * FAILOVER_LEASES + CHANGE_LIMIT.as_secs()
}

/// This node's part in a cluster.
pub struct ClusterMember {
    pub(crate) agreement: Arc<dyn Sessions>,
    pub(crate) keys: RecordKeys,
    pub(crate) lease: Arc<NodeLease>,
    buckets: Arc<dyn ClusterBuckets>,
    pub(crate) name: String,
    pub(crate) lease_s: u64,
    has_links: bool,
    pub(crate) runtime: Handle,
    wake: Arc<Notify>,
    stage: watch::Sender<LeaveStage>,
    nodes: NodesCell,
    pub(crate) users: Option<Arc<UsersRecord>>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
    are_beacons_ending: Arc<AtomicBool>,
}

/// Why a node could not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The settings are invalid.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    /// The operating system refused a thread.
    #[error("cannot start the cluster's thread: {0}")]
    Thread(#[from] io::Error),
}

/// Why a bucket could not be deleted.
#[derive(Debug, thiserror::Error)]
pub enum BucketDeletionError {
    /// The other nodes could not be notified; the bucket remains.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    /// The bucket could not be closed here.
    #[error("{0}")]
    Close(BucketFailure),
    /// The store could not remove the documents; the leading node tries it again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a node was not failed over.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    /// The request may be in effect later.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    #[error("no node that ever had copies is named {name:?}; there are {}", known.join(", "))]
    UnknownNode { name: String, known: Vec<String> },
    #[error("node {0:?} is being failed over; wait until that is done")]
    Running(String),
    /// A vbucket has no other complete copy; every record is as before.
    #[error("{0}")]
    Refused(String),
    #[error("after {waited_s} s nodes still have to stop or to answer; the request is withdrawn")]
    Late { waited_s: u64 },
}

impl ClusterMember {
    /// Starts the agent. The node joins the cluster when etcd answers.
    ///
    /// # Errors
    /// Invalid settings, or a thread that the operating system refuses.
    pub fn start(
        settings: ClusterSettings,
        host: ClusterHost,
    ) -> Result<Arc<ClusterMember>, ClusterError> {
        let etcd = Arc::new(Etcd::new(&settings.etcd)?);
        ClusterMember::start_with(etcd, settings, host)
    }

    /// [`ClusterMember::start`] with another agreement than the settings name.
    pub(crate) fn start_with(
        agreement: Arc<dyn Sessions>,
        settings: ClusterSettings,
        mut host: ClusterHost,
    ) -> Result<Arc<ClusterMember>, ClusterError> {
        let keys = RecordKeys::new(&settings.name);
        let suspicion_ms = settings.failover_after_ms;
        let buckets = Arc::clone(&host.buckets);
        let lease = Arc::new(NodeLease::with_clock(buckets, suspicion_ms, boot_time_ns));
        let runtime = runtime("oribi-cluster-io")?;
        let (wake, (stage, _)) = (Arc::new(Notify::new()), watch::channel(LeaveStage::Serving));
        let (renewals, targets) = watch::channel(None);
        let nodes = NodesCell::default();
        start_renewal(&agreement, &lease, &wake, targets)?;
        let users = host.users.clone().filter(|_| settings.secret.is_some());
        let users = users
            .map(|users| Arc::new(UsersRecord::new(Arc::clone(&agreement), keys.clone(), users)));
        let (mut peers, are_beacons_ending) = (PeersCell::default(), Arc::<AtomicBool>::default());
        if let (Some(secret), Some(socket)) = (&settings.secret, host.beacons.take()) {
            peers.own = Some(socket.local_addr()?);
            let names = (settings.name.as_str(), settings.node.name.as_str(), secret);
            let (known, ending) = (Arc::clone(&peers.peers), Arc::clone(&are_beacons_ending));
            let of_thread = (Arc::clone(&lease), known);
            start_beacons(Beacons::new(socket, names, of_thread, (Arc::clone(&wake), ending)))?;
        }
        let member = Arc::new(ClusterMember {
            agreement: Arc::clone(&agreement),
            keys: keys.clone(),
            lease: Arc::clone(&lease),
            buckets: Arc::clone(&host.buckets),
            name: settings.node.name.clone(),
            lease_s: settings.lease_s,
            has_links: settings.secret.is_some(),
            runtime: runtime.handle().clone(),
            wake: Arc::clone(&wake),
            stage: stage.clone(),
            nodes: Arc::clone(&nodes),
            users: users.clone(),
            thread: parking_lot::Mutex::default(),
            are_beacons_ending,
        });
        let signals = Signals { wake, stage, renewals, nodes, peers };
        let mut agent = Agent::new(settings, (agreement, keys), lease, host, signals);
        agent.users = users;
        let thread = oribi_supervisor::spawn("oribi-cluster", move || {
            runtime.block_on(agent.run());
            // Do not wait for threads that are still blocked on a store.
            runtime.shutdown_background();
        })?;
        *member.thread.lock() = Some(thread);
        Ok(member)
    }

    /// True when the node may have copies of other nodes' vbuckets: it knows the cluster's secret.
    pub fn has_links(&self) -> bool {
        self.has_links
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
    /// returns, and on the others unless one does not answer for a while. Blocks; do not call it
    /// from an event loop.
    ///
    /// # Errors
    /// The change is not possible, or the cluster cannot agree on it now.
    pub fn update_manifest(
        &self,
        handle: &dyn SharedBucket,
        change: &ManifestChange,
    ) -> Result<Arc<BucketManifest>, ManifestUpdateError> {
        let agreed = self.runtime.block_on(self.agree_on_manifest(handle.name(), change));
        let (text, revision) = agreed?;
        let installed = handle.bucket().install_manifest(&text);
        self.wake();
        if let Err(error) = handle.bucket().store_manifest() {
            // The cluster has the manifest; the store's copy is for a cluster that has lost its
            // etcd.
            tracing::info!(bucket = handle.name(), %error, "the store gets its copy of the collections with the next takeover");
        }
        self.await_manifest(handle, revision);
        installed
    }

    /// Brings the collections of a shared bucket up to date with what another node may have
    /// changed. Without an answer of the agreement they stay as they are. Blocks; do not call it
    /// from an event loop.
    pub fn refresh_manifest(&self, handle: &dyn SharedBucket) {
        let key = self.keys.manifest(handle.name());
        let found = self.runtime.block_on(self.agreement.get(&key, REFRESH_LIMIT));
        if let Ok(Some(manifest)) = found {
            install(handle, &manifest);
        }
    }

    /// The manifest with the change, and the revision of its record.
    async fn agree_on_manifest(
        &self,
        bucket: &str,
        change: &ManifestChange,
    ) -> Result<(String, i64), ManifestUpdateError> {
        let key = self.keys.manifest(bucket);
        let unreachable =
            |error: AgreementError| ManifestUpdateError::Store(StoreError::Io(error.to_string()));
        for _ in 0..CHANGE_TRIES {
            let found = self.agreement.get(&key, CHANGE_LIMIT).await.map_err(unreachable)?;
            let found = found.ok_or_else(|| {
                let text = format!("bucket {bucket:?} is not known to the cluster yet");
                ManifestUpdateError::Store(StoreError::Io(text))
            })?;
            let before = BucketManifest::from_stored_bytes(&found.value);
            let after = before.and_then(|before| before.apply(change));
            let text = after.map_err(ManifestUpdateError::Change)?.to_stored_json();
            let unchanged = [RecordComparison::ModifiedAt(key.clone(), found.mod_revision)];
            let put = [RecordChange::put(key.clone(), text.clone())];
            let done = self.agreement.transact(&unchanged, &put, CHANGE_LIMIT).await;
            if let Some(revision) = done.map_err(unreachable)? {
                return Ok((text, revision));
            }
        }
        let text = "others change the same manifest again and again".to_owned();
        Err(ManifestUpdateError::Change(ManifestError::Corrupt(text)))
    }

    /// Names the cluster, for all nodes; they show the name after their next look at the agreement.
    /// Blocks.
    ///
    /// # Errors
    /// The agreement's; the old name remains.
    pub fn set_name(&self, name: &str) -> Result<(), AgreementError> {
        let changed = self.runtime.block_on(self.agree_on_name(name));
        self.wake();
        changed
    }

    async fn agree_on_name(&self, name: &str) -> Result<(), AgreementError> {
        let key = self.keys.identity();
        let unsettled =
            |detail: &str| AgreementError::Answer { path: "c/identity", detail: detail.to_owned() };
        for _ in 0..CHANGE_TRIES {
            let found = self.agreement.get(&key, CHANGE_LIMIT).await?;
            let found = found.ok_or_else(|| unsettled("the cluster is not made yet"))?;
            let before: ClusterIdentity = serde_json::from_slice(&found.value)
                .map_err(|error| unsettled(&error.to_string()))?;
            let after = ClusterIdentity { name: name.to_owned(), ..before };
            let after = serde_json::to_vec(&after).expect("a plain struct");
            let unchanged = [RecordComparison::ModifiedAt(key.clone(), found.mod_revision)];
            let put = [RecordChange::put(key.clone(), after)];
            if self.agreement.transact(&unchanged, &put, CHANGE_LIMIT).await?.is_some() {
                return Ok(());
            }
        }
        Err(unsettled("others change the name again and again"))
    }

    /// Deletes a bucket and its documents on all nodes: withdraws it from the cluster, waits until
    /// the agents of all nodes have closed it, and removes its data. Where this fails after the
    /// first step, the leading node removes the data. Blocks.
    ///
    /// # Errors
    /// See [`BucketDeletionError`].
    pub fn delete_bucket(&self, handle: &dyn SharedBucket) -> Result<(), BucketDeletionError> {
        self.withdraw(handle)?;
        if !self.runtime.block_on(self.is_let_go(handle)) {
            tracing::warn!(
                bucket = handle.name(),
                "the data of the deleted bucket is removed although a node may have it open"
            );
        }
        // The agent may have no lease, and so not have closed it.
        self.buckets.close(handle.uuid()).map_err(BucketDeletionError::Close)?;
        Ok(handle.bucket().remove_shared_data()?)
    }

    /// Removes a bucket from the agreement; all nodes close it.
    pub(crate) fn withdraw(&self, handle: &dyn SharedBucket) -> Result<(), AgreementError> {
        let (name, uuid) = (handle.name(), handle.uuid());
        let remains = handle.bucket().shared_store().and_then(SharedStore::id).map(|id| {
            let (bucket, storage) = (name.to_owned(), handle.storage().clone());
            serde_json::to_vec(&BucketRemains { bucket, storage, id }).expect("a plain struct")
        });
        let changes = [
            RecordChange::delete(self.keys.bucket(name)),
            RecordChange::delete(self.keys.manifest(name)),
            RecordChange::put(self.keys.deleted(uuid), remains.unwrap_or_default()),
        ];
        let removed = self.agreement.transact(&[], &changes, CHANGE_LIMIT);
        let removed = self.runtime.block_on(removed);
        self.wake();
        removed.map(drop)
    }

    /// Waits until no node holds a vbucket of a bucket. The keys of a node that has died end with
    /// its lease.
    async fn is_let_go(&self, handle: &dyn SharedBucket) -> bool {
        let held = self.keys.held_of(handle.name(), handle.uuid());
        let give_up = Instant::now() + Duration::from_secs(self.lease_s) * LET_GO_LEASES;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match self.agreement.list(&held, left.min(CHANGE_LIMIT)).await {
                Ok(list) if list.records.is_empty() => return true,
                Ok(list) => {
                    let watch = self.agreement.watch(&held, list.revision, left.min(LOOK_PAUSE));
                    if watch.await.is_ok() {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(%error, "whether nodes hold the bucket is unknown"),
            }
            tokio::time::sleep(left.min(LOOK_PAUSE)).await;
        }
    }

    /// Promotes other copies of the vbuckets whose active copy a node has. Blocks until that is
    /// done, at most for some leases. Plain writes that the other copies lack are lost.
    ///
    /// # Errors
    /// See [`FailoverError`]. Without `allow_data_loss` a vbucket without another complete copy
    /// makes the whole failover fail, and nothing changes.
    pub fn fail_over(&self, node: &str, allow_data_loss: bool) -> Result<(), FailoverError> {
        self.runtime.block_on(async {
            let mut revision = self.request_failover(node, allow_data_loss).await?;
            self.wake();
            let waited_s = failover_limit_s(self.lease_s);
            let give_up = Instant::now() + Duration::from_secs(waited_s);
            let key = self.keys.failover();
            loop {
                let Some(found) = self.agreement.get(&key, CHANGE_LIMIT).await? else {
                    return Ok(());
                };
                let unchanged = [RecordComparison::ModifiedAt(key.clone(), found.mod_revision)];
                let withdraw = [RecordChange::delete(key.clone())];
                let request = FailoverRequest::decode(&found.value);
                if let Some(reason) = request.ok().and_then(|request| request.refused) {
                    self.agreement.transact(&unchanged, &withdraw, CHANGE_LIMIT).await?;
                    return Err(FailoverError::Refused(reason));
                }
                if Instant::now() >= give_up {
                    self.agreement.transact(&unchanged, &withdraw, CHANGE_LIMIT).await?;
                    return Err(FailoverError::Late { waited_s });
                }
                revision = revision.max(found.mod_revision);
                if self.agreement.watch(&key, revision, LOOK_PAUSE).await.is_err() {
                    tokio::time::sleep(LOOK_PAUSE).await;
                }
            }
        })
    }

    /// The nodes as this one saw them last. Does not block.
    pub fn nodes(&self) -> Arc<NodesStatus> {
        Arc::clone(&self.nodes.lock())
    }

    /// True while this node's lease holds, so that what it saw of the others is new.
    pub fn has_lease(&self) -> bool {
        self.lease.is_held()
    }

    /// The name by which the other nodes know this one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the request; returns its revision.
    async fn request_failover(
        &self,
        node: &str,
        allow_data_loss: bool,
    ) -> Result<i64, FailoverError> {
        let roster = self.agreement.get(&self.keys.roster(), CHANGE_LIMIT).await?;
        let roster = roster.and_then(|entry| Roster::decode(&entry.value).ok()).unwrap_or_default();
        if !roster.names().any(|name| name == node) {
            let known: Vec<String> = roster.names().map(str::to_owned).collect();
            return Err(FailoverError::UnknownNode { name: node.to_owned(), known });
        }
        let key = self.keys.failover();
        let request = FailoverRequest::new(node, allow_data_loss).encode();
        let put = [RecordChange::put(key.clone(), request)];
        let found = self.agreement.get(&key, CHANGE_LIMIT).await?;
        let free = match &found {
            None => RecordComparison::Absent(key),
            Some(found) => match FailoverRequest::decode(&found.value) {
                Ok(running) if running.refused.is_none() => {
                    return Err(FailoverError::Running(running.node));
                }
                // Its operator has gone.
                _ => RecordComparison::ModifiedAt(key, found.mod_revision),
            },
        };
        let written = self.agreement.transact(&[free], &put, CHANGE_LIMIT).await?;
        written.ok_or_else(|| FailoverError::Running(node.to_owned()))
    }

    /// Hands everything over to other nodes, if there are any. The node continues to serve clients
    /// until then, and redirects them.
    pub fn leave(&self) {
        self.stage.send_replace(LeaveStage::Leaving);
        self.wake();
        let mut stage = self.stage.subscribe();
        let left = async {
            let done = stage.wait_for(|stage| *stage >= LeaveStage::Left);
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
        self.stage.send_replace(LeaveStage::Ending);
        self.wake();
        let Some(thread) = self.thread.lock().take() else { return };
        if thread.join().is_err() {
            tracing::error!("the cluster's thread panicked");
        }
        self.are_beacons_ending.store(true, Ordering::Relaxed);
        self.lease.follower.get().inspect(|follower| follower.unpark());
    }
}

/// Starts the thread that renews leases. The agent tells it what to renew, and it ends with the
/// agent.
fn start_renewal(
    agreement: &Arc<dyn Sessions>,
    lease: &Arc<NodeLease>,
    wake: &Arc<Notify>,
    targets: watch::Receiver<Option<RenewalTarget>>,
) -> io::Result<()> {
    let renewal = Renewal {
        agreement: Arc::clone(agreement),
        lease: Arc::clone(lease),
        wake: Arc::clone(wake),
    };
    let runtime = runtime("oribi-renewal-io")?;
    oribi_supervisor::spawn("oribi-renewal", move || runtime.block_on(renewal.run(targets)))
        .map(drop)
}

/// Starts the threads of beacons and of the grants that they bring. They end soon after the agent.
fn start_beacons(beacons: Beacons) -> io::Result<()> {
    let (lease, wake) = (Arc::clone(&beacons.lease), Arc::clone(&beacons.wake));
    let is_ending = Arc::clone(&beacons.is_ending);
    oribi_supervisor::spawn("oribi-serving", move || beacons::follow(&lease, &wake, &is_ending))?;
    oribi_supervisor::spawn("oribi-beacons", move || beacons.run()).map(drop)
}

fn runtime(io_threads: &str) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(io_threads)
        .build()
}

impl Drop for ClusterMember {
    fn drop(&mut self) {
        self.stop();
    }
}
