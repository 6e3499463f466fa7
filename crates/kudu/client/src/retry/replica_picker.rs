//! Chooses the replica for the next attempt of one call.
//!
//! The picker is pure. A Write goes to the presumed leader. If that one failed or denied
//! leadership, the Write tries each other replica in turn, and other Writes follow it at once.
//! After all of them it looks the tablet up at the master and starts again. Guessing is safe for a
//! Write, because a follower refuses it. A follower answers a read with its own data. A read that
//! needs the leader therefore never goes to a guessed replica: the picker looks the tablet up at
//! once. A scan that any replica may serve goes to a near one. Invariant: between two answers of
//! the master no replica is tried again after it refused.

use crate::meta_cache::{Replica, ReplicaSet};

/// Which replicas may serve a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaSelection {
    /// Only the leader, which has every acknowledged write.
    #[default]
    Leader,
    /// The leader or a follower, a near one first; a follower may lag behind.
    Closest,
    /// The leader or a follower, in the master's order.
    First,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Send the call to the replica with this index.
    Replica(usize),
    /// No replica is left: ask the master for newer ones.
    AskMaster,
}

/// One call's state of its tablet's replicas.
#[derive(Debug, Default)]
pub(crate) struct ReplicaPicker {
    selection: ReplicaSelection,
    /// A follower refuses the call, so guessing does no harm.
    may_guess: bool,
    /// Bit i: replica i has refused this call since the last question to the master.
    refused: u64,
}

impl ReplicaPicker {
    /// A picker for a read, before the first attempt.
    pub(crate) fn of_read(selection: ReplicaSelection) -> ReplicaPicker {
        ReplicaPicker { selection, may_guess: false, refused: 0 }
    }

    /// A picker for a call that only a leader executes, before the first attempt.
    pub(crate) fn of_write() -> ReplicaPicker {
        ReplicaPicker { selection: ReplicaSelection::Leader, may_guess: true, refused: 0 }
    }

    /// The next replica to try; `client_location` is this client's location, if the cluster assigns
    /// one.
    pub(crate) fn pick(&self, replicas: &ReplicaSet, client_location: &str) -> Pick {
        let usable = |index: usize| !replicas.has_failed(index) && !self.has_refused(index);
        let candidates = (0..replicas.all().len()).filter(|index| usable(*index));
        let found = match self.selection {
            ReplicaSelection::Leader if self.may_guess => replicas
                .leader()
                .filter(|leader| usable(*leader))
                .or_else(|| replicas.guess().filter(|guess| usable(*guess)))
                .or_else(|| candidates.min().inspect(|guess| replicas.mark_guess(*guess))),
            ReplicaSelection::Leader => replicas.leader().filter(|leader| usable(*leader)),
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

    /// The replica executed the call.
    pub(crate) fn accept(&self, replicas: &ReplicaSet, index: usize) {
        if self.may_guess {
            replicas.mark_leader(index);
        }
    }

    /// The replica answered that it does not lead or cannot serve the tablet now.
    pub(crate) fn refuse(&mut self, replicas: &ReplicaSet, index: usize) {
        replicas.mark_follower(index);
        if index < 64 {
            self.refused |= 1 << index;
        }
    }

    /// The master has answered: every replica gets another chance.
    pub(crate) fn forget(&mut self) {
        self.refused = 0;
    }

    fn has_refused(&self, index: usize) -> bool {
        index >= 64 || self.refused & (1 << index) != 0
    }
}

/// Smaller is nearer: this machine, then the same location, then the rest. Among equals the leader
/// wins, because it does not lag.
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
    fn a_write_tries_leader_then_followers_then_master() {
        let set = ReplicaSet::new(replicas(3, Some(1)));
        let mut picker = ReplicaPicker::of_write();
        assert_eq!(picker.pick(&set, ""), Pick::Replica(1));
        picker.refuse(&set, 1);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(0));
        set.mark_failed(0);
        assert_eq!(picker.pick(&set, ""), Pick::Replica(2));
        // Another Write follows the guess without asking first.
        assert_eq!(ReplicaPicker::of_write().pick(&set, ""), Pick::Replica(2));
        picker.refuse(&set, 2);
        assert_eq!(picker.pick(&set, ""), Pick::AskMaster);
        picker.forget();
        assert_eq!(picker.pick(&set, ""), Pick::Replica(1));
    }

    // Invariant: A read that must see the last write goes to the known leader only.
    /// Regression: a follower answered a read for the leader with its own data, and the reader took
    /// it for the truth.
    #[test]
    fn a_read_goes_to_a_known_leader_only() {
        let set = ReplicaSet::new(replicas(3, Some(1)));
        let leader_of =
            |set: &ReplicaSet| ReplicaPicker::of_read(ReplicaSelection::Leader).pick(set, "");
        assert_eq!(leader_of(&set), Pick::Replica(1));
        set.mark_failed(1);
        assert_eq!(leader_of(&set), Pick::AskMaster);
        let write = ReplicaPicker::of_write();
        assert_eq!(write.pick(&set, ""), Pick::Replica(0));
        assert_eq!(leader_of(&set), Pick::AskMaster, "the Write only tries it");
        write.accept(&set, 0);
        assert_eq!(leader_of(&set), Pick::Replica(0), "it has executed the Write");
        let read = ReplicaPicker::of_read(ReplicaSelection::First);
        read.accept(&set, 2);
        assert_eq!(set.leader(), Some(0), "a read that was answered proves nothing");
    }

    #[test]
    fn without_a_leader_a_write_tries_the_first_replica() {
        let set = ReplicaSet::new(replicas(2, None));
        assert_eq!(ReplicaPicker::of_write().pick(&set, ""), Pick::Replica(0));
        assert_eq!((set.leader(), set.guess()), (None, Some(0)));
        let nobody = ReplicaSet::new(Vec::new());
        assert_eq!(ReplicaPicker::of_write().pick(&nobody, ""), Pick::AskMaster);
    }

    #[test]
    fn scans_prefer_local_then_location_then_leader() {
        let mut list = replicas(4, Some(3));
        list[1].address.host = "127.0.0.1".to_owned();
        list[2].location = "/here".to_owned();
        let set = ReplicaSet::new(list);
        let mut picker = ReplicaPicker::of_read(ReplicaSelection::Closest);
        let mut order = Vec::new();
        while let Pick::Replica(index) = picker.pick(&set, "/here") {
            order.push(index);
            picker.refuse(&set, index);
        }
        assert_eq!(order, [1, 2, 3, 0]);
        assert_eq!(
            ReplicaPicker::of_read(ReplicaSelection::First).pick(&set, "/here"),
            Pick::Replica(0)
        );
    }
}
