//! The agent: the loop that makes a node part of a cluster.
//!
//! Owns: sessions. A session begins and ends with a lease. In between, a tick reads etcd and acts
//! on it: it registers the node, follows buckets, leads if no other node does, shows the map to
//! clients, hands over and takes over. A tick follows every change in etcd, and runs every few
//! seconds anyway. Each of its steps is safe to repeat, because it may find anything half done. All
//! work that may wait long for a store runs beside it: renewal of the lease on its own thread
//! (`renewal`), take-overs (`taking`), and opening and closing of buckets. So a node that cannot
//! reach a store continues to lead, and leaves when told to.
//!
//! Invariant: the work that a session began and did not finish is cancelled before the next session
//! begins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use oribi_system::clock::wall_clock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::etcd::{Change, Condition, Etcd, EtcdError, KeyValue};
use super::lease::NodeLease;
use super::records::{Holder, Keys, MapRecord, NodeRecord, Place, token_of};
use super::renewal::{RENEWALS, Renewed};
use super::settings::ClusterSettings;
use super::signals::{Signals, Stage};
use super::taking::Takings;
use crate::buckets::{BucketHandle, BucketOptions, Buckets};
use crate::cluster_config::{ClusterConfig, Placement, Topology};
use crate::cluster_identity::ClusterIdentity;

/// Longest time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a tick or a session that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Number of leases after which a node counts as unable to take vbuckets over. A healthy store with
/// much in its memory takes some seconds.
const LEASES_IN_VAIN: u32 = 4;
/// Longest time for flushing after the end of a session. The store refuses writes to vbuckets that
/// others have taken over.
const LAST_FLUSH: Duration = Duration::from_secs(10);
const FLUSH_LOOK: Duration = Duration::from_millis(20);

/// See the module text.
pub(super) struct Agent {
    pub(super) settings: ClusterSettings,
    pub(super) etcd: Arc<Etcd>,
    pub(super) keys: Keys,
    pub(super) lease: Arc<NodeLease>,
    pub(super) buckets: Arc<Buckets>,
    config: Arc<ClusterConfig>,
    pub(super) bucket_defaults: BucketOptions,
    pub(super) wake: Arc<Notify>,
    stage: watch::Sender<Stage>,
    renewed: watch::Sender<Option<Renewed>>,
    /// Lease of the current session in etcd; 0 for none.
    pub(super) lease_id: i64,
    pub(super) session: u64,
    /// Uuids of open buckets that take part: their stores know how to check ownership.
    pub(super) followed: HashSet<String>,
    /// Buckets, by name, that a background task opens or closes.
    pub(super) changing: HashMap<String, JoinHandle<()>>,
    pub(super) takings: Takings,
    /// The last error, so that it is logged once.
    trouble: Option<String>,
}

/// The parsed content of etcd.
#[derive(Default)]
pub(super) struct View {
    pub(super) epoch: Option<i64>,
    pub(super) identity: Option<KeyValue>,
    pub(super) nodes: BTreeMap<String, NodeRecord>,
    /// Lease of the node record that has this node's name.
    pub(super) own_lease: Option<i64>,
    pub(super) leader: Option<KeyValue>,
    pub(super) map: MapRecord,
    /// 0 when there is none.
    pub(super) map_revision: i64,
    pub(super) buckets: BTreeMap<String, KeyValue>,
    pub(super) manifests: HashMap<String, KeyValue>,
    pub(super) deleted: HashMap<String, KeyValue>,
    /// Holder of each vbucket.
    pub(super) held: HashMap<Place, Holder>,
}

impl View {
    /// True when some session of the node of this name may serve a vbucket.
    pub(super) fn is_held_by(&self, node: &str, place: &Place) -> bool {
        self.held.get(place).is_some_and(|holder| holder.is_of(node))
    }
}

impl Agent {
    pub(super) fn new(
        settings: ClusterSettings,
        (etcd, keys): (Arc<Etcd>, Keys),
        lease: Arc<NodeLease>,
        buckets: Arc<Buckets>,
        (config, bucket_defaults): (Arc<ClusterConfig>, BucketOptions),
        signals: Signals,
    ) -> Agent {
        Agent {
            settings,
            etcd,
            keys,
            lease,
            buckets,
            config,
            // Opening in the background is retried.
            bucket_defaults: BucketOptions { waits_for_store: false, ..bucket_defaults },
            wake: signals.wake,
            stage: signals.stage,
            renewed: signals.renewed,
            lease_id: 0,
            session: 0,
            followed: HashSet::new(),
            changing: HashMap::new(),
            takings: Takings::default(),
            trouble: None,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Longest time that a request to etcd may take: two requests fit into a lease.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.settings.lease_s) / RENEWALS
    }

    /// How long the node tries to take vbuckets over before it counts as unable.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.settings.lease_s) * LEASES_IN_VAIN
    }

    /// The value that this session writes into the keys that it holds.
    pub(super) fn token(&self) -> Vec<u8> {
        token_of(&self.settings.node.name, self.lease_id)
    }

    /// Open buckets that take part in the cluster.
    pub(super) fn shared_buckets(&self) -> Vec<Arc<BucketHandle>> {
        let is_shared = |handle: &Arc<BucketHandle>| handle.bucket().shared_store().is_some();
        self.buckets.list().into_iter().filter(is_shared).collect()
    }

    /// True while the session lasts.
    pub(super) fn is_current(&self) -> bool {
        self.lease.still_holds(self.session) && self.lease.is_held()
    }

    pub(super) async fn run(mut self) {
        while self.stage() != Stage::Ending {
            if let Err(error) = self.session().await {
                self.note_trouble(&error);
            }
            self.give_everything_up().await;
            if self.stage() == Stage::Leaving {
                // All keys of this node are free, or will be when its lease ends.
                self.stage.send_replace(Stage::Left);
            }
            self.pause().await;
        }
        if self.lease_id != 0
            && let Err(error) = self.etcd.revoke(self.lease_id, self.limit()).await
        {
            tracing::info!(%error, "the lease was not given back; it ends by itself");
        }
    }

    async fn session(&mut self) -> Result<(), EtcdError> {
        if self.lease_id != 0 {
            // If this fails, the keys disappear when the lease expires.
            drop(self.etcd.revoke(self.lease_id, self.limit()).await);
            self.lease_id = 0;
        }
        let sent_ns = self.lease.now_ns();
        let (lease_id, ttl_s) = self.etcd.grant(self.settings.lease_s, self.limit()).await?;
        self.lease_id = lease_id;
        self.lease.begin(sent_ns, Duration::from_secs(ttl_s));
        self.session = self.lease.session();
        tracing::info!(node = self.settings.node.name, ttl_s, "a lease was granted");
        let ttl = Duration::from_secs(ttl_s);
        self.renewed.send_replace(Some(Renewed { lease_id, session: self.session, ttl }));
        while self.is_current() && self.stage() != Stage::Ending {
            match self.tick().await {
                Ok(revision) => {
                    self.trouble = None;
                    self.await_change(revision).await;
                }
                Err(error) => {
                    self.note_trouble(&error);
                    self.pause().await;
                }
            }
        }
        self.renewed.send_replace(None);
        if self.stage() != Stage::Ending {
            tracing::warn!(
                node = self.settings.node.name,
                "the lease is over; nothing of shared buckets is served until there is another"
            );
        }
        Ok(())
    }

    /// Reads etcd and acts on it; returns the revision that it read.
    async fn tick(&mut self) -> Result<i64, EtcdError> {
        let (entries, revision) = self.etcd.list(self.keys.all(), self.limit()).await?;
        let view = self.view(entries);
        if view.epoch.is_none() {
            let epoch = wall_clock().unix_s().to_string().into_bytes();
            let put = [Change::Put(self.keys.epoch(), epoch, 0)];
            self.etcd.transact(&[Condition::Absent(self.keys.epoch())], &put, self.limit()).await?;
            return Ok(revision);
        }
        if view.identity.is_none() {
            self.found_identity().await?;
            return Ok(revision);
        }
        self.takings.review(self.patience(), &self.wake).await;
        let is_member = self.register(&view).await?;
        self.follow_buckets(&view).await?;
        self.lead(&view).await?;
        self.show(&view);
        self.own(&view, is_member).await?;
        self.note_left(&view);
        Ok(revision)
    }

    /// Gives the cluster this node's identity, unless another node is faster.
    async fn found_identity(&self) -> Result<(), EtcdError> {
        let key = self.keys.identity();
        let identity = serde_json::to_vec(&*self.config.identity()).expect("a plain struct");
        let put = [Change::Put(key.clone(), identity, 0)];
        self.etcd.transact(&[Condition::Absent(key)], &put, self.limit()).await.map(drop)
    }

    fn view(&self, entries: Vec<KeyValue>) -> View {
        let mut view = View::default();
        let keys = &self.keys;
        for entry in entries {
            let key = entry.key.clone();
            if let Some(place) = keys.place_of(&key) {
                view.held.insert(place, Holder { key, token: entry.value });
            } else if let Some(name) = key.strip_prefix(&keys.nodes()) {
                if name == self.settings.node.name {
                    view.own_lease = Some(entry.lease);
                }
                if let Some(record) = understood(&entry) {
                    view.nodes.insert(name.to_owned(), record);
                }
            } else if let Some(name) = key.strip_prefix(&keys.buckets()) {
                view.buckets.insert(name.to_owned(), entry);
            } else if let Some(name) = key.strip_prefix(&keys.manifests()) {
                view.manifests.insert(name.to_owned(), entry);
            } else if let Some(uuid) = key.strip_prefix(&keys.all_deleted()) {
                view.deleted.insert(uuid.to_owned(), entry);
            } else if key == keys.leader() {
                view.leader = Some(entry);
            } else if key == keys.map() {
                view.map_revision = entry.mod_revision;
                view.map = understood(&entry).unwrap_or_default();
            } else if key == keys.epoch() {
                view.epoch = understood(&entry);
            } else if key == keys.identity() {
                view.identity = Some(entry);
            }
        }
        view
    }

    /// Keeps this node's record up to date. False while another node has the name.
    async fn register(&mut self, view: &View) -> Result<bool, EtcdError> {
        let name = &self.settings.node.name;
        let (leaving, unable) =
            (self.stage() >= Stage::Leaving, self.takings.in_vain(self.patience()));
        let record = NodeRecord::of(&self.settings.node, leaving, unable);
        let key = self.keys.node(name);
        let value = serde_json::to_vec(&record).expect("a plain struct");
        let conditions = match view.own_lease {
            Some(lease) if lease == self.lease_id => {
                if view.nodes.get(name) == Some(&record) {
                    return Ok(true);
                }
                Vec::new()
            }
            Some(_) => {
                tracing::info!(
                    node = name,
                    "waiting for the lease of an earlier node of this name to end"
                );
                return Ok(false);
            }
            None => vec![Condition::Absent(key.clone())],
        };
        let put = [Change::Put(key, value, self.lease_id)];
        Ok(self.etcd.transact(&conditions, &put, self.limit()).await?.is_some())
    }

    /// Shows the agreed topology to clients.
    fn show(&self, view: &View) {
        let Some(epoch) = view.epoch.filter(|_| view.map_revision > 0) else { return };
        let unsigned = |revision: i64| u64::try_from(revision).unwrap_or(0);
        let named = view.identity.as_ref().map_or(0, |identity| identity.mod_revision);
        let map_revision = view.map_revision.max(named);
        let placement = |(name, bucket): (&String, &super::records::MapBucket)| {
            let manifest = view.manifests.get(name).map_or(0, |manifest| manifest.mod_revision);
            let owners = bucket.owners.iter().map(|owner| Some(*owner)).collect();
            let rev = unsigned(map_revision.max(manifest));
            (name.clone(), Placement { owners, rev })
        };
        if let Some(identity) = view.identity.as_ref().and_then(understood::<ClusterIdentity>) {
            self.config.set_identity(identity);
        }
        self.config.set_topology(Topology {
            epoch,
            rev: unsigned(map_revision),
            nodes: view.map.nodes.iter().map(|node| node.record.named(&node.name)).collect(),
            this: self.settings.node.name.clone(),
            buckets: view.map.buckets.iter().map(placement).collect(),
        });
    }

    /// A leaving node has left when it owns nothing more, or when no other node can take its
    /// vbuckets.
    fn note_left(&self, view: &View) {
        if self.stage() != Stage::Leaving {
            return;
        }
        let is_alone = view
            .nodes
            .iter()
            .all(|(name, record)| *name == self.settings.node.name || record.leaving);
        let has_nothing =
            self.shared_buckets().iter().all(|handle| handle.bucket().owned().is_empty());
        if is_alone || has_nothing {
            self.stage.send_replace(Stage::Left);
        }
    }

    /// Ends the session here, whatever the state of etcd. Acknowledged writes that are not flushed
    /// yet may still be flushed: a store refuses them as soon as another node has taken over.
    async fn give_everything_up(&self) {
        self.lease.end();
        self.takings.call_off_all();
        let shared = self.shared_buckets();
        let is_flushed = |handle: &Arc<BucketHandle>| {
            let bucket = handle.bucket();
            bucket.owned().into_iter().all(|vbid| bucket.is_flushed(vbid))
        };
        let give_up = Instant::now() + LAST_FLUSH;
        while self.stage() != Stage::Ending
            && Instant::now() < give_up
            && !shared.iter().all(is_flushed)
        {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
        let freeing = tokio::task::spawn_blocking(move || {
            for handle in shared {
                let bucket = handle.bucket();
                bucket.owned().into_iter().for_each(|vbid| bucket.deactivate(vbid));
            }
        });
        if freeing.await.is_err() {
            tracing::error!("a thread that gave vbuckets up panicked");
        }
    }

    /// Waits for a change in etcd or on this node, or for the next regular tick.
    async fn await_change(&mut self, revision: i64) {
        let left = self.lease.left().unwrap_or_default();
        let limit = TICK_INTERVAL.min(left);
        tokio::select! {
            changed = self.etcd.changed_since(self.keys.all(), revision, limit) => {
                if let Err(error) = changed {
                    self.note_trouble(&error);
                    self.pause().await;
                }
            }
            () = self.wake.notified() => {}
        }
    }

    async fn pause(&self) {
        let limit = self.lease.left().map_or(RETRY_PAUSE, |left| left.min(RETRY_PAUSE));
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = self.wake.notified() => {}
        }
    }

    fn note_trouble(&mut self, error: &EtcdError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!(%error, "the cluster's state cannot be reached");
            self.trouble = Some(text);
        }
    }
}

/// Parses a record; a record that this version does not understand counts as missing.
pub(super) fn understood<R: serde::de::DeserializeOwned>(entry: &KeyValue) -> Option<R> {
    let record = serde_json::from_slice(&entry.value);
    record
        .inspect_err(
            |error| tracing::error!(key = entry.key, %error, "a record in etcd is not understood"),
        )
        .ok()
}
