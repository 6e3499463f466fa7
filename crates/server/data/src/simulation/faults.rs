//! Faults of the world.
//!
//! Owns: what goes wrong, and that it ends. A seed chooses a mix: memory that is lost excuses
//! writes in memory, so runs without such losses check those most strictly.

use oribi_cluster::agreement::memory::LostAnswer;
use oribi_storage::testing::Trouble;

use super::ClusterWorld;
use super::node::{LEASE_S, ProcessEnd};

/// Disk steps until planned trouble comes, at most.
const TROUBLE_AFTER_MAX: u64 = 40;

/// Which faults a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultMix {
    /// Links and pauses; no process ends.
    Wires,
    /// One process ends, and nothing else of the kind.
    OneLoss,
    All,
}

impl FaultMix {
    pub(super) fn of(seed: u64) -> FaultMix {
        [FaultMix::Wires, FaultMix::OneLoss, FaultMix::All][(seed / 8 % 3) as usize]
    }
}

impl ClusterWorld {
    pub(super) fn fault(&mut self, at: usize) {
        let other = self.below(self.nodes.len() as u64) as usize;
        match self.below(18) {
            0 => self.nodes[at].is_paused = self.nodes[at].process.is_some(),
            1 | 2 => self.nodes.iter_mut().for_each(|node| node.is_paused = false),
            3 => self.nodes[at].agreement.set_cut(true),
            4 | 5 => self.nodes.iter().for_each(|node| node.agreement.set_cut(false)),
            6 => {
                let lost = [LostAnswer::Applied, LostAnswer::NotApplied, LostAnswer::AppliedLater];
                let lost = lost[self.below(3) as usize];
                self.agreement.lose_answer(lost);
            }
            7 => self.agreement.deliver_late(),
            8 if at != other => drop(self.cut.insert((at, other))),
            8 | 9 => self.cut.clear(),
            10 | 11 => self.reset_links(at),
            12 => self.pass(LEASE_S * 1000),
            13 | 14 => self.restart(at),
            15 if self.may_lose_memory() => {
                let after = 1 + self.below(TROUBLE_AFTER_MAX);
                self.nodes[at].disk.plan(after, Trouble::PowerLoss);
            }
            _ => self.revive(at),
        }
    }

    fn may_lose_memory(&self) -> bool {
        match self.setup.faults {
            FaultMix::Wires => false,
            FaultMix::OneLoss => !self.documents.counts.contains_key("losses of memory"),
            FaultMix::All => true,
        }
    }

    fn restart(&mut self, at: usize) {
        if self.nodes[at].process.is_none() || !self.may_lose_memory() {
            return;
        }
        let end = [ProcessEnd::PowerLoss, ProcessEnd::Kill, ProcessEnd::Orderly];
        let end = end[self.below(3) as usize];
        self.end_process(at, end);
        if self.below(2) == 0 {
            self.revive(at);
        }
    }

    pub(super) fn end_process(&mut self, at: usize, end: ProcessEnd) {
        self.enter(at);
        self.disconnect(at);
        let now_ms = self.now_ms();
        self.nodes[at].end(end);
        let name = self.nodes[at].name.clone();
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            if let Some(link) = process.links.get_mut(&name) {
                link.reset(now_ms);
            }
        }
        if end != ProcessEnd::Orderly {
            self.documents.count("losses of memory");
            self.documents.registers.iter_mut().for_each(|register| register.lose_memory());
        }
    }

    /// Processes whose disk has lost its power end.
    pub(super) fn bury_dead(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].process.is_some() && self.nodes[at].disk.is_off() {
                self.end_process(at, ProcessEnd::PowerLoss);
            }
        }
    }

    /// Starts a node that has no process.
    pub(super) fn revive(&mut self, at: usize) {
        if self.nodes[at].process.is_some() {
            return;
        }
        self.enter(at);
        let node = &mut self.nodes[at];
        if let Err(error) = node.start() {
            assert!(node.disk.is_off(), "a start fails: {error}");
            node.disk.restart();
            node.start().expect("a sound disk");
        }
    }

    fn reset_links(&mut self, at: usize) {
        let now_ms = self.now_ms();
        if let Some(process) = &mut self.nodes[at].process {
            process.links.values_mut().for_each(|link| link.reset(now_ms));
        }
    }

    pub(super) fn end_faults(&mut self) {
        self.cut.clear();
        self.agreement.deliver_late();
        self.agreement.forget_faults();
        for at in 0..self.nodes.len() {
            self.nodes[at].is_paused = false;
            self.nodes[at].agreement.set_cut(false);
            self.nodes[at].disk.heal();
            self.revive(at);
        }
    }
}
