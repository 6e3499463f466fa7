//! The record `c/rebalance`, and what a move asks of a vbucket's record.
//!
//! Owns: the codec of the record, and the order of a move's steps. Plain data: what the cluster's
//! records say of it, `rebalance` concludes.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::{CopiesRecord, CopyId};
use oribi_types::Vbid;
use serde::{Deserialize, Serialize};

use crate::records::VbucketPlace;

const VERSION: u32 = 1;
/// Moves that fill a node, or are fed by it, at the same time.
pub(crate) const MOVES_PER_NODE: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceState {
    Running,
    Done,
    /// An operator stopped it.
    Stopped,
}

/// Moves of a node, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveCounts {
    /// Moves that there were to do at most.
    pub total: usize,
    pub left: usize,
}

impl MoveCounts {
    /// The part of the moves that is done, between 0 and 1.
    pub fn progress(self) -> f64 {
        debug_assert!(self.left <= self.total, "what is left was counted");
        if self.total == 0 { 1.0 } else { 1.0 - self.left as f64 / self.total as f64 }
    }
}

/// A vbucket whose copies change; nodes are numbers, as in the roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyMove {
    /// Uuid of the bucket.
    pub(crate) bucket: String,
    pub(crate) vbucket: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) add: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remove: Option<u16>,
    /// The node that has the active copy at the end.
    pub(crate) active: u16,
}

/// Content of `c/rebalance`: the last rebalance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RebalanceRecord {
    version: u32,
    pub(crate) id: String,
    pub(crate) state: RebalanceState,
    /// Names of nodes that get no copies, until another rebalance.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) ejected: BTreeSet<String>,
    /// Moves under way; none unless it is running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) moves: Vec<CopyMove>,
    #[serde(default)]
    pub(crate) counts: MoveCounts,
    /// By name of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) nodes: BTreeMap<String, MoveCounts>,
    /// Why no move begins now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits_for: Option<String>,
}

impl RebalanceRecord {
    pub(crate) fn new(id: String, ejected: BTreeSet<String>) -> RebalanceRecord {
        RebalanceRecord {
            version: VERSION,
            id,
            state: RebalanceState::Running,
            ejected,
            moves: Vec::new(),
            counts: MoveCounts::default(),
            nodes: BTreeMap::new(),
            waits_for: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == RebalanceState::Running
    }

    /// The same after its end. Copies that join are taken in or given up by repair.
    pub(crate) fn ended(&self, state: RebalanceState) -> RebalanceRecord {
        assert!(state != RebalanceState::Running, "it has ended");
        RebalanceRecord { state, moves: Vec::new(), waits_for: None, ..self.clone() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain struct")
    }

    pub(crate) fn decode(text: &[u8]) -> Result<RebalanceRecord, String> {
        let record: RebalanceRecord =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if record.version != VERSION {
            return Err(format!("version {}, this program reads {VERSION}", record.version));
        }
        let is_bad = |it: &&CopyMove| {
            it.remove.is_some_and(|node| [it.add, Some(it.active)].contains(&Some(node)))
        };
        if let Some(bad) = record.moves.iter().find(is_bad) {
            return Err(format!("vbucket {} leaves the node that it moves to", bad.vbucket));
        }
        let counts = record.nodes.values().chain([&record.counts]);
        if counts.into_iter().any(|counts| counts.left > counts.total) {
            return Err("more moves are left than there were".to_owned());
        }
        Ok(record)
    }
}

impl CopyMove {
    pub(crate) fn place(&self) -> VbucketPlace {
        VbucketPlace { uuid: self.bucket.clone(), vbid: Vbid(self.vbucket) }
    }

    fn has_joined(&self, record: &CopiesRecord) -> bool {
        self.add.is_none_or(|node| member_on(record, node).is_some())
    }

    /// True when nothing is left to do.
    pub(crate) fn is_done(&self, record: &CopiesRecord) -> bool {
        let has_left = self.remove.is_none_or(|node| member_on(record, node).is_none());
        !record.is_joint()
            && record.active.node == self.active
            && self.has_joined(record)
            && has_left
    }

    /// The copy that becomes active next: it is a member, and the active copy is another.
    pub(crate) fn heir(&self, record: &CopiesRecord) -> Option<CopyId> {
        let heir = member_on(record, self.active)?;
        let is_next = !record.is_joint() && self.has_joined(record) && heir != record.active;
        is_next.then_some(heir)
    }

    /// The next record on the way, of one that is not joint; `None` while the active role is to be
    /// handed over, and at the end. `copy_on` is the number of a node's new copy.
    pub(crate) fn next_record(
        &self,
        record: &CopiesRecord,
        copy_on: impl Fn(u16) -> u64,
    ) -> Option<CopiesRecord> {
        assert!(!record.is_joint(), "one change of members at a time");
        assert!(self.remove != Some(self.active), "the active copy does not leave");
        let mut set = record.members.clone();
        if !self.has_joined(record) {
            set.extend(self.add.map(|node| CopyId { node, copy: copy_on(node) }));
            return Some(record.joint(set));
        }
        if record.active.node != self.active {
            return None;
        }
        set.retain(|copy| copy.node == self.active || Some(copy.node) != self.remove);
        assert!(set.contains(&record.active), "the active copy remains a member");
        (set != record.members).then(|| record.joint(set))
    }
}

fn member_on(record: &CopiesRecord, node: u16) -> Option<CopyId> {
    record.members.iter().copied().find(|copy| copy.node == node)
}

#[cfg(test)]
mod tests {
    use oribi_replication::copies::CopiesEpoch;
    use proptest::prelude::*;

    use super::*;

    fn copies(nodes: &[u16]) -> Vec<CopyId> {
        nodes.iter().map(|node| CopyId { node: *node, copy: 1 }).collect()
    }

    fn record(members: &[u16]) -> CopiesRecord {
        let members = copies(members);
        CopiesRecord {
            epoch: CopiesEpoch(5),
            active: members[0],
            members,
            joining: Vec::new(),
            configured: 2,
            joining_configured: None,
            handover: None,
        }
    }

    fn copy_move(add: Option<u16>, remove: Option<u16>, active: u16) -> CopyMove {
        CopyMove { bucket: "u".to_owned(), vbucket: 3, add, remove, active }
    }

    /// The nodes of the members after each step, `active` first.
    fn way(moved: &CopyMove, mut record: CopiesRecord) -> Vec<Vec<u16>> {
        let mut way = Vec::new();
        while !moved.is_done(&record) {
            record = match (moved.heir(&record), moved.next_record(&record, |_| 1)) {
                (Some(heir), None) => record.handed_over(heir, oribi_types::Seqno(7)),
                (_, Some(joint)) => joint.settled(),
                (None, None) => panic!("{moved:?} ends at {record:?}"),
            };
            let others = record.members.iter().filter(|copy| **copy != record.active);
            let mut nodes: Vec<u16> = others.map(|copy| copy.node).collect();
            nodes.sort_unstable();
            nodes.insert(0, record.active.node);
            way.push(nodes);
        }
        assert_eq!((moved.heir(&record), moved.next_record(&record, |_| 1)), (None, None));
        way
    }

    #[test]
    fn a_move_never_has_fewer_copies() {
        let active = copy_move(Some(3), Some(1), 3);
        assert_eq!(way(&active, record(&[1, 2])), [vec![1, 2, 3], vec![3, 1, 2], vec![3, 2]]);
        let replica = copy_move(Some(3), Some(2), 1);
        assert_eq!(way(&replica, record(&[1, 2])), [vec![1, 2, 3], vec![1, 3]]);
        let role = copy_move(None, None, 2);
        assert_eq!(way(&role, record(&[1, 2])), [vec![2, 1]]);
        let last = copy_move(None, Some(1), 2);
        assert_eq!(way(&last, record(&[1, 2])), [vec![2, 1], vec![2]]);
        let other = copy_move(Some(3), Some(1), 2);
        assert_eq!(way(&other, record(&[1, 2])), [vec![1, 2, 3], vec![2, 1, 3], vec![2, 3]]);
    }

    #[test]
    fn the_text_of_a_rebalance_is_fixed() {
        let mut record = RebalanceRecord::new("i".to_owned(), ["n".to_owned()].into());
        record.moves.push(copy_move(Some(3), None, 3));
        record.counts = MoveCounts { total: 4, left: 1 };
        let text = r#"{"version":1,"id":"i","state":"running","ejected":["n"],"moves":[{"bucket":"u","vbucket":3,"add":3,"active":3}],"counts":{"total":4,"left":1}}"#;
        assert_eq!(String::from_utf8(record.encode()).unwrap(), text);
        assert_eq!(RebalanceRecord::decode(text.as_bytes()).unwrap(), record);
        assert_eq!(record.counts.progress(), 0.75);
        for (from, to, says) in [
            (r#""version":1"#, r#""version":2"#, "version 2"),
            (r#""add":3"#, r#""add":3,"remove":3"#, "leaves the node"),
            (r#""left":1"#, r#""left":5"#, "more moves"),
        ] {
            let error = RebalanceRecord::decode(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = RebalanceRecord::decode(&text);
        }
    }
}
