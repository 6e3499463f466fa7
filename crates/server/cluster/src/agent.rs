//! The agent: the loop that makes a node part of a cluster.
//!
//! Owns: sessions. A session begins and ends with a lease. In between, a tick reads etcd and acts
//! on it: it registers the node, follows buckets, leads if no other node does, shows the map to
//! clients, hands over and takes over. A tick follows every change in etcd, and runs every few
//! seconds anyway. Each of its steps is safe to repeat, because it may find anything half done. All
//! work that may wait long for a store runs concurrently: renewal of the lease on its own thread
//! (`renewal`), takeovers (`takeovers`), and opening and closing of buckets. So a node that cannot
//! reach a store continues to lead, and leaves when told to.
//!
//! Invariant: the work that a session began and did not finish is cancelled before the next session
//! begins.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use oribi_engine::VBucket;
use oribi_system::clock::wall_clock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::agreement::{
    AgreementError, AgreementRecord, RecordChange, RecordComparison, SessionId, Sessions,
};
use crate::beacon_peers::PeersCell;
use crate::buckets::{ClusterBuckets, SharedBucket};
use crate::copies::moves::RebalanceRecord;
use crate::copies::record::{self, FailoverRequest, NodeReport};
use crate::copies::roster::Roster;
use crate::copies::tasks::CopyTasks;
use crate::host::{ClusterHost, PublishTopology};
use crate::identity::ClusterIdentity;
use crate::lease::NodeLease;
use crate::records::{
    CopiesEntry, Holder, MapRecord, NodeRecord, RecordKeys, VbucketPlace, token_of,
};
use crate::renewal::{RENEWALS, RenewalTarget};
use crate::settings::ClusterSettings;
use crate::settings_report::SettingsReport;
use crate::signals::{LeaveStage, NodesCell, Signals};
use crate::takeovers::Takeovers;
use crate::topology::{Placement, Topology};
use crate::users_record::UsersRecord;

/// Longest time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(2);
/// Longest time that a leaving node waits for other copies to have everything.
const HAND_OVER_NS_MAX: u64 = 20_000_000_000;
/// Pause after a tick or a session that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Number of leases after which a node counts as unable to take vbuckets over. A healthy store with
/// much in its memory takes some seconds.
const UNABLE_AFTER_LEASES: u32 = 4;
/// Longest time for flushing after the end of a session. The store refuses writes to vbuckets that
/// others have taken over.
const LAST_FLUSH: Duration = Duration::from_secs(10);
const FLUSH_LOOK: Duration = Duration::from_millis(20);

/// See the module text.
pub(crate) struct Agent {
    pub(crate) settings: ClusterSettings,
    pub(crate) agreement: Arc<dyn Sessions>,
    pub(crate) keys: RecordKeys,
    pub(crate) lease: Arc<NodeLease>,
    pub(crate) buckets: Arc<dyn ClusterBuckets>,
    /// What the cluster gets when it has no identity: this node's, or the last known one.
    identity: ClusterIdentity,
    publish: PublishTopology,
    /// The users that the nodes share.
    pub(crate) users: Option<Arc<UsersRecord>>,
    /// The settings of buckets as this node has them.
    pub(crate) settings_in_force: SettingsReport,
    pub(crate) wake: Arc<Notify>,
    stage: watch::Sender<LeaveStage>,
    renewals: watch::Sender<Option<RenewalTarget>>,
    pub(crate) nodes: NodesCell,
    /// The last session in the agreement that is not known to be over.
    pub(crate) session_id: Option<SessionId>,
    pub(crate) session: u64,
    /// Uuids of open buckets that take part: their stores know how to check ownership.
    pub(crate) followed: HashSet<String>,
    /// Buckets, by name, that a background task opens or closes.
    pub(crate) changing: HashMap<String, JoinHandle<()>>,
    /// Names of the buckets that a background task closes, by uuid.
    pub(crate) closing: HashMap<String, String>,
    pub(crate) takeovers: Takeovers,
    pub(crate) copies: CopyTasks,
    pub(crate) peers: PeersCell,
    /// Before the agreement was read last.
    pub(crate) read_ns: u64,
    /// True while the cluster has another secret.
    pub(crate) is_foreign: bool,
    /// The last error, so that it is logged once.
    trouble: Option<String>,
}

/// The parsed content of etcd.
#[derive(Default)]
pub(crate) struct ClusterView {
    pub(crate) epoch: Option<i64>,
    pub(crate) identity: Option<AgreementRecord>,
    pub(crate) secret: Option<AgreementRecord>,
    pub(crate) nodes: BTreeMap<String, NodeRecord>,
    /// Session of the node record that has this node's name, if there is such a record.
    pub(crate) own_session: Option<Option<SessionId>>,
    pub(crate) leader: Option<AgreementRecord>,
    pub(crate) map: MapRecord,
    /// 0 when there is none.
    pub(crate) map_revision: i64,
    pub(crate) buckets: BTreeMap<String, AgreementRecord>,
    pub(crate) manifests: HashMap<String, AgreementRecord>,
    /// The settings that nodes have in force, by their names.
    pub(crate) settings_reports: BTreeMap<String, SettingsReport>,
    pub(crate) deleted: HashMap<String, AgreementRecord>,
    /// Holder of each vbucket.
    pub(crate) held: HashMap<VbucketPlace, Holder>,
    /// Revision of the users' record; 0 when there is none.
    pub(crate) users_revision: i64,
    pub(crate) roster: Roster,
    /// 0 when there is none.
    pub(crate) roster_revision: i64,
    pub(crate) copies: BTreeMap<VbucketPlace, CopiesEntry>,
    /// Vbuckets whose record this version does not understand.
    pub(crate) unreadable: HashSet<VbucketPlace>,
    /// Reports of nodes that live, by the bucket's uuid and the number of the node.
    pub(crate) reports: HashMap<(String, u16), NodeReport>,
    /// Key and revision of each.
    pub(crate) report_revisions: HashMap<(String, u16), (String, i64)>,
    /// The request to fail a node over, and its revision.
    pub(crate) failover: Option<(FailoverRequest, i64)>,
    /// The last rebalance, and its revision.
    pub(crate) rebalance: Option<(RebalanceRecord, i64)>,
    /// Names of nodes that this one heard, and does not hear any more.
    pub(crate) suspected: BTreeSet<String>,
    /// Names of nodes whose grants to this one are about to end, or never came.
    pub(crate) silent: BTreeSet<String>,
}

impl ClusterView {
    /// The view of node `own` on all records.
    pub(crate) fn read(keys: &RecordKeys, own: &str, records: Vec<AgreementRecord>) -> ClusterView {
        let mut view = ClusterView::default();
        for entry in records {
            let key = entry.key.clone();
            if let Some(place) = keys.vbucket_of(&key) {
                view.held.insert(place, Holder { key, token: entry.value });
            } else if let Some((bucket, place)) = keys.copies_of(&key) {
                let (revision, decoded) = (entry.mod_revision, record::decode(&entry.value));
                if let Some(record) = readable(&key, decoded) {
                    view.copies.insert(place, CopiesEntry { key, bucket, revision, record });
                } else {
                    view.unreadable.insert(place);
                }
            } else if let Some((uuid, _)) = keys.report_of(&key) {
                if let Some(report) = readable(&key, NodeReport::decode(&entry.value)) {
                    let at = (uuid.to_owned(), report.node);
                    view.report_revisions.insert(at.clone(), (key, entry.mod_revision));
                    view.reports.insert(at, report);
                }
            } else if key == keys.roster() {
                view.roster_revision = entry.mod_revision;
                view.roster = readable(&key, Roster::decode(&entry.value)).unwrap_or_default();
            } else if key == keys.users() {
                view.users_revision = entry.mod_revision;
            } else if key == keys.failover() {
                let request = readable(&key, FailoverRequest::decode(&entry.value));
                view.failover = request.map(|request| (request, entry.mod_revision));
            } else if key == keys.rebalance() {
                let rebalance = readable(&key, RebalanceRecord::decode(&entry.value));
                view.rebalance = rebalance.map(|rebalance| (rebalance, entry.mod_revision));
            } else if let Some(name) = key.strip_prefix(&keys.nodes()) {
                if name == own {
                    view.own_session = Some(entry.session);
                }
                if let Some(record) = understood(&entry) {
                    view.nodes.insert(name.to_owned(), record);
                }
            } else if let Some(name) = key.strip_prefix(&keys.buckets()) {
                view.buckets.insert(name.to_owned(), entry);
            } else if let Some(name) = key.strip_prefix(&keys.settings_reports()) {
                if let Some(report) = understood(&entry) {
                    view.settings_reports.insert(name.to_owned(), report);
                }
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
            } else if key == keys.secret() {
                view.secret = Some(entry);
            }
        }
        view
    }

    /// True when some session of the node of this name may serve a vbucket.
    pub(crate) fn is_held_by(&self, node: &str, place: &VbucketPlace) -> bool {
        self.held.get(place).is_some_and(|holder| holder.is_of(node))
    }

    /// Numbers and names of nodes that live and have a disk for copies.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u16, &str, &NodeRecord)> {
        self.nodes.iter().filter_map(|(name, record)| {
            let number = self.roster.number(name, record.disk.as_deref()?)?;
            Some((number, name.as_str(), record))
        })
    }

    /// Those of them that stay.
    pub(crate) fn staying(&self) -> impl Iterator<Item = (u16, &str)> {
        let staying = self.numbered().filter(|(_, _, record)| !record.leaving);
        staying.map(|(number, name, _)| (number, name))
    }
}

impl Agent {
    pub(crate) fn new(
        settings: ClusterSettings,
        (agreement, keys): (Arc<dyn Sessions>, RecordKeys),
        lease: Arc<NodeLease>,
        host: ClusterHost,
        signals: Signals,
    ) -> Agent {
        Agent {
            settings,
            agreement,
            keys,
            lease,
            buckets: host.buckets,
            identity: host.identity,
            publish: host.publish,
            users: None,
            settings_in_force: SettingsReport::default(),
            wake: signals.wake,
            stage: signals.stage,
            renewals: signals.renewals,
            nodes: signals.nodes,
            session_id: None,
            session: 0,
            followed: HashSet::new(),
            changing: HashMap::new(),
            closing: HashMap::new(),
            takeovers: Takeovers::default(),
            copies: CopyTasks::default(),
            peers: signals.peers,
            read_ns: 0,
            is_foreign: false,
            trouble: None,
        }
    }

    pub(crate) fn stage(&self) -> LeaveStage {
        *self.stage.borrow()
    }

    /// Longest time that a request to etcd may take: two requests fit into a lease.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.settings.lease_s) / RENEWALS
    }

    /// How long the node tries to take vbuckets over before it counts as unable.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.settings.lease_s) * UNABLE_AFTER_LEASES
    }

    /// The value that this session writes into the keys that it holds.
    pub(crate) fn token(&self) -> Vec<u8> {
        token_of(&self.settings.node.name, self.current_session())
    }

    /// A change that sets a key for as long as this session lasts.
    pub(crate) fn put_in_session(&self, key: String, value: Vec<u8>) -> RecordChange {
        RecordChange::put_in(self.current_session(), key, value)
    }

    fn current_session(&self) -> SessionId {
        self.session_id.expect("keys are written within a session")
    }

    /// True while the session lasts.
    pub(crate) fn is_current(&self) -> bool {
        self.lease.is_in(self.session) && self.lease.is_held()
    }

    pub(crate) async fn run(mut self) {
        while self.stage() != LeaveStage::Ending {
            if let Err(error) = self.session().await {
                self.note_trouble(&error);
            }
            self.give_everything_up().await;
            if self.stage() == LeaveStage::Leaving {
                // All keys of this node are free, or will be when its lease ends.
                self.stage.send_replace(LeaveStage::Left);
            }
            self.pause().await;
        }
        if let Some(session) = self.session_id
            && let Err(error) = self.agreement.end_session(session, self.limit()).await
        {
            tracing::info!(%error, "the lease was not given back; it ends by itself");
        }
    }

    /// Begins a session with a lease; returns how long the lease lasts.
    pub(crate) async fn begin_session(&mut self) -> Result<Duration, AgreementError> {
        if let Some(last) = self.session_id {
            // Not forgotten before the agreement has answered: a restarted etcd begins the time of
            // its leases again, and this node would wait for its own keys to expire.
            self.agreement.end_session(last, self.limit()).await?;
            self.session_id = None;
        }
        let sent_ns = self.lease.now_ns();
        let grant = self.agreement.begin_session(self.settings.lease_s, self.limit()).await?;
        let (session_id, ttl) = (grant.id, grant.ttl);
        self.session_id = Some(session_id);
        self.lease.begin(sent_ns, ttl);
        self.session = self.lease.session();
        tracing::info!(
            node = self.settings.node.name,
            ttl_s = ttl.as_secs(),
            "a lease was granted"
        );
        self.renewals.send_replace(Some(RenewalTarget { session_id, session: self.session, ttl }));
        Ok(ttl)
    }

    async fn session(&mut self) -> Result<(), AgreementError> {
        self.begin_session().await?;
        while self.is_current() && self.stage() != LeaveStage::Ending {
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
        self.renewals.send_replace(None);
        if self.stage() != LeaveStage::Ending {
            tracing::warn!(
                node = self.settings.node.name,
                "the lease is over; nothing of shared buckets is served until there is another"
            );
        }
        Ok(())
    }

    /// Reads etcd and acts on it; returns the revision that it read.
    pub(crate) async fn tick(&mut self) -> Result<i64, AgreementError> {
        self.read_ns = self.lease.now_ns();
        let list = self.agreement.list(self.keys.all(), self.limit()).await?;
        let own = &self.settings.node.name;
        let mut view = ClusterView::read(&self.keys, own, list.records);
        self.note_silence(&mut view);
        let revision = list.revision;
        self.note_revision(revision);
        if view.epoch.is_none() {
            let epoch = wall_clock().unix_s().to_string().into_bytes();
            let put = [RecordChange::put(self.keys.epoch(), epoch)];
            let absent = [RecordComparison::Absent(self.keys.epoch())];
            self.agreement.transact(&absent, &put, self.limit()).await?;
            return Ok(revision);
        }
        if view.identity.is_none() {
            self.propose_identity().await?;
            return Ok(revision);
        }
        self.takeovers.review(self.patience(), &self.wake).await;
        if !self.compare_secrets(&view).await? {
            self.own(&view, false).await?;
            self.note_left(&view);
            return Ok(revision);
        }
        let others = view.nodes.iter().filter(|(name, _)| **name != self.settings.node.name);
        self.peers.note(others, &view.silent);
        let is_member = self.register(&view).await?;
        if is_member {
            // The node's record ends with the same lease as its reports.
            self.lease.grants.begin_giving();
        }
        self.follow_users(&view).await?;
        self.follow_buckets(&view).await?;
        if is_member && !self.report_settings(&view).await? {
            // They have changed since: nothing is taken over with older ones.
            return Ok(revision);
        }
        self.lead(&view).await?;
        self.publish(&view);
        self.own(&view, is_member).await?;
        self.keep_copies(&view, is_member).await?;
        self.note_left(&view);
        Ok(revision)
    }

    /// Gives the cluster this node's identity, unless another node is faster.
    async fn propose_identity(&self) -> Result<(), AgreementError> {
        let key = self.keys.identity();
        let identity = serde_json::to_vec(&self.identity).expect("a plain struct");
        let put = [RecordChange::put(key.clone(), identity)];
        self.agreement
            .transact(&[RecordComparison::Absent(key)], &put, self.limit())
            .await
            .map(drop)
    }

    /// Publishes the agreed topology to clients.
    fn publish(&mut self, view: &ClusterView) {
        let Some(epoch) = view.epoch.filter(|_| view.map_revision > 0) else { return };
        let unsigned = |revision: i64| u64::try_from(revision).unwrap_or(0);
        let named = view.identity.as_ref().map_or(0, |identity| identity.mod_revision);
        let map_revision = view.map_revision.max(named);
        let placement = |(name, bucket): (&String, &crate::records::MapBucket)| {
            let manifest = view.manifests.get(name).map_or(0, |manifest| manifest.mod_revision);
            let owners = bucket.owners.iter().map(|owner| Some(*owner)).collect();
            let rev = unsigned(map_revision.max(manifest));
            (name.clone(), Placement { owners, replicas: Vec::new(), replica_count: 0, rev })
        };
        if let Some(identity) = view.identity.as_ref().and_then(understood::<ClusterIdentity>) {
            self.identity = identity;
        }
        let topology = Topology {
            epoch,
            rev: unsigned(map_revision),
            nodes: view.map.nodes.iter().map(|node| node.record.named(&node.name)).collect(),
            this: self.settings.node.name.clone(),
            buckets: view
                .map
                .buckets
                .iter()
                .map(placement)
                .chain(view.copy_placements(map_revision))
                .collect(),
        };
        (self.publish)(&self.identity, topology);
        self.show_nodes(view);
    }

    /// A leaving node has left when it owns nothing more, or when no other node can take its
    /// vbuckets.
    fn note_left(&mut self, view: &ClusterView) {
        if self.stage() != LeaveStage::Leaving {
            return;
        }
        let is_alone = view
            .nodes
            .iter()
            .all(|(name, record)| *name == self.settings.node.name || record.leaving);
        let has_nothing = self
            .buckets
            .shared()
            .iter()
            .filter(|handle| handle.copies().is_none())
            .all(|handle| handle.bucket().owned().is_empty());
        let now_ns = self.lease.now_ns();
        let since_ns = *self.copies.leaving_since_ns.get_or_insert(now_ns);
        let is_late = now_ns.saturating_sub(since_ns) >= HAND_OVER_NS_MAX;
        let waits = !is_late && view.has_heirs(&self.settings.node.name);
        if is_alone || (has_nothing && !waits) {
            self.stage.send_replace(LeaveStage::Left);
        }
    }

    /// Ends the session here, whatever the state of etcd. Acknowledged writes that are not flushed
    /// yet may still be flushed: a store refuses them as soon as another node has taken over.
    pub(crate) async fn give_everything_up(&self) {
        self.lease.end();
        self.takeovers.call_off_all();
        let shared = self.buckets.shared();
        let is_flushed = |handle: &Arc<dyn SharedBucket>| {
            let bucket = handle.bucket();
            let has_copies = handle.copies().is_some();
            let is_done = |vbucket: &VBucket| !vbucket.is_owned() || vbucket.is_flushed();
            has_copies || bucket.vbuckets().iter().all(is_done)
        };
        let give_up = Instant::now() + LAST_FLUSH;
        while self.stage() != LeaveStage::Ending
            && Instant::now() < give_up
            && !shared.iter().all(is_flushed)
        {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
        let freeing = tokio::task::spawn_blocking(move || {
            for handle in shared.iter().filter(|handle| handle.copies().is_none()) {
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
            changed = self.agreement.watch(self.keys.all(), revision, limit) => {
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

    fn note_trouble(&mut self, error: &AgreementError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!(%error, "the cluster's state cannot be reached");
            self.trouble = Some(text);
        }
    }
}

/// A decoded record; the log says which one is not understood.
fn readable<R>(key: &str, decoded: Result<R, String>) -> Option<R> {
    decoded
        .inspect_err(|error| tracing::error!(key, %error, "a record in etcd is not understood"))
        .ok()
}

/// Parses a record; a record that this version does not understand counts as missing.
pub(crate) fn understood<R: serde::de::DeserializeOwned>(entry: &AgreementRecord) -> Option<R> {
    let record = serde_json::from_slice(&entry.value);
    record
        .inspect_err(
            |error| tracing::error!(key = entry.key, %error, "a record in etcd is not understood"),
        )
        .ok()
}
