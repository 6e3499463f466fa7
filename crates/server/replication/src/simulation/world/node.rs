//! Steps of one simulated node: what the data service does around a machine.

use std::collections::{BTreeMap, VecDeque};

use oribi_types::{Seqno, VbUuid};

use super::super::data::{CopyData, ModelChange};
use super::{ClientOperation, PeerMessage, World, WorldEvent};

use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};
use crate::election::Election;
use crate::history::HistoryEntry;
use crate::machine::CopyMachine;
use crate::state::CopyState;

mod active;
mod messages;

const BEACON_MS: u64 = 100;
const SUSPICION_MS: u64 = 500;
const WRITE_LIMIT_MS: u64 = 900;
/// Changes of one snapshot from memory.
const SNAPSHOT_CHANGES: usize = 6;

pub(in super::super) struct OutboundStream {
    copy: CopyId,
    epoch: CopiesEpoch,
    sent: Seqno,
    from_disk: bool,
    /// Of the connection: a reset ends the stream.
    generations: (u64, u64),
}

pub(in super::super) struct Node {
    pub(super) id: CopyId,
    pub(super) is_up: bool,
    pub(super) life: u64,
    pub(super) paused_until_us: u64,
    pub(super) disk_stalled_until_us: u64,
    rate: u64,
    pub(super) machine: Option<CopyMachine>,
    pub(super) data: CopyData,
    /// Content of the disk.
    pub(super) stored: (CopyData, CopyState),
    boundaries: VecDeque<(CopyData, CopyState)>,
    is_flushing: bool,
    record: CopiesRecord,
    /// Changes in the active's memory, which begins above a seqno.
    log: Vec<ModelChange>,
    log_begins_after: Seqno,
    outbound: BTreeMap<u64, (usize, OutboundStream)>,
    complete_ends: BTreeMap<CopyId, Seqno>,
    stored_epochs: BTreeMap<CopyId, CopiesEpoch>,
    inbound: Option<u64>,
    inbound_generations: (u64, u64),
    /// The request for this stream waits for the promise to be stored.
    is_following: bool,
    asked_ms: u64,
    buffered: Vec<ModelChange>,
    heard_ms: u64,
    beacon_ms: u64,
    pub(super) election: Option<Election>,
    election_ms: u64,
    proposed_ms: u64,
    candidates: Vec<(usize, CopiesEpoch)>,
    waiting: BTreeMap<Seqno, ClientOperation>,
    joint_since_ms: u64,
    /// The members, and the number of configured copies.
    pub(super) wanted_members: Option<(Vec<CopyId>, usize)>,
    pub(super) hand_over_to: Option<CopyId>,
    retired_ms: u64,
}

impl Node {
    pub(super) fn new(id: CopyId, rate: u64, is_member: bool, record: &CopiesRecord) -> Node {
        let mut state = CopyState::default();
        if is_member {
            let entry = HistoryEntry { uuid: VbUuid(1), seqno: Seqno(0), epoch: CopiesEpoch(1) };
            state.history.begin(entry);
            state.promised = CopiesEpoch(1);
            state.recorded = CopiesEpoch(1);
            state.is_intact = true;
        }
        Node {
            id,
            is_up: true,
            life: 0,
            paused_until_us: 0,
            disk_stalled_until_us: 0,
            rate,
            machine: Some(CopyMachine::start(id, state.clone(), true, 0)),
            data: CopyData::default(),
            stored: (CopyData::default(), state),
            boundaries: VecDeque::new(),
            is_flushing: false,
            record: record.clone(),
            log: Vec::new(),
            log_begins_after: Seqno(0),
            outbound: BTreeMap::new(),
            complete_ends: BTreeMap::new(),
            stored_epochs: BTreeMap::new(),
            inbound: None,
            inbound_generations: (0, 0),
            is_following: false,
            asked_ms: 0,
            buffered: Vec::new(),
            heard_ms: 0,
            beacon_ms: 0,
            election: None,
            election_ms: 0,
            proposed_ms: 0,
            candidates: Vec::new(),
            waiting: BTreeMap::new(),
            joint_since_ms: 0,
            wanted_members: None,
            hand_over_to: None,
            retired_ms: 0,
        }
    }

    pub(super) fn now_ms(&self, now_us: u64) -> u64 {
        now_us * self.rate / 1_000_000
    }

    pub(super) fn paused_for(&self, now_us: u64) -> Option<u64> {
        self.paused_until_us.checked_sub(now_us).filter(|delay| *delay > 0)
    }

    pub(super) fn is_running(&self, now_us: u64) -> bool {
        self.is_up && self.paused_for(now_us).is_none()
    }

    fn machine(&mut self) -> &mut CopyMachine {
        self.machine.as_mut().expect("the node is up")
    }

    fn boundary(&mut self) {
        let state = self.machine().state().clone();
        self.boundaries.push_back((self.data.clone(), state));
    }
}

impl World {
    fn local_ms(&self, node: usize) -> u64 {
        self.nodes[node].now_ms(self.now_us)
    }

    pub(super) fn end_process(&mut self, number: usize, cleanly: bool) {
        let is_lucky = self.random.chance(500);
        let node = &mut self.nodes[number];
        let state = node.machine().state().clone();
        if cleanly {
            node.stored = (node.data.clone(), state);
        } else if is_lucky && node.is_flushing {
            // The batch in flight was written, and nothing learned of it.
            if let Some((data, at_end)) = node.boundaries.front() {
                node.stored = (data.clone(), state.of_batch(at_end));
            }
        }
        node.is_up = false;
        node.life += 1;
        let before = std::mem::take(&mut node.data);
        node.data = node.stored.0.clone();
        node.machine = None;
        node.waiting.clear();
        node.outbound.clear();
        let after = node.data.clone();
        let record = self.record.clone();
        if !cleanly {
            self.oracle.lost(&before, &after, &record);
        }
    }

    pub(super) fn restart(&mut self, number: usize, cleanly: bool) {
        let now_ms = self.local_ms(number);
        let record = self.record.clone();
        let node = &mut self.nodes[number];
        let mut fresh = Node::new(node.id, node.rate, false, &record);
        fresh.life = node.life + 1;
        fresh.machine = Some(CopyMachine::start(node.id, node.stored.1.clone(), cleanly, now_ms));
        fresh.data = node.stored.0.clone();
        fresh.stored = node.stored.clone();
        fresh.disk_stalled_until_us = node.disk_stalled_until_us;
        fresh.heard_ms = now_ms;
        *node = fresh;
        // The mark of a clean stop is gone, so the state is only as good as that of this life.
        let is_intact = node.machine().state().is_intact;
        node.stored.1.is_intact = is_intact;
        self.observe(number, record);
    }

    // Storage.

    fn flush(&mut self, number: usize) {
        let chosen = self.random.below(self.nodes[number].boundaries.len().max(1) as u64);
        let chance = self.random.chance(400);
        let delay = self.random.range(500, 40_000);
        let node = &mut self.nodes[number];
        let is_stalled = node.disk_stalled_until_us > self.now_us;
        if node.is_flushing || node.boundaries.is_empty() || is_stalled || !chance {
            return;
        }
        node.boundaries.drain(..chosen as usize);
        node.is_flushing = true;
        let (data, at_end) = node.boundaries[0].clone();
        let state = node.machine().state().of_batch(&at_end);
        let life = node.life;
        self.at(delay, WorldEvent::Flushed { node: number, life, data, state });
    }

    pub(super) fn flushed(&mut self, number: usize, data: CopyData, state: CopyState) {
        let node = &mut self.nodes[number];
        node.boundaries.pop_front();
        node.is_flushing = false;
        node.machine().stored(&state);
        // A promise that was stored since the batch began stays.
        let promised = node.stored.1.promised.max(state.promised);
        node.stored = (data, CopyState { promised, ..state });
        self.promise_stored(number, CopiesEpoch(0));
        self.acknowledge(number);
    }

    fn store_promise(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let epoch = node.machine().state().promised;
        if node.machine().is_promise_stored(epoch) {
            self.promise_stored(number, CopiesEpoch(0));
            return;
        }
        let stall = self.nodes[number].disk_stalled_until_us.saturating_sub(self.now_us);
        let delay = stall + self.random.range(500, 8000);
        let life = self.nodes[number].life;
        self.at(delay, WorldEvent::PromiseStored { node: number, life, epoch });
    }

    pub(super) fn promise_stored(&mut self, number: usize, epoch: CopiesEpoch) {
        let node = &mut self.nodes[number];
        node.stored.1.promised = node.stored.1.promised.max(epoch);
        node.machine().promise_stored(epoch);
        for (candidate, epoch) in std::mem::take(&mut node.candidates) {
            let node = &mut self.nodes[number];
            match node.machine().report(epoch) {
                Some(report) => {
                    let copy = node.id;
                    self.send(number, candidate, PeerMessage::Promised { copy, epoch, report });
                }
                None if node.machine().state().promised == epoch
                    && !node.machine().is_promise_stored(epoch) =>
                {
                    node.candidates.push((candidate, epoch));
                }
                None => {}
            }
        }
        let node = &mut self.nodes[number];
        let epoch = node.record.epoch;
        let promised = node.machine().state().promised;
        if node.is_following && promised == epoch && node.machine().is_promise_stored(epoch) {
            node.is_following = false;
            self.request_stream(number);
        }
    }

    // The record.

    pub(super) fn observe(&mut self, number: usize, record: CopiesRecord) {
        let now_ms = self.local_ms(number);
        let uuid = self.uuid();
        let node = &mut self.nodes[number];
        if record.epoch < node.record.epoch {
            return;
        }
        if record.epoch > node.record.epoch {
            node.heard_ms = now_ms;
            node.election = None;
            node.inbound = None;
        }
        node.record = record.clone();
        let active = node.machine().active_record().map(|record| record.epoch);
        if active == Some(record.epoch) {
            return;
        }
        if record.active == node.id && active.is_some_and(|epoch| epoch.next() == record.epoch) {
            node.machine().continue_with(record.clone());
            if node.machine().active_epoch() == Some(record.epoch) {
                node.outbound.clear();
                node.stored_epochs.clear();
                node.joint_since_ms = now_ms;
                node.boundary();
                return;
            }
        }
        if node.machine().may_begin(&record) {
            self.oracle.promoted(&node.data, node.id, record.epoch);
            let open = node.data.open();
            node.machine().begin(record, uuid, open);
            node.log.clear();
            node.hand_over_to = None;
            node.log_begins_after = node.machine().state().high;
            node.outbound.clear();
            node.waiting.clear();
            node.stored_epochs.clear();
            node.joint_since_ms = now_ms;
            node.boundary();
            self.check_content(number);
            return;
        }
        let epoch = record.epoch;
        if node.machine().active_record().is_some() && record.active == node.id {
            return;
        }
        if record.active != node.id && record.all().contains(&node.id) {
            self.follow(number, epoch);
        } else if node.machine().active_record().is_some() {
            node.machine().follow(epoch);
            node.waiting.clear();
            node.outbound.clear();
        }
    }

    fn follow(&mut self, number: usize, epoch: CopiesEpoch) {
        let now_ms = self.local_ms(number);
        let node = &mut self.nodes[number];
        node.inbound = None;
        node.buffered.clear();
        node.asked_ms = now_ms;
        if node.machine().follow(epoch) {
            node.waiting.clear();
            node.outbound.clear();
            node.is_following = true;
            self.store_promise(number);
        }
    }

    fn generations(&self, one: usize, other: usize) -> (u64, u64) {
        let (low, high) = (one.min(other), one.max(other));
        (self.links[low][high].generation, self.links[high][low].generation)
    }

    fn request_stream(&mut self, number: usize) {
        self.next_id += 1;
        let stream = self.next_id;
        let node = &mut self.nodes[number];
        node.inbound = Some(stream);
        node.buffered.clear();
        let (copy, epoch) = (node.id, node.record.epoch);
        let point = node.machine().state().resume_point();
        let from_disk = node.machine().needs_disk_snapshot();
        let active = usize::from(node.record.active.node);
        let generations = self.generations(number, active);
        self.nodes[number].inbound_generations = generations;
        let request = PeerMessage::StreamRequest { copy, stream, epoch, point, from_disk };
        self.send(number, active, request);
    }

    // The step of a node.

    pub(super) fn tick(&mut self, number: usize) {
        let now_ms = self.local_ms(number);
        self.flush(number);
        let node = &mut self.nodes[number];
        if node.machine().active_record().is_some() {
            self.tick_active(number, now_ms);
            return;
        }
        let record = node.record.clone();
        if !record.all().contains(&node.id) {
            return;
        }
        let generations = self.generations(number, usize::from(record.active.node));
        let node = &mut self.nodes[number];
        if node.inbound.is_some() && node.inbound_generations != generations {
            node.inbound = None;
            node.machine().stream_ended();
        }
        let is_waiting = node.machine().stream_epoch().is_none() || node.inbound.is_none();
        if record.active != node.id && is_waiting && now_ms > node.asked_ms + 250 {
            let promised = node.machine().state().promised;
            if promised <= record.epoch {
                self.follow(number, record.epoch);
            }
        }
        let node = &self.nodes[number];
        let rank = record.all().iter().position(|member| *member == node.id).unwrap_or(0) as u64;
        if now_ms > node.heard_ms + SUSPICION_MS + 50 * rank {
            self.run_election(number, now_ms);
        }
    }

    fn run_election(&mut self, number: usize, now_ms: u64) {
        let pause = self.random.range(150, 400);
        let node = &mut self.nodes[number];
        if now_ms < node.election_ms {
            return;
        }
        node.election_ms = now_ms + pause;
        let record = node.record.clone();
        if node.election.as_ref().is_none_or(|election| election.base != record) {
            node.election = Some(Election::new(record.clone()));
        }
        for member in record.all() {
            let request = PeerMessage::PromiseRequest { epoch: record.epoch.next() };
            self.send(number, usize::from(member.node), request);
        }
    }

    fn check_content(&mut self, number: usize) {
        let node = &self.nodes[number];
        let state = node.machine.as_ref().expect("the node is up").state();
        assert!(state.promised >= state.recorded);
        if state.partial_end.is_none()
            && state.recorded > CopiesEpoch(0)
            && !state.is_rewound
            && let Some(uuid) = state.history.uuid_at(state.complete_end)
        {
            let (seqno, data) = (state.complete_end, node.data.clone());
            self.oracle.content(uuid, seqno, &data);
        }
    }

    /// Sends the high prepared seqno, and checks that the copy holds what it says.
    fn acknowledge(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let Some((epoch, seqno)) = node.machine().acknowledgement() else { return };
        let state = node.machine().state().clone();
        assert_eq!((state.recorded, state.promised), (epoch, epoch), "the epoch is promised");
        assert!(seqno <= state.complete_end, "an acknowledgement within a snapshot");
        if let Some(entry) = state.history.entries.first() {
            assert!(state.complete_end >= entry.seqno, "recorded before its prefix");
        }
        let is_stored = node.stored.1.recorded == epoch;
        let stored_end = if is_stored { node.stored.1.complete_end } else { Seqno(0) };
        let fence = node
            .data
            .open()
            .into_iter()
            .find(|(_, level)| *level == oribi_types::DurabilityLevel::PersistToMajority);
        if let Some((fence, _)) = fence {
            assert!(seqno < fence || fence <= stored_end, "{fence:?} is not persisted");
        }
        let (copy, complete_end) = (node.id, state.complete_end);
        let active = usize::from(node.record.active.node);
        self.oracle.acknowledged(copy, epoch, seqno);
        let message = PeerMessage::Acknowledge { copy, epoch, seqno, complete_end };
        self.send(number, active, message);
    }
}
