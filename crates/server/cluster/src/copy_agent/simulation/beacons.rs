//! Beacons of the simulation: what the threads of beacons and of the grants do, with datagrams that
//! are late, lost, or cut one way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::World;
use super::node::{BASE_NS, SimNode};
use crate::testing::SteppedBeacon;

/// Time between two looks at the threads.
const BEAT: Duration = Duration::from_millis(20);
/// Longest time of a late datagram.
const LATE_MS_MAX: u64 = 400;

/// A datagram on its way, between nodes of these names.
#[derive(Debug, Clone)]
pub(super) struct SimDatagram {
    from: String,
    to: String,
    beacon: SteppedBeacon,
    late_until_ns: u64,
}

impl World {
    /// Lets time pass in which the threads of beacons and grants run.
    pub(super) fn pass(&mut self, time: Duration) {
        self.pass_with(time, false);
    }

    pub(super) fn pass_with(&mut self, time: Duration, is_random: bool) {
        let looks = u32::try_from(time.as_nanos().div_ceil(BEAT.as_nanos())).unwrap();
        for _ in 0..looks {
            self.jump(time / looks);
            self.beat(is_random);
            self.check_serving();
        }
    }

    /// Delivers datagrams, sends the beacons that are due, and follows the grants. The network of a
    /// test without random faults is fast.
    pub(super) fn beat(&mut self, is_random: bool) {
        let waiting = std::mem::take(&mut self.datagrams);
        waiting.into_iter().for_each(|datagram| self.deliver(datagram, is_random));
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_paused {
                continue;
            }
            let Some(beacon) = self.nodes[at].beat() else { continue };
            let names: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
            for to in names.iter().filter(|to| **to != names[at]) {
                self.dispatch((&names[at], to), beacon, is_random);
            }
        }
        let running = self.nodes.iter().filter(|node| !node.is_paused);
        running.for_each(SimNode::follow_grants);
    }

    /// A datagram leaves its node: it is lost, late or neither.
    fn dispatch(&mut self, (from, to): (&str, &str), beacon: SteppedBeacon, is_random: bool) {
        let (from, to) = (from.to_owned(), to.to_owned());
        let is_cut = self.cut_beacons.contains(&(from.clone(), to.clone()));
        let fate = if is_random { self.random.below(16) } else { 15 };
        if is_cut || fate == 0 {
            return;
        }
        let late_ms = if fate < 4 { self.random.below(LATE_MS_MAX) } else { 0 };
        let late_until_ns = BASE_NS.load(Ordering::SeqCst) + late_ms * 1_000_000;
        self.deliver(SimDatagram { from, to, beacon, late_until_ns }, is_random);
    }

    fn deliver(&mut self, datagram: SimDatagram, is_random: bool) {
        let is_late = BASE_NS.load(Ordering::SeqCst) < datagram.late_until_ns;
        let node = self.nodes.iter().find(|node| node.name == datagram.to && !node.is_paused);
        match node.filter(|_| !is_late) {
            Some(node) => {
                if let Some(answer) = node.take_in(&datagram.from, datagram.beacon) {
                    self.dispatch((&datagram.to, &datagram.from), answer, is_random);
                }
            }
            // It waits on its way, or in the socket.
            None => self.datagrams.push(datagram),
        }
    }
}
