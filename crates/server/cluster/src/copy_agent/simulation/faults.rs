//! Faults of the simulation, and what operators do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::node::{LEASE_S, SimNode};
use super::{LIMIT, World};
use crate::agreement::memory::LostAnswer;
use crate::agreement::{Agreement as _, RecordChange};
use crate::copies::record::FailoverRequest;

impl World {
    pub(super) fn fault(&mut self) {
        let at = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
        match self.random.below(18) {
            0 => self.nodes[at].is_paused = true,
            1 | 2 => self.nodes[at].is_paused = false,
            3 => self.nodes[at].agreement.set_cut(true),
            4 | 5 => self.nodes[at].agreement.set_cut(false),
            6 => {
                let kind = match self.random.below(3) {
                    0 => LostAnswer::Applied,
                    1 => LostAnswer::NotApplied,
                    _ => LostAnswer::AppliedLater,
                };
                self.agreement.lose_answer(kind);
            }
            7 => self.agreement.deliver_late(),
            8 => self.restart(at, false),
            9 => self.pass(Duration::from_secs(LEASE_S)),
            10 => {
                let name = self.nodes[at].name.clone();
                self.request_failover(&name);
            }
            11 => self.clear_refused(),
            12 | 13 => self.nodes[at].disk.sync(),
            14 => {
                let to = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
                self.cut_link(at, to);
            }
            15 => self.cut.clear(),
            16 => self.nodes[at].disk.is_full.store(true, Ordering::SeqCst),
            _ => self.nodes[at].disk.is_full.store(false, Ordering::SeqCst),
        }
    }

    pub(super) fn cut_link(&mut self, active: usize, follower: usize) {
        let name = |at: usize| self.nodes[at].name.clone();
        self.cut.insert((name(active), name(follower)));
    }

    pub(super) fn restart(&mut self, at: usize, is_clean: bool) {
        let old = self.nodes.remove(at);
        let (name, disk) = (old.name.clone(), Arc::clone(&old.disk));
        drop(old);
        disk.stop(is_clean);
        self.end_links(&name);
        let node = SimNode::start(&name, disk, &self.agreement);
        self.nodes.insert(at, node);
        self.forget_lost();
    }

    /// Writes that no member has any more, because all that had them ended before they were on a
    /// disk, are lost by right.
    pub(super) fn forget_lost(&mut self) {
        let roster = self.roster();
        let records = self.records();
        let World { safe, nodes, .. } = self;
        for (vbid, epochs) in safe {
            let members = records.get(vbid).map_or(&[][..], |record| &record.members);
            let logs: BTreeSet<u64> = members
                .iter()
                .filter_map(|copy| {
                    let has_number = |node: &&SimNode| {
                        roster.number(&node.name, node.disk.id()) == Some(copy.node)
                    };
                    nodes.iter().find(has_number)?.disk.log(*vbid)
                })
                .flatten()
                .collect();
            epochs.values_mut().for_each(|writes| writes.retain(|write| logs.contains(write)));
        }
    }

    pub(super) fn request_failover(&self, name: &str) {
        let request = FailoverRequest::new(name, false).encode();
        let put = [RecordChange::put(self.keys.failover(), request)];
        let _ = self.runtime.block_on(self.agreement.transact(&[], &put, LIMIT));
    }

    pub(super) fn failover(&self) -> Option<FailoverRequest> {
        let key = self.keys.failover();
        let found = self.agreement.get(&key, LIMIT);
        let found = self.runtime.block_on(found).unwrap()?;
        Some(FailoverRequest::decode(&found.value).unwrap())
    }

    pub(super) fn clear_refused(&self) {
        if self.failover().is_some_and(|request| request.refused.is_some()) {
            self.clear_failover();
        }
    }

    pub(super) fn clear_failover(&self) {
        let gone = [RecordChange::delete(self.keys.failover())];
        let _ = self.runtime.block_on(self.agreement.transact(&[], &gone, LIMIT));
    }
}
