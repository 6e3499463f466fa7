//! Steps of a simulated node that is active: beacons, streams, moves of copies, requests.

use oribi_types::Seqno;

use super::super::super::data::{CopyData, ModelChange};
use super::super::{ClientAction, ClientAnswer, ClientOperation, KEYS, PeerMessage, World};
use super::{BEACON_MS, SNAPSHOT_CHANGES, SUSPICION_MS, WRITE_LIMIT_MS};
use crate::change::CopyChangeKind;
use crate::copies::{CopiesRecord, CopyId};
use crate::machine::SnapshotRange;
use crate::monitor::DurabilityOutcome;

impl World {
    pub(super) fn tick_active(&mut self, number: usize, now_ms: u64) {
        let node = &mut self.nodes[number];
        let record = node.machine().active_record().expect("it is active").clone();
        let is_retired = node.machine().is_retired();
        if now_ms >= node.beacon_ms + BEACON_MS && !is_retired {
            node.beacon_ms = now_ms;
            let (active, epoch) = (node.id, record.epoch);
            for member in record.all().into_iter().filter(|member| *member != active) {
                let beacon = PeerMessage::Beacon { active, epoch, sent_at_ms: now_ms };
                self.send(number, usize::from(member.node), beacon);
            }
        }
        self.complete_writes(number, now_ms);
        self.pump(number);
        let node = &mut self.nodes[number];
        if node.machine().may_answer(now_ms).is_ok() {
            node.heard_ms = now_ms;
        } else if now_ms > node.heard_ms + 2 * SUSPICION_MS || is_retired {
            let long_retired = is_retired && now_ms > node.retired_ms + 800;
            if !is_retired || long_retired {
                self.run_election(number, now_ms);
            }
        }
        self.move_copies(number, now_ms, &record);
    }

    pub(super) fn move_copies(&mut self, number: usize, now_ms: u64, record: &CopiesRecord) {
        let node = &mut self.nodes[number];
        if now_ms < node.proposed_ms + 200 {
            return;
        }
        node.proposed_ms = now_ms;
        if node.machine().is_retired() {
            let high = node.machine().state().high;
            let target = node.hand_over_to;
            if let Some(target) = target
                && node.complete_ends.get(&target) == Some(&high)
            {
                self.propose(record.handed_over(target, high), false);
            }
            return;
        }
        if record.is_joint() {
            let own = (node.id, node.machine().state().recorded, node.stored.1.recorded);
            let epoch = record.epoch;
            let stores = |member: CopyId| match member == own.0 {
                true => own.2 == epoch,
                false => node.stored_epochs.get(&member) == Some(&epoch),
            };
            if record.can_settle(stores) {
                self.propose(record.settled(), false);
            } else if now_ms > node.joint_since_ms + 3000 && record.members.contains(&node.id) {
                self.propose(record.abandoned(), false);
            }
            return;
        }
        if let Some(target) = node.hand_over_to {
            if record.members.contains(&target) {
                node.machine().retire();
                node.retired_ms = now_ms;
                node.waiting.clear();
            } else {
                node.hand_over_to = None;
            }
        } else if let Some((members, configured)) = node.wanted_members.take()
            && (members != record.members || configured != record.configured)
        {
            self.propose(record.resized(members, configured), false);
        }
    }

    pub(super) fn append(
        &mut self,
        number: usize,
        key: u8,
        kind: CopyChangeKind,
        (write, deleted): (u64, bool),
        deadline_ms: Option<u64>,
    ) -> Seqno {
        let node = &mut self.nodes[number];
        let seqno = Seqno(node.machine().state().high.0 + 1);
        let change = ModelChange { seqno, key, kind, write, deleted };
        node.data.apply(&change);
        node.machine().appended(seqno, kind, deadline_ms);
        node.log.push(change);
        if node.log.len() > 40 {
            node.log_begins_after = node.log[9].seqno;
            node.log.drain(..10);
        }
        node.boundary();
        self.check_content(number);
        seqno
    }

    pub(super) fn complete_writes(&mut self, number: usize, now_ms: u64) {
        while let Some(outcome) = self.nodes[number].machine().next_outcome(now_ms) {
            let (prepared, kind) = match outcome {
                DurabilityOutcome::Commit(prepared) => {
                    (prepared, CopyChangeKind::Commit { prepared })
                }
                DurabilityOutcome::Abort(prepared) => {
                    (prepared, CopyChangeKind::Abort { prepared })
                }
            };
            let node = &mut self.nodes[number];
            let prepare = *node.data.prepares.get(&prepared).expect("outcomes are of open writes");
            let record = node.machine().active_record().expect("it is active").clone();
            let is_commit = matches!(outcome, DurabilityOutcome::Commit(_));
            if is_commit {
                self.oracle.may_commit(&record, prepared);
                self.oracle.committed(prepare.key, prepare.write, record.epoch);
            }
            self.append(number, prepare.key, kind, (prepare.write, prepare.deleted), None);
            let waiting = self.nodes[number].waiting.remove(&prepared);
            if let Some(operation) = waiting.filter(|_| is_commit) {
                self.answer(operation, ClientAnswer::Done);
            }
        }
    }

    /// Sends the next snapshot of each stream.
    pub(super) fn pump(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let high = node.machine().state().high;
        let high_completed = node.machine().state().high_completed;
        let mut outbound = std::mem::take(&mut node.outbound);
        outbound.retain(|_, (to, sender)| sender.generations == self.generations(number, *to));
        for (stream, (to, sender)) in &mut outbound {
            let (stream, to) = (*stream, *to);
            let node = &self.nodes[number];
            if sender.sent >= high && !sender.from_disk {
                continue;
            }
            let from_disk = sender.from_disk || sender.sent < node.log_begins_after;
            let (end, changes) = match from_disk {
                true => (high, disk_changes(&node.data, sender.sent)),
                false => memory_changes(&node.log, sender.sent),
            };
            (sender.sent, sender.from_disk) = (end, false);
            let range = SnapshotRange { end, from_disk, high_completed };
            self.send(number, to, PeerMessage::Marker { stream, range });
            for change in changes {
                self.send(number, to, PeerMessage::Change { stream, change });
            }
            if from_disk {
                self.send(number, to, PeerMessage::SnapshotEnd { stream });
            }
        }
        self.nodes[number].outbound = outbound;
    }

    pub(in super::super) fn serve(&mut self, number: usize, operation: ClientOperation) {
        let now_ms = self.local_ms(number);
        let ClientOperation { id, key, action, .. } = operation;
        let node = &mut self.nodes[number];
        let prepare = node.data.prepare_of(key);
        if let ClientAction::Read = action {
            if node.machine().may_read(prepare.map(|(seqno, _)| seqno), now_ms).is_err() {
                self.answer(operation, ClientAnswer::Rejected);
                return;
            }
            let value = node.data.visible(key);
            if key < KEYS {
                self.oracle.read(key, node.data.last_write(key), operation.required);
            }
            self.answer(operation, ClientAnswer::Value(value));
            return;
        }
        let is_possible = key >= KEYS || node.machine().is_durability_possible();
        let is_open = prepare.is_some();
        if node.machine().may_answer(now_ms).is_err() || !is_possible || is_open {
            self.answer(operation, ClientAnswer::Rejected);
            return;
        }
        let (deleted, level) = match action {
            ClientAction::Swap { expected, .. } if expected != node.data.visible(key) => {
                self.answer(operation, ClientAnswer::Rejected);
                return;
            }
            ClientAction::Swap { level, .. } => (false, level),
            ClientAction::Write { deleted, level } => (deleted, level),
            ClientAction::Read => return,
        };
        if key >= KEYS {
            self.append(number, key, CopyChangeKind::Mutation, (id, deleted), None);
            self.answer(operation, ClientAnswer::Done);
            return;
        }
        self.oracle.prepared(id, level);
        let deadline_ms = Some(now_ms + WRITE_LIMIT_MS);
        let kind = CopyChangeKind::Prepare(level);
        let seqno = self.append(number, key, kind, (id, deleted), deadline_ms);
        self.nodes[number].waiting.insert(seqno, operation);
        self.complete_writes(number, now_ms);
    }
}

/// A snapshot from disk: the newest versions, and open prepares.
fn disk_changes(data: &CopyData, after: Seqno) -> Vec<ModelChange> {
    let versions = data.table.iter().map(|(key, version)| ModelChange {
        seqno: version.seqno,
        key: *key,
        kind: CopyChangeKind::Mutation,
        write: version.write,
        deleted: version.deleted,
    });
    let prepares = data.prepares.iter().map(|(seqno, prepare)| ModelChange {
        seqno: *seqno,
        key: prepare.key,
        kind: CopyChangeKind::Prepare(prepare.level),
        write: prepare.write,
        deleted: prepare.deleted,
    });
    let mut changes: Vec<_> =
        versions.chain(prepares).filter(|change| change.seqno > after).collect();
    changes.sort_by_key(|change| change.seqno);
    changes
}

/// A snapshot from memory, without changes that a later one replaces.
fn memory_changes(log: &[ModelChange], after: Seqno) -> (Seqno, Vec<ModelChange>) {
    let newer = log.iter().filter(|change| change.seqno > after);
    let unit: Vec<_> = newer.take(SNAPSHOT_CHANGES).copied().collect();
    let end = unit.last().expect("there are newer changes").seqno;
    let is_replaced = |change: &ModelChange| {
        unit.iter().any(|later| {
            later.key == change.key
                && later.seqno > change.seqno
                && later.kind.replaces(change.kind)
        })
    };
    let kept = unit.iter().filter(|change| !is_replaced(change)).copied().collect();
    (end, kept)
}
