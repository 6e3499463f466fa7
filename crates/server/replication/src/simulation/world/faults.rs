//! Faults of one simulated world, and plans: new members and hand-overs.

use super::{END_US, World, WorldEvent};

impl World {
    pub(super) fn fault(&mut self) {
        if self.is_healed {
            return;
        }
        let gap = self.random.range(1000, 2 * self.fault_gap_us);
        self.at(gap, WorldEvent::Fault);
        let count = self.nodes.len() as u64;
        let node = match self.random.chance(500) {
            true => usize::from(self.record.active.node),
            false => self.random.below(count) as usize,
        };
        let other = self.random.below(count) as usize;
        let long_us = self.random.range(50_000, 3_000_000);
        match self.random.below(12) {
            0 | 1 => self.stop(node, false, long_us),
            2 => self.stop(node, true, long_us),
            3 => {
                let until_us = &mut self.nodes[node].paused_until_us;
                *until_us = (*until_us).max(self.now_us + long_us / 2);
            }
            4 => self.cut(node, other, long_us),
            5 => {
                for other in 0..self.nodes.len() {
                    self.cut(node, other, long_us);
                    self.cut(other, node, long_us);
                }
            }
            6 => {
                for other in 0..self.nodes.len() {
                    self.cut(node, other, long_us);
                }
            }
            7 => self.links[node][other].generation += 1,
            8 => self.links[node][other].delay_us = self.random.below(400_000),
            9 => self.links.iter_mut().flatten().for_each(|link| link.delay_us = 0),
            10 => self.nodes[node].disk_stalled_until_us = self.now_us + long_us,
            _ => self.agreement_away_until_us = self.now_us + long_us / 2,
        }
    }

    fn cut(&mut self, from: usize, to: usize, long_us: u64) {
        let link = &mut self.links[from][to];
        link.cut_until_us = self.now_us + long_us;
        link.generation += 1;
    }

    fn stop(&mut self, node: usize, cleanly: bool, long_us: u64) {
        if !self.nodes[node].is_up {
            return;
        }
        if !cleanly {
            self.counts.crashes += 1;
        }
        self.end_process(node, cleanly);
        self.at(long_us, WorldEvent::Restart { node, cleanly });
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.links.iter_mut().flatten().for_each(|link| {
            link.cut_until_us = 0;
            link.delay_us = 0;
        });
        self.agreement_away_until_us = 0;
        // A pause ends by itself: messages to the node wait for that moment, and stay in order.
        for node in &mut self.nodes {
            node.disk_stalled_until_us = 0;
        }
    }

    /// Chooses new members, or another active.
    pub(super) fn plan(&mut self) {
        let gap = self.random.range(300_000, 2_500_000);
        if self.now_us + gap < END_US - 2_000_000 {
            self.at(gap, WorldEvent::Plan);
        }
        let active = usize::from(self.record.active.node);
        let (configured, is_healed) = (self.record.configured, self.is_healed);
        let is_complete = self.record.members.len() == configured && !self.record.is_joint();
        if is_healed && is_complete || !self.is_reign(&self.record) {
            return;
        }
        if !is_healed && !self.record.is_joint() && self.random.chance(300) {
            let members = self.record.members.clone();
            let target = members[self.random.below(members.len() as u64) as usize];
            if usize::from(target.node) != active {
                self.nodes[active].hand_over_to = Some(target);
            }
            return;
        }
        if !is_healed && self.random.chance(200) {
            self.resize(active);
            return;
        }
        let mut members = vec![self.nodes[active].id];
        let size = match self.random.chance(200) && !is_healed {
            true => configured.saturating_sub(1).max(1),
            false => configured,
        };
        let mut others: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
        others.retain(|id| *id != members[0]);
        while members.len() < size && !others.is_empty() {
            let chosen = self.random.below(others.len() as u64) as usize;
            members.push(others.swap_remove(chosen));
        }
        members.sort_unstable();
        self.nodes[active].wanted_members = Some((members, configured));
    }

    /// Chooses another number of configured copies, mostly for the present members, which others
    /// join or leave later.
    fn resize(&mut self, active: usize) {
        let most = self.nodes.len().min(4);
        let configured = [1, 2, 3, 3, 4, 4][self.random.below(6) as usize].min(most);
        let mut members = self.record.members.clone();
        if self.random.chance(300) {
            let others = self.nodes.iter().map(|node| node.id);
            let mut others: Vec<_> = others.filter(|id| !members.contains(id)).collect();
            let own = self.nodes[active].id;
            while members.len() < configured && !others.is_empty() {
                let chosen = self.random.below(others.len() as u64) as usize;
                members.push(others.swap_remove(chosen));
            }
            members.retain(|id| *id == own || self.random.chance(800));
            members.sort_unstable();
        }
        self.nodes[active].wanted_members = Some((members, configured));
    }
}
