//! Which replica of a tablet gets the next attempt of one call.
//!
//! Pure. For a call that needs the leader: the replica believed to lead; when that one failed or said that
//! it does not lead, each other replica in turn, and the one that is tried is believed to lead from then
//! on, so that other calls follow at once; when all have been tried, the master is asked, and everything starts
//! again. A scan that any replica may serve goes to a near one instead. Invariant: between two answers of the
//! master no replica is tried twice after it refused.

use crate::meta_cache::{Replica, ReplicaSet};

/// Which replicas may serve a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplicaSelection {
    /// Only the leader, which has every acknowledged write.
    #[default]
    Leader,
    /// The leader or a follower, a near one first; a follower may lag behind.
    Closest,
    /// The leader or a follower in the order in which the master lists them.
    First,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Send the call to the replica with this index.
    Replica(usize),
    /// No replica is left: ask the master for newer ones.
    AskMaster,
}

/// What one call has learnt about the replicas of its tablet.
#[derive(Debug, Default)]
pub(crate) struct ReplicaPicker {
    selection: ReplicaSelection,
    /// Bit i: replica i refused this call since the master was asked last.
    refused: u64,
}

impl ReplicaPicker {
    /// A picker that has tried nothing yet.
    pub(crate) fn new(selection: ReplicaSelection) -> ReplicaPicker {
        ReplicaPicker { selection, refused: 0 }
    }

    /// The next replica to try; `client_location` is where this client is, if the cluster assigns places.
    pub(crate) fn pick(&self, replicas: &ReplicaSet, client_location: &str) -> Pick {
        let usable = |index: usize| !replicas.has_failed(index) && !self.has_refused(index);
        let candidates = (0..replicas.all().len()).filter(|index| usable(*index));
        let found = match self.selection {
            ReplicaSelection::Leader => {
                replicas.leader().filter(|leader| usable(*leader)).or_else(|| self.guess(replicas))
            }
            ReplicaSelection::First => candidates.min(),
            ReplicaSelection::Closest => candidates.min_by_key(|index| {
                distance(
                    &replicas.all()[*index],
                    client_location,
                    replicas.leader() == Some(*index),
                )
            }),
        };
        found.map_or(Pick::AskMaster, Pick::Replica)
    }

    /// The replica answered that it does not lead or cannot serve the tablet now.
    pub(crate) fn refuse(&mut self, replicas: &ReplicaSet, index: usize) {
        replicas.mark_follower(index);
        if index < 64 {
            self.refused |= 1 << index;
        }
    }

    /// The master was asked: every replica gets another chance.
    pub(crate) fn forget(&mut self) {
        self.refused = 0;
    }

    fn has_refused(&self, index: usize) -> bool {
        index >= 64 || self.refused & (1 << index) != 0
    }

    fn guess(&self, replicas: &ReplicaSet) -> Option<usize> {
        let index = (0..replicas.all().len())
            .find(|index| !replicas.has_failed(*index) && !self.has_refused(*index))?;
        replicas.mark_leader(index);
        Some(index)
    }
}

/// Smaller is nearer: this machine, then the same place, then the rest; among equals the leader, which
/// does not lag.
fn distance(replica: &Replica, client_location: &str, is_leader: bool) -> (u8, bool) {
    let nearness = match () {
        () if is_loopback(&replica.address.host) => 0,
        () if !client_location.is_empty() && replica.location == client_location => 1,
        () => 2,
    };
    (nearness, !is_leader)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta_cache::test_replicas as replicas;

    #[test]
    fn a_write_goes_to_the_leader_then_around_and_then_asks_the_master() {
        let set = ReplicaSet::new(replicas(3, Some(1)));
        let mut picker = ReplicaPicker::new(ReplicaSelection::Leader);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(1));
        picker.refuse(&set, 1);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(0));
        set.mark_failed(0);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(2));
        // Another call follows the guess without having asked anybody.
        assert_eq!(ReplicaPicker::new(ReplicaSelection::Leader).pick(&set, ""), Pick::Replica(2));
        picker.refuse(&set, 2);
        assert_eq!(picker.pick(&set, ""), Pick::AskMaster);
        picker.forget();
        assert_eq!(picker.pick(&set, ""), Pick::Replica(1));
    }

    #[test]
    fn without_a_leader_the_first_replica_is_tried() {
        let set = ReplicaSet::new(replicas(2, None));
        let picker = ReplicaPicker::new(ReplicaSelection::Leader);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(0));
        assert_eq!(set.leader(), Some(0));
        assert_eq!(
            ReplicaPicker::new(ReplicaSelection::Leader).pick(&ReplicaSet::new(Vec::new()), ""),
            Pick::AskMaster
        );
    }

    #[test]
    fn a_scan_prefers_this_machine_then_its_place_then_the_leader() {
        let mut list = replicas(4, Some(3));
        list[1].address.host = "127.0.0.1".to_owned();
        list[2].location = "/here".to_owned();
        let set = ReplicaSet::new(list);
        let mut picker = ReplicaPicker::new(ReplicaSelection::Closest);
        let mut order = Vec::new();
        while let Pick::Replica(index) = picker.pick(&set, "/here") {
            order.push(index);
            picker.refuse(&set, index);
        }
        assert_eq!(order, [1, 2, 3, 0]);
        assert_eq!(
            ReplicaPicker::new(ReplicaSelection::First).pick(&set, "/here"),
            Pick::Replica(0)
        );
    }
}
