//! Rebalance: the copies of buckets are spread evenly over the nodes, or leave a node.
//!
//! Owns: what the records say of moves. A move uses the steps that repair and hand-over have:
//! the new copy joins and becomes a member once it has everything, the active role is handed over,
//! and the old copy is left out. Parts: `plan` (which moves), `leader` (which of them run),
//! `request` (what operators ask); `copies::moves` has the record. Invariants:
//! - the records of copies are the truth: a leader that begins with them and this record continues;
//! - at most [`moves::MOVES_PER_NODE`] moves fill a node or are fed by it;
//! - the old copy stays a member until the new one has everything, so a move survives a failure of
//!   either.
//!
//! Called by the leading node, and by `repair` for each vbucket that moves.

pub(crate) mod leader;
pub(crate) mod plan;
mod request;

pub use request::RebalanceError;

use crate::agent::ClusterView;
#[cfg(doc)]
use crate::copies::moves;
use crate::copies::moves::CopyMove;
use crate::records::{CopiesEntry, VbucketPlace};

impl ClusterView {
    /// True for a node that gets no copies.
    pub(crate) fn is_ejected(&self, name: &str) -> bool {
        self.rebalance.as_ref().is_some_and(|(record, _)| record.ejected.contains(name))
    }

    /// True for a number of such a node.
    pub(crate) fn is_ejected_number(&self, number: u16) -> bool {
        self.roster.name(number).is_some_and(|name| self.is_ejected(name))
    }

    /// Numbers and names of the nodes that may get copies.
    pub(crate) fn receiving(&self) -> impl Iterator<Item = (u16, &str)> {
        self.staying().filter(|(_, name)| !self.is_ejected(name))
    }

    /// The move of a vbucket that is under way.
    pub(crate) fn move_of(&self, place: &VbucketPlace) -> Option<&CopyMove> {
        let (record, _) = self.rebalance.as_ref()?;
        let mut moves = record.moves.iter();
        moves.find(|it| it.vbucket == place.vbid.0 && it.bucket == place.uuid)
    }

    /// The node that a vbucket's active role moves to now, and that has everything up to the
    /// beginning of the epoch.
    pub(crate) fn moves_role_to(&self, place: &VbucketPlace, entry: &CopiesEntry) -> Option<u16> {
        let heir = self.move_of(place)?.heir(&entry.record)?;
        let local = self.local_copy(place, heir)?;
        let is_ready = self.is_live(heir.node)
            && local.report.recorded == entry.record.epoch
            && local.report.is_intact;
        is_ready.then_some(heir.node)
    }
}
