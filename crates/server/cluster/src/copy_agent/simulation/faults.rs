//! Faults of the simulation, and what operators do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oribi_types::Vbid;

use super::disk::VBUCKETS;
use super::node::{LEASE_S, SimClock, SimNode};
use super::{LIMIT, STEP, World};
use crate::agreement::memory::LostAnswer;
use crate::agreement::{Agreement as _, RecordChange};
use crate::copies::record::FailoverRequest;

/// Time steps without a node: enough for a promotion, less than a lease.
const SUSPENDED_STEPS: usize = 10;

impl World {
    pub(super) fn fault(&mut self) {
        let at = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
        match self.random.below(26) {
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
            9 => self.jump(Duration::from_secs(LEASE_S)),
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
            18 | 19 => {
                let to = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
                let pair = (self.nodes[at].name.clone(), self.nodes[to].name.clone());
                self.cut_beacons.insert(pair);
            }
            20 => self.cut_beacons.clear(),
            21 => self.suspend(at),
            22 => self.restart(at, true),
            24 | 25 => self.isolate(at),
            23 => {
                // A node that comes back while its last grants run, and others do not hear a third.
                let silent = (at + 1) % self.nodes.len();
                self.nodes[silent].is_paused = true;
                self.restart(at, true);
                for _ in 0..SUSPENDED_STEPS / 2 {
                    (0..self.nodes.len()).for_each(|other| self.tick(other));
                    self.pass_with(STEP, true);
                }
            }
            16 => self.nodes[at].disk.is_full.store(true, Ordering::SeqCst),
            _ => self.nodes[at].disk.is_full.store(false, Ordering::SeqCst),
        }
    }

    /// No node hears this one, which runs, and does not reach agreement either.
    fn isolate(&mut self, at: usize) {
        let name = self.nodes[at].name.clone();
        let others = self.nodes.iter().filter(|node| node.name != name);
        let cut: Vec<_> = others.map(|node| (name.clone(), node.name.clone())).collect();
        self.cut_beacons.extend(cut);
        self.nodes[at].agreement.set_cut(true);
        for _ in 0..SUSPENDED_STEPS {
            (0..self.nodes.len()).for_each(|other| self.tick(other));
            self.pass_with(STEP, true);
        }
        self.nodes[at].agreement.set_cut(false);
        self.cut_beacons.clear();
    }

    /// A node is away for as long as others need to suspect it, and to promote other copies.
    fn suspend(&mut self, at: usize) {
        self.nodes[at].is_paused = true;
        for _ in 0..SUSPENDED_STEPS {
            for other in 0..self.nodes.len() {
                self.tick(other);
                self.stream(other);
            }
            self.pass_with(STEP, true);
        }
        let vbid = Vbid(u16::try_from(self.random.below(VBUCKETS.into())).unwrap());
        self.write(vbid);
        self.nodes[at].is_paused = false;
    }

    pub(super) fn cut_link(&mut self, active: usize, follower: usize) {
        let name = |at: usize| self.nodes[at].name.clone();
        self.cut.insert((name(active), name(follower)));
    }

    pub(super) fn restart(&mut self, at: usize, is_clean: bool) {
        let old = self.nodes.remove(at);
        let (name, disk) = (old.name.clone(), Arc::clone(&old.disk));
        // The process ends, or its machine does, whose clock begins anew.
        let boot_ns = if self.random.below(2) == 0 { old.clock.boot_ns } else { 1 };
        let clock = SimClock { boot_ns, ..old.clock };
        if is_clean {
            self.runtime.block_on(old.end_session());
        }
        drop(old);
        disk.stop(is_clean);
        self.end_links(&name);
        let node = SimNode::start(&name, disk, &self.agreement, clock);
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
