//! One simulated world: time, network, agreement, faults and clients. `node.rs` steps its nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use oribi_types::{DurabilityLevel, Seqno, VbUuid};

use super::data::{CopyData, ModelChange, Version};
use super::oracle::Oracle;
use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};
use crate::election::PromiseReport;
use crate::grant::ServingGrant;
use crate::history::{Resume, ResumePoint};
use crate::machine::{SnapshotRange, StreamAcceptance};
use crate::state::CopyState;

mod clients;
mod faults;
mod node;

use node::Node;

/// Keys with durable writes only, which are registers; as many more have plain writes.
pub(super) const KEYS: u8 = 3;
const CLIENTS: usize = 3;
const TICK_US: u64 = 25_000;
const FAULTS_UNTIL_US: u64 = 14_000_000;
const CLIENTS_AGAIN_US: u64 = 26_000_000;
const END_US: u64 = 30_000_000;

pub(super) struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    pub(super) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

#[derive(Clone, Debug)]
pub(super) enum PeerMessage {
    StreamRequest {
        copy: CopyId,
        stream: u64,
        epoch: CopiesEpoch,
        point: ResumePoint,
        from_disk: bool,
    },
    StreamAccepted {
        stream: u64,
        acceptance: StreamAcceptance,
    },
    StreamRollback {
        stream: u64,
        to: Seqno,
    },
    VersionsRequest {
        stream: u64,
        epoch: CopiesEpoch,
        keys: Vec<u8>,
        to: Seqno,
    },
    Versions {
        stream: u64,
        to: Seqno,
        versions: BTreeMap<u8, Option<Version>>,
        open: CopyData,
        high_completed: Seqno,
    },
    Marker {
        stream: u64,
        range: SnapshotRange,
    },
    Change {
        stream: u64,
        change: ModelChange,
    },
    SnapshotEnd {
        stream: u64,
    },
    Acknowledge {
        copy: CopyId,
        epoch: CopiesEpoch,
        seqno: Seqno,
        complete_end: Seqno,
    },
    Beacon {
        active: CopyId,
        epoch: CopiesEpoch,
        sent_at_ms: u64,
    },
    Granted {
        copy: CopyId,
        grant: ServingGrant,
    },
    PromiseRequest {
        epoch: CopiesEpoch,
    },
    Promised {
        copy: CopyId,
        epoch: CopiesEpoch,
        report: PromiseReport,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ClientOperation {
    pub(super) id: u64,
    pub(super) client: usize,
    pub(super) key: u8,
    pub(super) action: ClientAction,
    pub(super) required: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ClientAction {
    Read,
    Write { deleted: bool, level: DurabilityLevel },
    Swap { expected: u64, level: DurabilityLevel },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientAnswer {
    Value(u64),
    Done,
    /// The server did nothing, so the register is as it was.
    Rejected,
}

pub(super) enum WorldEvent {
    Tick { node: usize },
    Deliver { from: usize, to: usize, link: u64, message: PeerMessage },
    Request { node: usize, operation: ClientOperation },
    Answer { operation: ClientOperation, answer: ClientAnswer },
    Timeout { client: usize, id: u64 },
    Call { client: usize },
    CompareAndSet { record: CopiesRecord, is_election: bool },
    Watch { node: usize, record: CopiesRecord },
    PromiseStored { node: usize, life: u64, epoch: CopiesEpoch },
    Flushed { node: usize, life: u64, data: CopyData, state: CopyState },
    Restart { node: usize, cleanly: bool },
    Fault,
    Plan,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct WorldCounts {
    reads: u64,
    durable: u64,
    promotions: u64,
    joint: u64,
    resized: u64,
    handovers: u64,
    rewinds: u64,
    crashes: u64,
    excused: u64,
}

impl WorldCounts {
    pub(super) fn add(&mut self, other: &WorldCounts) {
        self.reads += other.reads;
        self.durable += other.durable;
        self.promotions += other.promotions;
        self.joint += other.joint;
        self.resized += other.resized;
        self.handovers += other.handovers;
        self.rewinds += other.rewinds;
        self.crashes += other.crashes;
        self.excused += other.excused;
    }

    pub(super) fn is_worth_something(&self) -> bool {
        let is_resized = self.resized > 20;
        self.reads > 100
            && self.durable > 100
            && self.promotions > 20
            && self.crashes > 20
            && is_resized
    }
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) now_us: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) record: CopiesRecord,
    pub(super) oracle: Oracle,
    pub(super) counts: WorldCounts,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, WorldEvent>,
    next_id: u64,
    /// Of each ordered pair: last delivery, generation, cut, delay.
    links: Vec<Vec<Link>>,
    clients: Vec<Option<ClientOperation>>,
    agreement_away_until_us: u64,
    watch_us: Vec<u64>,
    fault_gap_us: u64,
    is_healed: bool,
    next_uuid: u64,
}

#[derive(Clone, Copy, Default)]
struct Link {
    last_us: u64,
    generation: u64,
    cut_until_us: u64,
    delay_us: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(7));
        let configured = [1, 2, 2, 3, 3, 3, 4][random.below(7) as usize];
        let node_count = configured + random.below(2) as usize + usize::from(configured < 3);
        let ids: Vec<CopyId> =
            (0..node_count).map(|node| CopyId { node: node as u16, copy: 0 }).collect();
        let record = CopiesRecord {
            epoch: CopiesEpoch(1),
            active: ids[0],
            members: ids[..configured].to_vec(),
            joining: Vec::new(),
            configured,
            joining_configured: None,
            handover: None,
        };
        let nodes = ids
            .iter()
            .map(|id| {
                let is_member = record.members.contains(id);
                Node::new(*id, random.range(900, 1101), is_member, &record)
            })
            .collect();
        let fault_gap_us = random.range(150_000, 1_500_000);
        let mut world = World {
            now_us: 0,
            nodes,
            record,
            oracle: Oracle::new(usize::from(KEYS)),
            counts: WorldCounts::default(),
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            next_id: 0,
            links: vec![vec![Link::default(); node_count]; node_count],
            clients: vec![None; CLIENTS],
            agreement_away_until_us: 0,
            watch_us: vec![0; node_count],
            fault_gap_us,
            is_healed: false,
            next_uuid: 1,
            random,
        };
        for node in 0..node_count {
            let delay = world.random.below(TICK_US);
            world.at(delay, WorldEvent::Tick { node });
        }
        for client in 0..CLIENTS {
            world.at(1000, WorldEvent::Call { client });
        }
        world.at(1_500_000, WorldEvent::Fault);
        world.at(2_000_000, WorldEvent::Plan);
        world
    }

    pub(super) fn at(&mut self, delay_us: u64, event: WorldEvent) {
        self.next_id += 1;
        self.events.push(Reverse((self.now_us + delay_us, self.next_id)));
        self.bodies.insert(self.next_id, event);
    }

    pub(super) fn uuid(&mut self) -> VbUuid {
        self.next_uuid += 1;
        VbUuid(self.next_uuid)
    }

    pub(super) fn run(mut self) -> WorldCounts {
        while let Some(Reverse((at_us, id))) = self.events.pop() {
            if at_us > END_US {
                break;
            }
            self.now_us = at_us;
            if at_us >= FAULTS_UNTIL_US && !self.is_healed {
                self.heal();
            }
            let event = self.bodies.remove(&id).expect("each event happens once");
            self.happen(id, event);
            self.check_serving();
        }
        self.check_convergence();
        self.counts
    }

    /// What comes to a paused node waits for the end of its pause, which may be put off: it keeps
    /// its id, and so its order.
    fn wait(&mut self, delay_us: u64, id: u64, event: WorldEvent) {
        self.events.push(Reverse((self.now_us + delay_us, id)));
        self.bodies.insert(id, event);
    }

    fn happen(&mut self, id: u64, event: WorldEvent) {
        match event {
            WorldEvent::Tick { node } => {
                self.at(TICK_US, WorldEvent::Tick { node });
                if self.nodes[node].is_running(self.now_us) {
                    self.tick(node);
                }
            }
            WorldEvent::Deliver { from, to, link, message } => {
                if self.links[from][to].generation != link || !self.nodes[to].is_up {
                    return;
                }
                if let Some(delay) = self.nodes[to].paused_for(self.now_us) {
                    self.wait(delay, id, WorldEvent::Deliver { from, to, link, message });
                    return;
                }
                self.deliver(from, to, message);
            }
            WorldEvent::Request { node, operation } => {
                if !self.nodes[node].is_up {
                    return;
                }
                if let Some(delay) = self.nodes[node].paused_for(self.now_us) {
                    self.wait(delay, id, WorldEvent::Request { node, operation });
                    return;
                }
                self.serve(node, operation);
            }
            WorldEvent::Answer { operation, answer } => self.answered(operation, answer),
            WorldEvent::Timeout { client, id } => {
                if self.clients[client].is_some_and(|operation| operation.id == id) {
                    self.clients[client] = None;
                    self.at(5000, WorldEvent::Call { client });
                }
            }
            WorldEvent::Call { client } => self.call(client),
            WorldEvent::CompareAndSet { record, is_election } => {
                self.compare_and_set(record, is_election);
            }
            WorldEvent::Watch { node, record } => {
                if !self.nodes[node].is_up {
                    return;
                }
                if let Some(delay) = self.nodes[node].paused_for(self.now_us) {
                    self.wait(delay, id, WorldEvent::Watch { node, record });
                    return;
                }
                self.observe(node, record);
            }
            WorldEvent::PromiseStored { node, life, epoch } => {
                if self.nodes[node].life == life {
                    self.promise_stored(node, epoch);
                }
            }
            WorldEvent::Flushed { node, life, data, state } => {
                if self.nodes[node].life == life {
                    self.flushed(node, data, state);
                }
            }
            WorldEvent::Restart { node, cleanly } => self.restart(node, cleanly),
            WorldEvent::Fault => self.fault(),
            WorldEvent::Plan => self.plan(),
        }
    }

    pub(super) fn send(&mut self, from: usize, to: usize, message: PeerMessage) {
        if from == to {
            let link = self.links[from][to].generation;
            self.at(0, WorldEvent::Deliver { from, to, link, message });
            return;
        }
        let jitter_us = self.random.range(100, 3000);
        let link = &mut self.links[from][to];
        if link.cut_until_us > self.now_us {
            // Lost on a cut link: the connection breaks, for both directions.
            link.generation += 1;
            return;
        }
        let at_us = link.last_us.max(self.now_us + jitter_us + link.delay_us);
        link.last_us = at_us;
        let generation = link.generation;
        let delay = at_us - self.now_us;
        self.at(delay, WorldEvent::Deliver { from, to, link: generation, message });
    }

    // Agreement.

    pub(super) fn propose(&mut self, record: CopiesRecord, is_election: bool) {
        if self.now_us < self.agreement_away_until_us && self.random.chance(700) {
            return;
        }
        let away = self.agreement_away_until_us.saturating_sub(self.now_us);
        let delay = away + self.random.range(3000, 30_000);
        self.at(delay, WorldEvent::CompareAndSet { record, is_election });
    }

    fn compare_and_set(&mut self, record: CopiesRecord, is_election: bool) {
        if record.epoch != self.record.epoch.next() {
            return;
        }
        if is_election {
            self.check_election(&record);
            self.counts.promotions += 1;
        }
        self.counts.joint += u64::from(record.is_joint() && !self.record.is_joint());
        if record.configured != self.record.configured {
            self.check_resize(&record);
            self.counts.resized += 1;
        }
        self.counts.handovers += u64::from(record.handover.is_some());
        self.record = record.clone();
        self.publish(record);
    }

    fn is_reign(&self, record: &CopiesRecord) -> bool {
        let node = &self.nodes[usize::from(record.active.node)];
        node.machine.as_ref().is_some_and(|it| it.active_epoch() == Some(record.epoch))
    }

    fn publish(&mut self, record: CopiesRecord) {
        for node in 0..self.nodes.len() {
            // After the faults no node learns of a record later than it suspects a failure.
            let is_late = self.random.chance(100) && !self.is_healed;
            let lag = match is_late {
                true => self.random.range(100_000, 1_500_000),
                false => self.random.range(1000, 20_000),
            };
            let away = self.agreement_away_until_us.saturating_sub(self.now_us);
            let at_us = self.watch_us[node].max(self.now_us + away + lag);
            self.watch_us[node] = at_us;
            let record = record.clone();
            self.at(at_us - self.now_us, WorldEvent::Watch { node, record });
        }
    }

    // Invariants.

    /// Promises that are stored decide an election, counted without the code under test.
    fn check_election(&self, record: &CopiesRecord) {
        let members = &self.record.members;
        let stays = |copy: &&CopyId| members.contains(copy);
        let staying: Vec<CopyId> = self.record.joining.iter().filter(stays).copied().collect();
        for set in [members, &staying] {
            let promised = set.iter().filter(|member| {
                let node = &self.nodes[usize::from(member.node)];
                node.id == **member && node.stored.1.promised >= record.epoch
            });
            let wanted = (record.configured / 2 + 1).min(set.len());
            let promised = promised.count();
            assert!(set.is_empty() || promised > set.len() - wanted, "{promised} promises decide");
        }
    }

    /// Another number of copies is in force once a write quorum by that number stores the record
    /// before, counted without the code under test: writes of before needed fewer copies.
    fn check_resize(&self, record: &CopiesRecord) {
        let before = &self.record;
        assert_eq!(before.joining_configured, Some(record.configured), "the number was joining");
        assert_eq!(before.joining, record.members, "with its members");
        let stored = before.joining.iter().filter(|member| {
            let node = &self.nodes[usize::from(member.node)];
            node.id == **member && node.stored.1.recorded == before.epoch
        });
        let (stored, wanted) = (stored.count(), record.configured / 2 + 1);
        assert!(stored >= wanted.min(before.joining.len()), "{stored} of {wanted} copies store it");
    }

    fn check_serving(&self) {
        let serving = self.nodes.iter().filter(|node| {
            let now_ms = node.now_ms(self.now_us);
            let machine = node.machine.as_ref().filter(|_| node.is_running(self.now_us));
            machine.is_some_and(|machine| machine.may_answer(now_ms).is_ok())
        });
        let serving: Vec<_> = serving.map(|node| node.id).collect();
        assert!(serving.len() <= 1, "{serving:?} serve at once");
    }

    fn check_convergence(&self) {
        let active = &self.nodes[usize::from(self.record.active.node)];
        let state = |node: &Node| node.machine.as_ref().map(|it| it.state().clone());
        let high = state(active).map(|state| state.high);
        assert!(self.is_reign(&self.record), "the active serves again: {:?}", self.record);
        assert!(active.data.prepares.is_empty(), "open prepares: {:?}", active.data.prepares);
        assert!(!self.record.is_joint(), "a joint record settles: {:?}", self.record);
        for member in &self.record.members {
            let node = &self.nodes[usize::from(member.node)];
            assert_eq!(node.data, active.data, "{member:?} converges");
            let state = state(node).expect("all nodes are up");
            assert_eq!(Some(state.complete_end), high);
            assert!(state.is_intact, "{member:?} is intact");
        }
        assert_eq!(self.record.members.len(), self.record.configured, "copies are replaced");
    }

    pub(super) fn resume(&self, node: usize, point: ResumePoint) -> Option<Resume> {
        let state = self.nodes[node].machine.as_ref()?.state();
        Some(state.history.resume(state.high, point))
    }
}
