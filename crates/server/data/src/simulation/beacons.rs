//! Beacons of the world: datagrams that are late or lost, and cut with the wires.

use oribi_cluster::testing::SteppedBeacon;

use super::ClusterWorld;

/// Time between two looks of the threads of beacons and grants.
const BEAT_MS: u64 = 20;
/// One datagram of so many is lost, and as many are late, while there are faults.
const LOST_OF: u64 = 16;

/// A beacon or an answer on its way, and the numbers of its two nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorldDatagram {
    from: usize,
    to: usize,
    beacon: SteppedBeacon,
}

impl ClusterWorld {
    /// Lets time pass in which the threads of beacons and grants run.
    pub(super) fn pass_beating(&mut self, ms: u64, is_faulty: bool) {
        let mut left_ms = ms;
        while left_ms > 0 {
            let part_ms = left_ms.min(BEAT_MS);
            self.pass(part_ms);
            self.beat(is_faulty);
            left_ms -= part_ms;
        }
    }

    fn beat(&mut self, is_faulty: bool) {
        let waiting = std::mem::take(&mut self.datagrams);
        waiting.into_iter().for_each(|datagram| self.carry(datagram, is_faulty));
        for from in 0..self.nodes.len() {
            self.enter(from);
            let running = self.nodes[from].runs().then(|| self.nodes[from].process.as_mut());
            let beacon = running.flatten().and_then(|process| process.agent.beat());
            let Some(beacon) = beacon else { continue };
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                self.carry(WorldDatagram { from, to, beacon }, is_faulty);
            }
        }
        for at in 0..self.nodes.len() {
            self.enter(at);
            if let Some(process) = self.nodes[at].process().filter(|_| self.nodes[at].runs()) {
                process.agent.follow_grants();
            }
        }
    }

    fn carry(&mut self, datagram: WorldDatagram, is_faulty: bool) {
        let WorldDatagram { from, to, beacon } = datagram;
        let fate = if is_faulty { self.below(LOST_OF) } else { LOST_OF };
        if fate == 0 || self.cut.contains(&(from, to)) || self.nodes[to].process.is_none() {
            return;
        }
        if fate == 1 || self.nodes[to].is_paused {
            return self.datagrams.push(datagram);
        }
        self.enter(to);
        let name = self.nodes[from].name.clone();
        let process = self.nodes[to].process().expect("it has one");
        if let Some(beacon) = process.agent.take_in(&name, beacon) {
            self.carry(WorldDatagram { from: to, to: from, beacon }, is_faulty);
        }
    }
}
