//! Faults of the world.
//!
//! Owns: what goes wrong, and that it ends. A seed chooses a mix: memory that is lost excuses
//! writes in memory, so runs without such losses check those most strictly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_cluster::agreement::Agreement as _;
use oribi_cluster::agreement::memory::LostAnswer;
use oribi_cluster::agreement::{RecordChange, RecordComparison};
use oribi_cluster::testing::{rebalance_request, settings_key};
use oribi_storage::testing::Trouble;

use super::node::{BUCKET, CLUSTER, LEASE_S, ProcessEnd, delay_clocks};
use super::{ClusterWorld, LIMIT, NS_PER_MS};

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
        match self.below(26) {
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
            16 if self.setup.faults == FaultMix::All => {
                let trouble = [Trouble::Failure, Trouble::NoSpace][self.below(2) as usize];
                let after = 1 + self.below(TROUBLE_AFTER_MAX);
                self.nodes[at].disk.plan(after, trouble);
            }
            17 | 18 => self.nodes[at].disk.heal(),
            19 => self.delay_answers(at),
            20 => self.nodes.iter().for_each(|node| node.agreement.delay_answers(None)),
            21 => self.leave(at),
            22 => self.rebalance(),
            _ => self.revive(at),
        }
    }

    /// Answers about sessions take up to most of a lease, and the first may be the last.
    fn delay_answers(&mut self, at: usize) {
        let ns = self.below(LEASE_S * 900) * NS_PER_MS;
        let (base_ns, rate_permille) = (Arc::clone(&self.base_ns), self.nodes[at].rate_permille);
        let is_last = self.below(2) == 0;
        let agreement = Arc::downgrade(&self.nodes[at].agreement);
        let is_over = AtomicBool::new(false);
        let on_answer = move || {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            delay_clocks(&base_ns, ns, rate_permille);
            if let Some(agreement) = agreement.upgrade().filter(|_| is_last) {
                agreement.set_cut(true);
                is_over.store(true, Ordering::SeqCst);
            }
        };
        self.nodes[at].agreement.delay_answers(Some(Box::new(on_answer)));
    }

    /// A node hands everything over, and ends once it has.
    fn leave(&self, at: usize) {
        if let Some(process) = self.nodes[at].process() {
            process.agent.leave();
        }
    }

    fn rebalance(&mut self) {
        if !self.records().is_rebalancing() {
            let put = [rebalance_request(CLUSTER)];
            let written = self.runtime.block_on(self.agreement.transact(&[], &put, LIMIT));
            // Its answer may be lost.
            drop(written);
            self.documents.count("rebalances");
        }
    }

    /// The bucket asks for another number of copies, mostly one that the nodes can hold.
    pub(super) fn resize(&mut self) {
        let replicas = self.below(4);
        let key = settings_key(CLUSTER, BUCKET);
        let found = self.runtime.block_on(self.agreement.get(&key, LIMIT));
        let Ok(Some(found)) = found else { return };
        let settings = serde_json::from_slice(&found.value);
        let mut settings: serde_json::Value = settings.expect("the settings of a bucket");
        settings["replicas"] = replicas.into();
        let unchanged = [RecordComparison::ModifiedAt(key.clone(), found.mod_revision)];
        let put = [RecordChange::put(key, settings.to_string().into_bytes())];
        // Its answer may be lost.
        drop(self.runtime.block_on(self.agreement.transact(&unchanged, &put, LIMIT)));
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
        match end[self.below(3) as usize] {
            ProcessEnd::Orderly => return self.stop(at),
            end => self.end_process(at, end),
        }
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
            self.lose_memory();
        }
    }

    /// Processes end whose disk has lost its power, or that have handed everything over.
    pub(super) fn bury_dead(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(process) = self.nodes[at].process() else { continue };
            let has_left = process.agent.has_left();
            if self.nodes[at].disk.is_off() {
                self.end_process(at, ProcessEnd::PowerLoss);
            } else if has_left && !self.nodes[at].is_paused {
                self.documents.count("hand-overs");
                self.stop(at);
            }
        }
    }

    /// Ends a process in order, if its disk can.
    fn stop(&mut self, at: usize) {
        self.end_process(at, ProcessEnd::Orderly);
        if !self.nodes[at].was_clean() {
            self.lose_memory();
        }
        self.revive(at);
    }

    fn lose_memory(&mut self) {
        self.documents.count("losses of memory");
        self.documents.registers.iter_mut().for_each(|register| register.lose_memory());
    }

    /// Starts a node that has no process.
    pub(super) fn revive(&mut self, at: usize) {
        if self.nodes[at].process.is_some() {
            return;
        }
        self.enter(at);
        let node = &mut self.nodes[at];
        let has_trouble = node.disk.is_trouble_ahead();
        if let Err(error) = node.start() {
            assert!(has_trouble, "a start fails: {error}");
            // The power returns, or an operator frees space or repairs the disk.
            match node.disk.is_off() {
                true => node.disk.restart(),
                false => node.disk.resume(),
            }
            node.start().expect("a sound disk");
        }
        self.check_stored_prepares(at);
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
            self.nodes[at].agreement.delay_answers(None);
            self.nodes[at].disk.heal();
            if self.nodes[at].process().is_some_and(|process| process.agent.is_leaving()) {
                self.stop(at);
            }
            self.revive(at);
        }
    }
}
