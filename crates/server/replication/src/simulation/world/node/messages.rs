//! Messages of peers that a simulated node receives.

use oribi_types::Seqno;

use super::super::super::data::{CopyData, ModelChange};
use super::super::{PeerMessage, World};
use super::OutboundStream;
use crate::change::{Rewind, rewind};
use crate::history::Resume;
use crate::machine::ReceivedChange;

impl World {
    pub(in super::super) fn deliver(&mut self, from: usize, number: usize, message: PeerMessage) {
        let now_ms = self.local_ms(number);
        match message {
            PeerMessage::StreamRequest { copy, stream, epoch, point, from_disk } => {
                let node = &mut self.nodes[number];
                let Some(acceptance) = node.machine().acceptance(epoch) else { return };
                let resume = self.resume(number, point).expect("the node is up");
                match resume {
                    Resume::From(sent) => {
                        let generations = self.generations(number, from);
                        let node = &mut self.nodes[number];
                        node.outbound.retain(|_, (to, _)| *to != from);
                        let sender = OutboundStream { copy, epoch, sent, from_disk, generations };
                        assert_eq!(sender.epoch, acceptance.epoch);
                        assert_eq!(usize::from(sender.copy.node), from);
                        node.outbound.insert(stream, (from, sender));
                        let accepted = PeerMessage::StreamAccepted { stream, acceptance };
                        self.send(number, from, accepted);
                    }
                    Resume::Rollback(to) => {
                        self.send(number, from, PeerMessage::StreamRollback { stream, to });
                    }
                }
            }
            PeerMessage::VersionsRequest { stream, epoch, keys, to } => {
                let node = &mut self.nodes[number];
                if node.machine().acceptance(epoch).is_none() {
                    return;
                }
                let high_completed = node.machine().state().high_completed;
                let versions =
                    keys.iter().map(|key| (*key, node.data.table.get(key).copied())).collect();
                let prepares = node.data.prepares.range(..=to).map(|(s, p)| (*s, *p)).collect();
                let open = CopyData { prepares, ..CopyData::default() };
                let answer = PeerMessage::Versions { stream, to, versions, open, high_completed };
                self.send(number, from, answer);
            }
            PeerMessage::Acknowledge { copy, epoch, seqno, complete_end } => {
                let node = &mut self.nodes[number];
                if node.machine().acceptance(epoch).is_some() {
                    node.complete_ends.insert(copy, complete_end);
                }
                node.machine().acknowledged(copy, epoch, seqno);
                self.complete_writes(number, now_ms);
            }
            PeerMessage::Beacon { active, epoch, sent_at_ms } => {
                let node = &mut self.nodes[number];
                let Some(grant) = node.machine().grant(epoch, sent_at_ms, now_ms) else { return };
                node.heard_ms = now_ms;
                let copy = node.id;
                self.send(number, usize::from(active.node), PeerMessage::Granted { copy, grant });
            }
            PeerMessage::Granted { copy, grant } => {
                let node = &mut self.nodes[number];
                if node.machine().acceptance(grant.epoch).is_some() {
                    node.stored_epochs.insert(copy, grant.stored_epoch);
                }
                node.machine().receive_grant(copy, grant);
            }
            PeerMessage::PromiseRequest { epoch } => {
                let node = &mut self.nodes[number];
                if node.machine().promise(epoch, now_ms) {
                    node.inbound = None;
                    node.is_following = false;
                    node.waiting.clear();
                    node.outbound.clear();
                    node.candidates.push((from, epoch));
                    self.store_promise(number);
                }
            }
            PeerMessage::Promised { copy, epoch, report } => {
                let node = &mut self.nodes[number];
                let Some(election) = &mut node.election else { return };
                if election.epoch() != epoch {
                    return;
                }
                election.promised(copy, report);
                if let Some(record) = election.decided() {
                    self.propose(record, true);
                }
            }
            stream => self.deliver_stream(from, number, stream),
        }
    }

    fn deliver_stream(&mut self, from: usize, number: usize, message: PeerMessage) {
        let node = &mut self.nodes[number];
        let inbound = node.inbound;
        match message {
            PeerMessage::StreamAccepted { stream, acceptance } if inbound == Some(stream) => {
                let open = node.data.open();
                if node.machine().accept_stream(acceptance, open).is_ok() {
                    node.boundary();
                    self.check_content(number);
                    self.acknowledge(number);
                }
            }
            PeerMessage::StreamRollback { stream, to } if inbound == Some(stream) => {
                self.counts.rewinds += 1;
                if to == Seqno(0) || self.random.chance(300) {
                    self.rewound(number, Seqno(0), Seqno(0), CopyData::default());
                    return;
                }
                let node = &self.nodes[number];
                let local = node.data.table.iter().filter(|(_, version)| version.seqno > to);
                let keys = local.map(|(key, _)| *key).collect();
                let epoch = node.record.epoch;
                let request = PeerMessage::VersionsRequest { stream, epoch, keys, to };
                self.send(number, from, request);
            }
            PeerMessage::Versions { stream, to, versions, open, high_completed }
                if inbound == Some(stream) =>
            {
                let mut data = node.data.clone();
                for (key, version) in versions {
                    match rewind(version.map(|version| version.seqno), to) {
                        Rewind::Install => {
                            data.table.insert(key, version.expect("it has a seqno"));
                        }
                        Rewind::Forget => {
                            data.table.remove(&key);
                        }
                    }
                }
                data.prepares = open.prepares;
                self.rewound(number, to, high_completed, data);
            }
            PeerMessage::Marker { stream, range } if inbound == Some(stream) => {
                node.buffered.clear();
                if node.machine().marker(range).is_err() {
                    node.inbound = None;
                }
            }
            PeerMessage::Change { stream, change } if inbound == Some(stream) => {
                self.receive(number, change);
            }
            PeerMessage::SnapshotEnd { stream } if inbound == Some(stream) => {
                let node = &mut self.nodes[number];
                node.machine().snapshot_applied();
                let completed = node.machine().state().high_completed;
                node.data.prepares.retain(|seqno, _| *seqno > completed);
                node.boundary();
                self.check_content(number);
                self.acknowledge(number);
            }
            _ => {}
        }
    }

    fn rewound(&mut self, number: usize, to: Seqno, high_completed: Seqno, data: CopyData) {
        let node = &mut self.nodes[number];
        node.machine().roll_back(to, high_completed);
        node.data = data;
        node.boundary();
        self.request_stream(number);
    }

    fn receive(&mut self, number: usize, change: ModelChange) {
        let node = &mut self.nodes[number];
        match node.machine().received(change.seqno) {
            Err(_) => {
                node.inbound = None;
                return;
            }
            Ok(ReceivedChange::Buffer) => {
                node.buffered.push(change);
                self.acknowledge(number);
                return;
            }
            Ok(ReceivedChange::Apply) => {
                node.data.apply(&change);
                node.machine().applied(change.seqno, change.kind);
                node.boundary();
                return;
            }
            Ok(ReceivedChange::ApplySnapshot) => node.buffered.push(change),
        }
        for change in std::mem::take(&mut node.buffered) {
            node.data.apply(&change);
            node.machine().applied(change.seqno, change.kind);
        }
        node.machine().snapshot_applied();
        node.boundary();
        self.check_content(number);
        self.acknowledge(number);
    }
}
