//! The agent of a node without its threads: the simulation of another crate drives it.
//!
//! Owns: one look at agreement at a time, and what the threads of renewals, beacons and grants do.
//! Time and network are the caller's. Compiled for tests only.

mod cut_agreement;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use oribi_types::Vbid;
use tokio::sync::{Notify, watch};

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementRecord, RecordChange, SessionId, Sessions};
use crate::beacon_peers::PeersCell;
use crate::beacons::BeaconSchedule;
use crate::copies::CopiesRecord;
use crate::copies::moves::RebalanceRecord;
use crate::grants::BeaconId;
use crate::host::ClusterHost;
use crate::identity::ClusterIdentity;
use crate::leading::BucketOutline;
use crate::lease::NodeLease;
use crate::records::RecordKeys;
use crate::renewal::RenewalTarget;
use crate::settings::ClusterSettings;
use crate::signals::{LeaveStage, Signals};
pub use cut_agreement::CutAgreement;

const LIMIT: Duration = Duration::from_secs(1);
/// The place of beacons of all nodes. Nothing is sent there.
const PLACE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A beacon, or the answer to one.
#[derive(Debug, Clone, Copy)]
pub struct SteppedBeacon {
    beacon: BeaconId,
    /// Of an answer: how long it grants.
    given_ns: Option<u64>,
}

/// See the module text.
pub struct SteppedAgent {
    agent: Agent,
    lease: Arc<NodeLease>,
    targets: watch::Receiver<Option<RenewalTarget>>,
    stage: watch::Sender<LeaveStage>,
    schedule: BeaconSchedule,
}

impl SteppedAgent {
    /// An agent that has done nothing yet; `clock` is the one of its lease.
    pub fn new(
        settings: ClusterSettings,
        agreement: Arc<dyn Sessions>,
        host: ClusterHost,
        clock: fn() -> u64,
    ) -> SteppedAgent {
        let keys = RecordKeys::new(&settings.name);
        let (buckets, suspicion_ms) = (Arc::clone(&host.buckets), settings.failover_after_ms);
        let lease = Arc::new(NodeLease::with_clock(buckets, suspicion_ms, clock));
        let (renewals, targets) = watch::channel(None);
        let stage = watch::channel(LeaveStage::Serving).0;
        let (wake, nodes) = (Arc::new(Notify::new()), Arc::default());
        let mut peers = PeersCell::default();
        peers.own = Some(PLACE);
        let signals = Signals { wake, stage: stage.clone(), renewals, nodes, peers };
        let agent = Agent::new(settings, (agreement, keys), Arc::clone(&lease), host, signals);
        let schedule = BeaconSchedule::beginning(lease.now_ns());
        SteppedAgent { agent, lease, targets, stage, schedule }
    }

    /// The lease that the node's connections check.
    pub fn lease(&self) -> &Arc<NodeLease> {
        &self.lease
    }

    /// True while what the node reads may be sent to clients.
    pub fn may_answer(&self) -> bool {
        self.lease.may_answer()
    }

    /// The session whose lease the node takes for held, by the clock that is set.
    pub fn held_session(&self) -> Option<SessionId> {
        self.agent.session_id.filter(|_| self.lease.is_held())
    }

    /// The node is to hand everything over.
    pub fn leave(&self) {
        self.stage.send_if_modified(|stage| {
            let serves = *stage == LeaveStage::Serving;
            *stage = if serves { LeaveStage::Leaving } else { *stage };
            serves
        });
    }

    /// True once [`SteppedAgent::leave`] was called.
    pub fn is_leaving(&self) -> bool {
        *self.stage.borrow() != LeaveStage::Serving
    }

    /// True once the node has handed everything over, or cannot.
    pub fn has_left(&self) -> bool {
        *self.stage.borrow() >= LeaveStage::Left
    }

    /// One look at agreement, and all the work that it begins.
    pub async fn tick(&mut self) {
        self.look().await;
        self.finish().await;
    }

    /// One look at agreement; the work that it begins may not be done yet.
    pub async fn look(&mut self) {
        if !self.lease.is_in(self.lease.session()) || !self.lease.is_held() {
            self.lease.end();
            self.agent.give_everything_up().await;
            if self.agent.begin_session().await.is_err() {
                return;
            }
        }
        // A failed look is repeated.
        let _ = self.agent.tick().await;
    }

    /// Waits for the work that looks began.
    pub async fn finish(&mut self) {
        self.agent.finish_tasks().await;
        assert!(self.agent.changing.is_empty(), "no work is left");
    }

    /// What a process does last that stops in order.
    pub async fn end_session(&self) {
        if let Some(session) = self.agent.session_id {
            // Else it ends by itself.
            let _ = self.agent.agreement.end_session(session, LIMIT).await;
        }
    }

    /// What the thread of renewals does.
    pub async fn renew(&self) {
        let Some(RenewalTarget { session_id, session, .. }) = *self.targets.borrow() else {
            return;
        };
        if !self.lease.is_in(session) {
            return;
        }
        let sent_ns = self.lease.now_ns();
        match self.agent.agreement.renew_session(session_id, LIMIT).await {
            Ok(None) => self.lease.end(),
            Ok(Some(left)) => drop(self.lease.renew(session, sent_ns, left)),
            Err(_) => {}
        }
    }
}

impl SteppedAgent {
    /// A turn of the thread of beacons, if it is due: the beacon to send to all nodes. The caller
    /// has delivered every datagram that came.
    pub fn beat(&mut self) -> Option<SteppedBeacon> {
        let now_ns = self.lease.now_ns();
        if self.schedule.left_ns(now_ns).is_some() {
            return None;
        }
        let turn = self.schedule.turn(&self.lease.grants, now_ns);
        let beacon = BeaconId { process: self.lease.grants.process(), sent_ns: now_ns };
        turn.sends.then_some(SteppedBeacon { beacon, given_ns: None })
    }

    /// Takes a datagram of the node `from` in; the answer to it, if there is one.
    pub fn take_in(&self, from: &str, datagram: SteppedBeacon) -> Option<SteppedBeacon> {
        let (now_ns, grants) = (self.lease.now_ns(), &self.lease.grants);
        let SteppedBeacon { beacon, given_ns } = datagram;
        let peers = &self.agent.peers.peers;
        match given_ns {
            None if !peers.hears(from, beacon) => None,
            None => {
                let given_ns = Some(grants.hear(from, beacon, now_ns)?);
                Some(SteppedBeacon { beacon, given_ns })
            }
            Some(given_ns) => {
                grants.receive(from, (beacon, given_ns), now_ns);
                None
            }
        }
    }

    /// What the thread of grants does.
    pub fn follow_grants(&self) {
        self.lease.follow_grants();
    }
}

/// What a simulation checks of the cluster's records.
pub struct CopyRecords {
    pub by_vbucket: BTreeMap<Vbid, CopiesRecord>,
    names: BTreeMap<u16, String>,
    is_rebalancing: bool,
    /// Copies of each vbucket besides the active one that the bucket asks for.
    pub replicas: u8,
}

impl CopyRecords {
    /// The records of the one bucket of the cluster `name`.
    pub fn read(name: &str, records: Vec<AgreementRecord>) -> CopyRecords {
        let view = ClusterView::read(&RecordKeys::new(name), "", records);
        let by_vbucket = view.copies.iter().map(|(place, it)| (place.vbid, it.record.clone()));
        let by_vbucket: BTreeMap<Vbid, CopiesRecord> = by_vbucket.collect();
        let named = |number: u16| Some((number, view.roster.name(number)?.to_owned()));
        for record in by_vbucket.values() {
            assert!(record.members.contains(&record.active), "the active copy is a member");
            assert!(record.configured > 0, "a bucket asks for a copy");
        }
        let numbers = by_vbucket.values().flat_map(|record| record.all());
        let names = numbers.filter_map(|copy| named(copy.node)).collect();
        let is_rebalancing = view.rebalance.is_some_and(|(record, _)| record.is_running());
        let outline = view.buckets.values().find_map(understood::<BucketOutline>);
        let replicas = outline.and_then(|outline| outline.replicas).unwrap_or(0);
        CopyRecords { by_vbucket, names, is_rebalancing, replicas }
    }

    /// The name of the node with a number of the records.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    /// True while a rebalance runs.
    pub fn is_rebalancing(&self) -> bool {
        self.is_rebalancing
    }
}

/// Prefix of all records of the cluster `name`.
pub fn prefix_of(name: &str) -> String {
    RecordKeys::new(name).all().to_owned()
}

/// The key of a bucket's settings.
pub fn settings_key(name: &str, bucket: &str) -> String {
    RecordKeys::new(name).bucket(bucket)
}

/// The change by which an operator begins a rebalance that removes no node.
pub fn rebalance_request(name: &str) -> RecordChange {
    let record = RebalanceRecord::new(ClusterIdentity::random().uuid, Default::default());
    RecordChange::put(RecordKeys::new(name).rebalance(), record.encode())
}
